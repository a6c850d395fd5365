//! What callers choose about pictures; goals and effort are [`tenfold::EncodeOptions`]'s.

use tenfold::prepare::Hadamard;

use crate::codec::{Chroma, Quality, Standard};
use crate::hardware::Hardware;
use crate::samples::Scaling;

/// How to make pictures of a tensor. Build with [`VideoOptions::new`] and the `with_*` setters.
///
/// ```
/// use tenfold_video::{Scaling, Standard, VideoOptions};
/// let options = VideoOptions::new(Standard::H265).with_depth(10).with_scaling(Scaling::Columns);
/// assert_eq!(options.depth, Some(10));
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct VideoOptions {
    /// What the pictures are coded as. No default: a caller always states it.
    pub standard: Standard,
    /// Name of the encoder, as [`crate::encoders`] lists them. Default: the first that runs here.
    pub encoder: Option<String>,
    /// Bits of a sample: 8, 10 or 12. Default: 8, or more where 8 cannot reach the goal.
    pub depth: Option<u8>,
    /// What stands in the place of colour. Default: what the encoder prefers, nothing where it can.
    pub chroma: Option<Chroma>,
    /// Decoders in hardware that must take the pictures: constant 4:2:0 chroma, sides that are whole coding units, depths that the
    /// engines have. Any other decoder reads them too. Default: none.
    pub hardware: Option<Hardware>,
    /// Side of the pictures, which are then square: smaller ones come sooner. Default: chosen for the tensor.
    pub side: Option<usize>,
    /// Who shares a centre and a scale. Default: the whole tensor.
    pub scaling: Scaling,
    /// Rotation before values become samples. Default: none.
    pub hadamard: Option<Hadamard>,
    /// Size of a sample step in values, the same for all parts. Default: chosen for each by squared error.
    /// The same step and quantiser for several tensors spread one distortion over all.
    pub sample_step: Option<f64>,
    /// A fixed quantiser, or samples kept exactly, instead of the goal. Default: the goal decides.
    pub quality: Option<Quality>,
}

impl VideoOptions {
    /// Pictures of a standard, everything else at its default.
    pub fn new(standard: Standard) -> Self {
        VideoOptions {
            standard,
            encoder: None,
            depth: None,
            chroma: None,
            hardware: None,
            side: None,
            scaling: Scaling::default(),
            hadamard: None,
            sample_step: None,
            quality: None,
        }
    }

    /// Sets the encoder by name.
    pub fn with_encoder(mut self, name: impl Into<String>) -> Self {
        self.encoder = Some(name.into());
        self
    }

    /// Sets the bits of a sample.
    pub fn with_depth(mut self, depth: u8) -> Self {
        self.depth = Some(depth);
        self
    }

    /// Sets what stands in the place of colour.
    pub fn with_chroma(mut self, chroma: Chroma) -> Self {
        self.chroma = Some(chroma);
        self
    }

    /// Makes pictures that a decoder in hardware takes.
    ///
    /// ```
    /// use tenfold_video::{Hardware, Standard, VideoOptions};
    /// let options = VideoOptions::new(Standard::H265).with_hardware(Hardware::Nvdec);
    /// assert_eq!(options.hardware, Some(Hardware::Nvdec));
    /// ```
    pub fn with_hardware(mut self, hardware: Hardware) -> Self {
        self.hardware = Some(hardware);
        self
    }

    /// Sets the side of pictures, which are then square.
    pub fn with_side(mut self, side: usize) -> Self {
        self.side = Some(side);
        self
    }

    /// Sets who shares a centre and a scale.
    pub fn with_scaling(mut self, scaling: Scaling) -> Self {
        self.scaling = scaling;
        self
    }

    /// Rotates first.
    pub fn with_hadamard(mut self, hadamard: Hadamard) -> Self {
        self.hadamard = Some(hadamard);
        self
    }

    /// Fixes the size of a sample step.
    pub fn with_sample_step(mut self, step: f64) -> Self {
        self.sample_step = Some(step);
        self
    }

    /// Fixes the quantiser, whatever the goal.
    pub fn with_quality(mut self, quality: Quality) -> Self {
        self.quality = Some(quality);
        self
    }
}

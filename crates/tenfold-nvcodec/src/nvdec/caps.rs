//! What the engines decode, by the driver's word.

use std::ffi::c_int;

use tenfold_cuda::Device;
use tenfold_video::codec::Format;
use tenfold_video::{Chroma, Standard};

use crate::cuvid::abi::{self, DecodeCaps};
use crate::cuvid::{Cuvid, check};
use crate::error::{Error, Result};

/// NVIDIA's number of a standard.
pub(crate) fn codec_of(standard: Standard) -> c_int {
    match standard {
        Standard::H264 => abi::CODEC_H264,
        Standard::H265 => abi::CODEC_HEVC,
        Standard::Av1 => abi::CODEC_AV1,
    }
}

/// NVIDIA's number of what stands in the place of colour.
pub(super) fn chroma_of(chroma: Chroma) -> c_int {
    match chroma {
        Chroma::None => abi::CHROMA_MONOCHROME,
        Chroma::Constant => abi::CHROMA_420,
    }
}

/// A kind of pictures: NVIDIA's numbers of the standard and of the chroma layout, and the depth.
pub(crate) type Kind = (c_int, c_int, u8);

/// What engines can do with one kind of pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caps {
    pub engines: u32,
    pub min: (u32, u32),
    pub max: (u32, u32),
    /// Blocks of 16 × 16 samples.
    pub max_blocks: u32,
    /// A bit for each format that decoded pictures may have.
    pub outputs: u32,
}

impl Caps {
    /// Asks the driver; nothing if the engines do not decode such pictures.
    pub(crate) fn ask(api: &Cuvid, device: &Device, (codec, chroma, depth): Kind) -> Result<Option<Caps>> {
        device.make_current()?;
        let depth_minus8 = u32::from(depth.saturating_sub(8));
        let mut caps = DecodeCaps { codec, chroma, depth_minus8, ..DecodeCaps::default() };
        // SAFETY: the structure is NVIDIA's and lives through the call; the context is current.
        check("cuvidGetDecoderCaps", unsafe { (api.caps)(&mut caps) })?;
        Ok((caps.supported != 0).then(|| Caps {
            // Drivers before 11 left the count empty.
            engines: u32::from(caps.engines).max(1),
            min: (caps.min_width.into(), caps.min_height.into()),
            max: (caps.max_width, caps.max_height),
            max_blocks: caps.max_blocks,
            outputs: caps.outputs.into(),
        }))
    }

    /// The same for pictures of a format, by whoever asks the driver; one that the engines do not decode is an error.
    pub(super) fn of_format(
        ask: impl FnOnce(Kind) -> Result<Option<Caps>>,
        standard: Standard,
        format: &Format,
    ) -> Result<Caps> {
        let kind = (codec_of(standard), chroma_of(format.chroma), format.depth);
        let what = || {
            let chroma = if format.chroma == Chroma::None { "4:0:0" } else { "4:2:0" };
            format!("{standard} {chroma} of {} bits", format.depth)
        };
        let caps = ask(kind)?.ok_or_else(|| Error::Unsupported(what()))?;
        let output = if format.depth > 8 { abi::SURFACE_P016 } else { abi::SURFACE_NV12 };
        if caps.outputs >> output & 1 == 0 {
            return Err(Error::Unsupported(format!("{} as samples in lines", what())));
        }
        if !format.width.is_multiple_of(2) {
            return Err(Error::Unsupported(format!(
                "pictures of {} samples a line, an odd number",
                format.width
            )));
        }
        Ok(caps)
    }

    /// Holds the size of pictures, as coded, against the limits.
    pub(super) fn check_size(&self, standard: Standard, width: u32, height: u32) -> Result<()> {
        let blocks = u64::from(width) * u64::from(height) / 256;
        let small = width < self.min.0 || height < self.min.1;
        if small || width > self.max.0 || height > self.max.1 || blocks > u64::from(self.max_blocks) {
            let ((a, b), (c, d)) = (self.min, self.max);
            return Err(Error::Unsupported(format!(
                "{standard} pictures of {width} × {height}; it takes {a} × {b} to {c} × {d} and {} blocks of 16 × 16",
                self.max_blocks
            )));
        }
        Ok(())
    }
}

//! What the header of a blob says.

use super::VERSION;
use crate::blob::{CodecParams, Frame, Start};
use crate::error::Result;
use crate::options::Limits;
use crate::view::{Dtype, rows_of};

/// How the values of a blob are coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Codec {
    /// Lossless byte planes.
    Planes,
    /// Quantised levels.
    Levels,
    /// A sum of layers, each a blob: a tensor and its residuals.
    Layers,
    /// What changed in another tensor, see [`crate::delta`].
    Delta,
    /// Pictures coded as H.264.
    H264,
    /// Pictures coded as H.265.
    H265,
    /// Pictures coded as AV1.
    Av1,
}

impl Codec {
    /// Name for people.
    pub fn name(self) -> &'static str {
        match self {
            Codec::Planes => "lossless",
            Codec::Levels => "lossy",
            Codec::Layers => "layered",
            Codec::Delta => "delta",
            Codec::H264 => "H.264",
            Codec::H265 => "H.265",
            Codec::Av1 => "AV1",
        }
    }

    /// The codec of a stored number, if it is outside this crate.
    pub(crate) fn from_carried_id(id: u8) -> Option<Codec> {
        [Codec::H264, Codec::H265, Codec::Av1].into_iter().find(|c| c.id() == Some(id))
    }

    /// Stored number of a codec outside this crate.
    pub(crate) fn id(self) -> Option<u8> {
        match self {
            Codec::Planes | Codec::Levels | Codec::Layers | Codec::Delta => None,
            Codec::H264 => Some(16),
            Codec::H265 => Some(17),
            Codec::Av1 => Some(18),
        }
    }
}

/// The content of a blob's header.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct BlobInfo {
    /// Format version.
    pub version: u8,
    /// How values are coded.
    pub codec: Codec,
    /// Element type.
    pub dtype: Dtype,
    /// Shape.
    pub shape: Vec<usize>,
    /// Number of values.
    pub values: u64,
    /// Values that the codec sees: fewer if a basis has fewer vectors than the tensor has columns.
    pub coded: u64,
    /// Bytes of the whole blob.
    pub blob_bytes: u64,
    /// Bytes before the first tile.
    pub header_bytes: u64,
    /// Independent tiles; of a layered blob, its layers.
    pub tiles: u64,
    /// Bytes of each layer, each a blob that [`crate::format::tile_starts`] finds; none if the blob is not layered.
    pub layers: Vec<u64>,
    /// Transforms; layers have their own.
    pub transforms: Vec<crate::prepare::Transform>,
    /// Lanes of a tile; 1 for a layered blob.
    pub lanes: u32,
    /// Values of a full tile; of a layered blob, all.
    pub tile_values: u64,
    /// Step of the quantiser (lossy only).
    pub step: Option<f64>,
    /// States of the trellis; 1 for a scalar quantiser (lossy only).
    pub states: Option<u32>,
    /// Classes of statistics (lossy only).
    pub classes: Option<u32>,
    /// Raw low bits of a level, at most (lossy only).
    pub low_bits: Option<u32>,
    /// Whether levels are coded in pairs (lossy only).
    pub paired: Option<bool>,
}

/// What a blob's header says of its tensor: a quick look, for whoever sorts many small blobs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BlobShape {
    /// Dtype of the elements.
    pub dtype: Dtype,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Transforms, in the order in which the encoder applied them.
    pub transforms: Vec<crate::prepare::Transform>,
}

impl BlobShape {
    /// Reads the start of a header, whose checksum must be right. What comes after is left to the decoder.
    ///
    /// ```
    /// # use tenfold::{Dtype, EncodeOptions, Goal, TensorView, engine::Limits, format::BlobShape};
    /// let rows = vec![0u8; 2 * 6];
    /// let view = TensorView::new(Dtype::Bf16, &[2, 3], &rows)?;
    /// let blob = tenfold::encode(&view, &EncodeOptions::new(Goal::Lossless))?;
    /// assert_eq!(BlobShape::read(&blob, &Limits::default())?.shape, [2, 3]);
    /// # Ok::<(), tenfold::Error>(())
    /// ```
    pub fn read(blob: &[u8], limits: &Limits) -> Result<BlobShape> {
        let Start { dtype, shape, transforms, .. } = Start::parse(blob, limits, |_| Ok(()))?;
        Ok(BlobShape { dtype, shape, transforms })
    }
}

impl BlobInfo {
    /// Reads the header of a blob whose tensor is within limits; the tiles may be missing.
    pub fn read(blob: &[u8], limits: &Limits) -> Result<BlobInfo> {
        Ok(BlobInfo::from_frame(&Frame::parse(blob, limits)?))
    }

    /// The same for a blob that must have one of this crate's own codecs; decoders start with it.
    pub fn read_native(blob: &[u8], limits: &Limits) -> Result<BlobInfo> {
        Ok(BlobInfo::from_frame(&Frame::parse_native(blob, limits)?))
    }

    pub(crate) fn from_frame(frame: &Frame) -> BlobInfo {
        let geometry = frame.head.params.geometry();
        let lossy = match &frame.head.params {
            CodecParams::Levels(p) => Some(p),
            CodecParams::Planes(_)
            | CodecParams::Layers(_)
            | CodecParams::Delta(_)
            | CodecParams::Carried(_) => None,
        };
        let layers = match frame.codec() {
            Codec::Layers => frame.tile_lens().collect(),
            _ => Vec::new(),
        };
        BlobInfo {
            version: VERSION,
            codec: frame.codec(),
            dtype: frame.head.dtype,
            shape: frame.head.shape.clone(),
            values: frame.values as u64,
            coded: frame.coded as u64,
            blob_bytes: frame.blob_len() as u64,
            header_bytes: frame.header_len as u64,
            tiles: frame.tiles() as u64,
            layers,
            transforms: frame.head.transforms.clone(),
            lanes: geometry.lanes as u32,
            tile_values: geometry.tile_values() as u64,
            step: lossy.map(|p| p.scale * crate::levels::UNITS as f64),
            states: lossy.map(|p| p.machine.states()),
            classes: lossy.map(|p| p.class_count() as u32),
            low_bits: lossy.map(|p| p.low.most()),
            paired: lossy.map(|p| p.paired),
        }
    }

    /// Rows of the two-dimensional view: the product of all dimensions but the last.
    pub fn rows(&self) -> u64 {
        rows_of(&self.shape) as u64
    }

    /// Samples of pictures that hold no value, over those that do; nothing for other codecs, or without values.
    pub fn padding(&self) -> Option<f64> {
        let samples = self.tiles as f64 * self.tile_values as f64;
        (self.codec.id().is_some() && self.coded > 0).then(|| samples / self.coded as f64 - 1.0)
    }

    /// Whether its values are coded column by column: behind the transform "transposed".
    pub fn is_transposed(&self) -> bool {
        self.transforms.contains(&crate::prepare::Transform::Transposed)
    }

    /// Bits a value, every byte counted; 0 for an empty tensor.
    pub fn bits_per_value(&self) -> f64 {
        if self.values == 0 { 0.0 } else { self.blob_bytes as f64 * 8.0 / self.values as f64 }
    }

    /// Bytes of the tensor over bytes of the blob.
    pub fn ratio(&self) -> f64 {
        self.values as f64 * self.dtype.size() as f64 / self.blob_bytes as f64
    }
}

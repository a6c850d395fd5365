//! The self-describing byte string of one tensor: header, tile directory, tiles.

pub(crate) mod bytes;
mod header;
mod layers;
mod parts;
mod tile;

pub use header::{CODEC_DELTA, CODEC_LAYERS, CODEC_LEVELS, CODEC_PAIRS, CODEC_PLANES, FIXED, MAGIC};
pub(crate) use header::{CodecParams, Frame, Head, Start, assemble, header_len, write};
pub(crate) use layers::LayersParams;
pub use layers::MAX_LAYERS;
pub use parts::Parts;
pub(crate) use parts::Sealed;
pub(crate) use tile::TileRange;
pub use tile::{Geometry, MAX_TILE};

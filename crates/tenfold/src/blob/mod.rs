//! The self-describing byte string of one tensor: header, tile directory, tiles.

pub(crate) mod bytes;
mod header;
mod tile;

pub use header::{CODEC_LEVELS, CODEC_PLANES, FIXED, MAGIC};
pub(crate) use header::{Frame, Head, Params, Sealed, assemble};
pub(crate) use tile::TileRange;
pub use tile::{Geometry, MAX_TILE};

//! The self-describing byte string of one tensor: header, tile directory, tiles.

pub(crate) mod bytes;
mod header;
mod tile;

pub(crate) use header::{Frame, Head, Params, Sealed, assemble};
pub(crate) use tile::{Geometry, TileRange};

//! The lossy codec: levels of a scalar or trellis quantiser, entropy-coded in tiles.
//!
//! Decoding: `decode` turns a tile's bytes into multiples of the step, `dequant` those into elements,
//! `exact` restores the values that are stored exactly. Encoding: `quantise` finds the levels of a tile,
//! `pack` writes them.

mod check;
mod decode;
mod dequant;
mod exact;
mod low;
mod pack;
mod pairs;
mod params;
mod quantise;
mod symbols;

pub use decode::{CODED, ESCAPES_SHIFT, EXACT};
pub(crate) use decode::{Scratch, decode_tile};
pub(crate) use dequant::Dequant;
pub(crate) use exact::Exact;
pub(crate) use low::LowBits;
pub(crate) use pack::{TileTable, pack_tile};
pub(crate) use params::LevelsParams;
pub use params::{OFFSETS, UNITS};
pub(crate) use quantise::{Plan, Quantised, Rounding, TileWork, quantise_tile, tile_of_levels};

//! Integers to bits: symbol tables, classes of statistics, and interleaved rANS lanes.
//!
//! A tile's symbols go to `lanes` coders in turn; each tick codes one symbol a lane, and the lanes share one stream of
//! 16-bit words. Normative: docs/format.md, 'Entropy coding'.

pub(crate) mod bits;
pub(crate) mod class;
pub(crate) mod count;
pub(crate) mod fit;
pub(crate) mod pairs;
pub(crate) mod rans;
pub(crate) mod table;
pub(crate) mod table_code;

pub(crate) use class::MAX_SCALE_BITS;

/// Most lanes of a tile: one a thread of a GPU warp.
pub const MAX_LANES: usize = 32;
/// Symbol that stands for a level outside the table; as a level it would be −128.
pub const ESCAPE: u8 = 0x80;
/// Most classes of statistics.
pub const MAX_CLASSES: usize = 16;
/// Largest magnitude of a level.
pub const MAX_LEVEL: i32 = (1 << 23) - 1;
/// Most raw low bits of a level.
pub const MAX_LOW_BITS: u32 = 16;

//! Numbers of the bitstream, for engines that read and write it with code of their own.
//!
//! Normative: docs/format.md. The CUDA kernels take theirs from here.

pub use crate::blob::{CODEC_LEVELS, CODEC_PLANES, FIXED, MAGIC, MAX_TILE};
pub use crate::entropy::class::MAX_SCALE_BITS;
pub use crate::entropy::rans::START;
pub use crate::entropy::table::LOG_RANGE;
pub use crate::entropy::{ESCAPE, MAX_CLASSES, MAX_LANES, MAX_LEVEL, MAX_LOW_BITS};
pub use crate::levels::{CODED, ESCAPES_SHIFT, EXACT, OFFSETS, UNITS};
pub use crate::lossless::{LOG as PLANE_LOG, PLANE_CODED, PLANE_CONSTANT, PLANE_STORED};
pub use crate::quant::machine::CODES as TRELLIS_CODES;

//! Numbers of the bitstream, for engines that read and write it with code of their own.
//!
//! Normative: docs/format.md. The CUDA kernels take theirs from here.

use crate::blob::Frame;
use crate::error::Result;
use crate::options::Limits;

pub use crate::blob::{CODEC_LEVELS, CODEC_PLANES, FIXED, Geometry, MAGIC, MAX_TILE};
pub use crate::entropy::class::{KNOWN_SCALES as SCALES_OF_BASIS, MAX_SCALE_BITS};
pub use crate::entropy::rans::START;
pub use crate::entropy::table::LOG_RANGE;
pub use crate::entropy::{ESCAPE, MAX_CLASSES, MAX_LANES, MAX_LEVEL, MAX_LOW_BITS};
pub use crate::levels::{CODED, ESCAPES_SHIFT, EXACT, OFFSETS, UNITS};
pub use crate::lossless::{LOG as PLANE_LOG, PLANE_CODED, PLANE_CONSTANT, PLANE_STORED};
pub use crate::prepare::list::{
    BASIS as STEP_BASIS, KEPT as STEP_KEPT, ROPE as STEP_ROPE, WEIGHTS as STEP_WEIGHTS,
};
pub use crate::quant::machine::CODES as TRELLIS_CODES;

/// Whether this crate undoes preparation steps of a number.
pub fn knows_step(id: u8) -> bool {
    crate::prepare::knows(id)
}

/// Where each tile of a blob starts, in bytes from the blob's start, and at the end the length of the blob. Reads the
/// header alone; for engines that move a blob piece by piece.
///
/// ```
/// use tenfold::{EncodeOptions, Goal, Limits, TensorView};
/// let values = vec![0.5f32; 100_000];
/// let view = TensorView::from_slice(&values, &[100_000])?;
/// let blob = tenfold::encode(&view, &EncodeOptions::new(Goal::Lossless))?;
/// let starts = tenfold::format::tile_starts(&blob, &Limits::default())?;
/// assert_eq!(starts.len() as u64, tenfold::inspect(&blob)?.tiles + 1);
/// assert_eq!(*starts.last().unwrap(), blob.len());
/// # Ok::<(), tenfold::Error>(())
/// ```
pub fn tile_starts(blob: &[u8], limits: &Limits) -> Result<Vec<usize>> {
    Ok(Frame::parse_native(blob, limits)?.into_starts())
}

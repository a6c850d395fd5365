//! Numbers of the bitstream, for engines that read and write it with code of their own.
//!
//! Normative: docs/format.md. The CUDA kernels take theirs from here.

use std::sync::Arc;

use crate::blob::Frame;
use crate::error::Result;
use crate::options::{Goal, Limits};
use crate::prepare::{Basis, Step};
use crate::view::TensorView;
use crate::workers::Workers;

pub use crate::blob::{CODEC_LAYERS, CODEC_LEVELS, CODEC_PLANES, FIXED, Geometry, MAGIC, MAX_TILE};
pub use crate::entropy::class::{KNOWN_SCALES as SCALES_OF_BASIS, MAX_SCALE_BITS};
pub use crate::entropy::rans::START;
pub use crate::entropy::table::LOG_RANGE;
pub use crate::entropy::{ESCAPE, MAX_CLASSES, MAX_LANES, MAX_LEVEL, MAX_LOW_BITS};
pub use crate::layers::MAX_LAYERS;
pub use crate::levels::{CODED, ESCAPES_SHIFT, EXACT, OFFSETS, UNITS};
pub use crate::lossless::{LOG as PLANE_LOG, PLANE_CODED, PLANE_CONSTANT, PLANE_STORED};
pub use crate::prepare::MOST_POSITION as MAX_POSITION;
pub use crate::prepare::list::{
    BASIS as STEP_BASIS, KEPT as STEP_KEPT, ROPE as STEP_ROPE, WEIGHTS as STEP_WEIGHTS,
};
pub use crate::quant::machine::CODES as TRELLIS_CODES;
pub use crate::rate::goal_behind;

/// Steps as a header has them, their number first.
pub fn steps(steps: &[Step]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    crate::prepare::write(steps, &mut out)?;
    Ok(out)
}

/// Checks that steps are such as stand before the levels of a tensor of so many rows and columns.
pub fn check_steps(steps: &[Step], rows: usize, cols: usize) -> Result<()> {
    crate::prepare::fit(steps, rows, cols)
}

/// Checks that steps can be done to such a tensor.
pub fn check_encode_steps(steps: &[Step], rows: usize, cols: usize) -> Result<()> {
    crate::prepare::check(steps, rows, cols)
}

/// The steps of a blob whose tensor has so many columns, with the bases that they name.
pub fn resolve_steps(mut steps: Vec<Step>, bases: &[Arc<Basis>], cols: usize) -> Result<Vec<Step>> {
    crate::prepare::resolve(&mut steps, bases, cols)?;
    Ok(steps)
}

/// Variance of the finite values of a tensor about their mean.
pub fn variance(view: &TensorView<'_>) -> Result<f64> {
    crate::rate::variance(view, &Workers::here())
}

/// A goal that says all by itself: [`Goal::RoundToNearest`] as the error that it allows for this tensor, others as they are.
pub fn plain_goal(view: &TensorView<'_>, goal: Goal) -> Result<Goal> {
    crate::rate::plain_goal(view, goal, &Workers::here())
}

/// Whether this crate undoes preparation steps of a number.
pub fn knows_step(id: u8) -> bool {
    crate::prepare::knows(id)
}

/// Where each tile of a blob starts, in bytes from the blob's start, and at the end the length of the blob. Reads the
/// header alone; for engines that move a blob piece by piece. Of a layered blob these are its layers, each a blob.
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

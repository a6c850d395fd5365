//! Rounding to the nearest of equally spaced numbers, expressed as a bound on the error.

use crate::error::Result;
use crate::options::Goal;
use crate::prepare::Elements;
use crate::simd::Isa;
use crate::view::{Dtype, TensorView};
use crate::workers::Workers;

/// Values looked at together.
const BLOCK: usize = 1 << 16;

/// A goal that does not depend on the tensor: rounding becomes a bound in numbers, others stay unchanged.
pub(crate) fn plain_goal(view: &TensorView<'_>, goal: Goal, workers: &Workers) -> Result<Goal> {
    let Goal::RoundToNearest { bits } = goal else { return Ok(goal) };
    let largest = match view.dtype() {
        dtype if !dtype.is_float() => return Ok(goal),
        Dtype::F64 => largest::<f64>(view, workers)?,
        _ => largest::<f32>(view, workers)?,
    };
    Ok(within(bits, largest))
}

/// Rounding at some bits to a range up to this magnitude, as the error that it allows.
pub(crate) fn within(bits: u8, largest: f64) -> Goal {
    // 2^bits − 1 points have 2^bits − 2 spaces between them; half of one is the most that rounding is off.
    let bound = largest / ((1u32 << bits) - 2) as f64;
    // Zeros, and what is not finite, come back as they are.
    if bound > 0.0 { Goal::MaxError(bound) } else { Goal::Lossless }
}

/// Largest finite magnitude; 0 if there is none.
fn largest<R: Elements>(view: &TensorView<'_>, workers: &Workers) -> Result<f64> {
    let isa = Isa::detect();
    let size = view.dtype().size();
    let of_block = |values: &mut Vec<R>, i: usize| {
        let data = &view.data()[i * BLOCK * size..view.data().len().min((i + 1) * BLOCK * size)];
        values.resize(data.len() / size, R::from_f64(0.0));
        R::load(isa, view.dtype(), data, values);
        let sizes = values.iter().map(|v| v.wide().abs()).filter(|v| v.is_finite());
        sizes.fold(0.0, f64::max)
    };
    let blocks = workers.map(view.len().div_ceil(BLOCK), Vec::new, of_block)?;
    Ok(blocks.into_iter().fold(0.0, f64::max))
}

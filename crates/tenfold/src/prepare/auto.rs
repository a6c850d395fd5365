//! Which chain takes the fewest bits for a tensor, found on a sample of it.

use super::tensor::{Prepared, check};
use super::{Dct, Delta, Hadamard, Means, Transform};
use crate::error::Result;
use crate::options::{Effort, EncodeOptions, Goal};
use crate::rate::{self, Label};
use crate::view::TensorView;
use crate::workers::Workers;

/// The chain of those given that takes the fewest bits at the same error, its own bytes counted; the first of equals.
///
/// All are tried on a sample of values, at about the step that the first reaches the goal with. Where there is nothing to
/// quantise, the answer is the first.
pub fn choose(
    view: &TensorView<'_>,
    options: &EncodeOptions,
    chains: &[Vec<Transform>],
) -> Result<Vec<Transform>> {
    options.validate()?;
    chains.iter().try_for_each(|chain| check(chain, view.rows(), view.cols()))?;
    let workers = Workers::new(options.threads, &options.stop)?;
    let first = chains.first().cloned().unwrap_or_default();
    if !view.dtype().is_float() || view.is_empty() {
        return Ok(first);
    }
    let step = step_for(view, options.goal, &first, &workers)?;
    let Some(step) = step.filter(|s| s.is_normal()) else { return Ok(first) };
    let mut best = (f64::INFINITY, first);
    for chain in chains {
        let bits = bits(view, step, chain, &workers)?;
        if bits < best.0 {
            best = (bits, chain.clone());
        }
    }
    Ok(best.1)
}

/// The chain for a tensor that nothing is known of: none, means of columns, a rotation of either kind, differences of rows, or
/// means before one of these.
///
/// ```
/// use tenfold::prepare::{Transform, auto};
/// use tenfold::{EncodeOptions, Goal, TensorView};
/// // A mean for each column, much larger than what else is there.
/// let values: Vec<f32> = (0..8192).map(|i| (i % 64 * 37 % 64) as f32 + ((i * i) as f32 * 0.7).sin()).collect();
/// let view = TensorView::from_slice(&values, &[128, 64])?;
/// let options = EncodeOptions::new(Goal::Nmse(1e-3));
/// let transforms = auto(&view, &options)?;
/// assert!(matches!(transforms[..], [Transform::Means(_), ..]));
/// let blob = tenfold::encode(&view, &options.clone().with_transforms(transforms))?;
/// assert!(blob.len() * 3 < tenfold::encode(&view, &options)?.len() * 2);
/// # Ok::<(), tenfold::Error>(())
/// ```
pub fn auto(view: &TensorView<'_>, options: &EncodeOptions) -> Result<Vec<Transform>> {
    // A bound on every error leaves no room for transforms.
    let Some(values) = view.to_f64().filter(|v| !v.is_empty() && !matches!(options.goal, Goal::MaxError(_)))
    else {
        return Ok(Vec::new());
    };
    let means = Transform::Means(Means::of(&values, view.cols()));
    let rest: [Vec<Transform>; 6] = [
        vec![],
        vec![Transform::Hadamard(Hadamard::new(7, 1)?)],
        vec![Transform::Dct(Dct::new(3)?)],
        vec![Transform::Dct(Dct::new(5)?)],
        vec![Transform::Delta(Delta::new(2)?)],
        vec![Transform::Delta(Delta::new(8)?)],
    ];
    let with = |chain: &Vec<Transform>| [&[means.clone()][..], chain].concat();
    let chains: Vec<Vec<Transform>> = rest.iter().cloned().chain(rest.iter().map(with)).collect();
    choose(view, options, &chains)
}

/// Bits of a whole tensor at a step, behind a chain; infinite where the chain throws values out of range.
fn bits(view: &TensorView<'_>, step: f64, chain: &[Transform], workers: &Workers) -> Result<f64> {
    let prepared = Prepared::new(view, chain, workers)?;
    if !prepared.finite {
        return Ok(f64::INFINITY);
    }
    let label = Label::new(view, &prepared.transforms)?;
    // Errors of differences add up, so they are to be smaller.
    let step = step / rate::growth(chain, view.rows()).sqrt();
    let prepared = prepared.view()?;
    Ok(rate::estimate(&prepared, &label, step, Effort::Fast)? * prepared.len() as f64)
}

/// About the step that reaches a goal with a chain; none if there is nothing to choose.
fn step_for(
    view: &TensorView<'_>,
    goal: Goal,
    chain: &[Transform],
    workers: &Workers,
) -> Result<Option<f64>> {
    let n = view.len() as f64;
    let deviation = rate::variance(view, workers)?.sqrt();
    let wanted = match goal {
        Goal::Bits(b) => b * n,
        Goal::Ratio(r) => view.data().len() as f64 * 8.0 / r,
        Goal::MaxBytes(cap) => cap as f64 * 8.0,
        Goal::Mse(v) => return Ok(Some((3.0 * v).sqrt())),
        Goal::Nmse(v) => return Ok(Some((3.0 * v).sqrt() * deviation)),
        Goal::Step(v) => return Ok(Some(v)),
        Goal::MaxError(_) | Goal::RoundToNearest { .. } | Goal::Lossless => return Ok(None),
    };
    let (mut fine, mut coarse) = (deviation / 65536.0, deviation * 64.0);
    for _ in 0..10 {
        let middle = (fine * coarse).sqrt();
        if bits(view, middle, chain, workers)? > wanted { fine = middle } else { coarse = middle }
    }
    Ok(Some((fine * coarse).sqrt()))
}

//! Which chain takes the fewest bits for a tensor.
//!
//! [`choose`] compares chains that a caller states, [`auto`] makes its own: it tries them on a patch of the tensor, and only those
//! that what is quickly seen there speaks for. A whole tensor is looked at only for a chain that is taken.

use super::means::Sums;
use super::patch::{Patch, Ties, rows_of_patch};
use super::runs::{Gather, Runs, gather_from};
use super::tensor::{Prepared, check};
use super::trial::Trial;
use super::{Dct, Delta, Elements, Hadamard, Means, Transform};
use crate::error::Result;
use crate::options::{Effort, EncodeOptions, Goal};
use crate::rate::{self, Label};
use crate::simd::Isa;
use crate::view::{Dtype, TensorView, spacing};
use crate::workers::Workers;

/// Bits a value that a chain must save for [`auto`] to take it, or to prefer it to a shorter one.
pub const LEAST_GAIN: f64 = 0.01;

/// Values of a tensor below which no chain is tried.
const FEW: usize = 4096;
/// From where on rotations and differences are tried: how much of a column's square its neighbour tells, and the correlation of
/// neighbouring rows. Errors of differences add up, so that even pairs of rows gain nothing below 0.78.
const TIED_COLUMNS: f64 = 0.1;
const TIED_ROWS: f64 = 0.75;
/// What differences must gain: at coarse steps their errors are alike, and add up to more than is reckoned here. Goals that are errors
/// leave them out for that.
const DELTA_GAIN: f64 = 0.5;
/// Parts of a tensor that are summed up on their own, whatever the threads.
const PARTS: usize = 32;
/// Bits that a kept element takes, at most.
const KEPT_BITS: f64 = 160.0;

/// The chain of those given that takes the fewest bits at the same error, its own bytes counted; the first of equals.
///
/// All are tried on a sample of values, at about the step that reaches the goal without any. Where there is nothing to quantise,
/// the answer is the first.
pub fn choose(
    view: &TensorView<'_>,
    options: &EncodeOptions,
    chains: &[Vec<Transform>],
) -> Result<Vec<Transform>> {
    options.validate()?;
    chains.iter().try_for_each(|chain| check(chain, view.rows(), view.cols()))?;
    let first = chains.first().cloned().unwrap_or_default();
    if !view.dtype().is_float() || view.is_empty() {
        return Ok(first);
    }
    let workers = Workers::new(options.threads, &options.stop)?;
    let whole = (view.rows(), view.cols());
    let patch = Patch::new(view.dtype(), whole, &gather_from(view))?;
    let Some(step) = step_for(view.dtype(), whole, &patch, options.goal) else {
        return Ok(first);
    };
    let mut best = (f64::INFINITY, first);
    for chain in chains {
        let bits = bits(view, step, chain, &workers)?;
        if bits < best.0 {
            best = (bits, chain.clone());
        }
    }
    Ok(best.1)
}

/// The chain for a tensor that nothing is known of: none, or one that saves more than [`LEAST_GAIN`] bits a value at the same
/// error. That may be means of columns, and behind them or alone a rotation of either kind or differences of rows.
///
/// ```
/// use tenfold::prepare::{Preparation, Transform, auto};
/// use tenfold::{EncodeOptions, Goal, TensorView};
/// // A mean for each column, much larger than what else is there.
/// let values: Vec<f32> = (0..8192).map(|i| (i % 64 * 37 % 64) as f32 + ((i * i) as f32 * 0.7).sin()).collect();
/// let view = TensorView::from_slice(&values, &[128, 64])?;
/// let options = EncodeOptions::new(Goal::Nmse(1e-3));
/// assert!(matches!(auto(&view, &options)?[..], [Transform::Means(_), ..]));
/// // It is what happens unless told otherwise.
/// let plain = options.clone().with_prepare(Preparation::None);
/// assert!(tenfold::encode(&view, &options)?.len() * 3 < tenfold::encode(&view, &plain)?.len() * 2);
/// # Ok::<(), tenfold::Error>(())
/// ```
pub fn auto(view: &TensorView<'_>, options: &EncodeOptions) -> Result<Vec<Transform>> {
    let whole = (view.rows(), view.cols());
    find(view.dtype(), whole, options, &gather_from(view), || sums_of_view(view, options))
}

/// The same for a tensor of so many rows and columns whose elements `gather` brings; the means are those of the rows that the patch
/// is part of.
pub(super) fn auto_remote(
    dtype: Dtype,
    whole: (usize, usize),
    options: &EncodeOptions,
    gather: &Gather<'_>,
) -> Result<Vec<Transform>> {
    find(dtype, whole, options, gather, || {
        let rows = rows_of_patch(whole.0, whole.1);
        let data = gather(rows, Runs::all(whole.1))?;
        sums_of_view(&TensorView::new(dtype, &[rows.count(), whole.1], &data)?, options)
    })
}

/// Finds the chain on a patch, which `gather` brings, and asks for sums over the columns if there is one.
fn find(
    dtype: Dtype,
    whole: (usize, usize),
    options: &EncodeOptions,
    gather: &Gather<'_>,
    sums: impl FnOnce() -> Result<Sums>,
) -> Result<Vec<Transform>> {
    let rows = whole.0;
    let nothing = Ok(Vec::new());
    if !dtype.is_float() || whole.0 * whole.1 < FEW {
        return nothing;
    }
    // 1. What is quickly seen.
    let patch = Patch::new(dtype, whole, gather)?;
    let ties = patch.ties();
    // A mean takes 16 bits. Where sizes differ a lot, means have been seen to save up to twice of what a fine quantiser would gain.
    let try_means = 2.0 * ties.means > 16.0 / rows as f64 + LEAST_GAIN;
    if !patch.finite || (!try_means && neighbours(&ties, 0)?.is_empty()) {
        return nothing;
    }

    // 2. The step, and what no transform at all takes there.
    let Some(step) = step_for(dtype, whole, &patch, options.goal) else { return nothing };
    if is_finer_than_dtype(dtype, &patch, options.goal, step) {
        return nothing;
    }
    let in_units = step / patch.unit;
    let none = Trial::new(&patch.values, patch.cols, whole, in_units).cost();
    let mut best = (none, Vec::new());
    // A chain's own bytes must leave room for values.
    let most = wanted_bits(dtype, whole, options.goal).map_or(f64::INFINITY, |bits| bits / 4.0);
    let mut attempt = |chain: Vec<Transform>, least_gain: f64| -> Result<bool> {
        // Errors of differences add up, so they are to be smaller.
        let step = in_units / rate::growth(&chain, whole.0).sqrt();
        let trial = Trial::new(&patch.behind(&chain), patch.cols, whole, step);
        let own = own_bits(&chain, rows, &patch)?;
        let cost = trial.cost() + own;
        let better = own < most && cost < best.0 - least_gain;
        if better {
            best = (cost, chain);
        }
        Ok(better)
    };

    // 3. Means; behind them, or without, what makes use of neighbours.
    let mut base = Vec::new();
    if try_means {
        let means = vec![Transform::Means(Means::measure(&patch.values, patch.cols))];
        base = if attempt(means.clone(), LEAST_GAIN)? { means } else { base };
    }
    for transform in neighbours(&ties, base.len())? {
        let least_gain = match transform {
            Transform::Delta(_) if is_error(options.goal) => continue,
            Transform::Delta(_) => DELTA_GAIN,
            _ => LEAST_GAIN,
        };
        attempt([&base[..], &[transform]].concat(), least_gain)?;
    }

    // 4. The same for the whole tensor.
    match best {
        (_, chain) if chain.is_empty() => nothing,
        (cost, chain) => for_all(&sums()?, chain, none - cost),
    }
}

/// Transforms that what neighbours tell of each other speaks for: as they are (0), or behind means of columns (1).
fn neighbours(ties: &Ties, behind: usize) -> Result<Vec<Transform>> {
    let mut out = Vec::new();
    if ties.columns[behind] > TIED_COLUMNS {
        out.push(Transform::Dct(Dct::new(3)?));
        out.push(Transform::Dct(Dct::new(5)?));
        out.push(Transform::Hadamard(Hadamard::new(7, 1)?));
    }
    if ties.rows[behind] > TIED_ROWS {
        out.push(Transform::Delta(Delta::new(2)?));
        out.push(Transform::Delta(Delta::new(8)?));
    }
    Ok(out)
}

/// A chain that gains so many bits on a patch, with means of the whole tensor; none where what the patch does not show speaks
/// against it.
fn for_all(sums: &Sums, mut chain: Vec<Transform>, gain: f64) -> Result<Vec<Transform>> {
    let kept = (sums.values() - sums.finite()) * KEPT_BITS / sums.values();
    // Sums of values as large as that may leave the range of working numbers.
    if kept + LEAST_GAIN > gain || sums.largest > f64::from(f32::MAX) / 256.0 {
        return Ok(Vec::new());
    }
    for transform in &mut chain {
        if let Transform::Means(means) = transform {
            *means = sums.means();
        }
    }
    Ok(chain)
}

/// Sums over the columns of a tensor.
fn sums_of_view(view: &TensorView<'_>, options: &EncodeOptions) -> Result<Sums> {
    let workers = Workers::new(options.threads, &options.stop)?;
    match view.dtype() {
        Dtype::F64 => sums_of::<f64>(view, &workers),
        _ => sums_of::<f32>(view, &workers),
    }
}

fn sums_of<R: Elements>(view: &TensorView<'_>, workers: &Workers) -> Result<Sums> {
    let isa = Isa::detect();
    let (rows, cols, size) = (view.rows(), view.cols(), view.dtype().size());
    let part = rows.div_ceil(PARTS);
    let parts = workers.map(rows.div_ceil(part), Vec::new, |values: &mut Vec<R>, i| {
        let mut sums = Sums::new(cols);
        values.resize(cols, R::from_f64(0.0));
        for row in i * part..rows.min((i + 1) * part) {
            R::load(isa, view.dtype(), &view.data()[row * cols * size..][..cols * size], values);
            sums.add(values);
        }
        sums
    })?;
    let mut all = Sums::new(cols);
    parts.iter().for_each(|sums| all.join(sums));
    Ok(all)
}

/// Bits a value of a chain's own bytes; its means are those of a patch, and the tensor has more columns.
fn own_bits(chain: &[Transform], rows: usize, patch: &Patch) -> Result<f64> {
    let mut bytes = Vec::new();
    super::write(chain, &mut bytes)?;
    Ok(bytes.len() as f64 * 8.0 / (rows * patch.cols) as f64)
}

/// Whether a goal asks for errors so small that rounding to the dtype behind transforms, an error of its own, matters.
fn is_finer_than_dtype(dtype: Dtype, patch: &Patch, goal: Goal, step: f64) -> bool {
    let rounding = |v: &f32| spacing(dtype, f64::from(*v) * patch.unit).powi(2) / 12.0;
    let error = || patch.values.iter().map(rounding).sum::<f64>() / patch.values.len() as f64;
    is_error(goal) && error() * 4.0 > step * step / 3.0
}

fn is_error(goal: Goal) -> bool {
    matches!(goal, Goal::Mse(_) | Goal::Nmse(_))
}

/// Bits a value that a goal leaves, if it is a size.
fn wanted_bits(dtype: Dtype, whole: (usize, usize), goal: Goal) -> Option<f64> {
    match goal {
        Goal::Bits(b) => Some(b),
        Goal::Ratio(r) => Some(dtype.size() as f64 * 8.0 / r),
        Goal::MaxBytes(cap) => Some(cap as f64 * 8.0 / (whole.0 * whole.1) as f64),
        _ => None,
    }
}

/// About the step that reaches a goal; none if there is nothing to choose.
fn step_for(dtype: Dtype, whole: (usize, usize), patch: &Patch, goal: Goal) -> Option<f64> {
    let n = patch.values.len() as f64;
    let moment = |power| patch.values.iter().map(|v| f64::from(*v).powi(power)).sum::<f64>() / n;
    let step = match (goal, wanted_bits(dtype, whole, goal)) {
        (_, Some(wanted)) => {
            // A Gaussian's to start with, then about a bit an octave.
            let mut step = moment(2).sqrt() * (1.05 - wanted.min(24.0)).exp2();
            let some = patch.thin();
            for _ in 0..4 {
                let trial = Trial::new(&some, patch.cols, whole, step);
                step *= (trial.bits - wanted).clamp(-4.0, 4.0).exp2();
            }
            step * patch.unit
        }
        (Goal::Mse(v), _) => (3.0 * v).sqrt(),
        (Goal::Nmse(v), _) => (3.0 * v * (moment(2) - moment(1).powi(2))).sqrt() * patch.unit,
        (Goal::Step(v), _) => v,
        _ => return None,
    };
    step.is_normal().then_some(step)
}

/// Bits a value of a whole tensor at a step, behind a chain; infinite where the chain throws values out of range.
fn bits(view: &TensorView<'_>, step: f64, chain: &[Transform], workers: &Workers) -> Result<f64> {
    let prepared = Prepared::new(view, chain, workers)?;
    if !prepared.finite {
        return Ok(f64::INFINITY);
    }
    let label = Label::new(view, &prepared.transforms)?;
    // Errors of differences add up, so they are to be smaller.
    let step = step / rate::growth(chain, view.rows()).sqrt();
    let worked = prepared.view()?;
    Ok(rate::estimate(&worked, &label, step, Effort::Fast)? * worked.len() as f64)
}

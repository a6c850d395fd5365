//! The gain of a basis on rows that it was not made from.
//!
//! All figures are bits a value that a coder saves compared with one that codes the rows directly, as numbers of one
//! common variance. Both are ideal coders of Gaussian numbers, so only the preparation differs.

use rayon::prelude::*;
use serde::Serialize;

use super::components::Components;
use super::metric::Metric;
use super::moments::Moments;
use super::water::{distortion, level};
use crate::error::{Result, invalid};

/// Smallest variance, as a fraction of the common one, so that logarithms stay finite.
const FLOOR: f64 = 1e-12;
/// Columns up to which all parts are left out at once: each takes several matrices of so many rows and columns.
const WIDE: usize = 4096;

/// Bits a value saved.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Gain {
    /// At high rates, by means and the columns' own variances alone.
    pub means: f64,
    /// At high rates, by means and basis.
    pub basis: f64,
    /// At given rates.
    pub at: Vec<AtRate>,
}

/// Bits a value saved at a rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct AtRate {
    /// Bits a value behind the preparation.
    pub bits: f64,
    /// Saved by means and the columns' own variances alone.
    pub means: f64,
    /// Saved by means and basis.
    pub basis: f64,
}

impl Gain {
    /// The mean of several, each of which counts by its weight.
    pub(super) fn mean(gains: &[(&Gain, f64)]) -> Gain {
        let total: f64 = gains.iter().map(|(_, w)| w).sum();
        let mean = |f: &dyn Fn(&Gain) -> f64| gains.iter().map(|(g, w)| f(g) * w).sum::<f64>() / total;
        let rates = gains.first().map_or(0, |(g, _)| g.at.len());
        let at = |i: usize| AtRate {
            bits: gains[0].0.at[i].bits,
            means: mean(&|g| g.at[i].means),
            basis: mean(&|g| g.at[i].basis),
        };
        Gain { means: mean(&|g| g.means), basis: mean(&|g| g.basis), at: (0..rates).map(at).collect() }
    }
}

/// Measures the gain on each part of the rows with a basis made from the others, and returns the mean.
///
/// ```
/// use tenfold_kv::basis::{Moments, leave_one_out};
/// // Two columns that are nearly the same.
/// let part = |seed: u32| {
///     let mut moments = Moments::new(2)?;
///     let noise = |i: u32| ((i + seed).wrapping_mul(2_654_435_761) >> 8) as f32 / 1e7 - 0.8;
///     let rows: Vec<f32> = (0..500).flat_map(|i| [noise(i), noise(i) + 0.01 * noise(i + 7919)]).collect();
///     moments.add(&rows, "rows", 0)?;
///     Ok::<_, tenfold_kv::Error>(moments)
/// };
/// let gain = leave_one_out(&[part(0)?, part(1000)?], None, &[2.0])?;
/// assert!(gain.basis > 2.5 && gain.means < 0.1);
/// # Ok::<(), tenfold_kv::Error>(())
/// ```
pub fn leave_one_out(parts: &[Moments], metric: Option<&Metric>, rates: &[f64]) -> Result<Gain> {
    let gains = leave_one_out_each(&[Weighted { parts, weight: 1.0 }], metric, rates)?;
    gains.into_iter().next().ok_or_else(|| invalid("measuring a gain needs rows"))
}

/// The rows of one set, in parts, and the share that it has in a basis of several.
#[derive(Debug, Clone, Copy)]
pub struct Weighted<'a> {
    /// Sums over parts of the rows.
    pub parts: &'a [Moments],
    /// The set's share next to those of the others, whatever its number of rows.
    pub weight: f64,
}

/// The same for a basis that several sets share: the gain of each set on each of its parts, with a basis made from the other parts
/// of all sets.
pub fn leave_one_out_each(
    sets: &[Weighted<'_>],
    metric: Option<&Metric>,
    rates: &[f64],
) -> Result<Vec<Gain>> {
    let folds = sets.first().map_or(0, |set| set.parts.len());
    if folds < 2 || sets.iter().any(|set| set.parts.len() != folds) {
        return Err(invalid("measuring a gain needs at least two parts, and as many of each set"));
    }
    let fold = |out: usize| -> Result<Vec<Gain>> {
        let components = Components::from_moments(&pool(sets, Some(out))?, metric)?;
        Ok(sets.iter().map(|set| measure_gain(&set.parts[out], &components, rates)).collect())
    };
    let gains: Vec<Vec<Gain>> = match sets[0].parts[0].cols() {
        0..=WIDE => (0..folds).into_par_iter().map(fold).collect::<Result<_>>()?,
        _ => (0..folds).map(fold).collect::<Result<_>>()?,
    };
    let mean = |set: usize| Gain::mean(&gains.iter().map(|fold| (&fold[set], 1.0)).collect::<Vec<_>>());
    Ok((0..sets.len()).map(mean).collect())
}

/// The rows of all sets, with their shares, but for those of the part that is left out.
pub(super) fn pool(sets: &[Weighted<'_>], out: Option<usize>) -> Result<Moments> {
    let cols = sets.first().and_then(|set| set.parts.first()).map_or(0, Moments::cols);
    let mut whole = Moments::new(cols)?;
    for set in sets {
        let kept = || set.parts.iter().enumerate().filter(|(i, _)| Some(*i) != out).map(|(_, part)| part);
        let rows: u64 = kept().map(Moments::count).sum();
        // One set alone has all the shares: its rows count as they are.
        let weight = if sets.len() == 1 { 1.0 } else { set.weight / rows.max(1) as f64 };
        kept().try_for_each(|part| whole.merge_weighted(part, weight))?;
    }
    Ok(whole)
}

/// The gain of components on these rows.
fn measure_gain(rows: &Moments, components: &Components, rates: &[f64]) -> Gain {
    let cols = rows.cols();
    // Errors of a coder without the metric go in all directions alike.
    let unit = components.metric().map_or(1.0, |m| m.diagonal().iter().sum::<f64>() / cols as f64);
    let raw = (rows.common_variance() * unit).max(f64::MIN_POSITIVE);
    let floored = |v: f64| v.max(raw * FLOOR);
    let means: Vec<f64> = rows.spread(components.means()).iter().map(|v| floored(v * unit)).collect();
    let basis: Vec<f64> = components.spread(rows).into_iter().map(floored).collect();
    let high = |v: &[f64]| v.iter().map(|v| 0.5 * (raw / v).log2()).sum::<f64>() / cols as f64;
    let at_rate =
        |v: &[f64], bits: f64| 0.5 * (raw / distortion(v, cols, level(v, cols, bits))).log2() - bits;
    let at = |&bits: &f64| AtRate { bits, means: at_rate(&means, bits), basis: at_rate(&basis, bits) };
    Gain { means: high(&means), basis: high(&basis), at: rates.iter().map(at).collect() }
}

//! Finding a quantiser and a sample scale for a target, whatever the codec.
//!
//! First the coarsest whole quantiser that is fine enough, then a factor on the sample step: one is a
//! ladder, the other continuous. Both searches see only a number that falls as things get coarser.

use std::ops::RangeInclusive;

use crate::error::Result;

/// Trials of the second search.
const TRIALS: usize = 9;

/// What a search over whole quantisers came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Rung {
    /// The coarsest quantiser that is fine enough, and its number.
    Fine(u32, f64),
    /// Not even the finest is; its number.
    None(f64),
}

/// The coarsest quantiser whose number is at least `wanted`.
pub(super) fn quantiser(
    range: RangeInclusive<u32>,
    wanted: f64,
    mut trial: impl FnMut(u32) -> Result<f64>,
) -> Result<Rung> {
    let (finest, coarsest) = (i64::from(*range.start()), i64::from(*range.end()));
    // About eight bits lie between the ends of any codec's range.
    let slope = 8.0 / (coarsest - finest).max(1) as f64;
    let mut fine: Option<(i64, f64)> = None;
    let mut coarse: Option<(i64, f64)> = None;
    let mut qp = (finest + coarsest) / 2;
    loop {
        let got = trial(qp as u32)?;
        if got >= wanted {
            fine = Some((qp, got));
        } else {
            coarse = Some((qp, got));
        }
        qp = match (fine, coarse) {
            (Some(f), Some(c)) if c.0 - f.0 <= 1 => return Ok(Rung::Fine(f.0 as u32, f.1)),
            (Some(f), Some(c)) => {
                let share = (f.1 - wanted) / (f.1 - c.1).max(1e-9);
                (f.0 + (share * (c.0 - f.0) as f64) as i64).clamp(f.0 + 1, c.0 - 1)
            }
            (Some(f), None) if f.0 == coarsest => return Ok(Rung::Fine(f.0 as u32, f.1)),
            (Some(f), None) => (f.0 + 1 + ((f.1 - wanted) / slope) as i64).min(coarsest),
            (None, Some(c)) if c.0 == finest => return Ok(Rung::None(c.1)),
            (None, Some(c)) => (c.0 - 1 - ((wanted - c.1) / slope) as i64).max(finest),
            (None, None) => return Ok(Rung::None(got)),
        };
    }
}

/// Where a trial landed: log2 of the factor, and its number.
type Point = (f64, f64);

/// Tries factors (as log2) until one is within the tolerance, and returns all that were tried. `known` is a
/// point that need not be tried again; the first try is at `guess`.
pub(super) fn factor(
    known: Option<Point>,
    guess: f64,
    wanted: f64,
    tolerance: RangeInclusive<f64>,
    mut trial: impl FnMut(f64) -> Result<f64>,
) -> Result<Vec<Point>> {
    let mut points: Vec<Point> = known.into_iter().collect();
    let mut x = guess;
    for _ in 0..TRIALS {
        let y = trial(x)?;
        points.push((x, y));
        if tolerance.contains(&(y - wanted)) {
            break;
        }
        x = next(&points, wanted);
    }
    Ok(points)
}

/// Between the nearest points on either side of the wanted number; beyond the last one where there is only one
/// side, by the slope there.
fn next(points: &[Point], wanted: f64) -> f64 {
    let nearest = |above: bool| {
        let side = points.iter().copied().filter(|p| (p.1 >= wanted) == above);
        side.min_by(|a, b| (a.1 - wanted).abs().total_cmp(&(b.1 - wanted).abs()))
    };
    match (nearest(true), nearest(false)) {
        (Some(fine), Some(coarse)) => {
            let share = ((fine.1 - wanted) / (fine.1 - coarse.1).max(1e-12)).clamp(0.05, 0.95);
            fine.0 + share * (coarse.0 - fine.0)
        }
        (Some(fine), None) => fine.0 + ((fine.1 - wanted) * 1.1).clamp(0.02, 2.0) + 0.01,
        (None, Some(coarse)) => coarse.0 - ((wanted - coarse.1) * 1.1).clamp(0.02, 2.0) - 0.01,
        (None, None) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits of an entropy-coded Gaussian: straight at high rates, flat towards zero.
    fn bits(coarseness: f64) -> f64 {
        0.5 * (1.0 + (2.0 * (6.0 - coarseness)).exp2()).log2()
    }

    #[test]
    fn any_ladder_is_climbed_in_few_trials() {
        for (range, per_bit) in [(0..=51, 6.0), (0..=63, 8.0), (0..=255, 30.0)] {
            for wanted in [0.3, 1.0, 2.5, 5.0] {
                let mut trials = 0;
                let found = quantiser(range.clone(), wanted, |qp| {
                    trials += 1;
                    Ok(bits(f64::from(qp) / per_bit))
                });
                let Rung::Fine(qp, got) = found.unwrap() else { panic!("{wanted} is within reach") };
                assert!(got >= wanted && (qp == *range.end() || bits(f64::from(qp + 1) / per_bit) < wanted));
                assert!(trials <= 9, "{trials}");
                let points = factor(Some((0.0, got)), 0.05, wanted, -0.01 * wanted..=0.01 * wanted, |x| {
                    Ok(bits(f64::from(qp) / per_bit + x))
                });
                let off = points.unwrap().last().map(|p| (p.1 / wanted - 1.0).abs()).unwrap();
                assert!(off < 0.01, "{wanted}: {off}");
            }
        }
    }

    #[test]
    fn out_of_reach_is_said() {
        let found = quantiser(0..=51, 9.0, |qp| Ok(bits(f64::from(qp) / 6.0))).unwrap();
        assert!(matches!(found, Rung::None(best) if (best - 6.0).abs() < 0.01));
    }
}

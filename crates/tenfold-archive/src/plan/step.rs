//! One quantiser step for all tensors that share a budget of bits.
//!
//! A curve of bits over step is estimated for each tensor once, the step that meets the budget follows from
//! the curves, and what encoding really took corrects them: estimates are off by much the same factor at
//! neighbouring steps, so one correction is most often enough.

use rayon::prelude::*;
use tenfold::{Dtype, Effort, Goal, TensorView};

use super::Action;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::progress::Progress;
use crate::safetensors::codec_dtype;
use crate::values;

/// How far the average may lie from the target before the step is corrected.
pub(crate) const TOLERANCE: f64 = 0.005;
/// Points of a curve, at most: an octave of steps apart.
const POINTS: usize = 20;
/// Bits at which a curve need not go further.
const MOST_BITS: f64 = 16.0;
/// Share of the values that are encoded to check the estimates before the whole model is.
const PROBE_SHARE: f64 = 0.05;
/// Fewest values for that check; small models are checked as a whole.
const PROBE_VALUES: u64 = 4 << 20;

/// Bits a value over log2 of the step, from coarse to fine.
#[derive(Debug, Clone)]
struct Curve {
    points: Vec<(f64, f64)>,
    /// Values of the tensor.
    weight: f64,
}

impl Curve {
    /// Between points along the line; coarser than the first its bits, finer than the last a bit an octave.
    fn bits(&self, log_step: f64) -> f64 {
        let at = self.points.partition_point(|(x, _)| *x > log_step);
        match (
            at.checked_sub(1).and_then(|i| self.points.get(i)),
            self.points.get(at),
        ) {
            (Some(&(x0, y0)), Some(&(x1, y1))) => y0 + (y1 - y0) * (x0 - log_step) / (x0 - x1),
            (Some(&(x0, y0)), None) => y0 + (x0 - log_step),
            (None, Some(&(_, y1))) => y1,
            (None, None) => 0.0,
        }
    }
}

/// The search for the step.
#[derive(Debug)]
pub(crate) struct StepSearch {
    curves: Vec<Curve>,
    /// Bits that the shared tensors may take together.
    target: f64,
    /// Real over estimated size, as known so far.
    factor: f64,
    log_step: f64,
}

impl StepSearch {
    /// Estimates curves, solves for the step and checks it on a part of the model.
    pub fn new(model: &Model, actions: &[Action], bits: f64, progress: &dyn Progress) -> Result<Self> {
        let shared: Vec<usize> = (0..actions.len()).filter(|&i| actions[i].is_shared()).collect();
        progress.start(shared.iter().map(|&i| model.items[i].bytes).sum());
        progress.message("estimating rates");
        let mut curves = Vec::with_capacity(shared.len());
        for &index in &shared {
            curves.push(curve(model, index, actions[index])?);
            progress.advance(model.items[index].bytes);
        }
        let target = bits * curves.iter().map(|c| c.weight).sum::<f64>();
        let mut search = StepSearch {
            curves,
            target,
            factor: 1.0,
            log_step: 0.0,
        };
        search.solve();
        search.probe(model, actions, &shared, progress)?;
        Ok(search)
    }

    /// The step to use now.
    pub fn step(&self) -> f64 {
        self.log_step.exp2()
    }

    /// Puts the step into the goals of the tensors that share the budget.
    pub fn apply(&self, actions: &mut [Action]) {
        for action in actions {
            if let Action::Encode {
                goal, shared: true, ..
            } = action
            {
                *goal = Goal::Step(self.step());
            }
        }
    }

    /// Takes in what the shared tensors really took, in bytes. True if the step was off and is now another.
    pub fn correct(&mut self, bytes: u64) -> bool {
        let real = bytes as f64 * 8.0;
        if self.curves.is_empty() || (real / self.target - 1.0).abs() <= TOLERANCE {
            return false;
        }
        let before = self.log_step;
        self.factor = real / self.estimate(self.log_step);
        self.solve();
        self.log_step != before
    }

    fn estimate(&self, log_step: f64) -> f64 {
        self.curves.iter().map(|c| c.weight * c.bits(log_step)).sum()
    }

    fn solve(&mut self) {
        let ends = self.curves.iter().flat_map(|c| c.points.iter().map(|(x, _)| *x));
        let (mut fine, mut coarse) = ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), x| {
            (lo.min(x), hi.max(x))
        });
        if fine > coarse {
            return; // no curves
        }
        fine -= 64.0;
        for _ in 0..100 {
            let middle = (fine + coarse) / 2.0;
            if self.factor * self.estimate(middle) > self.target {
                fine = middle
            } else {
                coarse = middle
            }
        }
        self.log_step = (fine + coarse) / 2.0;
    }

    /// Encodes tensors spread over the model and compares with their estimates.
    fn probe(
        &mut self,
        model: &Model,
        actions: &[Action],
        shared: &[usize],
        progress: &dyn Progress,
    ) -> Result<()> {
        let total: u64 = shared.iter().map(|&i| model.items[i].values()).sum();
        let wanted = PROBE_VALUES.max((total as f64 * PROBE_SHARE) as u64);
        let stride = (total / wanted.max(1)).clamp(1, 1 + shared.len() as u64 / 2) as usize;
        let (mut real, mut estimated, mut values) = (0.0, 0.0, 0);
        let mut done = actions.to_vec();
        self.apply(&mut done);
        progress.message("checking the estimate");
        for (k, &index) in shared.iter().enumerate().skip(stride / 2).step_by(stride) {
            let blob = crate::compress::encode_tensor(model, index, done[index])?;
            real += blob.len() as f64 * 8.0;
            estimated += self.curves[k].weight * self.curves[k].bits(self.log_step);
            values += model.items[index].values();
            if values >= wanted {
                break;
            }
        }
        if estimated > 0.0 {
            self.factor = real / estimated;
            self.solve();
        }
        Ok(())
    }
}

fn curve(model: &Model, index: usize, action: Action) -> Result<Curve> {
    let item = &model.items[index];
    let weight = item.values() as f64;
    let (Action::Encode { effort, .. }, Some(dtype)) = (action, codec_dtype(item.dtype)) else {
        return Ok(Curve {
            points: Vec::new(),
            weight,
        });
    };
    let data = model.read(index)?;
    let view = TensorView::new(dtype, &item.shape, &data).map_err(Error::codec(&item.name))?;
    let estimate = |log_step: f64, effort: Effort| -> Result<(f64, f64)> {
        let bits =
            tenfold::estimate_bits(&view, log_step.exp2(), effort).map_err(Error::codec(&item.name))?;
        Ok((log_step, bits))
    };
    let start = log_rms(dtype, &data) + 2.0;
    let points: Vec<(f64, f64)> = (0..POINTS)
        .into_par_iter()
        .map(|i| estimate(start - i as f64, effort))
        .collect::<Result<_>>()?;
    Ok(Curve {
        points: rising(points),
        weight,
    })
}

/// Keeps what rises: estimates from samples may waver, a curve that falls would have no single solution.
fn rising(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let mut out: Vec<(f64, f64)> = Vec::with_capacity(points.len());
    for (x, y) in points {
        let last = out.last().map_or(0.0, |(_, y)| *y);
        if last >= MOST_BITS {
            break;
        }
        out.push((x, if y.is_finite() { y.max(last) } else { last }));
    }
    out
}

/// log2 of the root of the mean square over a sample; 0 where there is nothing to measure.
fn log_rms(dtype: Dtype, data: &[u8]) -> f64 {
    const SAMPLE: usize = 1 << 16;
    let count = data.len() / dtype.size();
    let stride = (count / SAMPLE).max(1);
    let (mut sum, mut n) = (0.0, 0u32);
    for element in data.chunks_exact(dtype.size()).step_by(stride) {
        let mut value = [0.0];
        values::load(dtype, element, &mut value);
        if value[0].is_finite() {
            sum += value[0] * value[0];
            n += 1;
        }
    }
    let rms = (sum / f64::from(n)).sqrt();
    if rms.is_normal() { rms.log2() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Gaussian's bits at a step, with a bias that the search must find out.
    fn real_bits(sigma: f64, log_step: f64) -> f64 {
        1.03 * (0.5 * (1.0 + (sigma / log_step.exp2()).powi(2)).log2() + 0.05)
    }

    fn search(sigmas: &[f64], bits: f64) -> StepSearch {
        let curves: Vec<Curve> = sigmas
            .iter()
            .map(|&s| {
                let start = s.log2() + 2.0;
                let xs = (0..POINTS).map(|i| start - i as f64);
                Curve {
                    points: rising(xs.map(|x| (x, real_bits(s, x) / 1.03)).collect()),
                    weight: 1e6,
                }
            })
            .collect();
        let target = bits * 1e6 * sigmas.len() as f64;
        let mut search = StepSearch {
            curves,
            target,
            factor: 1.0,
            log_step: 0.0,
        };
        search.solve();
        search
    }

    #[test]
    fn two_corrections_meet_the_budget() {
        let sigmas = [0.001, 0.02, 0.02, 0.05, 0.3, 4.0];
        for bits in [0.3, 1.0, 2.0, 3.0, 4.5, 8.0] {
            let mut search = search(&sigmas, bits);
            let mut real = 0.0;
            for round in 0..3 {
                real = sigmas
                    .iter()
                    .map(|&s| real_bits(s, search.log_step) * 1e6)
                    .sum::<f64>();
                if round == 2 || !search.correct((real / 8.0) as u64) {
                    break;
                }
            }
            let off = real / (bits * 6e6) - 1.0;
            assert!(off.abs() <= TOLERANCE, "{bits} bits: off by {off}");
        }
    }

    #[test]
    fn no_shared_tensor_means_no_correction() {
        let mut search = StepSearch {
            curves: vec![],
            target: 0.0,
            factor: 1.0,
            log_step: 0.0,
        };
        search.solve();
        assert!(!search.correct(0));
    }
}

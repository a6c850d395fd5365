//! One quantiser step for all tensors that share a budget of bits.
//!
//! A first guess takes every tensor for a Gaussian. Around it a curve of bits over step is estimated for each
//! tensor, the step that meets the budget follows from the curves, and what encoding really took corrects
//! them: estimates are off by much the same factor at neighbouring steps, so few corrections are needed.

use tenfold::Goal;
use tenfold::engine::search::tolerance::ARCHIVE;
use tenfold::engine::search::{EXACT, gaussian_step, halve};

use super::curve::{Curve, measure_curve, measure_scale};
use super::{Action, Alloc, CompressOptions};
use crate::error::{Error, Result};
use crate::model::Model;
use crate::progress::Progress;

/// Octaves from the step so far that the next one may be.
const FAR: f64 = 64.0;
/// Share of the values that are encoded to check the estimates before the whole model is.
const PROBE_SHARE: f64 = 0.05;
/// Fewest values for that check; small models are checked as a whole.
const PROBE_VALUES: u64 = 4 << 20;

/// The search for the step.
#[derive(Debug)]
pub(crate) struct StepSearch {
    curves: Vec<Curve>,
    /// Bits that the shared tensors may take together.
    target: f64,
    /// Real over estimated size, as known so far.
    factor: f64,
    log_step: f64,
    /// Of each tensor of the model: what the step is multiplied by there.
    units: Vec<f64>,
    /// How often the whole model was encoded.
    rounds: usize,
}

impl StepSearch {
    /// Guesses, estimates curves, solves for the step and checks it on a part of the model.
    pub fn new(
        model: &Model,
        actions: &[Action],
        bits: f64,
        options: &CompressOptions,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let shared: Vec<usize> = (0..actions.len()).filter(|&i| actions[i].is_shared()).collect();
        progress.start(shared.iter().map(|&i| model.items[i].bytes).sum());
        progress.message("estimating rates");
        let units = units_of(model, &shared, options)?;
        let scale = |&index: &usize| {
            let (scale, values) = measure_scale(model, index)?;
            Ok((scale - units[index].log2(), values))
        };
        let scales = shared.iter().map(scale).collect::<Result<Vec<_>>>()?;
        let guess = gaussian_step(&scales, bits);
        let mut curves = Vec::with_capacity(shared.len());
        for &index in &shared {
            options.stop.check().map_err(Error::codec(&model.items[index].name))?;
            curves.push(measure_curve(model, index, actions[index], options, (guess, units[index]))?);
            progress.advance(model.items[index].bytes);
        }
        let target = bits * curves.iter().map(|c| c.weight).sum::<f64>();
        let mut search = StepSearch { curves, target, factor: 1.0, log_step: guess, units, rounds: 0 };
        search.solve();
        search.probe(model, actions, &shared, options, progress)?;
        Ok(search)
    }

    /// The step to use now.
    pub fn step(&self) -> f64 {
        self.log_step.exp2()
    }

    /// Puts the step into the goals of the tensors that share the budget.
    pub fn apply(&self, actions: &mut [Action]) {
        for (action, unit) in actions.iter_mut().zip(&self.units) {
            if let Action::Encode { goal, shared: true, .. } = action {
                *goal = Goal::Step(self.step() * unit);
            }
        }
    }

    /// Notes how many bytes the shared tensors really took. Returns whether the model must be encoded again, with
    /// another step.
    pub fn correct(&mut self, bytes: u64) -> bool {
        let real = bytes as f64 * 8.0;
        self.rounds += 1;
        if self.curves.is_empty()
            || self.rounds == ARCHIVE.rounds
            || ARCHIVE.is_near(real / self.target - 1.0, self.rounds)
        {
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
        let want = self.target / self.factor;
        self.log_step = halve(self.log_step - FAR, self.log_step + FAR, EXACT, want, |x| self.estimate(x));
    }

    /// Encodes tensors spread over the model and compares with their estimates.
    fn probe(
        &mut self,
        model: &Model,
        actions: &[Action],
        shared: &[usize],
        options: &CompressOptions,
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
            let (blob, _) =
                crate::compress::encode_tensor(&tenfold::engine::Cpu, model, index, done[index], options)?;
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

/// What one step for all is multiplied by in each tensor of a model: 1, unless a calibration knows what errors cost.
pub(super) fn units_of(model: &Model, shared: &[usize], options: &CompressOptions) -> Result<Vec<f64>> {
    let mut units = vec![1.0; model.items.len()];
    if let (Some(calibration), Alloc::Loss) = (&options.calibration, options.alloc) {
        for &index in shared {
            units[index] = calibration.unit(&model.items[index].name)?;
        }
    }
    Ok(units)
}

#[cfg(test)]
mod tests {
    use super::super::curve::{OCTAVES, make_rising};
    use super::*;

    /// Something like a Gaussian's bits at a step, with a bias that the search must find out.
    fn real_bits(sigma: f64, log_step: f64) -> f64 {
        1.03 * (0.5 * (1.0 + (sigma / log_step.exp2()).powi(2)).log2() + 0.05)
    }

    fn search(sigmas: &[f64], bits: f64) -> StepSearch {
        let scales: Vec<(f64, f64)> = sigmas.iter().map(|s| (s.log2(), 1e6)).collect();
        let guess = gaussian_step(&scales, bits);
        let points = |s: f64| OCTAVES.map(|o| (guess + o, real_bits(s, guess + o) / 1.03)).to_vec();
        let curves = sigmas.iter().map(|&s| Curve { points: make_rising(points(s)), weight: 1e6 }).collect();
        let target = bits * 1e6 * sigmas.len() as f64;
        let units = Vec::new();
        let mut search = StepSearch { curves, target, factor: 1.0, log_step: guess, units, rounds: 0 };
        search.solve();
        search
    }

    #[test]
    fn two_corrections_meet_the_budget() {
        let sigmas = [0.001, 0.02, 0.02, 0.05, 0.3, 4.0];
        for bits in [0.3, 1.0, 2.0, 3.0, 4.5, 8.0] {
            let mut search = search(&sigmas, bits);
            let real = |s: &StepSearch| sigmas.iter().map(|&v| real_bits(v, s.log_step) * 1e6).sum::<f64>();
            let mut tries = 1;
            while search.correct((real(&search) / 8.0) as u64) {
                tries += 1;
            }
            let off = real(&search) / (bits * 6e6) - 1.0;
            assert!(tries <= 3 && off.abs() <= 0.005, "{bits} bits: off by {off} after {tries} tries");
        }
    }

    #[test]
    fn no_shared_tensor_means_no_correction() {
        let mut search =
            StepSearch { curves: vec![], target: 0.0, factor: 1.0, log_step: 0.0, units: vec![], rounds: 0 };
        search.solve();
        assert!(!search.correct(0) && search.step().is_finite());
        assert!(gaussian_step(&[], 3.0).is_finite());
    }
}

//! One step for all weights of a calibration, at which the model's loss is predicted to rise by as much as the caller allows.
//!
//! At fine steps the rise grows with the square of the step, at coarse ones more slowly; a secant on logarithms is soon there.

use tenfold::Goal;

use super::step::units_of;
use super::{Action, CompressOptions};
use crate::error::Result;
use crate::model::Model;

/// How often the model is encoded at most.
const ROUNDS: usize = 5;
/// How far below the goal is near enough, as a share of it. Never above.
const NEAR: f64 = 0.05;
/// What is aimed at, as a share of the goal.
const AIM: f64 = 0.975;

/// The search for the step.
#[derive(Debug)]
pub(crate) struct LossSearch {
    units: Vec<f64>,
    goal: f64,
    log_step: f64,
    /// Steps that were tried, and the logarithm of what they cost.
    tried: Vec<(f64, f64)>,
}

impl LossSearch {
    pub fn new(model: &Model, actions: &[Action], goal: f64, options: &CompressOptions) -> Result<Self> {
        let shared: Vec<usize> = (0..actions.len()).filter(|&i| actions[i].is_shared()).collect();
        let units = units_of(model, &shared, options)?;
        let values: f64 = shared.iter().map(|&i| model.items[i].values() as f64).sum();
        // Rounding errors of a step have a mean square of a twelfth; the loss is half of what they count.
        let log_step = 0.5 * (24.0 * AIM * goal / values.max(1.0)).log2();
        Ok(LossSearch { units, goal, log_step, tried: Vec::new() })
    }

    /// Puts the step into the goals of the weights.
    pub fn apply(&self, actions: &mut [Action]) {
        for (action, unit) in actions.iter_mut().zip(&self.units) {
            if let Action::Encode { goal, shared: true, .. } = action {
                *goal = Goal::Step(self.log_step.exp2() * unit);
            }
        }
    }

    /// Notes what the step costs. Returns whether the model must be encoded again, with another step.
    pub fn correct(&mut self, loss: f64) -> bool {
        if loss <= 0.0
            || (loss <= self.goal
                && (loss >= self.goal * (1.0 - 2.0 * NEAR) || self.tried.len() + 1 >= ROUNDS))
        {
            return false;
        }
        // Too high in the last round: a step that is surely finer comes next, however many rounds that takes.
        let late = self.tried.len() + 1 >= ROUNDS;
        let aim = (AIM * self.goal).log2();
        let at = (self.log_step, loss.log2());
        let slope = match self.tried.last() {
            Some(&(x, y)) if (x - at.0).abs() > 1e-6 => ((at.1 - y) / (at.0 - x)).clamp(0.5, 3.0),
            _ => 2.0,
        };
        self.tried.push(at);
        self.log_step += (aim - at.1) / slope - if late { 0.1 } else { 0.0 };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_met_from_below() {
        for (goal, scale) in [(0.01, 1.0), (0.2, 30.0), (3.0, 0.001)] {
            let mut search = LossSearch { units: vec![], goal, log_step: 0.0, tried: vec![] };
            // Grows with the square, and levels off.
            let cost = |x: f64| 10.0 * (1.0 - (-scale * (2.0 * x).exp2()).exp());
            let mut rounds = 1;
            while search.correct(cost(search.log_step)) {
                rounds += 1;
            }
            let found = cost(search.log_step);
            assert!(found <= goal && found > 0.8 * goal && rounds <= 8, "{goal}: {found} after {rounds}");
        }
    }
}

//! Step, costs and reconstruction points from a sample.

use super::Target;
use super::encoding::{Encoding, lambda, set_step};
use super::low_bits;
use super::sample::{Sample, WINDOW};
use crate::engine::search::tolerance::{COARSE_SAMPLE, FINE_SAMPLE};
use crate::engine::search::{Point, Search};
use crate::entropy::{ESCAPE, MAX_LANES};
use crate::error::{Error, Result};
use crate::levels::{Dequant, Plan, Rounding, TileWork, quantise_tile};
use crate::quant::cost::CostTable;
use crate::quant::machine::{Machine, grid};
use crate::view::load_scaled;

/// Values sampled while costs still change.
const COARSE_VALUES: usize = 1 << 15;

impl Encoding<'_> {
    /// Finds costs and step on the sample: first both in turn, then, costs held, the step alone.
    pub(super) fn refine(&self, plan: &mut Plan, target: Target) -> Result<()> {
        let coarse = self.sample.thin(COARSE_VALUES);
        if matches!(plan.rounding, Rounding::Bounded(_)) {
            return self.settle_pairs(plan, |plan| self.trial(plan, &coarse));
        }
        let lambda = lambda(plan.machine);
        let (want, slope) = (self.want(target), self.slope(target));
        // Levels are looked at one by one until the step is about right: at others pairs may cost far more.
        let paired = std::mem::take(&mut plan.paired);
        for round in 0..COARSE_SAMPLE.rounds {
            let trial = self.trial(plan, &coarse)?;
            plan.costs = CostTable::from_counts(&trial.counts, &plan.low, lambda);
            let got = trial.got(target);
            // Without a goal for it the step stays, and only the costs settle.
            let off = if want > 0.0 { got / want - 1.0 } else { 0.0 };
            let next = plan.step() * slope.factor(got, want, COARSE_SAMPLE.damping);
            if COARSE_SAMPLE.is_near(off, round) || (want > 0.0 && !set_step(plan, next.max(self.finest))) {
                break;
            }
        }
        let low = low_bits::fit(&self.values, plan.step() / self.scan.unit, plan.classes.as_ref());
        if low != plan.low {
            plan.low = low;
            let trial = self.trial(plan, &coarse)?;
            plan.costs = CostTable::from_counts(&trial.counts, &plan.low, lambda);
        }
        plan.paired = paired;
        self.settle_pairs(plan, |plan| self.trial(plan, &coarse))?;
        if plan.machine != Machine::SCALAR {
            // Once more from all of the sample: rare levels are scarce in the coarse one.
            let trial = self.trial(plan, &self.sample)?;
            plan.costs = CostTable::from_counts(&trial.counts, &plan.low, lambda);
        }
        if want > 0.0 {
            let step = Search::new(want, slope, &FINE_SAMPLE).run(plan.step(), |step| {
                if !set_step(plan, step.max(self.finest)) {
                    return Ok(None);
                }
                let got = self.trial(plan, &self.sample)?.got(target);
                Ok::<_, Error>(Some(Point { knob: plan.step(), got }))
            })?;
            set_step(plan, step.max(self.finest));
        }
        self.fit_offsets(plan);
        Ok(())
    }

    /// Reconstruction points at the mean of what quantises to them, where that is worth its bytes.
    pub(super) fn fit_offsets(&self, plan: &mut Plan) {
        if self.view.len() < 1 << 14 {
            return;
        }
        let mut sample_plan = plan.clone();
        sample_plan.geometry = Sample::GEOMETRY;
        sample_plan.paired = false;
        let size = self.view.dtype().size();
        let stride = self.sample.windows.len().div_ceil(32).max(1);
        let mut work = TileWork::default();
        // Sums side by side, so that equal neighbours do not wait for each other.
        let mut sums = [[(0.0f64, 0.0f64); 9]; 4];
        let mut values = [0f32; WINDOW];
        let mut class = Vec::new();
        for w in self.sample.windows.iter().step_by(stride) {
            let q = quantise_tile(&sample_plan, self.view, *w, &mut work);
            let values = &mut values[..w.len];
            let data = &self.view.data()[w.start * size..][..w.len * size];
            load_scaled(self.isa, self.view.dtype(), data, plan.step(), values);
            class.clear();
            if let Some(map) = plan.classes.as_ref().filter(|_| !plan.low.none()) {
                class.resize(w.len, 0u8);
                map.fill(w.start, &mut class);
            }
            let mut state = [0u32; MAX_LANES];
            for (i, (&s, &u)) in q.symbols.iter().zip(&*values).enumerate() {
                // Magnitudes with low bits are too large to have an offset worth storing.
                if !plan.low.none() && plan.low.get(class.get(i).copied().unwrap_or(0)) > 0 {
                    continue;
                }
                let k = s as u8 as i8 as i32;
                let m = if plan.machine == Machine::SCALAR {
                    grid(k, 0)
                } else {
                    let state = &mut state[i % Sample::GEOMETRY.lanes];
                    let m = grid(k, *state & 1);
                    *state = plan.machine.next(*state, k);
                    m
                };
                if m != 0 && s as u8 != ESCAPE && u.is_finite() {
                    let e = m.abs() as f64 - (u * m.signum() as f32) as f64;
                    let bin = &mut sums[i % 4][m.unsigned_abs().min(8) as usize];
                    *bin = (bin.0 + 1.0, bin.1 + e);
                }
            }
            work.reuse(q);
        }
        let mut offsets = [0i8; 8];
        for (m, o) in (1..).zip(&mut offsets) {
            let (n, e) = sums.iter().fold((0.0, 0.0), |sum, part| (sum.0 + part[m].0, sum.1 + part[m].1));
            if n >= 64.0 {
                *o = (e / n * 64.0).round().clamp(-64.0, 64.0) as i8;
            }
        }
        plan.dequant = Dequant::new(plan.dequant.dtype, plan.dequant.scale, &offsets);
    }
}

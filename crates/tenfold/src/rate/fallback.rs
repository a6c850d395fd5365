//! When no step meets a goal: the weight of a bit for a size, coarser steps for a cap.

use super::Target;
use super::encoding::{Encoding, lambda, set_step};
use super::finish::Best;
use super::low_bits;
use crate::engine::Outcome;
use crate::engine::search::tolerance::{WEIGHT, WEIGHTS};
use crate::engine::search::{Point, Search, Slope, Tolerance};
use crate::error::{Error, Result};
use crate::levels::Plan;
use crate::quant::cost::CostTable;

impl Encoding<'_> {
    /// Where the step alone does not reach a size, turns the weight of a bit; where that moves in jumps too, gives some lanes
    /// one weight and the rest another.
    pub(super) fn tune_weight(&self, plan: Plan, want: f64, target: Target) -> Result<Outcome> {
        let Tolerance { over, under, .. } = *self.tolerance(target);
        let tolerance = Tolerance { over, under, ..WEIGHT };
        let mut best = Best::default();
        let mut ends = [None, None];
        Search::new(want, Slope::Unknown, &tolerance).run(1.0, |factor| {
            if !WEIGHTS.contains(&factor) {
                return Ok(None);
            }
            let turned = Plan { costs: plan.costs.scaled(factor), ..plan.clone() };
            let got = self.encode_all(&turned, target)?.got;
            best.note(got / want - 1.0, &turned, None);
            ends[(got > want) as usize] = Some(turned.costs);
            Ok::<_, Error>(Some(Point { knob: factor, got }))
        })?;
        if let (true, [Some(less), Some(more)]) = (best.miss > over, ends) {
            let (mut low, mut high) = (0, plan.geometry.lanes);
            while high - low > 1 {
                let lanes = (low + high) / 2;
                let other = Some((more.clone(), lanes));
                let mixed = Plan { costs: less.clone(), other, ..plan.clone() };
                let off = self.encode_all(&mixed, target)?.got / want - 1.0;
                best.note(off, &mixed, None);
                if tolerance.is_near(off, 0) {
                    break;
                }
                if off > 0.0 { high = lanes } else { low = lanes }
            }
        }
        let plan = best.plan.unwrap_or(plan);
        Ok(Outcome::Blob(self.encode_all(&plan, target)?.into_blob(self, &plan)?))
    }

    /// The last resort under a cap: no classes, then steps half as large again each time, until it fits or everything is zero
    /// and it does not.
    pub(super) fn coarsen(&self, mut plan: Plan, cap: usize) -> Result<Outcome> {
        let mut smallest = None;
        for _ in 0..self.tolerance(Target::Cap(cap)).retreat {
            let tiles = self.quantise(&plan)?;
            let head = self.head(&plan, &tiles);
            let blob = self.write(&plan, &head, &tiles)?;
            if blob.blob_len() <= cap {
                return Ok(Outcome::Blob(blob));
            }
            smallest = Some(smallest.map_or(blob.blob_len(), |s: usize| s.min(blob.blob_len())));
            if plan.classes.take().is_some() {
                plan.low = low_bits::fit(&self.values, plan.step() / self.scan.unit, None);
                plan.costs = CostTable::guess(lambda(plan.machine));
                continue;
            }
            let next = plan.step() * 1.5;
            if tiles.iter().all(|t| t.all_zero) || !set_step(&mut plan, next) {
                break;
            }
        }
        Ok(Outcome::Failed(smallest))
    }
}

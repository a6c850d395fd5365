//! Full passes, each with a better step, until one is good enough.
//!
//! Three questions, each answered in one place: is a pass good enough (`judge`), which step comes next ([`Search`]), and which
//! pass was the best so far ([`Best`]).

use super::Target;
use super::encoding::{Encoding, set_step};
use super::full::Full;
use crate::blob::Parts;
use crate::engine::Outcome;
use crate::engine::search::tolerance::AT_FINEST;
use crate::engine::search::{Point, Search};
use crate::error::Result;
use crate::levels::Plan;

/// What to do after a pass.
enum Verdict {
    /// Good enough.
    Met,
    /// Not good enough, and no other step would be.
    Stuck,
    /// Try another step.
    Missed,
}

/// The best pass so far, should none be good enough; too much counts double.
#[derive(Default)]
pub(super) struct Best {
    pub(super) miss: f64,
    pub(super) plan: Option<Plan>,
    /// Under a cap: the largest that keeps to it.
    blob: Option<Parts>,
}

impl Best {
    /// Notes a pass that gave `1 + off` of what is wanted, and its blob if there is one.
    pub(super) fn note(&mut self, off: f64, plan: &Plan, blob: Option<Parts>) {
        let miss = if off > 0.0 { 2.0 * off } else { -off };
        if self.plan.is_none() || miss < self.miss {
            *self = Best { miss, plan: Some(plan.clone()), blob };
        }
    }
}

impl Encoding<'_> {
    /// Quantises everything, correcting the step until the target is met.
    pub(super) fn finish(&self, mut plan: Plan, target: Target) -> Result<Outcome> {
        let tolerance = self.tolerance(target);
        let mut search = Search::new(self.want(target), self.slope(target), tolerance);
        let mut best = Best::default();
        for _ in 0..tolerance.rounds {
            let full = self.encode_all(&plan, target)?;
            let trial = Point { knob: plan.step(), got: full.got };
            match self.judge(&full, &plan, target, &search) {
                Verdict::Met => {
                    let larger = best.blob.take_if(|b| b.blob_len() as f64 > full.got);
                    let blob = larger.map_or_else(|| full.into_blob(self, &plan), Ok)?;
                    match excess(&blob, target) {
                        None => return Ok(Outcome::Blob(blob)),
                        // It was reckoned too small: aim lower by that, and by a little more.
                        Some((more, cap)) => {
                            search.aim_at(search.want() - more - (cap - tolerance.aim_at(cap)));
                        }
                    }
                }
                verdict => {
                    if self.is_within_limit(&full, target, &search) {
                        let blob = full.blob.filter(|_| matches!(target, Target::Cap(_)));
                        best.note(search.off(full.got), &plan, blob);
                    }
                    if matches!(verdict, Verdict::Stuck) {
                        break;
                    }
                }
            }
            if search.want() <= 0.0 || !set_step(&mut plan, search.next(trial).max(self.finest)) {
                break;
            }
        }
        match (target, best.plan) {
            // Weights of a bit are by lanes, and those of fed-back levels are all the same.
            (Target::Bytes(_), nearest) if self.feed.is_none() => {
                self.tune_weight(nearest.unwrap_or(plan), search.want(), target)
            }
            (Target::Cap(cap), _) => {
                best.blob.map_or_else(|| self.coarsen(plan, cap), |blob| Ok(Outcome::Blob(blob)))
            }
            (_, Some(plan)) => Ok(Outcome::Blob(self.encode_all(&plan, target)?.into_blob(self, &plan)?)),
            (_, None) => Ok(Outcome::Failed(None)),
        }
    }

    /// Whether a pass is good enough.
    fn judge(&self, full: &Full, plan: &Plan, target: Target, search: &Search<'_>) -> Verdict {
        let (near, closed) = (search.is_near(full.got), search.is_closed());
        let met = match target {
            // No finer step helps where levels have reached their limit.
            Target::Bytes(_) => near || (full.got < search.want() && plan.step() <= self.finest * AT_FINEST),
            Target::Cap(_) => near || closed,
            // No coarser step helps where nothing is left.
            Target::Mse(_) => near || closed || full.tiles.iter().all(|t| t.all_zero),
            _ => true,
        };
        match target {
            _ if met && self.is_within_limit(full, target, search) => Verdict::Met,
            Target::Bytes(_) if closed => Verdict::Stuck,
            _ => Verdict::Missed,
        }
    }

    /// Whether a pass keeps to the target's limit, if it has one.
    fn is_within_limit(&self, full: &Full, target: Target, search: &Search<'_>) -> bool {
        match target {
            Target::Cap(cap) if full.blob.is_some() => full.got <= cap as f64,
            // How large it really is shows when it is written.
            Target::Cap(_) => search.off(full.got) <= self.tolerance(target).over,
            Target::Mse(mse) => full.error <= mse * self.scan.finite as f64,
            _ => true,
        }
    }
}

/// Bytes of a blob beyond a cap, and the cap.
fn excess(blob: &Parts, target: Target) -> Option<(f64, f64)> {
    match target {
        Target::Cap(cap) if blob.blob_len() > cap => Some(((blob.blob_len() - cap) as f64, cap as f64)),
        _ => None,
    }
}

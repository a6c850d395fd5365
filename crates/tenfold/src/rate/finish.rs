//! Quantising everything, and correcting the step until the goal is met.

use super::Target;
use super::bracket::Bracket;
use super::job::{Job, lambda, set_step};
use super::low_bits;
use crate::blob::{Parts, Sealed};
use crate::engine::Outcome;
use crate::entropy::ESCAPE;
use crate::entropy::rans::WordStack;
use crate::entropy::table::EncodeTable;
use crate::error::Result;
use crate::levels::{self, Plan, Quantised, TileWork, pack_tile, quantise_tile};
use crate::options::Effort;
use crate::quant::cost::CostTable;

/// Tensors of fewer values are written to learn their size.
pub(super) const WRITE_BELOW: usize = 1 << 17;

/// Tensors of at least this many values are streamed at the lowest effort.
const STREAM_FROM: usize = 1 << 20;

/// A tensor quantised in full.
pub(super) struct Full {
    tiles: Vec<Quantised>,
    head: levels::LevelsParams,
    /// Written already, if it is small.
    blob: Option<Parts>,
    error: f64,
    /// What to hold against [`Job::want`].
    got: f64,
}

impl Full {
    pub(super) fn into_blob(self, job: &Job<'_>, plan: &Plan) -> Result<Parts> {
        match self.blob {
            Some(blob) => Ok(blob),
            None => job.write(plan, &self.head, &self.tiles),
        }
    }
}

/// The nearest miss, should a goal stay out of reach; too much counts double.
#[derive(Default)]
struct Nearest {
    miss: f64,
    plan: Option<Plan>,
}

impl Nearest {
    fn note(&mut self, off: f64, plan: &Plan) {
        let miss = if off > 0.0 { 2.0 * off } else { -off };
        if self.plan.is_none() || miss < self.miss {
            *self = Nearest { miss, plan: Some(plan.clone()) };
        }
    }
}

impl Job<'_> {
    /// Quantises everything, correcting the step until the target is met.
    pub(super) fn finish(&self, mut plan: Plan, target: Target) -> Result<Outcome> {
        let mut want = self.want(target);
        let mut bracket = Bracket::default();
        let mut nearest = Nearest::default();
        // Of those that kept an error goal, the one that came closest.
        let mut good = None;
        // Of small blobs, the largest that kept within a cap.
        let mut fitting: Option<Parts> = None;
        let rounds = if self.view.len() < 1 << 20 { 12 } else { 8 };
        for round in 0..rounds {
            let full = self.encode_all(&plan, target)?;
            let off = full.got / want - 1.0;
            let small = self.view.len() < WRITE_BELOW;
            // Rates of coarse dtypes move in jumps: a closed bracket is as near as the step alone gets.
            let stuck = round >= 4 && bracket.width().is_some_and(|w| w < 0.002);
            let keeps = matches!(target, Target::Mse(mse) if full.error <= mse * self.scan.finite as f64);
            let met = match target {
                // No finer step helps where levels have reached their limit.
                Target::Bytes(_) => {
                    off.abs() <= self.slack() || (off < 0.0 && plan.step() <= self.finest * 1.001)
                }
                // Small blobs are cheap to make again, and what they leave unused counts.
                Target::Cap(_) if small => {
                    off <= 0.0 && (off > if round < 6 { -0.0015 } else { -0.006 } || stuck)
                }
                // A blob that is there is what it is. To make it again takes as long as it took, and gains next to nothing.
                Target::Cap(cap) if full.blob.is_some() => {
                    full.got <= cap as f64 && (off > if round == 0 { -0.012 } else { -0.02 } || stuck)
                }
                Target::Cap(_) => off <= 0.0005 && (off > -0.006 || stuck),
                // No coarser step helps where nothing is left.
                Target::Mse(_) => keeps && (off < 0.015 || stuck || full.tiles.iter().all(|t| t.all_zero)),
                _ => true,
            };
            if keeps && good.as_ref().is_none_or(|g: &(f64, Plan)| off < g.0) {
                good = Some((off, plan.clone()));
            }
            if met {
                let blob = match fitting.take_if(|f| f.blob_len() as f64 > full.got) {
                    Some(blob) => blob,
                    None => full.into_blob(self, &plan)?,
                };
                match target {
                    Target::Cap(cap) if blob.blob_len() > cap => {
                        // Aim lower by what was too much, and a little more.
                        want -= (blob.blob_len() - cap) as f64 + 2.0 + cap as f64 * 0.001;
                        bracket = Bracket::default();
                    }
                    _ => return Ok(Outcome::Blob(blob)),
                }
            } else if let (Target::Cap(cap), Some(blob)) = (target, full.blob)
                && blob.blob_len() <= cap
                && fitting.as_ref().is_none_or(|f| f.blob_len() < blob.blob_len())
            {
                fitting = Some(blob);
            }
            nearest.note(off, &plan);
            if stuck && matches!(target, Target::Bytes(_)) {
                break;
            }
            let got = want * (1.0 + off);
            bracket.note(plan.step(), got, want);
            let next = bracket.next(plan.step(), want, self.nudge(target, got.max(want * 1e-3), want, 1.0));
            if want <= 0.0 || !set_step(&mut plan, next.max(self.finest)) {
                break;
            }
        }
        if let Some(blob) = fitting {
            return Ok(Outcome::Blob(blob));
        }
        match (target, good) {
            (Target::Cap(cap), _) => self.coarsest(plan, cap),
            (Target::Bytes(_), _) => self.tune_weight(nearest.plan.unwrap_or(plan), want, target),
            (_, Some((_, plan))) => {
                Ok(Outcome::Blob(self.encode_all(&plan, target)?.into_blob(self, &plan)?))
            }
            _ => Ok(Outcome::Failed(None)),
        }
    }

    /// Where the step alone does not reach a size, turns the weight of a bit; where that moves in jumps too,
    /// gives some lanes one weight and the rest another.
    pub(super) fn tune_weight(&self, plan: Plan, want: f64, target: Target) -> Result<Outcome> {
        let mut bracket = Bracket::default();
        let mut nearest = Nearest::default();
        let mut ends = [None, None];
        let mut factor = 1.0f64;
        for _ in 0..7 {
            let mut turned = plan.clone();
            turned.costs = plan.costs.scaled(factor);
            let got = self.encode_all(&turned, target)?.got;
            let off = got / want - 1.0;
            nearest.note(off, &turned);
            bracket.note(factor, got, want);
            ends[(off > 0.0) as usize] = Some(turned.costs);
            factor = bracket.next(factor, want, if off > 0.0 { 1.15 } else { 0.85 });
            if off.abs() <= self.slack() || !(0.05..=6.0).contains(&factor) {
                break;
            }
        }
        if let (true, [Some(under), Some(over)]) = (nearest.miss > self.slack(), ends) {
            let (mut low, mut high) = (0, plan.geometry.lanes);
            while high - low > 1 {
                let lanes = (low + high) / 2;
                let mut mixed = plan.clone();
                mixed.costs = under.clone();
                mixed.other = Some((over.clone(), lanes));
                let off = self.encode_all(&mixed, target)?.got / want - 1.0;
                nearest.note(off, &mixed);
                if off.abs() <= self.slack() {
                    break;
                }
                if off > 0.0 { high = lanes } else { low = lanes }
            }
        }
        let plan = nearest.plan.unwrap_or(plan);
        let blob = self.encode_all(&plan, target)?.into_blob(self, &plan)?;
        Ok(Outcome::Blob(blob))
    }

    /// How far off a size may be.
    pub(super) fn slack(&self) -> f64 {
        if self.view.len() >= 900_000 { 0.003 } else { 0.007 }
    }

    /// Quantises everything and tells how large it is or how good.
    pub(super) fn encode_all(&self, plan: &Plan, target: Target) -> Result<Full> {
        if self.streams() && !plan.measure {
            return self.encode_stream(plan);
        }
        let tiles = self.quantise(plan)?;
        let head = self.head(plan, &tiles);
        let error = tiles.iter().map(|t| t.squared_error).sum::<f64>();
        let mut full = Full { tiles, head, blob: None, error, got: 0.0 };
        match target {
            // Small blobs are written rather than predicted: a few bytes matter, and it is quick.
            Target::Bytes(_) | Target::Cap(_) if self.view.len() < WRITE_BELOW => {
                let blob = self.write(plan, &full.head, &full.tiles)?;
                full.got = blob.blob_len() as f64;
                full.blob = Some(blob);
            }
            Target::Bytes(_) | Target::Cap(_) => full.got = self.predict(&full.head, &full.tiles),
            Target::Mse(_) => full.got = self.scan.finite as f64 / error.max(f64::MIN_POSITIVE),
            _ => {}
        }
        Ok(full)
    }

    /// Whether tiles are coded as soon as they are quantised.
    pub(super) fn streams(&self) -> bool {
        self.options.effort == Effort::Fast && self.view.len() >= STREAM_FROM
    }

    /// Encodes tile by tile with tables from the sample: nothing is kept between quantising and coding,
    /// and nothing is counted. What the sample has not seen escapes.
    pub(super) fn encode_stream(&self, plan: &Plan) -> Result<Full> {
        let mut counts = self.trial(plan, &self.sample)?.counts;
        let share = (self.view.len() / self.sample.values).max(1) as u64;
        for c in &mut counts {
            c.iter_mut().for_each(|c| *c *= share);
            c[ESCAPE as usize] += 1;
        }
        let head = self.head_of(plan, &counts);
        let table = EncodeTable::new(&head.freqs);
        let mut plan = plan.clone();
        plan.count = false;
        let (n, size) = (self.view.len(), self.view.dtype().size());
        let tiles = self.workers.map(plan.geometry.tiles(n), Default::default, |work, i| {
            let (quantise, stack): &mut (TileWork, WordStack) = work;
            let tile = quantise_tile(&plan, self.view, plan.geometry.tile(i, n), quantise);
            let bytes = pack_tile(plan.isa, &table, plan.geometry.lanes, size, &tile, stack);
            quantise.reuse(tile);
            Sealed::new(bytes)
        })?;
        let blob = self.assemble(head.clone(), tiles)?;
        Ok(Full { tiles: Vec::new(), head, got: blob.blob_len() as f64, blob: Some(blob), error: 0.0 })
    }

    pub(super) fn quantise(&self, plan: &Plan) -> Result<Vec<Quantised>> {
        let n = self.view.len();
        self.workers.map(plan.geometry.tiles(n), TileWork::default, |work, i| {
            quantise_tile(plan, self.view, plan.geometry.tile(i, n), work)
        })
    }

    /// The last resort under a cap: steps doubled until it fits, or everything is zero and it does not.
    pub(super) fn coarsest(&self, mut plan: Plan, cap: usize) -> Result<Outcome> {
        let mut smallest = None;
        for _ in 0..80 {
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
            if tiles.iter().all(|t| t.all_zero) {
                break;
            }
            let next = plan.step() * 1.5;
            if !set_step(&mut plan, next) {
                break;
            }
        }
        Ok(Outcome::Failed(smallest))
    }
}

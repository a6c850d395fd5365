//! The step that reaches a goal, and the blob made with it.
//!
//! Scan the tensor; guess a step from a scalar quantiser's entropy on a sample; fit classes; refine step
//! and costs on the sample; quantise everything and correct the step if the goal was missed; choose
//! tables and write the tiles.

use super::bracket::Bracket;
use super::classes;
use super::low_bits;
use super::sample::Sample;
use super::scan::{Scan, scan};
use crate::blob::{Geometry, Head, Params as Codec, assemble};
use crate::entropy::fit::{self, Counts};
use crate::entropy::rans::WordStack;
use crate::entropy::table::EncodeTable;
use crate::entropy::{ESCAPE, MAX_LANES};
use crate::error::Result;
use crate::levels::{self, Dequant, LowBits, Plan, Quantised, Rounding, TileWork, pack_tile, quantise_tile};
use crate::options::{Effort, EncodeOptions};
use crate::quant::cost::CostTable;
use crate::quant::machine::{Machine, grid};
use crate::quant::{scalar, trellis};
use crate::simd::Level;
use crate::view::{Dtype, TensorView, load_scaled};
use crate::workers::Workers;

/// What a step must reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Target {
    /// About this many bytes.
    Bytes(f64),
    /// At most this many bytes.
    Cap(usize),
    /// Mean squared error at most this.
    Mse(f64),
    /// Mean squared error over variance at most this.
    Nmse(f64),
    /// This step.
    Step(f64),
    /// No error above this.
    Bound(f64),
}

/// How a search for a step ended.
pub(crate) enum Outcome {
    /// A blob that reaches the target.
    Blob(Vec<u8>),
    /// Nothing to quantise: zeros and values stored exactly.
    Trivial(Vec<u8>),
    /// Not reached: a quantiser cannot hold these values or the target is out of range. The smallest
    /// blob seen, in bytes, if any was made.
    Failed(Option<usize>),
}

/// Values sampled for the step: enough for a rate within about 0.2 %.
const SAMPLE: usize = 1 << 17;
/// Values sampled while costs still change.
const COARSE_SAMPLE: usize = 1 << 15;
/// Values sampled for the first guess and for classes.
const SMALL_SAMPLE: usize = 1 << 15;

/// Tensors of fewer values are written to learn their size.
const WRITE_BELOW: usize = 1 << 17;

/// Tensors of at least this many values are streamed at the lowest effort.
const STREAM_FROM: usize = 1 << 20;

/// Weight of a bit against squared error in steps; found by trying on Gaussian and real tensors.
fn lambda(machine: Machine) -> f64 {
    if machine == Machine::SCALAR { 0.30 } else { 0.27 }
}

fn machine(effort: Effort) -> Machine {
    let log2_states = match effort {
        Effort::Fast => 0,
        Effort::Balanced => 3,
        Effort::Best => 8,
    };
    Machine::new(log2_states).unwrap_or(Machine::SCALAR)
}

/// Tiles large enough that lanes cost little, small enough that there are several.
fn geometry(values: usize, options: &EncodeOptions) -> Geometry {
    let lanes = (values / 512).next_power_of_two().clamp(2, 2 * MAX_LANES) / 2;
    let lanes = lanes.clamp(1, MAX_LANES);
    let most = match options.lane_values {
        0 if values >= 1 << 22 => 4096,
        0 => 2048,
        n => n as usize,
    };
    let tiles = values.div_ceil(lanes * most).max(1);
    Geometry { lanes, steps: values.div_ceil(tiles).div_ceil(lanes).max(1) }
}

/// One tensor on its way to a blob.
struct Job<'a> {
    view: &'a TensorView<'a>,
    options: &'a EncodeOptions,
    workers: &'a Workers,
    level: Level,
    scan: Scan,
    sample: Sample,
    /// Some of the sample, in units, with positions.
    values: Vec<(usize, f32)>,
    /// The finest step worth trying: below it more than a few values have levels out of range.
    finest: f64,
}

/// What a quantised tensor would take.
struct Trial {
    bytes: f64,
    mse: f64,
    counts: Vec<Counts>,
}

impl Trial {
    /// What to hold against [`Job::want`].
    fn got(&self, target: Target) -> f64 {
        match target {
            Target::Mse(_) => 1.0 / self.mse.max(f64::MIN_POSITIVE),
            _ => self.bytes,
        }
    }
}

/// Encodes with the step that reaches the target.
pub(crate) fn encode(
    view: &TensorView<'_>,
    options: &EncodeOptions,
    workers: &Workers,
    target: Target,
) -> Result<Outcome> {
    let level = Level::detect();
    let scan = scan(view, level, workers, matches!(target, Target::Nmse(_)));
    if scan.all_zero {
        return Job::new(view, options, workers, level, scan).trivial();
    }
    if scan.max == 0.0 || (matches!(target, Target::Nmse(_)) && !scan.variance.is_finite()) {
        return Ok(Outcome::Failed(None));
    }
    let job = Job::new(view, options, workers, level, scan);
    let target = match target {
        // Errors are measured in the scan's units.
        Target::Nmse(v) => Target::Mse(v * job.scan.variance),
        Target::Mse(v) => Target::Mse(v / job.scan.unit / job.scan.unit),
        t => t,
    };
    job.run(target)
}

/// Bits a value at a step, from a sample.
pub(crate) fn estimate(view: &TensorView<'_>, step: f64, effort: Effort) -> Result<f64> {
    let options = EncodeOptions::new(crate::Goal::Step(step)).with_effort(effort);
    let level = Level::detect();
    let workers = Workers::Here;
    let scan = scan(view, level, &workers, false);
    if scan.max == 0.0 {
        return Ok(0.0);
    }
    let job = Job::new(view, &options, &workers, level, scan);
    let Some(mut plan) = job.plan(step) else { return Ok(0.0) };
    let mut bytes = 0.0;
    for _ in 0..2 {
        let t = job.trial(&plan, &job.sample);
        bytes = t.bytes;
        plan.costs = CostTable::measured(&t.counts, &plan.low, lambda(plan.machine));
    }
    Ok(bytes * 8.0 / view.len() as f64)
}

impl<'a> Job<'a> {
    fn new(
        view: &'a TensorView<'a>,
        options: &'a EncodeOptions,
        workers: &'a Workers,
        level: Level,
        scan: Scan,
    ) -> Self {
        let sample = Sample::new(view.len(), SAMPLE);
        let values = sample.load(view, level, scan.unit, SMALL_SAMPLE);
        // All but a thousandth of what is not zero.
        let mut sizes: Vec<f32> = values.iter().map(|v| v.1.abs()).filter(|&v| v > 0.0).collect();
        let most = match sizes.len() {
            0 => scan.max,
            n => *sizes.select_nth_unstable_by(n - 1 - n / 1000, f32::total_cmp).1 as f64,
        };
        let finest = most * scan.unit / scalar::MAX_U as f64;
        Job { view, options, workers, level, scan, sample, values, finest }
    }

    fn run(&self, target: Target) -> Result<Outcome> {
        let Some(step) = self.first_step(target) else { return Ok(Outcome::Failed(None)) };
        let Some(mut plan) = self.plan(step) else { return Ok(Outcome::Failed(None)) };
        if let Target::Bound(bound) = target {
            plan.machine = Machine::SCALAR;
            plan.max_u = scalar::MAX_U;
            plan.rounding = Rounding::Bounded(bound);
        }
        plan.measure = matches!(target, Target::Mse(_));
        self.refine(&mut plan, target);
        self.finish(plan, target)
    }

    /// A blob of zeros, and of what is neither zero nor finite.
    fn trivial(&self) -> Result<Outcome> {
        let Some(dequant) = dequant(self.view.dtype(), 1.0) else { return Ok(Outcome::Failed(None)) };
        let plan = Plan {
            level: self.level,
            machine: Machine::SCALAR,
            geometry: geometry(self.view.len(), self.options),
            rounding: Rounding::Searched,
            low: LowBits::default(),
            unit: 1.0,
            max_u: scalar::MAX_U,
            costs: CostTable::guess(1.0),
            classes: None,
            dequant,
            measure: false,
            count: true,
            other: None,
        };
        let full = self.encode_all(&plan, Target::Step(1.0))?;
        Ok(Outcome::Trivial(full.into_blob(self, &plan)?))
    }

    fn n(&self) -> f64 {
        self.view.len() as f64
    }

    /// A step from statistics: exact for bounds, from error or entropy of a scalar quantiser otherwise.
    fn first_step(&self, target: Target) -> Option<f64> {
        let unit = self.scan.unit;
        let step = match target {
            Target::Step(s) => s,
            // A hair less than the bound, so that rounding in f32 does not throw values over it.
            Target::Bound(b) => b * (1.0 - 1.0 / 4096.0),
            Target::Mse(mse) => (mse * 3.0).sqrt() * unit,
            Target::Bytes(_) | Target::Cap(_) => {
                let want = self.payload_bits(target) / self.n();
                // The entropy falls as the step grows.
                let (mut low, mut high) = (self.finest / unit, self.scan.max * 2.0);
                for _ in 0..20 {
                    let middle = (low * high).sqrt();
                    if scalar_entropy(&self.values, middle) > want { low = middle } else { high = middle }
                }
                (low * high).sqrt() * unit
            }
            Target::Nmse(_) => return None, // turned into Mse before
        };
        (step.is_finite() && step > 0.0).then_some(step)
    }

    /// Bits that the target leaves for symbols. Soft goals on tiny tensors keep at least half of them:
    /// a header alone is of no use to anyone.
    fn payload_bits(&self, target: Target) -> f64 {
        let overhead = self.overhead(geometry(self.view.len(), self.options)) * 8.0;
        match target {
            Target::Cap(cap) => (cap as f64 * 8.0 - overhead).max(1.0),
            Target::Bytes(b) => (b * 8.0 - overhead).max(b * 4.0),
            _ => 0.0,
        }
    }

    /// Bytes of header, directory and lanes, without classes and tables.
    fn overhead(&self, geometry: Geometry) -> f64 {
        let tiles = geometry.tiles(self.view.len()) as f64;
        // A lane's state takes 32 bits and holds about 8 of the message.
        48.0 + tiles * (8.0 + 4.0 + geometry.lanes as f64 * 3.0)
    }

    /// A plan for a step: classes, low bits, guessed costs.
    fn plan(&self, step: f64) -> Option<Plan> {
        let mut machine = machine(self.options.effort);
        let mut max_u = trellis::MAX_U;
        let in_units = step / self.scan.unit;
        // Very fine steps: the search keeps levels in 16 bits, a scalar quantiser need not.
        let far = self.values.iter().filter(|v| v.1.abs() as f64 > 0.7 * max_u as f64 * in_units).count();
        if machine == Machine::SCALAR || far * 2000 > self.values.len() {
            machine = Machine::SCALAR;
            max_u = scalar::MAX_U;
        }
        let dtype = self.view.dtype();
        let geometry = geometry(self.view.len(), self.options);
        let mut plan = Plan {
            level: self.level,
            machine,
            geometry,
            rounding: Rounding::Searched,
            low: LowBits::default(),
            unit: self.scan.unit,
            max_u,
            costs: CostTable::guess(lambda(machine)),
            classes: None,
            dequant: dequant(dtype, step)?,
            measure: false,
            count: true,
            other: None,
        };
        let table_bits = if self.view.len() < 1 << 18 { 96.0 } else { 400.0 };
        plan.classes = classes::fit(&self.scan, &self.values, in_units, self.view.len(), table_bits);
        plan.low = low_bits::fit(&self.values, in_units, plan.classes.as_ref());
        Some(plan)
    }

    /// log2 of the sum of frequencies: fewer slots where there are many tables.
    fn table_log(classes: usize) -> u32 {
        match classes {
            0..=2 => 12,
            3..=8 => 11,
            _ => 10,
        }
    }

    /// Quantises a sample and reckons what the whole would take.
    fn trial(&self, plan: &Plan, sample: &Sample) -> Trial {
        let mut sample_plan = plan.clone();
        sample_plan.geometry = Sample::GEOMETRY;
        let tiles = self.workers.map(sample.windows.len(), TileWork::default, |work, i| {
            let q = quantise_tile(&sample_plan, self.view, sample.windows[i], work);
            let exact = exact_len(&q, self.view.dtype());
            (q.counts, q.squared_error, exact, q.measured)
        });
        let mut counts = vec![[0u64; 256]; plan.class_count() * 2];
        let (mut error, mut exact, mut finite) = (0.0, 0, 0);
        for (c, e, x, f) in &tiles {
            add(&mut counts, c);
            error += e;
            exact += x;
            finite += f;
        }
        let share = self.n() / sample.values as f64;
        let escapes: u64 = counts.iter().map(|c| c[ESCAPE as usize]).sum();
        let symbols: f64 = counts.iter().map(entropy).sum::<f64>()
            + low_total(&counts, &plan.low)
            + escapes as f64 * fit::ESCAPE_BITS;
        let per_value = symbols / sample.values as f64;
        let tables = counts.iter().filter(|c| c.iter().any(|&n| n > 0)).count() as f64
            * if self.view.len() < 1 << 17 { 5.0 } else { 30.0 };
        let classes = plan.classes.as_ref().map_or(0, |map| {
            let mut bytes = Vec::new();
            map.write(&mut bytes);
            bytes.len()
        });
        let bytes = per_value * self.n() / 8.0
            + self.overhead(plan.geometry)
            + tables
            + classes as f64
            + exact as f64 * share;
        Trial { bytes, mse: error / finite.max(1) as f64, counts }
    }

    /// Finds costs and step on the sample: first both in turn, then, costs held, the step alone.
    fn refine(&self, plan: &mut Plan, target: Target) {
        if matches!(plan.rounding, Rounding::Bounded(_)) {
            return;
        }
        let lambda = lambda(plan.machine);
        let coarse = self.sample.thin(COARSE_SAMPLE);
        let want = self.want(target);
        for round in 0..10 {
            let trial = self.trial(plan, &coarse);
            plan.costs = CostTable::measured(&trial.counts, &plan.low, lambda);
            let off = trial.got(target) / want - 1.0;
            let next = plan.step() * self.nudge(target, trial.got(target), want, 2.0);
            if (round >= 3 && off.abs() < 0.01) || want == 0.0 || !set_step(plan, next.max(self.finest)) {
                break;
            }
        }
        let low = low_bits::fit(&self.values, plan.step() / self.scan.unit, plan.classes.as_ref());
        if low != plan.low {
            plan.low = low;
            let trial = self.trial(plan, &coarse);
            plan.costs = CostTable::measured(&trial.counts, &plan.low, lambda);
        }
        let mut bracket = Bracket::default();
        for _ in 0..8 {
            let got = self.trial(plan, &self.sample).got(target);
            bracket.note(plan.step(), got, want);
            let next = bracket.next(plan.step(), want, self.nudge(target, got, want, 1.0));
            if want == 0.0 || (got / want - 1.0).abs() < 0.0015 || !set_step(plan, next.max(self.finest)) {
                break;
            }
        }
        self.fit_offsets(plan);
    }

    /// What [`Trial::got`] is held against: bytes, or the reciprocal of an error, so that it falls as the
    /// step grows; 0 where there is nothing to reach.
    fn want(&self, target: Target) -> f64 {
        match target {
            Target::Bytes(_) => {
                self.payload_bits(target) / 8.0 + self.overhead(geometry(self.view.len(), self.options))
            }
            Target::Cap(cap) => (cap as f64 * 0.999 - 2.0).max(1.0),
            Target::Mse(mse) => 1.0 / (mse * 0.995),
            _ => 0.0,
        }
    }

    /// Factor to change the step by. A rate falls by a bit for each doubling, faster below two bits, where
    /// zeros take over; `damping` says how much faster.
    fn nudge(&self, target: Target, got: f64, want: f64, damping: f64) -> f64 {
        match target {
            Target::Mse(_) => (got / want).sqrt().clamp(0.25, 4.0),
            _ => {
                let bits = |bytes: f64| bytes * 8.0 / self.n();
                let slope = (1.2 * damping / bits(want)).clamp(1.0, 2.5 * damping);
                ((bits(got) - bits(want)) / slope).clamp(-2.0, 2.0).exp2()
            }
        }
    }

    /// Reconstruction points at the mean of what quantises to them, where that is worth its bytes.
    fn fit_offsets(&self, plan: &mut Plan) {
        if self.view.len() < 1 << 14 {
            return;
        }
        let mut sample_plan = plan.clone();
        sample_plan.geometry = Sample::GEOMETRY;
        let size = self.view.dtype().size();
        let stride = self.sample.windows.len().div_ceil(32).max(1);
        let mut work = TileWork::default();
        let mut sums = [(0.0f64, 0.0f64); 9];
        for w in self.sample.windows.iter().step_by(stride) {
            let q = quantise_tile(&sample_plan, self.view, *w, &mut work);
            let mut u = vec![0f32; w.len];
            load_scaled(
                self.level,
                self.view.dtype(),
                &self.view.data()[w.start * size..][..w.len * size],
                plan.step(),
                &mut u,
            );
            let mut state = [0u32; MAX_LANES];
            let mut class = vec![0u8; if plan.classes.is_some() { w.len } else { 0 }];
            if let Some(map) = &plan.classes {
                map.fill(w.start, &mut class);
            }
            for (i, (&s, u)) in q.symbols.iter().zip(u).enumerate() {
                let s_lane = &mut state[i % Sample::GEOMETRY.lanes];
                // Magnitudes with low bits are too large to have an offset worth storing.
                if !plan.low.none() && plan.low.of(class.get(i).copied().unwrap_or(0)) > 0 {
                    continue;
                }
                let k = s as u8 as i8 as i32;
                let m = grid(k, *s_lane & 1);
                *s_lane = plan.machine.next(*s_lane, k);
                if m != 0 && s as u8 != ESCAPE && u.is_finite() {
                    let e = m.abs() as f64 - (u * m.signum() as f32) as f64;
                    let bin = &mut sums[m.unsigned_abs().min(8) as usize];
                    *bin = (bin.0 + 1.0, bin.1 + e);
                }
            }
        }
        let mut offsets = [0i8; 8];
        for (o, (n, e)) in offsets.iter_mut().zip(&sums[1..]) {
            if *n >= 64.0 {
                *o = (e / n * 64.0).round().clamp(-64.0, 64.0) as i8;
            }
        }
        plan.dequant = Dequant::new(plan.dequant.dtype, plan.dequant.scale, &offsets);
    }

    /// Quantises everything, correcting the step until the target is met.
    fn finish(&self, mut plan: Plan, target: Target) -> Result<Outcome> {
        let mut want = self.want(target);
        let mut bracket = Bracket::default();
        let mut nearest = Nearest::default();
        let rounds = if self.view.len() < 1 << 20 { 12 } else { 8 };
        for round in 0..rounds {
            let full = self.encode_all(&plan, target)?;
            let off = full.got / want - 1.0;
            // Rates of coarse dtypes move in jumps: a closed bracket is as near as the step alone gets.
            let stuck = round >= 4 && bracket.width().is_some_and(|w| w < 0.002);
            let met = match target {
                // No finer step helps where levels have reached their limit.
                Target::Bytes(_) => {
                    off.abs() <= self.slack() || (off < 0.0 && plan.step() <= self.finest * 1.001)
                }
                Target::Cap(_) => off <= 0.0005 && (off > -0.006 || stuck),
                Target::Mse(mse) => full.error <= mse * self.scan.finite as f64 && (off < 0.015 || stuck),
                _ => true,
            };
            if met {
                let blob = full.into_blob(self, &plan)?;
                match target {
                    Target::Cap(cap) if blob.len() > cap => {
                        // Aim lower by what was too much, and a little more.
                        want -= (blob.len() - cap) as f64 + 2.0 + cap as f64 * 0.001;
                        bracket = Bracket::default();
                    }
                    _ => return Ok(Outcome::Blob(blob)),
                }
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
        match target {
            Target::Cap(cap) => self.coarsest(plan, cap),
            Target::Bytes(_) => self.tune_weight(nearest.plan.unwrap_or(plan), want, target),
            _ => Ok(Outcome::Failed(None)),
        }
    }

    /// Where the step alone does not reach a size, turns the weight of a bit; where that moves in jumps too,
    /// gives some lanes one weight and the rest another.
    fn tune_weight(&self, plan: Plan, want: f64, target: Target) -> Result<Outcome> {
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
    fn slack(&self) -> f64 {
        if self.view.len() >= 1 << 20 { 0.003 } else { 0.007 }
    }

    /// Quantises everything and tells how large it is or how good.
    fn encode_all(&self, plan: &Plan, target: Target) -> Result<Full> {
        if self.options.effort == Effort::Fast && self.view.len() >= STREAM_FROM && !plan.measure {
            return self.encode_stream(plan);
        }
        let tiles = self.quantise(plan);
        let head = self.head(plan, &tiles);
        let error = tiles.iter().map(|t| t.squared_error).sum::<f64>();
        let mut full = Full { tiles, head, blob: None, error, got: 0.0 };
        match target {
            // Small blobs are written rather than predicted: a few bytes matter, and it is quick.
            Target::Bytes(_) | Target::Cap(_) if self.view.len() < WRITE_BELOW => {
                let blob = self.write(plan, &full.head, &full.tiles)?;
                full.got = blob.len() as f64;
                full.blob = Some(blob);
            }
            Target::Bytes(_) | Target::Cap(_) => full.got = self.predict(&full.head, &full.tiles),
            Target::Mse(_) => full.got = self.scan.finite as f64 / error.max(f64::MIN_POSITIVE),
            _ => {}
        }
        Ok(full)
    }

    /// Encodes tile by tile with tables from the sample: nothing is kept between quantising and coding,
    /// and nothing is counted. What the sample has not seen escapes.
    fn encode_stream(&self, plan: &Plan) -> Result<Full> {
        let mut counts = self.trial(plan, &self.sample).counts;
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
            let bytes = pack_tile(plan.level, &table, plan.geometry.lanes, size, &tile, stack);
            quantise.reuse(tile);
            bytes
        });
        let blob = self.assemble(head.clone(), &tiles)?;
        Ok(Full { tiles: Vec::new(), head, got: blob.len() as f64, blob: Some(blob), error: 0.0 })
    }

    fn quantise(&self, plan: &Plan) -> Vec<Quantised> {
        let n = self.view.len();
        self.workers.map(plan.geometry.tiles(n), TileWork::default, |work, i| {
            quantise_tile(plan, self.view, plan.geometry.tile(i, n), work)
        })
    }

    /// The last resort under a cap: steps doubled until it fits, or everything is zero and it does not.
    fn coarsest(&self, mut plan: Plan, cap: usize) -> Result<Outcome> {
        let mut smallest = None;
        for _ in 0..80 {
            let tiles = self.quantise(&plan);
            let head = self.head(&plan, &tiles);
            let blob = self.write(&plan, &head, &tiles)?;
            if blob.len() <= cap {
                return Ok(Outcome::Blob(blob));
            }
            smallest = Some(smallest.map_or(blob.len(), |s: usize| s.min(blob.len())));
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

    /// Header for a quantised tensor: its tables are chosen here.
    fn head(&self, plan: &Plan, tiles: &[Quantised]) -> levels::Params {
        self.head_of(plan, &total_counts(tiles))
    }

    fn head_of(&self, plan: &Plan, counts: &[Counts]) -> levels::Params {
        let classes = plan.class_count();
        let log = Self::table_log(classes);
        let per_class = levels::Params::tables_per_class(plan.machine);
        let alphabets = levels::Params::alphabets(log, &plan.low, classes, per_class);
        let stored: Vec<Counts> = counts.iter().step_by(2 / per_class).copied().collect();
        let tables = fit::choose(&stored, &alphabets, per_class);
        let freqs = levels::Params::freqs_of(fit::expand(&tables, &alphabets), per_class);
        levels::Params {
            machine: plan.machine,
            geometry: plan.geometry,
            log,
            low: plan.low,
            scale: plan.dequant.scale,
            offsets: plan.dequant.stored_offsets(),
            classes: plan.classes.clone(),
            tables,
            freqs,
        }
    }

    /// Bytes of a blob before its tiles are written.
    fn predict(&self, head: &levels::Params, tiles: &[Quantised]) -> f64 {
        let mut bytes = Vec::new();
        head.write(self.view.dtype(), &mut bytes);
        let symbols: f64 = total_counts(tiles).iter().zip(&head.freqs).map(|(c, f)| fit::cost(c, f)).sum();
        let coded = tiles.iter().filter(|t| !t.all_zero).count() as f64;
        let low: usize =
            tiles.iter().filter(|t| !t.all_zero).filter_map(|t| t.low.as_ref()).map(|l| l.len() + 3).sum();
        let exact: usize = tiles.iter().map(|t| exact_len(t, self.view.dtype())).sum();
        let fixed = 12.0 + 2.0 * self.view.shape().len() as f64 + 8.0;
        fixed
            + bytes.len() as f64
            + symbols / 8.0
            + low as f64
            + tiles.len() as f64 * 14.0
            + coded * head.geometry.lanes as f64 * 3.0
            + exact as f64
    }

    fn write(&self, plan: &Plan, head: &levels::Params, tiles: &[Quantised]) -> Result<Vec<u8>> {
        let table = EncodeTable::new(&head.freqs);
        let size = self.view.dtype().size();
        let bytes = self.workers.map(tiles.len(), WordStack::default, |stack, i| {
            pack_tile(plan.level, &table, plan.geometry.lanes, size, &tiles[i], stack)
        });
        self.assemble(head.clone(), &bytes)
    }

    fn assemble(&self, params: levels::Params, tiles: &[Vec<u8>]) -> Result<Vec<u8>> {
        let params = Codec::Levels(Box::new(params));
        assemble(&Head { dtype: self.view.dtype(), shape: self.view.shape().to_vec(), params }, tiles)
    }
}

/// A tensor quantised in full.
struct Full {
    tiles: Vec<Quantised>,
    head: levels::Params,
    /// Written already, if it is small.
    blob: Option<Vec<u8>>,
    error: f64,
    /// What to hold against [`Job::want`].
    got: f64,
}

impl Full {
    fn into_blob(self, job: &Job<'_>, plan: &Plan) -> Result<Vec<u8>> {
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

/// The dequantiser of a step, if the step can be stored.
fn dequant(dtype: Dtype, step: f64) -> Option<Dequant> {
    let scale = step / 64.0;
    let stored = if dtype == Dtype::F64 { scale } else { scale as f32 as f64 };
    let ok = if dtype == Dtype::F64 { stored.is_normal() } else { (stored as f32).is_normal() };
    let factor = 1.0 / (stored * 64.0);
    (ok && factor > 0.0 && factor.is_finite()).then(|| Dequant::new(dtype, stored, &[0; 8]))
}

/// Changes a plan's step, keeping its offsets; false if the step cannot be stored.
fn set_step(plan: &mut Plan, step: f64) -> bool {
    let old = &plan.dequant;
    match dequant(old.dtype, step) {
        Some(d) => {
            plan.dequant = Dequant::new(d.dtype, d.scale, &old.stored_offsets());
            true
        }
        None => false,
    }
}

fn exact_len(q: &Quantised, dtype: Dtype) -> usize {
    if q.exact.is_empty() {
        return 0;
    }
    let mut bytes = Vec::new();
    q.exact.write(dtype.size(), &mut bytes);
    bytes.len()
}

fn add(total: &mut [Counts], part: &[Counts]) {
    total.as_flattened_mut().iter_mut().zip(part.as_flattened()).for_each(|(t, p)| *t += p);
}

fn total_counts(tiles: &[Quantised]) -> Vec<Counts> {
    let mut counts = vec![[0u64; 256]; tiles.first().map_or(0, |t| t.counts.len())];
    tiles.iter().for_each(|t| add(&mut counts, &t.counts));
    counts
}

/// Raw low bits of all counted levels.
fn low_total(counts: &[Counts], low: &LowBits) -> f64 {
    let bits = |(i, c): (usize, &Counts)| c.iter().sum::<u64>() as f64 * low.of(i as u8 / 2) as f64;
    counts.iter().enumerate().map(bits).sum()
}

fn entropy(counts: &Counts) -> f64 {
    let n: u64 = counts.iter().sum();
    let term = |&c: &u64| if c == 0 { 0.0 } else { c as f64 * (n as f64 / c as f64).log2() };
    counts.iter().map(term).sum()
}

/// Entropy of a scalar quantiser of spacing 2·step, in bits a value.
fn scalar_entropy(values: &[(usize, f32)], step: f64) -> f64 {
    // Magnitudes beyond the bins are counted by octave, with the bits below the leading one on top.
    const NEAR: usize = 512;
    let mut bins = [0u32; NEAR + 32];
    let factor = (0.5 / step) as f32;
    let mut raw = 0.0;
    let mut signs = 0u32;
    for &(_, v) in values {
        let k = (v.abs() * factor + 0.5).min(4e9) as u32;
        signs += (k > 0) as u32;
        if (k as usize) < NEAR {
            bins[k as usize] += 1;
        } else {
            bins[NEAR + k.ilog2() as usize % 32] += 1;
            raw += k.ilog2() as f64;
        }
    }
    let n = values.len().max(1) as f64;
    let h: f64 = bins.iter().filter(|&&c| c > 0).map(|&c| c as f64 * (n / c as f64).log2()).sum();
    (h + raw + signs as f64) / n
}

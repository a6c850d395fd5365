//! One tensor on its way to a blob: what is known of it, and the plan made from that.

use super::Target;
use super::classes;
use super::low_bits;
use super::sample::Sample;
use super::scan::Scan;
use crate::blob::Geometry;
use crate::engine::Outcome;
use crate::entropy::fit::Counts;
use crate::error::Result;
use crate::levels::{Dequant, LowBits, Plan, Quantised, Rounding, TileWork, quantise_tile};
use crate::options::{Effort, EncodeOptions};
use crate::prepare::{self, Transform};
use crate::quant::cost::CostTable;
use crate::quant::machine::Machine;
use crate::quant::{scalar, trellis};
use crate::simd::Isa;
use crate::view::{Dtype, TensorView};
use crate::workers::Workers;

/// Values sampled for the step: enough for a rate within about 0.2 %.
pub(super) const SAMPLE: usize = 1 << 17;

/// Values sampled for the first guess and for classes.
pub(super) const SMALL_SAMPLE: usize = 1 << 15;

/// Values from which on there are tiles enough for all workers, and lanes may be longer.
const MANY: usize = 1 << 22;

/// Weight of a bit against squared error in steps; found by trying on Gaussian and real tensors.
pub(super) fn lambda(machine: Machine) -> f64 {
    if machine == Machine::SCALAR { 0.30 } else { 0.27 }
}

pub(super) fn machine(effort: Effort) -> Machine {
    Machine::new(effort.log2_states()).unwrap_or(Machine::SCALAR)
}

/// Tiles large enough that lanes cost little, small enough that there are several.
pub(super) fn geometry(values: usize, options: &EncodeOptions) -> Geometry {
    Geometry::of_levels(values, options.lane_values, MANY)
}

/// What a header says that does not follow from the tensor that is quantised.
pub(crate) struct Label<'a> {
    /// Of the tensor before it was prepared.
    pub(super) dtype: Dtype,
    pub(super) shape: &'a [usize],
    /// What was done to it.
    pub(super) transforms: &'a [Transform],
    /// Bytes that the transforms take.
    pub(super) bytes: usize,
}

impl<'a> Label<'a> {
    pub(crate) fn new(view: &TensorView<'a>, transforms: &'a [Transform]) -> Result<Self> {
        let mut bytes = Vec::new();
        prepare::write(transforms, &mut bytes)?;
        // The number of transforms is always there.
        Ok(Label { dtype: view.dtype(), shape: view.shape(), transforms, bytes: bytes.len() - 1 })
    }

    /// Scales of columns that a basis right before the codec knows.
    pub(super) fn known_scales(&self) -> &'a [u8] {
        match self.transforms.last() {
            Some(Transform::Basis(rotation)) => rotation.basis().map_or(&[], |basis| basis.scales()),
            _ => &[],
        }
    }
}

/// One tensor on its way to a blob.
pub(super) struct Job<'a> {
    pub(super) view: &'a TensorView<'a>,
    pub(super) label: &'a Label<'a>,
    pub(super) options: &'a EncodeOptions,
    pub(super) workers: &'a Workers,
    pub(super) isa: Isa,
    pub(super) scan: Scan,
    pub(super) sample: Sample,
    /// Some of the sample, in units, with positions.
    pub(super) values: Vec<(usize, f32)>,
    /// The finest step worth trying: below it more than a few values have levels out of range.
    pub(super) finest: f64,
}

/// What a quantised tensor would take.
pub(super) struct Trial {
    pub(super) bytes: f64,
    pub(super) mse: f64,
    pub(super) counts: Vec<Counts>,
}

impl Trial {
    /// What to hold against [`Job::want`].
    pub(super) fn got(&self, target: Target) -> f64 {
        match target {
            Target::Mse(_) => 1.0 / self.mse.max(f64::MIN_POSITIVE),
            _ => self.bytes,
        }
    }
}

impl<'a> Job<'a> {
    pub(super) fn new(
        view: &'a TensorView<'a>,
        label: &'a Label<'a>,
        options: &'a EncodeOptions,
        workers: &'a Workers,
        isa: Isa,
        scan: Scan,
    ) -> Self {
        let sample = Sample::new(view.len(), SAMPLE);
        let values = sample.load(view, isa, scan.unit, SMALL_SAMPLE);
        // All but a thousandth of what is not zero.
        let mut sizes: Vec<f32> = values.iter().map(|v| v.1.abs()).filter(|&v| v > 0.0).collect();
        let most = match sizes.len() {
            0 => scan.max,
            n => *sizes.select_nth_unstable_by(n - 1 - n / 1000, f32::total_cmp).1 as f64,
        };
        let finest = most * scan.unit / scalar::MAX_U as f64;
        Job { view, label, options, workers, isa, scan, sample, values, finest }
    }

    pub(super) fn run(&self, target: Target) -> Result<Outcome> {
        let Some(step) = self.first_step(target) else { return Ok(Outcome::Failed(None)) };
        let Some(mut plan) = self.plan(step) else { return Ok(Outcome::Failed(None)) };
        if let Target::Bound(bound) = target {
            plan.machine = Machine::SCALAR;
            plan.max_u = scalar::MAX_U;
            plan.rounding = Rounding::Bounded(bound);
        }
        plan.measure = matches!(target, Target::Mse(_));
        self.refine(&mut plan, target)?;
        self.finish(plan, target)
    }

    /// A blob of zeros, and of what is neither zero nor finite.
    pub(super) fn trivial(&self) -> Result<Outcome> {
        let Some(dequant) = dequant(self.view.dtype(), 1.0) else { return Ok(Outcome::Failed(None)) };
        let plan = Plan {
            isa: self.isa,
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

    pub(super) fn n(&self) -> f64 {
        self.view.len() as f64
    }

    /// A step from statistics: exact for bounds, from error or entropy of a scalar quantiser otherwise.
    pub(super) fn first_step(&self, target: Target) -> Option<f64> {
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
    pub(super) fn payload_bits(&self, target: Target) -> f64 {
        let overhead = self.overhead(geometry(self.view.len(), self.options)) * 8.0;
        match target {
            Target::Cap(cap) => (cap as f64 * 8.0 - overhead).max(1.0),
            Target::Bytes(b) => (b * 8.0 - overhead).max(b * 4.0),
            _ => 0.0,
        }
    }

    /// Bytes of header, directory and lanes, without classes and tables.
    pub(super) fn overhead(&self, geometry: Geometry) -> f64 {
        let tiles = geometry.tiles(self.view.len()) as f64;
        // A lane's state takes 32 bits and holds about 8 of the message.
        48.0 + self.label.bytes as f64 + tiles * (8.0 + 4.0 + geometry.lanes as f64 * 3.0)
    }

    /// A plan for a step: classes, low bits, guessed costs.
    pub(super) fn plan(&self, step: f64) -> Option<Plan> {
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
            isa: self.isa,
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
        plan.classes = classes::fit(
            &self.scan,
            self.label.known_scales(),
            &self.values,
            in_units,
            self.view.len(),
            table_bits,
        );
        plan.low = low_bits::fit(&self.values, in_units, plan.classes.as_ref());
        Some(plan)
    }

    /// Quantises a sample and reckons what the whole would take.
    pub(super) fn trial(&self, plan: &Plan, sample: &Sample) -> Result<Trial> {
        let mut sample_plan = plan.clone();
        sample_plan.geometry = Sample::GEOMETRY;
        let tiles = self.workers.map(sample.windows.len(), TileWork::default, |work, i| {
            let q = quantise_tile(&sample_plan, self.view, sample.windows[i], work);
            let exact = exact_len(&q, self.view.dtype());
            (q.counts, q.squared_error, exact, q.measured, escape_bits(&q.escapes))
        })?;
        let mut counts = vec![[0u64; 256]; plan.class_count() * 2];
        let (mut error, mut exact, mut finite, mut escapes) = (0.0, 0, 0, 0.0);
        for (c, e, x, f, s) in &tiles {
            escapes += s;
            add(&mut counts, c);
            error += e;
            exact += x;
            finite += f;
        }
        let share = self.n() / sample.values as f64;
        let symbols: f64 = counts.iter().map(entropy).sum::<f64>() + low_total(&counts, &plan.low) + escapes;
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
        Ok(Trial { bytes, mse: error / finite.max(1) as f64, counts })
    }
}

/// The dequantiser of a step, if the step can be stored.
pub(super) fn dequant(dtype: Dtype, step: f64) -> Option<Dequant> {
    let scale = step / 64.0;
    let stored = if dtype == Dtype::F64 { scale } else { scale as f32 as f64 };
    let ok = if dtype == Dtype::F64 { stored.is_normal() } else { (stored as f32).is_normal() };
    let factor = 1.0 / (stored * 64.0);
    (ok && factor > 0.0 && factor.is_finite()).then(|| Dequant::new(dtype, stored, &[0; 8]))
}

/// Changes a plan's step, keeping its offsets; false if the step cannot be stored.
pub(super) fn set_step(plan: &mut Plan, step: f64) -> bool {
    let old = &plan.dequant;
    match dequant(old.dtype, step) {
        Some(d) => {
            plan.dequant = Dequant::new(d.dtype, d.scale, &old.stored_offsets());
            true
        }
        None => false,
    }
}

/// Bits of a tile's escaped levels.
pub(super) fn escape_bits(escapes: &[i32]) -> f64 {
    let far = escapes.iter().map(|e| e.unsigned_abs()).max().unwrap_or(0);
    let width = if far < 1 << 7 {
        8.0
    } else if far < 1 << 15 {
        16.0
    } else {
        32.0
    };
    escapes.len() as f64 * width
}

pub(super) fn exact_len(q: &Quantised, dtype: Dtype) -> usize {
    if q.exact.is_empty() {
        return 0;
    }
    let mut bytes = Vec::new();
    q.exact.write(dtype.size(), &mut bytes);
    bytes.len()
}

pub(super) fn add(total: &mut [Counts], part: &[Counts]) {
    total.as_flattened_mut().iter_mut().zip(part.as_flattened()).for_each(|(t, p)| *t += p);
}

/// Raw low bits of all counted levels.
pub(super) fn low_total(counts: &[Counts], low: &LowBits) -> f64 {
    let bits = |(i, c): (usize, &Counts)| c.iter().sum::<u64>() as f64 * low.of(i as u8 / 2) as f64;
    counts.iter().enumerate().map(bits).sum()
}

pub(super) fn entropy(counts: &Counts) -> f64 {
    let n: u64 = counts.iter().sum();
    let term = |&c: &u64| if c == 0 { 0.0 } else { c as f64 * (n as f64 / c as f64).log2() };
    counts.iter().map(term).sum()
}

/// Entropy of a scalar quantiser of spacing 2·step, in bits a value.
pub(super) fn scalar_entropy(values: &[(usize, f32)], step: f64) -> f64 {
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

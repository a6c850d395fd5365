//! One tensor on its way to a blob: what is known of it, and the plan made from that.

use super::Target;
use super::classes;
use super::label::Label;
use super::low_bits;
use super::pairing;
use super::sample::Sample;
use super::scan::Scan;
use super::trial::scalar_entropy;
use crate::blob::Geometry;
use crate::calibrated::Feed;
use crate::engine::Outcome;
use crate::engine::search::halve;
use crate::engine::search::tolerance::FIRST_HALVINGS;
use crate::error::Result;
use crate::levels::{Dequant, LowBits, Plan, Rounding};
use crate::options::{Effort, EncodeOptions};
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
    Geometry::for_levels(values, options.lane_values, MANY)
}

/// One tensor on its way to a blob.
pub(super) struct Encoding<'a> {
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
    /// Where errors are fed back.
    pub(super) feed: Option<&'a Feed>,
}

impl<'a> Encoding<'a> {
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
        Encoding { view, label, options, workers, isa, scan, sample, values, finest, feed: None }
    }

    pub(super) fn run(&self, target: Target) -> Result<Outcome> {
        let plan = match self.adopt(target)? {
            None => self.settle(target)?,
            known => known,
        };
        match plan {
            Some(plan) => self.finish(plan, target),
            None => Ok(Outcome::Failed(None)),
        }
    }

    /// A plan whose step is about right, found on the sample; none if no step can be stored.
    pub(super) fn settle(&self, target: Target) -> Result<Option<Plan>> {
        let Some(mut plan) = self.guess_step(target).and_then(|step| self.plan(step)) else {
            return Ok(None);
        };
        if let Target::Bound(bound) = target {
            plan.machine = Machine::SCALAR;
            plan.max_u = scalar::MAX_U;
            plan.rounding = Rounding::Bounded(bound);
        }
        plan.measure = matches!(target, Target::Mse(_));
        self.refine(&mut plan, target)?;
        Ok(Some(plan))
    }

    /// A blob of zeros, and of what is neither zero nor finite.
    pub(super) fn encode_trivial(&self) -> Result<Outcome> {
        let Some(dequant) = dequant(self.view.dtype(), 1.0) else { return Ok(Outcome::Failed(None)) };
        let plan = Plan {
            isa: self.isa,
            machine: Machine::SCALAR,
            geometry: geometry(self.view.len(), self.options),
            paired: false,
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
            tables: Vec::new(),
        };
        let full = self.encode_all(&plan, Target::Step(1.0))?;
        Ok(Outcome::Trivial(full.into_blob(self, &plan)?))
    }

    /// A target whose errors are in the scan's units.
    pub(super) fn in_units(&self, target: Target) -> Target {
        match target {
            Target::Nmse(v) => Target::Mse(v * self.scan.variance),
            Target::Mse(v) => Target::Mse(v / self.scan.unit / self.scan.unit),
            t => t,
        }
    }

    pub(super) fn n(&self) -> f64 {
        self.view.len() as f64
    }

    /// A step from statistics: exact for bounds, from error or entropy of a scalar quantiser otherwise.
    pub(super) fn guess_step(&self, target: Target) -> Option<f64> {
        let unit = self.scan.unit;
        let step = match target {
            Target::Step(s) => s,
            // A hair less than the bound, so that rounding in f32 does not throw values over it.
            Target::Bound(b) => b * (1.0 - 1.0 / 4096.0),
            Target::Mse(mse) => (mse * 3.0).sqrt() * unit,
            Target::Bytes(_) | Target::Cap(_) => {
                let want = self.payload_bits(target) / self.n();
                let ends = (self.finest / unit, self.scan.max * 2.0);
                let magnitudes: Vec<f32> = self.values.iter().map(|v| v.1.abs()).collect();
                let entropy = |log_step: f64| scalar_entropy(self.isa, &magnitudes, log_step.exp2());
                halve(ends.0.log2(), ends.1.log2(), FIRST_HALVINGS, want, entropy).exp2() * unit
            }
            Target::Nmse(_) => return None, // turned into Mse before
        };
        (step.is_finite() && step > 0.0).then_some(step)
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
            paired: false,
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
            tables: Vec::new(),
        };
        let table_bits = if self.view.len() < 1 << 18 { 96.0 } else { 400.0 };
        (plan.classes, plan.paired) = classes::fit(
            &self.scan,
            self.label.known_scales(),
            &self.values,
            in_units,
            self.view.len(),
            table_bits,
            self.may_pair(geometry.lanes).then_some(pairing::SHARED),
        );
        plan.low = low_bits::fit(&self.values, in_units, plan.classes.as_ref());
        Some(plan)
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

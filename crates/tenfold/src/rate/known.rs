//! Plans that are kept: what was settled for one tensor saves the search for others like it.

use std::fmt;
use std::sync::Arc;

use super::Target;
use super::classes::Scaling;
use super::encoding::{Encoding, geometry, set_step};
use super::label::Label;
use super::scan::{Scan, scan};
use crate::engine::search::tolerance::KNOWN_SAMPLE;
use crate::engine::search::{Point, Search};
use crate::error::{Error, Result};
use crate::levels::{Plan, Rounding};
use crate::options::{Effort, EncodeOptions};
use crate::simd::Isa;
use crate::view::{Dtype, TensorView};
use crate::workers::Workers;

/// Values sampled for the step.
const VALUES: usize = 1 << 15;

/// What an encoder has settled for one tensor: classes of values, what levels cost, the step. A tensor like it (hidden states of the
/// next tokens, gradients of the next step) is encoded with that in a fraction of the time, since only the step is searched for.
///
/// A plan is made once and never changes, so the bytes of a blob depend on the tensor, the options and the plan, not on what was encoded
/// before. Values may all be larger or smaller by a factor. A tensor that a plan does not suit is planned afresh: one of another dtype or
/// with other columns, with transforms, or whose goal asks for a step more than an octave away, relative to the values. Goals that bound the error of each value, and engines other than the CPU's, have no use
/// for plans.
///
/// ```
/// use tenfold::{EncodeOptions, EncodePlan, Effort, Goal, TensorView};
/// let values: Vec<f32> = (0..65536).map(|i| (i as f32 * 0.7).sin() + (i as f32 * 0.013).cos()).collect();
/// let (first, later) = values.split_at(32768);
/// let options = EncodeOptions::new(Goal::Bits(3.0)).with_effort(Effort::Fast);
/// let plan = EncodePlan::new(&TensorView::from_slice(first, &[128, 256])?, &options)?;
/// let blob = tenfold::encode(&TensorView::from_slice(later, &[128, 256])?, &options.with_plan(plan))?;
/// assert!((blob.len() as f64 * 8.0 / 32768.0 - 3.0).abs() < 0.1);
/// # Ok::<(), tenfold::Error>(())
/// ```
#[derive(Clone)]
pub struct EncodePlan(Arc<Known>);

struct Known {
    dtype: Dtype,
    /// Values of a row of the class map.
    width: usize,
    effort: Effort,
    /// Nothing where the tensor has no use for a plan, as one of zeros.
    settled: Option<Settled>,
}

struct Settled {
    plan: Plan,
    /// How the scales of a class map follow from a tensor's means.
    scaling: Option<Scaling>,
    /// How large the values are.
    level: f64,
    /// Bytes of the whole over those that a sample leads to expect: what tables take and how well they fit changes little.
    bias: f64,
}

impl EncodePlan {
    /// Settles a plan for a tensor and a goal. Other goals of about the same rate are met with it too, at a little more error.
    pub fn new(view: &TensorView<'_>, options: &EncodeOptions) -> Result<EncodePlan> {
        options.validate()?;
        if !view.dtype().is_float() {
            return Err(Error::InvalidArgument(format!(
                "{} tensors are coded losslessly and need no plan",
                view.dtype()
            )));
        }
        let workers = Workers::new(options.threads, &options.stop)?;
        let isa = Isa::detect();
        let scan = scan(view, isa, &workers, false)?;
        let (width, max) = (scan.width, scan.max);
        let mut settled = None;
        let label = Label::new(view, &[])?;
        // Nothing is rounded to a bound, and an error relative to the variance is one goal of many: any rate does.
        let target = Target::from_goal(options.goal, view).filter(|t| !matches!(t, Target::Bound(_)));
        if let (true, Some(target)) = (max > 0.0, target) {
            let encoding = Encoding::new(view, &label, options, &workers, isa, scan);
            let target = encoding.in_units(target);
            if let Some(mut plan) = encoding.settle(target)? {
                plan.tables = encoding.expected_head(&plan)?.tables;
                let scaling = plan.classes.as_ref().and_then(|map| Scaling::of(map, &encoding.scan));
                // Without its scaling a map is of no use to others.
                if plan.classes.is_none() || scaling.is_some() {
                    let bias = encoding.bias(&plan)?;
                    settled = Some(Settled { plan, scaling, level: level(&encoding.scan), bias });
                }
            }
        }
        Ok(EncodePlan(Arc::new(Known { dtype: view.dtype(), width, effort: options.effort, settled })))
    }
}

impl fmt::Debug for EncodePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = self.0.settled.as_ref().map(|settled| settled.plan.step());
        f.debug_struct("EncodePlan")
            .field("dtype", &self.0.dtype)
            .field("step", &step)
            .finish_non_exhaustive()
    }
}

impl PartialEq for EncodePlan {
    /// Whether both are the same plan.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Encoding<'_> {
    /// The plan that the options bring, for this tensor and with its own step; none if it does not suit the tensor.
    pub(super) fn adopt(&self, target: Target) -> Result<Option<Plan>> {
        let Some(EncodePlan(known)) = &self.options.plan else { return Ok(None) };
        let Some(Settled { plan, scaling, level: usual, bias }) = &known.settled else { return Ok(None) };
        let geometry = geometry(self.view.len(), self.options);
        let alike = known.dtype == self.view.dtype()
            && known.effort == self.options.effort
            && known.width == self.scan.width
            && self.label.transforms.is_empty()
            && self.feed.is_none()
            && plan.unit == self.scan.unit
            && (!plan.paired || self.may_pair(geometry.lanes));
        if !alike || matches!(target, Target::Bound(_)) {
            return Ok(None);
        }
        let mut plan = Plan {
            isa: self.isa,
            geometry,
            rounding: Rounding::Searched,
            measure: matches!(target, Target::Mse(_)),
            ..plan.clone()
        };
        // What is alike but for a factor has the same levels in steps that are larger by it.
        let factor = level(&self.scan) / usual;
        if let (Some(map), Some(scaling)) = (&plan.classes, scaling) {
            plan.classes = Some(scaling.times(factor).map(map, &self.scan, self.label.known_scales()));
        }
        let near = plan.step() * factor;
        let sample = self.sample.thin(VALUES);
        let bias = if matches!(target, Target::Bytes(_) | Target::Cap(_)) { *bias } else { 1.0 };
        let step = match target {
            Target::Step(step) => step,
            _ => Search::new(self.want(target), self.slope(target), &KNOWN_SAMPLE).run(near, |step| {
                if !set_step(&mut plan, step.max(self.finest)) {
                    return Ok(None);
                }
                let got = self.trial(&plan, &sample)?.got(target) * bias;
                Ok::<_, Error>(Some(Point { knob: plan.step(), got }))
            })?,
        };
        let step = step.max(self.finest);
        let far = !(0.5..=2.0).contains(&(step / near));
        Ok((!far && set_step(&mut plan, step)).then_some(plan))
    }

    /// Bytes of the whole tensor under a plan over those that a sample leads to expect.
    fn bias(&self, plan: &Plan) -> Result<f64> {
        let plan = Plan { measure: false, ..plan.clone() };
        let target = Target::Bytes(self.view.data().len() as f64);
        let expected = self.trial(&plan, &self.sample.thin(VALUES))?.got(target);
        Ok(self.encode_all(&plan, target)?.got / expected)
    }
}

/// How large the values of most columns are, or of most rows where columns mean nothing: a few large ones count little.
fn level(scan: &Scan) -> f64 {
    let means = if scan.cols.is_empty() { &scan.rows } else { &scan.cols };
    let logs = means.iter().filter(|mean| **mean > 0.0).map(|mean| f64::from(*mean).ln());
    let (sum, count) = logs.fold((0.0, 0u32), |(sum, count), log| (sum + log, count + 1));
    (sum / f64::from(count.max(1))).exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Goal;
    use crate::{DecodeOptions, decode, encode, inspect};

    /// Columns of different sizes with a few large ones, as hidden states have them.
    fn states(rows: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut next = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        let values = (0..rows * 256).map(|i| {
            let size = 1.0 + (i % 256 % 7) as f32 + if i % 256 == 77 { 300.0 } else { 0.0 };
            (next() + next() + next()) * size
        });
        values.collect()
    }

    fn nmse(values: &[f32], blob: &[u8]) -> f64 {
        let back = decode(blob, &DecodeOptions::default()).unwrap().to_vec::<f32>().unwrap();
        let error: f64 = values.iter().zip(back).map(|(a, b)| f64::from(a - b).powi(2)).sum();
        error / values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>()
    }

    #[test]
    fn goals_are_met_with_a_plan_at_nearly_the_same_error() {
        let (first, later) = (states(400, 1), states(300, 2));
        let view = TensorView::from_slice(&later, &[300, 256]).unwrap();
        for effort in [Effort::Fast, Effort::Balanced] {
            let options = EncodeOptions::new(Goal::Bits(2.5)).with_effort(effort).with_transforms(Vec::new());
            let plan =
                EncodePlan::new(&TensorView::from_slice(&first, &[400, 256]).unwrap(), &options).unwrap();
            let cap = 20_000;
            for goal in
                [Goal::Bits(2.5), Goal::Bits(3.0), Goal::MaxBytes(cap), Goal::Nmse(0.01), Goal::Step(1.0)]
            {
                let options = EncodeOptions { goal, ..options.clone() };
                let (own, with) = (
                    encode(&view, &options).unwrap(),
                    encode(&view, &options.clone().with_plan(plan.clone())).unwrap(),
                );
                let (error_own, error_with) = (nmse(&later, &own), nmse(&later, &with));
                match goal {
                    Goal::Bits(bits) => {
                        let got = with.len() as f64 * 8.0 / later.len() as f64;
                        assert!((got / bits - 1.0).abs() < 0.01, "{effort:?} {goal:?}: {got}");
                        assert!(
                            error_with < error_own * if bits == 2.5 { 1.05 } else { 1.12 },
                            "{effort:?} {goal:?}: {error_with} {error_own}"
                        );
                    }
                    Goal::MaxBytes(cap) => {
                        assert!(with.len() <= cap && with.len() > cap * 97 / 100, "{}", with.len());
                        assert!(
                            error_with < error_own * 1.08,
                            "{effort:?} {goal:?}: {error_with} {error_own}"
                        );
                    }
                    Goal::Nmse(bound) => {
                        assert!(error_with <= bound * 1.001, "{error_with}");
                        assert!(with.len() as f64 <= own.len() as f64 * 1.03, "{} {}", with.len(), own.len());
                    }
                    _ => assert_eq!(inspect(&with).unwrap().step, inspect(&own).unwrap().step),
                }
            }
        }
    }

    #[test]
    fn a_factor_on_all_values_is_no_difference() {
        let first = states(100, 7);
        let larger: Vec<f32> = states(100, 8).iter().map(|v| v * 1000.0).collect();
        let options = EncodeOptions::new(Goal::Bits(3.0)).with_effort(Effort::Fast);
        let plan = EncodePlan::new(&TensorView::from_slice(&first, &[100, 256]).unwrap(), &options).unwrap();
        let view = TensorView::from_slice(&larger, &[100, 256]).unwrap();
        let (own, with) =
            (encode(&view, &options).unwrap(), encode(&view, &options.clone().with_plan(plan)).unwrap());
        assert!(own != with, "the plan is taken");
        assert!((with.len() as f64 * 8.0 / larger.len() as f64 / 3.0 - 1.0).abs() < 0.01);
        assert!(nmse(&larger, &with) < nmse(&larger, &own) * 1.08);
    }

    #[test]
    fn bytes_depend_on_the_tensor_and_the_plan_alone() {
        let (first, later) = (states(200, 3), states(200, 4));
        let views = [&first, &later].map(|v| TensorView::from_slice(v, &[200, 256]).unwrap());
        let options = EncodeOptions::new(Goal::Bits(3.0)).with_effort(Effort::Fast);
        let plan = EncodePlan::new(&views[0], &options).unwrap();
        let with = options.with_plan(plan);
        let alone = encode(&views[1], &with.clone().with_threads(1)).unwrap();
        encode(&views[0], &with).unwrap();
        assert_eq!(encode(&views[1], &with.with_threads(3)).unwrap(), alone);
    }

    #[test]
    fn tensors_that_a_plan_does_not_suit_are_planned_afresh() {
        let first = states(100, 5);
        let options = EncodeOptions::new(Goal::Bits(3.0)).with_effort(Effort::Fast);
        let plan = EncodePlan::new(&TensorView::from_slice(&first, &[100, 256]).unwrap(), &options).unwrap();
        // Other columns, a far other rate, a bound for each value, zeros, no finite values: as without a plan.
        let zeros = vec![0f32; 25_600];
        let bad: Vec<f32> =
            first.iter().enumerate().map(|(i, v)| if i % 2 == 0 { f32::NAN } else { *v }).collect();
        let bound = Goal::MaxError(0.5);
        for (values, cols, goal) in [
            (&first, 128, options.goal),
            (&first, 256, Goal::Bits(7.0)),
            (&first, 256, bound),
            (&zeros, 256, options.goal),
        ] {
            let shape = [values.len() / cols, cols];
            let view = TensorView::from_slice(values, &shape).unwrap();
            let options = EncodeOptions { goal, ..options.clone() };
            assert_eq!(encode(&view, &options.clone().with_plan(plan.clone())), encode(&view, &options));
        }
        let view = TensorView::from_slice(&bad, &[100, 256]).unwrap();
        let back = decode(
            &encode(&view, &options.clone().with_plan(plan.clone())).unwrap(),
            &DecodeOptions::default(),
        )
        .unwrap();
        assert!(back.to_vec::<f32>().unwrap().iter().zip(&bad).all(|(a, b)| a.is_nan() == b.is_nan()));
        // A plan of nothing is no plan.
        let none = EncodePlan::new(&TensorView::from_slice(&zeros, &[100, 256]).unwrap(), &options).unwrap();
        let view = TensorView::from_slice(&first, &[100, 256]).unwrap();
        assert_eq!(encode(&view, &options.clone().with_plan(none)), encode(&view, &options));
    }

    #[test]
    fn what_has_no_plan_is_refused() {
        let options = EncodeOptions::new(Goal::Bits(3.0));
        let integers = TensorView::from_slice(&[1i32; 64], &[64]).unwrap();
        assert!(matches!(EncodePlan::new(&integers, &options), Err(Error::InvalidArgument(_))));
        let values = states(10, 6);
        let view = TensorView::from_slice(&values, &[10, 256]).unwrap();
        let plan = EncodePlan::new(&view, &options).unwrap();
        let layered = options.with_residual(Goal::Bits(2.0)).with_plan(plan);
        assert!(matches!(encode(&view, &layered), Err(Error::InvalidArgument(_))));
    }
}

//! Plans made by the kernels alone, compared with what the CPU chose for the same tensor and goal.

use tenfold::format::Geometry;
use tenfold::prepare::Preparation;
use tenfold::{Dtype, Effort, EncodeOptions, Goal};

use super::*;
use crate::abi::Seen;
use crate::memory::Buffer;
use crate::status::Status;

#[path = "../../../../tenfold/tests/common/mod.rs"]
mod common;

use common::{Kind, Sample};

/// A tensor on the emulator, with everything that a search for a plan needs.
struct Bench {
    device: Device,
    encoding: Encoding,
    _tensor: Buffer,
    plan: Buffer,
    status: Buffer,
    workspace: Buffer,
}

impl Bench {
    fn new(sample: &Sample, goal: Goal, effort: Effort) -> Bench {
        let device = Device::emulated(1 << 30);
        let tensor = Buffer::from_slice(&device, &sample.data).unwrap();
        let values = sample.len() as u64;
        let geometry = Geometry::for_levels(sample.len(), 0, usize::MAX);
        let (goal, target) = translate_goal(goal, values, sample.dtype).unwrap();
        let encoding = Encoding {
            data: Each::one(tensor.slice()),
            values,
            cols: sample.shape.last().copied().unwrap_or(1) as u64,
            dtype: sample.dtype.id() as u32,
            goal,
            target,
            nu: effort.log2_states() as u32,
            lanes: geometry.lanes as u32,
            ticks: geometry.ticks as u32,
            tile_values: geometry.tile_values() as u64,
            tiles: geometry.tiles(sample.len()) as u64,
            dims: sample.shape.len() as u32,
            header_dtype: sample.dtype.id() as u32,
            ..Encoding::ZERO
        };
        // As the encoder has opened it.
        let plan = Buffer::from_slice(&device, &vec![0; size_of::<Plan>()]).unwrap();
        let status = Buffer::from_slice(&device, &[0; size_of::<Status>()]).unwrap();
        let workspace = Buffer::new(&device, workspace_len(&device, &encoding).unwrap()).unwrap();
        Bench { device, encoding, _tensor: tensor, plan, status, workspace }
    }

    fn places(&self) -> Places {
        Places {
            plan: Each::one(self.plan.slice()),
            status: Each::one(self.status.slice()),
            workspace: Each::one(self.workspace.slice()),
            batch: 1,
        }
    }

    fn plan(&self) -> Plan {
        // SAFETY: all of it is ours and lives long enough.
        unsafe { queue_plan(&self.device, &self.encoding, self.places(), Stream::DEFAULT).unwrap() };
        self.decided()
    }

    fn decided(&self) -> Plan {
        let mut bytes = vec![0u8; size_of::<Plan>()];
        self.plan.read(&mut bytes, Stream::DEFAULT).unwrap();
        // SAFETY: plain numbers, and there are enough bytes.
        unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) }
    }

    /// Writes the plan back, as a pass over the tensor would have left it, and judges that.
    fn judge(&self, plan: &Plan, pass: u32) -> Plan {
        let mut bytes = vec![0u8; size_of::<Plan>()];
        // SAFETY: as above.
        unsafe { std::ptr::write_unaligned(bytes.as_mut_ptr().cast(), *plan) };
        self.plan.write(&bytes, Stream::DEFAULT).unwrap();
        // SAFETY: as above.
        unsafe { queue_judge(&self.device, &self.encoding, self.places(), pass, Stream::DEFAULT).unwrap() };
        self.decided()
    }

    fn status(&self) -> u32 {
        let mut said = [0; size_of::<Status>()];
        self.status.read(&mut said, Stream::DEFAULT).unwrap();
        u32::from_le_bytes(said[..4].try_into().unwrap())
    }
}

/// Steps, classes and low bits of both.
fn compare(name: &str, sample: &Sample, goal: Goal, effort: Effort, within: f64) {
    // Pairs take a hair more, which the device leaves out here.
    let options = EncodeOptions::new(goal).with_effort(effort).with_prepare(Preparation::None).with_minor(0);
    let blob = tenfold::encode(&sample.view(), &options).unwrap();
    let info = tenfold::inspect(&blob).unwrap();
    let Some(step) = info.step else { return };
    let plan = Bench::new(sample, goal, effort).plan();
    let off = plan.step / step - 1.0;
    let classes = info.classes.unwrap();
    let say = format!(
        "{name} {goal:?} {effort:?}: step {:.4e}, the CPU's {step:.4e} ({:+.2} %); {} classes, the CPU's {classes}; \
         low bits {:?}, the CPU's {:?}; offsets {:?}",
        plan.step,
        off * 100.0,
        plan.classes,
        &plan.low[..plan.classes as usize],
        info.low_bits,
        &plan.offsets[1..9],
    );
    assert!(off.abs() < within, "{say}");
}

#[test]
fn steps_for_a_size_are_those_of_the_cpu() {
    for kind in [Kind::Gaussian, Kind::Laplace, Kind::HeavyTails, Kind::Outliers] {
        let sample = Sample::make(Dtype::Bf16, &[256, 256], kind, 7);
        for effort in [Effort::Fast, Effort::Balanced] {
            // Costs of a tensor this small come from a quarter of it at first; passes correct the step.
            compare(&format!("{kind:?}"), &sample, Goal::Bits(2.5), effort, 0.015);
        }
    }
    // Tables of classes take more of a small blob here than on the CPU.
    let sample = Sample::make(Dtype::Bf16, &[512, 512], Kind::Rows, 7);
    for effort in [Effort::Fast, Effort::Balanced] {
        compare("Rows", &sample, Goal::Bits(2.5), effort, 0.02);
    }
    compare(
        "Best",
        &Sample::make(Dtype::F32, &[100, 300], Kind::Laplace, 3),
        Goal::Bits(2.0),
        Effort::Best,
        0.02,
    );
}

#[test]
fn every_float_any_shape_and_any_rate() {
    let shapes: [&[usize]; 5] = [&[70_001], &[37, 1000], &[300, 129], &[2, 40_000], &[5000, 16]];
    for (i, dtype) in common::FLOATS.into_iter().enumerate() {
        for (j, shape) in shapes.iter().enumerate() {
            let bits = [1.2, 3.0, 5.0, 6.5][(i + j) % 4];
            let bits = if dtype.size() == 1 { 2.0 } else { bits };
            let sample = Sample::make(dtype, shape, common::SMOOTH[(i * 5 + j) % 3], 11);
            let sample = if j % 2 == 0 { sample.sprinkle(700, 5) } else { sample };
            let effort = if (i + j) % 2 == 0 { Effort::Fast } else { Effort::Balanced };
            compare(&sample.name(), &sample, Goal::Bits(bits), effort, 0.03);
        }
    }
    // Fine enough for low bits, and for levels that only a scalar quantiser holds.
    let sample = Sample::make(Dtype::F32, &[256, 160], Kind::Rows, 2);
    compare("fine", &sample, Goal::Bits(12.0), Effort::Balanced, 0.02);
    compare("finer", &sample, Goal::Step(1e-6), Effort::Balanced, 1e-6);
}

#[test]
fn other_goals() {
    let sample = Sample::make(Dtype::F32, &[200, 300], Kind::Gaussian, 5);
    for effort in [Effort::Fast, Effort::Balanced] {
        for goal in [Goal::Mse(0.01), Goal::Nmse(0.002), Goal::MaxBytes(20_000), Goal::Step(0.1)] {
            compare("Gaussian", &sample, goal, effort, 0.02);
        }
    }
    let bound = Bench::new(&sample, Goal::MaxError(0.05), Effort::Balanced).plan();
    assert_eq!((bound.nu, bound.bounded, bound.bound, bound.max_u), (0, 1, 0.05, 1.6e7));
    assert!(bound.step < 0.05 && bound.step > 0.0499);
    let shifted = Sample::make(Dtype::Bf16, &[200, 300], Kind::Shifted, 5);
    compare("Shifted", &shifted, Goal::Nmse(0.03), Effort::Balanced, 0.02);
}

#[test]
fn numbers_far_from_one() {
    let reals = Kind::Laplace.reals(40_000, 200, 3);
    for (dtype, by) in [
        (Dtype::F32, 1e-33),
        (Dtype::F32, 1e33),
        (Dtype::Bf16, 1e-20),
        (Dtype::F64, 1e-200),
        (Dtype::F64, 1e250),
    ] {
        let scaled: Vec<f64> = reals.iter().map(|v| v * by).collect();
        let sample = Sample::new(dtype, &[200, 200], &scaled);
        compare(&format!("{dtype} times {by:e}"), &sample, Goal::Bits(2.5), Effort::Balanced, 0.02);
        compare(&format!("{dtype} times {by:e}"), &sample, Goal::Nmse(0.01), Effort::Fast, 0.02);
    }
}

#[test]
fn nothing_to_quantise() {
    let zeros = Sample::new(Dtype::F32, &[50, 60], &vec![0.0; 3000]).sprinkle(40, 1);
    let empty = Sample::new(Dtype::F16, &[0, 60], &[]);
    let none = Sample::new(Dtype::F64, &[300], &[f64::NAN; 300]);
    for sample in [&zeros, &empty, &none] {
        for goal in [Goal::Bits(2.0), Goal::Nmse(0.1), Goal::MaxError(1.0)] {
            let bench = Bench::new(sample, goal, Effort::Balanced);
            let plan = bench.plan();
            assert_eq!((plan.trivial, plan.nu, plan.classes, plan.done), (1, 0, 1, 0), "{}", sample.name());
            assert!(plan.scale > 0.0);
            assert_eq!(bench.judge(&plan, 0).done, 1);
        }
    }
    // A constant has no variance to measure an error by, and these numbers no step: all is stored exactly.
    let constant = Sample::make(Dtype::F32, &[50, 60], Kind::Constant, 1);
    let plan = Bench::new(&constant, Goal::Nmse(0.1), Effort::Balanced).plan();
    assert_eq!((plan.trivial, plan.max_u), (0, 0.0));
    let tiny = Sample::new(Dtype::F64, &[500], &[1e-310; 500]);
    let plan = Bench::new(&tiny, Goal::Bits(4.0), Effort::Fast).plan();
    assert_eq!((plan.trivial, plan.max_u), (0, 0.0));
}

#[test]
fn statistics_are_exact() {
    let shapes: [&[usize]; 6] = [&[3, 7], &[9, 17], &[1000, 24], &[40, 1500], &[10, 5000], &[33_333]];
    for (i, dtype) in common::FLOATS.into_iter().enumerate() {
        for (j, shape) in shapes.iter().enumerate() {
            let kind = if j % 2 == 0 { Kind::Shifted } else { Kind::HeavyTails };
            let sample = Sample::make(dtype, shape, kind, (i * 7 + j) as u64).sprinkle(100, 2);
            let bench = Bench::new(&sample, Goal::Nmse(0.01), Effort::Fast);
            bench.plan();
            let mut bytes = [0u8; size_of::<Seen>()];
            bench.workspace.read(&mut bytes, Stream::DEFAULT).unwrap();
            // SAFETY: plain numbers, and there are enough bytes.
            let seen: Seen = unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) };
            let reals = sample.reals();
            let finite: Vec<f64> = reals.iter().copied().filter(|v| v.is_finite()).collect();
            let max = finite.iter().fold(0.0f64, |m, v| m.max(v.abs()));
            let name = sample.name();
            assert_eq!(seen.finite, finite.len() as u64, "{name}");
            let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-5;
            assert!(near(seen.max * seen.unit, max), "{name}: {seen:?}, {max}");
            let variance = common::variance(&reals);
            assert!(near(seen.variance * seen.unit * seen.unit, variance), "{name}: {seen:?}, {variance}");
        }
    }
}

#[test]
fn passes_close_in_on_the_goal() {
    let sample = Sample::make(Dtype::Bf16, &[200, 300], Kind::Gaussian, 5);
    // A tensor that takes a fifth more or less than its sample said, and one that does not obey at all.
    let curves: [fn(f64) -> f64; 3] = [|s| 1.2 / s, |s| 0.8 / s.powi(2), |s| 0.9 / s.sqrt()];
    for (c, curve) in curves.into_iter().enumerate() {
        for goal in [Goal::Bits(2.5), Goal::MaxBytes(20_000), Goal::Mse(0.01)] {
            let bench = Bench::new(&sample, goal, Effort::Fast);
            let mut plan = bench.plan();
            let first = plan.step;
            let want = bench.encoding.target;
            let mut pass = 0;
            while plan.done == 0 {
                let by = curve(plan.step / first);
                match goal {
                    Goal::Mse(v) => plan.squared_error = v / (by * plan.step).powi(2) * plan.finite as f64,
                    _ => plan.bytes = (want * by) as u64,
                }
                plan = bench.judge(&plan, pass);
                pass += 1;
            }
            let say = format!("{goal:?}, curve {c}: {} bytes after {pass} passes", plan.bytes);
            assert_eq!(bench.status(), 0, "{say}");
            assert!(pass <= 5, "{say}");
            let off = plan.bytes as f64 / want - 1.0;
            match goal {
                Goal::Mse(v) => {
                    assert!(plan.squared_error * plan.step.powi(2) <= v * plan.finite as f64, "{say}")
                }
                Goal::MaxBytes(_) => assert!(off <= 0.0 && off > -0.02, "{say}"),
                _ => assert!(off.abs() < 0.01, "{say}"),
            }
        }
    }
}

#[test]
fn a_cap_out_of_reach_is_told_and_never_passed_over() {
    let sample = Sample::make(Dtype::Bf16, &[200, 300], Kind::Rows, 5);
    let bench = Bench::new(&sample, Goal::MaxBytes(5000), Effort::Fast);
    let first = bench.plan();
    for (least, reachable) in [(4900.0, true), (5100.0, false)] {
        let mut plan = first;
        let mut pass = 0;
        bench.plan();
        while plan.done == 0 {
            assert!(pass < Passes::for_goal(GOAL_CAP).all);
            plan.bytes = (least + 3000.0 / (1.0 + plan.step / first.step)) as u64;
            plan = bench.judge(&plan, pass);
            pass += 1;
        }
        let (ok, bytes) = (bench.status() == 0, plan.bytes);
        assert_eq!(ok, reachable, "{bytes} bytes after {pass} passes");
        assert!(!ok || bytes <= 5000);
    }
}

//! Plans made by the kernels alone, held against what the CPU chose for the same tensor and goal.

use tenfold::{DecodeOptions, Dtype, Effort, EncodeOptions, Goal};

use super::*;
use crate::memory::Buffer;
use crate::status::Status;

#[path = "../../../tenfold/tests/common/mod.rs"]
#[allow(dead_code, unused_imports)]
mod common;

use common::{Kind, Sample, real_tensors};

/// The start of a plan, as the kernels have it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Decided {
    nu: u32,
    on_quantiser: u32,
    on_parity: u32,
    scale: f64,
    step: f64,
    factor: f32,
    max_u: f32,
    lambda: f32,
    bounded: u32,
    bound: f64,
    offsets: [i32; 16],
    classes: u32,
    row_bits: u32,
    col_bits: u32,
    any_low: u32,
    width: u64,
    rows: u64,
    row_scale: u64,
    col_scale: u64,
    thresholds: [u8; 16],
    class_of_sum: [u8; 128],
    low: [u8; 16],
    log: u32,
    cost: [f32; 4096],
    trivial: u32,
    done: u32,
    bytes: u64,
    squared_error: f64,
    finite: u64,
}

/// A tensor on the emulator, with everything that a search for a plan needs.
struct Bench {
    device: Device,
    job: Job,
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
        let lanes = ((values / 512).next_power_of_two().clamp(2, 64) / 2).clamp(1, 32);
        let tiles = values.div_ceil(lanes * 2048).max(1);
        let steps = values.div_ceil(tiles).div_ceil(lanes).max(1);
        let (goal, target) = goal_of(goal, values, sample.dtype).unwrap();
        let nu = match effort {
            Effort::Fast => 0,
            Effort::Balanced => 3,
            Effort::Best => 8,
        };
        let job = Job {
            data: tensor.slice().address,
            values,
            cols: sample.shape.last().copied().unwrap_or(1) as u64,
            dtype: sample.dtype.id() as u32,
            goal,
            target,
            nu,
            lanes: lanes as u32,
            steps: steps as u32,
            tile_values: lanes * steps,
            tiles,
            out: 0,
            out_len: 0,
            dims: sample.shape.len() as u32,
            shape: [0; MAX_DIMS],
        };
        let plan = Buffer::new(&device, PLAN_BYTES).unwrap();
        let status = Buffer::from_slice(&device, &[0; size_of::<Status>()]).unwrap();
        let workspace = Buffer::new(&device, workspace_len(&device, &job).unwrap()).unwrap();
        Bench { device, job, _tensor: tensor, plan, status, workspace }
    }

    fn plan(&self) -> Decided {
        let (plan, status, workspace) = (self.plan.slice(), self.status.slice(), self.workspace.slice());
        // SAFETY: all of it is ours and lives long enough.
        unsafe { queue_plan(&self.device, &self.job, plan, status, workspace, Stream::DEFAULT).unwrap() };
        self.decided()
    }

    fn decided(&self) -> Decided {
        let mut bytes = vec![0u8; PLAN_BYTES];
        self.plan.read(&mut bytes, Stream::DEFAULT).unwrap();
        // SAFETY: plain numbers, and there are enough bytes.
        unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) }
    }

    /// Writes the plan back, as a pass over the tensor would have left it, and judges that.
    fn judge(&self, plan: &Decided, pass: u32) -> Decided {
        let mut bytes = vec![0u8; PLAN_BYTES];
        // SAFETY: as above.
        unsafe { std::ptr::write_unaligned(bytes.as_mut_ptr().cast(), *plan) };
        self.plan.write(&bytes, Stream::DEFAULT).unwrap();
        let (plan, status, workspace) = (self.plan.slice(), self.status.slice(), self.workspace.slice());
        // SAFETY: as above.
        unsafe {
            queue_judge(&self.device, &self.job, plan, status, workspace, pass, Stream::DEFAULT).unwrap()
        };
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
    let options = EncodeOptions::new(goal).with_effort(effort);
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
    eprintln!("{say}");
    assert!(off.abs() < within, "{say}");
}

#[test]
fn the_numbers_of_goals_and_trials_are_those_of_the_kernels() {
    let (plan, sample) = (include_str!("../../kernels/plan.cuh"), include_str!("../../kernels/sample.cuh"));
    for (name, number) in [
        ("GOAL_BYTES", GOAL_BYTES),
        ("GOAL_CAP", GOAL_CAP),
        ("GOAL_MSE", GOAL_MSE),
        ("GOAL_NMSE", GOAL_NMSE),
        ("GOAL_STEP", GOAL_STEP),
        ("GOAL_BOUND", GOAL_BOUND),
        ("TRIAL_COARSE", TRIAL_COARSE),
        ("TRIAL_LOW", TRIAL_LOW),
        ("TRIAL_COSTS", TRIAL_COSTS),
        ("TRIAL_STEP", TRIAL_STEP),
        ("TRIAL_POINTS", TRIAL_POINTS),
    ] {
        let line = format!("#define {name} {number}\n");
        assert!(plan.contains(&line) || sample.contains(&line), "{line}");
    }
}

#[test]
fn steps_for_a_size_are_those_of_the_cpu() {
    for kind in [Kind::Gaussian, Kind::Laplace, Kind::HeavyTails, Kind::Rows, Kind::Outliers] {
        let sample = Sample::of(Dtype::Bf16, &[256, 256], kind, 7);
        for effort in [Effort::Fast, Effort::Balanced] {
            compare(&format!("{kind:?}"), &sample, Goal::Bits(2.5), effort, 0.02);
        }
    }
}

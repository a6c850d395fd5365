//! Lossy blobs from a device meet their goal, and are as good as the CPU's.

use tenfold::engine::Engine;
use tenfold::prepare::Preparation;
use tenfold::{Dtype, Effort, EncodeOptions, Error, Goal};

use crate::Case;
use crate::common::{
    Faults, Kind, Sample, decode, max_error, measure, mse, real_tensors, to_reals, variance,
};
use crate::device::Subject;

pub fn cases() -> Vec<Case> {
    vec![
        ("sizes are met and errors are those of the CPU".into(), sizes),
        ("sizes of coarse dtypes and tiny tensors".into(), coarse),
        ("real tensors take about the bits that they take on the CPU".into(), real),
        ("errors and bounds are kept to".into(), errors),
        ("caps are kept to, or refused".into(), caps),
        ("errors that vanish among a tensor's squares".into(), vanishing),
    ]
}

fn encode(
    subject: &Subject,
    sample: &Sample,
    goal: Goal,
    effort: Effort,
) -> tenfold::engine::Result<Vec<u8>> {
    subject.engine().encode(&sample.view(), &plain(goal, effort))
}

fn plain(goal: Goal, effort: Effort) -> EncodeOptions {
    EncodeOptions::new(goal).with_effort(effort).with_prepare(Preparation::None)
}

/// Holds a device's blob against a size and against the CPU's: it may be worse by `most` bits a value, differences of
/// size counted in.
fn hold(faults: &mut Faults, subject: &Subject, name: &str, sample: &Sample, goal: (f64, Effort), most: f64) {
    let (bits, effort) = goal;
    let made = encode(subject, sample, Goal::Bits(bits), effort);
    let made = made.unwrap_or_else(|e| panic!("{name} {}: {e}", sample.name()));
    let (here, error) = measure(sample, &made);
    let cpu = tenfold::encode(&sample.view(), &plain(Goal::Bits(bits), effort)).unwrap();
    let (there, least) = measure(sample, &cpu);
    let gap = here - there + 0.5 * (error / least).log2();
    let say = format!("{name} {} {effort:?}: {here:.4} bits, not {bits}; gap {gap:+.4}", sample.name());
    faults.check((here / bits - 1.0).abs() < 0.01, || say.clone());
    faults.check(gap < most, || say.clone());
}

fn sizes(subject: &Subject) {
    let mut faults = Faults::default();
    let kinds = [Kind::Gaussian, Kind::Laplace, Kind::HeavyTails, Kind::Rows, Kind::Outliers];
    for (i, kind) in kinds.into_iter().enumerate() {
        let dtype = [Dtype::Bf16, Dtype::F32, Dtype::F16][i % 3];
        let sample = Sample::make(dtype, &[512, 384], kind, i as u64);
        for goal in [(3.0, Effort::Fast), (2.0, Effort::Balanced)] {
            hold(&mut faults, subject, &format!("{kind:?}"), &sample, goal, 0.01);
        }
    }
    let fine = Sample::make(Dtype::F64, &[128, 300], Kind::Gaussian, 9);
    hold(&mut faults, subject, "fine", &fine, (11.0, Effort::Balanced), 0.05);
    let wide = Sample::make(Dtype::F32, &[40, 300], Kind::Laplace, 9);
    hold(&mut faults, subject, "wide", &wide, (2.0, Effort::Best), 0.03);
    faults.done();
}

fn coarse(subject: &Subject) {
    let mut faults = Faults::default();
    for dtype in [Dtype::F8E4M3, Dtype::F8E5M2] {
        let sample = Sample::make(dtype, &[300, 200], Kind::Gaussian, 3).sprinkle(900, 4);
        for goal in [(1.5, Effort::Fast), (2.0, Effort::Balanced)] {
            let (bits, effort) = goal;
            let made = encode(subject, &sample, Goal::Bits(bits), effort).unwrap();
            let here = made.len() as f64 * 8.0 / sample.len() as f64;
            // Sizes move in jumps: few values differ.
            let say = format!("{} {effort:?}: {here:.4} bits, not {bits}", sample.name());
            faults.check((here / bits - 1.0).abs() < 0.05, || say);
        }
    }
    for n in [256usize, 700, 3000, 9000] {
        let sample = Sample::make(Dtype::Bf16, &[n], Kind::Gaussian, 3);
        let made = encode(subject, &sample, Goal::Bits(4.0), Effort::Balanced).unwrap();
        let here = made.len() as f64 * 8.0 / n as f64;
        faults.check((here / 4.0 - 1.0).abs() < 0.02, || format!("{n} values: {here:.4} bits, not 4"));
    }
    faults.done();
}

fn real(subject: &Subject) {
    let mut faults = Faults::default();
    for (name, sample) in real_tensors() {
        // Measured tables take their toll of these small ones.
        hold(&mut faults, subject, &name, &sample, (2.5, Effort::Balanced), 0.05);
        // Transforms that nobody stated are none, or gain.
        let options = EncodeOptions::new(Goal::Bits(2.5));
        let [plain, usual] = [Preparation::None, Preparation::ByEffort].map(|prepare| {
            let blob = subject.engine().encode(&sample.view(), &options.clone().with_prepare(prepare));
            measure(&sample, &blob.unwrap())
        });
        let gap = usual.0 - plain.0 + 0.5 * (usual.1 / plain.1).log2();
        faults.check(gap <= 0.0, || format!("{name}: {gap:+.4} bits by the default's transforms"));
    }
    faults.done();
}

fn errors(subject: &Subject) {
    let mut faults = Faults::default();
    let samples = [
        Sample::make(Dtype::F32, &[200, 300], Kind::Laplace, 5).sprinkle(997, 6),
        Sample::make(Dtype::Bf16, &[200, 300], Kind::Shifted, 5),
        Sample::make(Dtype::F64, &[70_001], Kind::Rows, 5),
    ];
    for sample in &samples {
        let reals = sample.reals();
        for effort in [Effort::Fast, Effort::Balanced] {
            for goal in [Goal::Mse(0.004), Goal::Nmse(0.03), Goal::MaxError(0.07)] {
                let say = format!("{} {goal:?} {effort:?}", sample.name());
                let made = encode(subject, sample, goal, effort).unwrap_or_else(|e| panic!("{say}: {e}"));
                let seen = to_reals(sample.dtype, &decode(&made).data);
                let error = mse(&reals, &seen);
                let (got, limit, least) = match goal {
                    Goal::Mse(v) => (error, v, 0.97),
                    Goal::Nmse(v) => (error / variance(&reals), v, 0.97),
                    Goal::MaxError(v) => (max_error(&reals, &seen), v, 0.5),
                    _ => continue,
                };
                let say = format!("{say}: {:.4} of the limit", got / limit);
                faults.check(got <= limit && got >= limit * least, || say);
            }
        }
    }
    faults.done();
}

fn caps(subject: &Subject) {
    let mut faults = Faults::default();
    let samples = [
        Sample::make(Dtype::F32, &[200, 300], Kind::Rows, 5),
        Sample::make(Dtype::Bf16, &[60_000], Kind::HeavyTails, 5),
        Sample::make(Dtype::F8E4M3, &[60, 100], Kind::Gaussian, 5),
        Sample::make(Dtype::F16, &[100], Kind::Gaussian, 5),
    ];
    for sample in &samples {
        for bits in [0.2, 0.5, 1.0, 2.0, 3.0] {
            for effort in [Effort::Fast, Effort::Balanced] {
                let cap = (sample.len() as f64 * bits / 8.0) as usize;
                let say = format!("{} {cap} bytes {effort:?}", sample.name());
                let cpu = sample.try_encode(Goal::MaxBytes(cap), effort);
                match encode(subject, sample, Goal::MaxBytes(cap), effort) {
                    Ok(made) => {
                        let part = made.len() as f64 / cap as f64;
                        decode(&made);
                        // Headers and single slots weigh much in small blobs.
                        let least = if cap < 8000 { 0.5 } else { 0.95 };
                        let say = format!("{say}: {part:.4} of the cap");
                        faults.check(part <= 1.0 && (part > least || made.len() < 400), || say);
                    }
                    Err(Error::DoesNotFit { need, .. }) => {
                        let refused = cpu.is_err() || cap < 400;
                        faults.check(need > cap as u64 && refused, || format!("{say}: said to need {need}"));
                    }
                    Err(e) => faults.check(false, || format!("{say}: {e}")),
                }
            }
        }
    }
    faults.done();
}

fn vanishing(subject: &Subject) {
    let reals = Kind::Gaussian.reals(40 * 100, 100, 3);
    for (dtype, size) in [
        (Dtype::F64, 1e200),
        (Dtype::F64, 1e-200),
        (Dtype::F64, 1e150),
        (Dtype::F32, 1e30),
        (Dtype::F32, 1e-30),
    ] {
        let values: Vec<f64> = reals.iter().map(|v| v * size).collect();
        let sample = Sample::new(dtype, &[40, 100], &values);
        for goal in [Goal::Mse(1e-3), Goal::Mse(1e-30), Goal::Mse(1e-300), Goal::Nmse(0.01)] {
            let blob = encode(subject, &sample, goal, Effort::Fast).unwrap();
            let back = to_reals(dtype, &decode(&blob).data);
            // In units in which squares are numbers.
            let off: f64 =
                to_reals(dtype, &sample.data).iter().zip(&back).map(|(a, b)| ((a - b) / size).powi(2)).sum();
            let (off, most) = match goal {
                Goal::Mse(v) => ((off / 4000.0).sqrt() * size, v.sqrt()),
                _ => (off / 4000.0, 0.0105),
            };
            assert!(off <= most, "{dtype} of {size:e}, {goal:?}: {off:e}, at most {most:e}");
        }
    }
}

//! Weights of linear layers with feedback on a device: ordinary blobs, as good as those of the CPU.

use std::sync::Arc;

use tenfold::calibrated::{self, Curvature};
use tenfold::engine::{Engine, ErrorKind};
use tenfold::prepare::{Transform, Weights};
use tenfold::{Dtype, Effort, EncodeOptions, Error, Goal};

use crate::Case;
use crate::common::{Random, Sample};
use crate::device::Subject;

pub fn cases() -> Vec<Case> {
    vec![
        ("calibrated: as good as on the CPU".into(), quality),
        ("calibrated: every effort and dtype".into(), efforts),
        ("calibrated: shapes that no tile or warp fits".into(), shapes),
        ("calibrated: blocks, and inputs that were never active".into(), blocks),
        ("calibrated: readers before 1.2".into(), old_readers),
        ("calibrated: caps and steps".into(), caps),
        ("calibrated: what is stored exactly".into(), exact),
        ("calibrated: what cannot be fed back".into(), fallbacks),
        ("calibrated: importance where that costs less".into(), importance),
        ("calibrated: the loss is what the CPU predicts".into(), losses),
        ("calibrated: the same bytes each time".into(), repeated),
        ("calibrated: factors are those of the CPU".into(), units),
        ("calibrated: bad input".into(), bad_input),
    ]
}

/// E[x·xᵀ] of inputs that a few hidden causes have in common, with scales of their own.
fn moments(cols: usize, seed: u64) -> Vec<f32> {
    let mut r = Random::new(seed);
    let causes = cols / 4 + 1;
    let mixing: Vec<f64> = (0..cols * causes).map(|_| r.normal()).collect();
    let scale: Vec<f64> = (0..cols).map(|_| (r.normal() * 0.7).exp()).collect();
    let mut h = vec![0f32; cols * cols];
    for a in 0..cols {
        for b in 0..=a {
            let shared: f64 = (0..causes).map(|c| mixing[a * causes + c] * mixing[b * causes + c]).sum();
            let own = if a == b { causes as f64 * 0.2 } else { 0.0 };
            let v = ((shared + own) * scale[a] * scale[b]) as f32;
            (h[a * cols + b], h[b * cols + a]) = (v, v);
        }
    }
    h
}

fn weights(dtype: Dtype, rows: usize, cols: usize) -> Sample {
    let mut r = Random::new(3);
    let reals: Vec<f64> = (0..rows * cols).map(|_| r.normal() * 0.05).collect();
    Sample::new(dtype, &[rows, cols], &reals)
}

fn curvature(rows: usize, cols: usize) -> Arc<Curvature> {
    let mut r = Random::new(11);
    let outputs = (0..rows).map(|_| (r.normal() * 1.2).exp() * 1e-4).collect();
    Arc::new(Curvature::new(moments(cols, 5), cols).unwrap().with_outputs(outputs).unwrap())
}

fn options(goal: Goal, effort: Effort, of: &Arc<Curvature>) -> EncodeOptions {
    EncodeOptions::new(goal).with_effort(effort).with_curvature(of.clone())
}

fn loss(s: &Sample, of: &Curvature, blob: &[u8]) -> f64 {
    let decoded = tenfold::decode(blob, &Default::default()).unwrap();
    assert_eq!(decoded.shape, s.view().shape());
    of.loss(&s.view(), &decoded.view().unwrap()).unwrap()
}

/// Encodes on the device; returns the blob and what it is predicted to cost, by the CPU.
fn encode(subject: &Subject, s: &Sample, options: &EncodeOptions) -> (Vec<u8>, f64) {
    let blob = subject.engine().encode(&s.view(), options).unwrap_or_else(|e| panic!("{}: {e}", s.name()));
    let loss = loss(s, options.curvature.as_ref().unwrap(), &blob);
    (blob, loss)
}

/// The same options with the importance of inputs alone.
fn plain(options: &EncodeOptions) -> EncodeOptions {
    let mut plain = options.clone();
    let of = plain.curvature.take().unwrap();
    match plain.goal {
        Goal::Lossless => plain,
        _ => plain
            .with_transforms(vec![Transform::Weights(Weights::from_importance(&of.importance()).unwrap())]),
    }
}

/// The device's loss over the CPU's at the same size, with feedback and without, and what that is made of.
struct Ratios {
    fed: f64,
    plain: f64,
    what: String,
}

fn compare(subject: &Subject, s: &Sample, options: &EncodeOptions) -> Ratios {
    let of = options.curvature.as_ref().unwrap();
    let mut what = format!("{} {:?} {:?}:", s.name(), options.goal, options.effort);
    let mut ratio = |device: &[u8], cpu: &[u8]| {
        // A bit a value more is a quarter of the loss.
        let bits = (device.len() as f64 - cpu.len() as f64) * 8.0 / s.len() as f64;
        let (a, b) = (loss(s, of, device), loss(s, of, cpu));
        let ratio = a / b * 4f64.powf(bits);
        let [more, less] = [device, cpu].map(|blob| tenfold::inspect(blob).unwrap().classes.unwrap_or(0));
        what += &format!(" {} bytes, {more} classes and {a:.3e};", device.len());
        what += &format!(" {} bytes, {less} classes and {b:.3e} on the CPU: {ratio:.4}.", cpu.len());
        ratio
    };
    let (ours, blob) = (calibrated::encode(&s.view(), options).unwrap(), encode(subject, s, options).0);
    let transforms = |blob: &[u8]| tenfold::inspect(blob).unwrap().transforms;
    assert!(ours.fell_back.is_none(), "{}: {:?}", s.name(), ours.fell_back);
    assert!(transforms(&blob).len() == transforms(&ours.blob).len(), "{}: no feedback", s.name());
    let fed = ratio(&blob, &ours.blob);
    let without = plain(options);
    let bare = subject.engine().encode(&s.view(), &without).unwrap();
    let plain = ratio(&bare, &tenfold::encode(&s.view(), &without).unwrap());
    Ratios { fed, plain, what }
}

/// Feedback on a device costs no more beside the CPU's than anything else that it encodes: its tables, lists and samples differ, which
/// counts in small tensors.
fn check(subject: &Subject, s: &Sample, options: &EncodeOptions, most: f64) -> Result<(), String> {
    let found = compare(subject, s, options);
    if found.fed < found.plain.max(1.0) * most { Ok(()) } else { Err(found.what) }
}

fn quality(subject: &Subject) {
    let (rows, cols) = if subject.is_real() { (1024, 1536) } else { (512, 384) };
    let (s, of) = (weights(Dtype::Bf16, rows, cols), curvature(rows, cols));
    for bits in [1.75, 2.5, 4.0] {
        let found = compare(subject, &s, &options(Goal::Bits(bits), Effort::Balanced, &of));
        // In the emulator's small matrix classes and tables differ as much without feedback.
        let most = if subject.is_real() { 1.02 } else { 1.02 * found.plain.max(1.0) };
        assert!(found.fed < most, "{}", found.what);
    }
}

fn efforts(subject: &Subject) {
    let (rows, cols) = (160, 96);
    let of = curvature(rows, cols);
    for (dtype, effort) in [
        (Dtype::F32, Effort::Fast),
        (Dtype::Bf16, Effort::Fast),
        (Dtype::F16, Effort::Balanced),
        (Dtype::F8E4M3, Effort::Balanced),
        (Dtype::F32, Effort::Best),
    ] {
        check(subject, &weights(dtype, rows, cols), &options(Goal::Bits(2.5), effort, &of), 1.03).unwrap();
    }
}

fn shapes(subject: &Subject) {
    // Columns shorter than the look-ahead and than a tile's lanes, odd ones, ones that tiles end in, and ones that are long.
    let cases = [
        (17, 130, 0, Effort::Balanced, 1.06),
        (33, 65, 32, Effort::Balanced, 1.06),
        // Tables of a device are longer, so that a few thousand values have fewer classes.
        (100, 70, 0, Effort::Balanced, 1.2),
        (131, 77, 64, Effort::Balanced, 1.06),
        (131, 77, 64, Effort::Best, 1.06),
        (45, 33, 0, Effort::Best, 1.06),
        (97, 41, 0, Effort::Fast, 1.06),
        (2100, 17, 128, Effort::Balanced, 1.06),
        (36000, 2, 0, Effort::Balanced, 1.06),
    ];
    let failed = cases.into_iter().filter_map(|(rows, cols, lane, effort, most)| {
        // Rows that count the same: which classes these would have is another question.
        let of = Arc::new(Curvature::new(moments(cols, 5), cols).unwrap());
        let s = weights(Dtype::F32, rows, cols);
        check(subject, &s, &options(Goal::Bits(3.0), effort, &of).with_lane_values(lane), most).err()
    });
    let failed: Vec<String> = failed.collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

fn blocks(subject: &Subject) {
    let (rows, cols) = (96, 160);
    let s = weights(Dtype::Bf16, rows, cols);
    let of = Curvature::blocks(vec![moments(70, 1), moments(1, 2), moments(89, 3)]).unwrap();
    let of = Arc::new(of.with_damping(0.05));
    check(subject, &s, &options(Goal::Bits(2.5), Effort::Balanced, &of), 1.03).unwrap();
    // Inputs that were never active.
    let mut h = moments(cols, 5);
    for dead in [0, 3, 64, 159] {
        for k in 0..cols {
            (h[dead * cols + k], h[k * cols + dead]) = (0.0, 0.0);
        }
    }
    let of = Arc::new(Curvature::new(h, cols).unwrap());
    check(subject, &s, &options(Goal::Bits(2.5), Effort::Balanced, &of), 1.03).unwrap();
}

fn old_readers(subject: &Subject) {
    let (rows, cols) = (128, 96);
    let (s, of) = (weights(Dtype::Bf16, rows, cols), curvature(rows, cols));
    for minor in [0, 1] {
        let options = options(Goal::Bits(2.5), Effort::Balanced, &of).with_minor(minor);
        check(subject, &s, &options, 1.05).unwrap();
        let (blob, _) = encode(subject, &s, &options);
        let transforms = tenfold::inspect(&blob).unwrap().transforms;
        assert!(!transforms.contains(&Transform::Transposed));
    }
}

fn caps(subject: &Subject) {
    let (rows, cols) = (128, 96);
    let (s, of) = (weights(Dtype::Bf16, rows, cols), curvature(rows, cols));
    for effort in [Effort::Fast, Effort::Balanced] {
        let mut last = f64::INFINITY;
        for cap in [1200, 2500, 4000, 6500] {
            let (blob, loss) = encode(subject, &s, &options(Goal::MaxBytes(cap), effort, &of));
            assert!(blob.len() <= cap && blob.len() * 100 > cap * 93, "{} of {cap} bytes", blob.len());
            assert!(loss < last, "{cap} bytes cost {loss}, fewer {last}");
            last = loss;
        }
    }
    let none = subject.engine().encode(&s.view(), &options(Goal::MaxBytes(40), Effort::Balanced, &of));
    assert!(matches!(none, Err(Error::DoesNotFit { cap: 40, .. })), "{none:?}");
    // The step is that of weighted values.
    let coded = calibrated::encode(&s.view(), &options(Goal::Bits(2.5), Effort::Balanced, &of)).unwrap();
    let step = tenfold::inspect(&coded.blob).unwrap().step.unwrap();
    for step in [step, step * 0.5] {
        let (blob, loss) = encode(subject, &s, &options(Goal::Step(step), Effort::Balanced, &of));
        assert!((tenfold::inspect(&blob).unwrap().step.unwrap() / step - 1.0).abs() < 1e-6);
        let ours = calibrated::encode(&s.view(), &options(Goal::Step(step), Effort::Balanced, &of)).unwrap();
        assert!((loss / ours.loss - 1.0).abs() < 0.05, "a step of {step}: {loss}, {} on the CPU", ours.loss);
    }
    check(subject, &s, &options(Goal::Ratio(6.0), Effort::Balanced, &of), 1.05).unwrap();
}

/// Values that no level can hold are kept as they are.
fn exact(subject: &Subject) {
    let (rows, cols) = (96, 64);
    let of = Arc::new(Curvature::new(moments(cols, 5), cols).unwrap());
    let mut reals = weights(Dtype::F32, rows, cols).reals();
    for i in [0, 777, 1000, 6143] {
        reals[i] = 1e7 + i as f64;
    }
    let s = Sample::new(Dtype::F32, &[rows, cols], &reals);
    for effort in [Effort::Fast, Effort::Balanced] {
        let unit = of.unit().unwrap();
        let (blob, _) = encode(subject, &s, &options(Goal::Step(0.02 * unit), effort, &of));
        let found = tenfold::decode(&blob, &Default::default()).unwrap().to_vec::<f32>().unwrap();
        for (i, (f, r)) in found.iter().zip(&reals).enumerate() {
            // Errors of others are fed to them, which is nothing beside their size.
            assert!((f64::from(*f) - r).abs() < 1e-3 * r.abs().max(1e3), "value {i}: {f}, not {r}");
        }
    }
}

fn fallbacks(subject: &Subject) {
    let (rows, cols) = (64, 48);
    let of = curvature(rows, cols);
    let whole = weights(Dtype::Bf16, rows, cols);
    let (wide, special) = (weights(Dtype::F64, rows, cols), weights(Dtype::Bf16, rows, cols).sprinkle(97, 3));
    for (s, goal, why) in [
        (&wide, Goal::Bits(3.0), "float64"),
        (&special, Goal::Bits(3.0), "not finite"),
        (&whole, Goal::Lossless, "lossless"),
    ] {
        let asked = options(goal, Effort::Balanced, &of);
        let coded = subject.engine().encode_calibrated(&s.view(), &asked).unwrap();
        assert!(coded.fell_back.unwrap().contains(why), "{:?}, not {why}", coded.fell_back);
        assert_eq!(coded.blob, subject.engine().encode(&s.view(), &plain(&asked)).unwrap(), "{why}");
        let cpu = loss(s, &of, &coded.blob);
        assert!((coded.loss - cpu).abs() <= cpu * 1e-3, "{why}: {}, {cpu} on the CPU", coded.loss);
    }
    // Fewer values than pay for a header.
    let tiny = weights(Dtype::F32, 5, 8);
    let of = Arc::new(Curvature::new(moments(8, 5), 8).unwrap());
    let (_, loss) = encode(subject, &tiny, &options(Goal::Bits(3.0), Effort::Balanced, &of));
    assert_eq!(loss, 0.0);
    // Nothing but zeros.
    let zeros = Sample::new(Dtype::F32, &[32, 16], &[0.0; 512]);
    let of = Arc::new(Curvature::new(moments(16, 5), 16).unwrap());
    for effort in [Effort::Fast, Effort::Balanced, Effort::Best] {
        let (_, loss) = encode(subject, &zeros, &options(Goal::Bits(3.0), effort, &of));
        assert_eq!(loss, 0.0);
    }
}

/// Inputs that have nothing to do with each other leave feedback nothing to gain.
fn importance(subject: &Subject) {
    let (rows, cols) = (192, 96);
    let s = weights(Dtype::F32, rows, cols);
    let apart: Vec<f32> = (0..cols * cols).map(|i| if i / cols == i % cols { 1.0 } else { 0.0 }).collect();
    let of = Arc::new(Curvature::new(apart, cols).unwrap());
    for effort in [Effort::Fast, Effort::Balanced] {
        let asked = options(Goal::Bits(2.5), effort, &of);
        let coded = subject.engine().encode_calibrated(&s.view(), &asked).unwrap();
        assert!(coded.loss <= coded.plain, "{effort:?}: {} and {}", coded.loss, coded.plain);
        assert_eq!(coded.fell_back.is_some(), coded.loss == coded.plain);
    }
}

/// What a device predicts is what the CPU does.
fn losses(subject: &Subject) {
    let (rows, cols) = (96, 80);
    for (dtype, of) in [
        (Dtype::F32, curvature(rows, cols)),
        (Dtype::Bf16, Arc::new(Curvature::blocks(vec![moments(33, 1), moments(47, 2)]).unwrap())),
    ] {
        let (s, asked) = (weights(dtype, rows, cols), options(Goal::Bits(2.5), Effort::Balanced, &of));
        let coded = subject.engine().encode_calibrated(&s.view(), &asked).unwrap();
        let decoded = tenfold::decode(&coded.blob, &Default::default()).unwrap();
        let loss = of.loss(&s.view(), &decoded.view().unwrap()).unwrap();
        assert!((coded.loss / loss - 1.0).abs() < 1e-3, "{dtype}: {}, {loss} on the CPU", coded.loss);
        assert!(
            coded.fell_back.is_none() && coded.loss < coded.plain,
            "{dtype}: {} and {}",
            coded.loss,
            coded.plain
        );
        assert_eq!(subject.engine().encode(&s.view(), &asked).unwrap(), coded.blob);
    }
}

fn repeated(subject: &Subject) {
    let (rows, cols) = (130, 70);
    let (s, of) = (weights(Dtype::Bf16, rows, cols), curvature(rows, cols));
    for effort in [Effort::Fast, Effort::Balanced, Effort::Best] {
        let options = options(Goal::Bits(2.5), effort, &of);
        assert_eq!(encode(subject, &s, &options).0, encode(subject, &s, &options).0, "{effort:?}");
    }
}

fn units(subject: &Subject) {
    for cols in [1, 2, 63, 64, 65, 200] {
        let h = moments(cols, 9);
        let on_cpu = Curvature::new(h.clone(), cols).unwrap().unit().unwrap();
        let found = subject.engine().curvature_unit(&Curvature::new(h, cols).unwrap()).unwrap();
        assert!((found / on_cpu - 1.0).abs() < 1e-9, "{cols} inputs: {found}, {on_cpu} on the CPU");
    }
}

fn bad_input(subject: &Subject) {
    let engine = subject.engine();
    let (rows, cols) = (64, 48);
    let s = weights(Dtype::F32, rows, cols);
    // Of another layer.
    for of in [curvature(rows, cols - 1), curvature(rows + 1, cols)] {
        let error = engine.encode(&s.view(), &options(Goal::Bits(3.0), Effort::Balanced, &of)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Caller, "{error}");
    }
    // No mean of products: two inputs that go together more than each with itself.
    let mut h: Vec<f32> = moments(cols, 5);
    (h[40 * cols + 7], h[7 * cols + 40]) = (900.0, 900.0);
    let of = Arc::new(Curvature::new(h, cols).unwrap());
    let asked = options(Goal::Bits(3.0), Effort::Balanced, &of);
    let (ours, theirs) = (calibrated::encode(&s.view(), &asked), engine.encode(&s.view(), &asked));
    assert_eq!(ours.unwrap_err().to_string(), theirs.unwrap_err().to_string());
    let of = curvature(rows, cols);
    assert_eq!(engine.can_encode(s.dtype, &options(Goal::Bits(3.0), Effort::Balanced, &of)), Ok(()));
    // Goals that feedback has no notion of.
    let error = engine.encode(&s.view(), &options(Goal::Mse(1e-4), Effort::Balanced, &of)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Caller, "{error}");
    let integers = Sample::new(Dtype::I8, &[rows, cols], &vec![1.0; rows * cols]);
    assert!(engine.encode(&integers.view(), &options(Goal::Bits(3.0), Effort::Balanced, &of)).is_err());
}

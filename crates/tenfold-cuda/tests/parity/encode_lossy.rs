//! Lossy blobs made on a device by a plan of the CPU's: the CPU reads them, and they are as small and as good as its
//! own.

use tenfold::engine::Engine;
use tenfold::{Dtype, Effort, EncodeOptions, Error, Goal};

use crate::Case;
use crate::common::{FLOATS, Kind, Sample, max_error, mse, variance};
use crate::device::Subject;
use crate::fixed::{Plan, decoded, encode_by};

pub fn cases() -> Vec<Case> {
    vec![
        ("lossy: every dtype and effort".into(), dtypes),
        ("lossy: every trellis".into(), trellises),
        ("lossy: classes".into(), classes),
        ("lossy: low bits".into(), low_bits),
        ("lossy: escapes and exact values".into(), escapes),
        ("lossy: error bounds".into(), bounds),
        ("lossy: short tiles and few lanes".into(), shapes),
        ("lossy: zeros and what is not finite".into(), zeros),
        ("lossy: buffers that are too small".into(), too_small),
        ("lossy: goals".into(), goals),
    ]
}

fn room(sample: &Sample) -> usize {
    // More than a blob ever takes: what is stored exactly has a place and a length beside its element.
    sample.data.len() * 2 + sample.len() * 4 + 4096
}

fn options(goal: Goal, effort: Effort, lane: u32) -> EncodeOptions {
    EncodeOptions::new(goal).with_effort(effort).with_lane_values(lane)
}

/// Same values stored exactly, the rest finite.
fn same_specials(wanted: &[f64], found: &[f64], what: &str) {
    for (i, (w, f)) in wanted.iter().zip(found).enumerate() {
        let ok = if w.is_finite() {
            f.is_finite()
        } else {
            w.to_bits() == f.to_bits() || (w.is_nan() && f.is_nan())
        };
        assert!(ok, "{what}: value {i} is {f}, not {w}");
    }
}

/// Encodes on the CPU, then with the plan that it chose on the device. Returns both blobs.
fn compare(subject: &Subject, sample: &Sample, goal: Goal, effort: Effort, lane: u32) -> (Vec<u8>, Vec<u8>) {
    let what = format!("{} {goal:?} {effort:?}, lanes of {lane}", sample.name());
    let first = tenfold::encode(&sample.view(), &options(goal, effort, lane)).unwrap();
    let step = Plan::read(&first, sample).unwrap_or_else(|| panic!("{what}: lossless")).step;
    let ours = tenfold::encode(&sample.view(), &options(Goal::Step(step), effort, lane)).unwrap();
    let plan = Plan::read(&ours, sample).unwrap_or_else(|| panic!("{what}: lossless"));
    let lane = if lane == 0 { 2048 } else { lane };
    let blob = encode_by(subject, sample, &plan, lane, 3, room(sample));
    let blob = blob.unwrap_or_else(|e| panic!("{what}: {e}"));
    let (reals, found) = (sample.reals(), decoded(sample, &blob, &what));
    let wanted = decoded(sample, &ours, &what);
    same_specials(&reals, &found, &what);
    let (error, best) = (mse(&reals, &found), mse(&reals, &wanted));
    // Measured tables where the CPU may have found shorter ones.
    let tables = (plan.low.len() * 2 * 60) as f64;
    let (size, least) = (blob.len() as f64, ours.len() as f64);
    assert!(size <= least * 1.01 + tables, "{what}: {size} bytes, {least} on the CPU");
    assert!(error <= best * 1.02, "{what}: error {error}, {best} on the CPU");
    (blob, ours)
}

fn dtypes(subject: &Subject) {
    for (seed, dtype) in FLOATS.into_iter().enumerate() {
        for effort in [Effort::Fast, Effort::Balanced, Effort::Best] {
            let n = if effort == Effort::Best { 20 } else { 160 };
            let sample = Sample::make(dtype, &[n, 257], Kind::Gaussian, seed as u64);
            compare(subject, &sample, Goal::Bits(2.5), effort, 256);
        }
    }
}

/// More states are better: the cost of error and rate together falls.
fn trellises(subject: &Subject) {
    let sample = Sample::make(Dtype::F32, &[6_400], Kind::Gaussian, 7);
    let reals = sample.reals();
    let (mut last, mut first) = (f64::INFINITY, 0.0);
    for nu in [0, 2, 3, 4, 5, 6, 7, 8] {
        // A trellis has twice the points: its step is that of the scalar quantiser at the same rate, nearly.
        let plan = Plan::simple(nu, 0.35);
        let blob = encode_by(subject, &sample, &plan, 400, 2, room(&sample)).unwrap();
        let found = decoded(&sample, &blob, &format!("{nu}"));
        let bits = blob.len() as f64 * 8.0 / sample.len() as f64;
        // Bits by which this beats or misses the line D = 4^−R.
        let gap = bits + mse(&reals, &found).log2() / 2.0;
        if nu == 0 {
            first = gap;
        }
        assert!(gap < last + 0.004, "nu {nu}: {gap} after {last}");
        last = gap;
    }
    assert!(last < first - 0.1, "{last} for 256 states, {first} for one");
}

fn classes(subject: &Subject) {
    let cases =
        [(Kind::Rows, Dtype::Bf16, 0), (Kind::Outliers, Dtype::F32, 64), (Kind::HeavyTails, Dtype::F16, 0)];
    for (kind, dtype, lane) in cases {
        let sample = Sample::make(dtype, &[160, 384], kind, 5);
        for effort in [Effort::Fast, Effort::Balanced] {
            compare(subject, &sample, Goal::Bits(2.5), effort, lane);
        }
    }
    // Rows shorter than a warp, by a plan of our own, with every number of classes; some have no values.
    let sample = Sample::make(Dtype::Bf16, &[1500, 19], Kind::Rows, 6);
    let scales: Vec<u8> = (0..1500).map(|r| (r * 7 % 60) as u8).collect();
    for (nu, count) in [(0, 16), (3, 16), (3, 5), (5, 16), (2, 2)] {
        let thresholds: Vec<u8> = (1..count).map(|c| c * 5).collect();
        let mut plan = Plan::simple(nu, 0.1).by_rows(19, scales.clone(), 6, &thresholds);
        plan.log = 10;
        let blob = encode_by(subject, &sample, &plan, 128, 1, room(&sample)).unwrap();
        let found = decoded(&sample, &blob, &format!("{count} classes, nu {nu}"));
        let read = Plan::read(&blob, &sample).unwrap();
        assert_eq!((&read.rows.0, &read.thresholds), (&scales, &thresholds));
        let worst = max_error(&sample.reals(), &found);
        assert!(worst < 0.1 * 4.0, "{count} classes, nu {nu}: {worst}");
    }
}

fn low_bits(subject: &Subject) {
    for (dtype, bits, kind) in
        [(Dtype::F32, 9.0, Kind::Gaussian), (Dtype::F64, 14.0, Kind::Rows), (Dtype::F32, 16.0, Kind::Laplace)]
    {
        let sample = Sample::make(dtype, &[100, 301], kind, 8);
        for effort in [Effort::Fast, Effort::Balanced] {
            let (blob, _) = compare(subject, &sample, Goal::Bits(bits), effort, 100);
            assert!(
                Plan::read(&blob, &sample).unwrap().low.iter().any(|&l| l > 0),
                "{bits} bits without low ones"
            );
        }
    }
}

fn escapes(subject: &Subject) {
    for (dtype, effort) in
        [(Dtype::Bf16, Effort::Balanced), (Dtype::F32, Effort::Fast), (Dtype::F64, Effort::Best)]
    {
        let sample = Sample::make(dtype, &[64, 300], Kind::HeavyTails, 9).sprinkle(97, 3);
        compare(subject, &sample, Goal::Bits(3.0), effort, 150);
    }
    // Levels far from all others, of every width, and so many that a list of them overflows; runs of equal values.
    for nu in [0, 3, 8] {
        let mut reals = Kind::Gaussian.reals(9_000, 100, 4);
        for (i, v) in reals.iter_mut().enumerate() {
            match i {
                100..700 => *v = 40.0 + (i % 50) as f64,
                2_000 => *v = 3_000.0,
                2_001..2_040 => *v = f64::NAN,
                2_100..2_104 => *v = f64::NEG_INFINITY,
                2_104..2_300 => *v = 1e30,
                4_000..4_100 => *v = 1e20 * (i % 3) as f64,
                8_999 => *v = f64::INFINITY,
                _ => {}
            }
        }
        let sample = Sample::new(Dtype::F32, &[9_000], &reals);
        for low in [0, 3] {
            let mut plan = Plan::simple(nu, 0.05);
            plan.low = vec![low];
            let what = format!("nu {nu}, {low} low bits");
            let blob = encode_by(subject, &sample, &plan, 64, 2, room(&sample)).unwrap();
            let (wanted, found) = (sample.reals(), decoded(&sample, &blob, &what));
            same_specials(&wanted, &found, &what);
            let worst = max_error(&wanted, &found);
            assert!(worst < 0.3, "{what}: {worst}");
        }
    }
}

fn bounds(subject: &Subject) {
    for (dtype, step) in FLOATS.into_iter().zip([1e-5, 0.001, 0.01, 0.05, 0.2, 0.2]) {
        let sample = Sample::make(dtype, &[30, 400], Kind::Outliers, 11).sprinkle(211, 2);
        let bound = step;
        let mut plan = Plan::simple(0, bound * (1.0 - 1.0 / 4096.0));
        plan.bound = Some(bound);
        plan.low = vec![if step < 0.01 { 8 } else { 0 }];
        let what = format!("{dtype} within {bound}");
        let blob = encode_by(subject, &sample, &plan, 0, 1, room(&sample)).unwrap();
        let (wanted, found) = (sample.reals(), decoded(&sample, &blob, &what));
        same_specials(&wanted, &found, &what);
        let worst = max_error(&wanted, &found);
        assert!(worst <= bound, "{what}: {worst}");
    }
}

fn shapes(subject: &Subject) {
    let shapes: &[&[usize]] =
        &[&[1], &[31], &[300], &[511], &[513], &[1_025], &[17, 61], &[8_191], &[3, 5, 7, 11, 13]];
    for (i, shape) in shapes.iter().enumerate() {
        for nu in [0, 2, 3, 5] {
            for lane in [32, 0] {
                let sample = Sample::make(Dtype::Bf16, shape, Kind::Laplace, i as u64);
                let blob =
                    encode_by(subject, &sample, &Plan::simple(nu, 0.2), lane, 1, room(&sample)).unwrap();
                let what = format!("{shape:?}, nu {nu}");
                let worst = max_error(&sample.reals(), &decoded(&sample, &blob, &what));
                assert!(worst < 0.2 * 4.0, "{what}: {worst}");
            }
        }
    }
}

fn zeros(subject: &Subject) {
    let zeros = vec![0.0; 10_000];
    let nans = vec![f64::NAN; 10_000];
    let mixed: Vec<f64> =
        (0..10_000).map(|i| if i / 3_000 % 2 == 0 { 0.0 } else { (i % 7) as f64 - 3.0 }).collect();
    for (reals, most) in [(zeros, 300), (nans, 500), (mixed, 10_000)] {
        for nu in [0, 3, 4] {
            let sample = Sample::new(Dtype::F16, &[100, 100], &reals);
            let blob = encode_by(subject, &sample, &Plan::simple(nu, 0.01), 32, 1, room(&sample)).unwrap();
            let found = decoded(&sample, &blob, "zeros");
            same_specials(&sample.reals(), &found, "zeros");
            assert!(max_error(&sample.reals(), &found) < 0.1);
            assert!(blob.len() <= most, "{} bytes", blob.len());
        }
    }
}

fn too_small(subject: &Subject) {
    let sample = Sample::make(Dtype::Bf16, &[50, 200], Kind::Gaussian, 12);
    for nu in [0, 3] {
        let plan = Plan::simple(nu, 0.3);
        let blob = encode_by(subject, &sample, &plan, 64, 1, room(&sample)).unwrap();
        // Exactly enough is enough.
        let again = encode_by(subject, &sample, &plan, 64, 1, blob.len()).unwrap();
        assert!(again == blob, "the same blob where there is no more room than it takes");
        for room in [0, 3, 16, 100, blob.len() - 1] {
            match encode_by(subject, &sample, &plan, 64, 1, room) {
                Err(Error::BufferTooSmall { need, .. }) => assert_eq!(need, blob.len() as u64),
                other => panic!("{room} bytes: {other:?}"),
            }
        }
    }
}

/// The whole way: planned on the device, too.
fn goals(subject: &Subject) {
    let sample = Sample::make(Dtype::Bf16, &[128, 512], Kind::Rows, 13);
    let (reals, n) = (sample.reals(), sample.len() as f64);
    let encode = |goal, effort| {
        let blob = subject.engine().encode(&sample.view(), &options(goal, effort, 0));
        let blob = blob.unwrap_or_else(|e| panic!("{goal:?} {effort:?}: {e}"));
        let found = decoded(&sample, &blob, &format!("{goal:?} {effort:?}"));
        (blob.len() as f64, mse(&reals, &found), max_error(&reals, &found))
    };
    for effort in [Effort::Fast, Effort::Balanced] {
        let (bytes, ..) = encode(Goal::Bits(2.5), effort);
        assert!((bytes * 8.0 / n / 2.5 - 1.0).abs() <= 0.01, "{effort:?}: {bytes} bytes");
        let (bytes, ..) = encode(Goal::MaxBytes(16_000), effort);
        assert!(bytes <= 16_000.0 && bytes > 15_500.0, "{effort:?}: {bytes} bytes");
    }
    let (_, error, _) = encode(Goal::Nmse(0.01), Effort::Balanced);
    assert!(error <= 0.01 * variance(&reals) * 1.000_001, "{error}");
    let (_, error, _) = encode(Goal::Mse(error), Effort::Fast);
    assert!(error <= 0.01 * variance(&reals) * 1.000_001, "{error}");
    let (.., worst) = encode(Goal::MaxError(0.05), Effort::Balanced);
    assert!(worst <= 0.05, "{worst}");
    encode(Goal::Step(0.05), Effort::Balanced);
    // The device finds the range of the tensor for this one.
    let (.., worst) = encode(Goal::RoundToNearest { bits: 7 }, Effort::Balanced);
    assert!(worst <= reals.iter().fold(0.0, |most: f64, v| most.max(v.abs())) / 126.0, "{worst}");
}

//! What is done to tensors unless told otherwise: transforms where they gain, and never in the way of what a goal promises.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{EFFORTS, FLOATS, Kind, Random, Sample, decode, to_reals};
use tenfold::engine::{ErrorKind, Subject};
use tenfold::format::Codec;
use tenfold::prepare::{LEAST_GAIN, Preparation, Transform, auto};
use tenfold::{Dtype, Effort, EncodeOptions, Goal};

/// Columns with means of their own, and noise.
fn columns(dtype: Dtype, rows: usize, cols: usize) -> Sample {
    let mut r = Random::new(7);
    let centre: Vec<f64> = (0..cols).map(|_| r.normal() * 2.0).collect();
    let reals: Vec<f64> = (0..rows * cols).map(|i| centre[i % cols] + r.normal() * 0.5).collect();
    Sample::new(dtype, &[rows, cols], &reals)
}

fn names(blob: &[u8]) -> Vec<&'static str> {
    tenfold::inspect(blob).unwrap().transforms.iter().map(Transform::name).collect()
}

fn plain(options: &EncodeOptions) -> EncodeOptions {
    options.clone().with_prepare(Preparation::None)
}

#[test]
fn effort_decides_unless_the_caller_does() {
    let s = columns(Dtype::Bf16, 256, 64);
    for effort in EFFORTS {
        let options = EncodeOptions::new(Goal::Bits(3.0)).with_effort(effort);
        let usual = if effort == Effort::Fast { vec![] } else { vec!["means"] };
        assert_eq!(names(&tenfold::encode(&s.view(), &options).unwrap()), usual, "{effort:?}");
        assert!(names(&tenfold::encode(&s.view(), &plain(&options)).unwrap()).is_empty());
        let asked = options.with_prepare(Preparation::Auto);
        assert_eq!(names(&tenfold::encode(&s.view(), &asked).unwrap()), ["means"], "{effort:?}");
    }
}

#[test]
fn real_tensors_gain_or_stay_as_they_are() {
    for (name, s) in common::real_tensors() {
        let options = EncodeOptions::new(Goal::Bits(2.5));
        let error = |options: &EncodeOptions| {
            let blob = tenfold::encode(&s.view(), options).unwrap();
            (
                blob.len() as f64,
                common::mse(&s.reals(), &to_reals(s.dtype, &decode(&blob).data)),
                names(&blob),
            )
        };
        let (with, without) = (error(&options), error(&plain(&options)));
        if with.2.is_empty() {
            assert_eq!((with.0, with.1), (without.0, without.1));
            continue;
        }
        // Sizes may differ by what a goal allows.
        let bits = (with.0 - without.0) * 8.0 / s.len() as f64;
        let gain = 0.5 * (without.1 / with.1).log2() - bits;
        assert!(gain > LEAST_GAIN / 2.0, "{name} {:?}: {gain}", with.2);
    }
}

#[test]
fn noise_is_left_alone() {
    for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F64] {
        for (kind, shape) in
            [(Kind::Gaussian, [512, 512]), (Kind::Laplace, [100, 50]), (Kind::Outliers, [64, 700])]
        {
            let s = Sample::make(dtype, &shape, kind, 3);
            let found = auto(&s.view(), &EncodeOptions::new(Goal::Bits(2.0))).unwrap();
            assert_eq!(found, [], "{dtype} {kind:?}");
        }
    }
}

#[test]
fn errors_are_at_most_what_a_goal_says() {
    for dtype in FLOATS {
        let s = columns(dtype, 400, 48);
        let variance = common::variance(&s.reals());
        for goal in [0.1, 0.01, 1e-3, 1e-4, 1e-6].into_iter().flat_map(|v| [Goal::Nmse(v), Goal::Mse(v)]) {
            let blob = tenfold::encode(&s.view(), &EncodeOptions::new(goal)).unwrap();
            let mse = common::mse(&s.reals(), &to_reals(dtype, &decode(&blob).data));
            let most = match goal {
                Goal::Nmse(v) => v * variance,
                Goal::Mse(v) => v,
                _ => unreachable!(),
            };
            assert!(mse <= most * (1.0 + 1e-9), "{dtype} {goal:?}: {} of the limit", mse / most);
        }
    }
}

#[test]
fn bounds_leave_transforms_out() {
    let s = columns(Dtype::F32, 256, 64);
    let worst = |blob: &[u8]| common::max_error(&s.reals(), &to_reals(s.dtype, &decode(blob).data));
    let bound = EncodeOptions::new(Goal::MaxError(0.1));
    let blob = tenfold::encode(&s.view(), &bound).unwrap();
    assert!(names(&blob).is_empty() && worst(&blob) <= 0.1);
    assert!(auto(&s.view(), &bound).unwrap().is_empty());
    // A tensor that was prepared for another goal.
    let subject = Subject::new(&s.view(), &EncodeOptions::new(Goal::Bits(3.0))).unwrap();
    assert_eq!(names(&subject.encode(&EncodeOptions::new(Goal::Bits(2.0))).unwrap()), ["means"]);
    let blob = subject.encode(&bound).unwrap();
    assert!(names(&blob).is_empty() && worst(&blob) <= 0.1);
    let rounded = subject.encode(&EncodeOptions::new(Goal::RoundToNearest { bits: 6 })).unwrap();
    assert!(names(&rounded).is_empty());
    // Stated ones are refused.
    let means = auto(&s.view(), &EncodeOptions::new(Goal::Bits(3.0))).unwrap();
    let stated = EncodeOptions::new(Goal::Bits(3.0)).with_transforms(means);
    let subject = Subject::new(&s.view(), &stated).unwrap();
    assert_eq!(subject.encode(&bound).unwrap_err().kind(), ErrorKind::Caller);
}

#[test]
fn caps_are_met_where_they_were() {
    let s = columns(Dtype::F32, 64, 512);
    for cap in [150, 300, 700, 1200, 2000, 5000, 20_000] {
        let options = EncodeOptions::new(Goal::MaxBytes(cap));
        let with = tenfold::encode(&s.view(), &options);
        let without = tenfold::encode(&s.view(), &plain(&options));
        assert_eq!(with.is_ok(), without.is_ok(), "{cap}");
        assert!(with.map_or(true, |blob| blob.len() <= cap));
    }
}

#[test]
fn bytes_do_not_depend_on_threads() {
    let s = columns(Dtype::Bf16, 3000, 300);
    let options = EncodeOptions::new(Goal::Bits(2.5));
    let blob = tenfold::encode(&s.view(), &options).unwrap();
    assert_eq!(names(&blob), ["means"]);
    for threads in [1, 2, 3] {
        let other = tenfold::encode(&s.view(), &options.clone().with_threads(threads)).unwrap();
        assert!(other == blob, "{threads} threads");
    }
}

#[test]
fn oddities_are_kept_or_keep_transforms_away() {
    let some = columns(Dtype::F32, 256, 64).sprinkle(3, 5);
    let blob = tenfold::encode(&some.view(), &EncodeOptions::new(Goal::Bits(3.0))).unwrap();
    let back = decode(&blob);
    for (k, a) in some.reals().iter().enumerate().filter(|(_, a)| !a.is_finite()) {
        assert_eq!(back.data[k * 4..k * 4 + 4], some.data[k * 4..k * 4 + 4], "bits of {a}");
    }
    // Numbers near the end of the range, whose sums would leave it.
    for dtype in [Dtype::F32, Dtype::F64] {
        let most = if dtype == Dtype::F64 { 1.7e308 } else { 3.4e38 };
        let mut r = Random::new(1);
        let reals: Vec<f64> =
            (0..8192).map(|i| if i % 64 < 32 { most } else { -most * r.uniform() }).collect();
        let s = Sample::new(dtype, &[128, 64], &reals);
        for goal in [Goal::Bits(3.0), Goal::MaxBytes(4000)] {
            let blob = tenfold::encode(&s.view(), &EncodeOptions::new(goal)).unwrap();
            assert!(names(&blob).is_empty() && decode(&blob).data.len() == s.data.len(), "{dtype}");
        }
    }
}

#[test]
fn small_tensors_integers_and_further_layers_take_none() {
    let options = EncodeOptions::new(Goal::Bits(3.0));
    let small = columns(Dtype::F32, 60, 64);
    assert!(names(&tenfold::encode(&small.view(), &options).unwrap()).is_empty());
    let s = columns(Dtype::F32, 256, 64);
    let exact = EncodeOptions::new(Goal::Lossless).with_prepare(Preparation::Auto);
    assert_eq!(tenfold::inspect(&tenfold::encode(&s.view(), &exact).unwrap()).unwrap().codec, Codec::Planes);
    let layered = tenfold::encode(&s.view(), &options.with_residual(Goal::Bits(3.0))).unwrap();
    let info = tenfold::inspect(&layered).unwrap();
    let (first, second) = layered[info.header_bytes as usize..].split_at(info.layers[0] as usize);
    assert_eq!((names(first), names(second)), (vec!["means"], vec![]));
}

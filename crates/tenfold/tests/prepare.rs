//! Steps in front of the quantiser: what comes back, what it costs, what is refused.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{EFFORTS, FLOATS, Kind, Random, Sample, decode, to_reals};
use tenfold::engine::ErrorKind;
use tenfold::format::Codec;
use tenfold::prepare::{Axis, Dct, Delta, Hadamard, Means, Positions, Rope, Transform, Weights};
use tenfold::{DecodeOptions, Dtype, EncodeOptions, Goal, TensorView};

fn weights(axis: Axis, n: usize, seed: u64) -> Transform {
    let mut r = Random::new(seed);
    Transform::Weights(Weights::new(axis, (0..n).map(|_| r.below(49) as i8 - 24).collect()))
}

fn options(goal: Goal, transforms: Vec<Transform>) -> EncodeOptions {
    EncodeOptions::new(goal).with_transforms(transforms)
}

/// What a value was multiplied by.
fn factor(transforms: &[Transform], row: usize, col: usize) -> f64 {
    let of = |step: &Transform| match step {
        Transform::Weights(w) if w.axis() == Axis::Rows => f64::from(w.factor(row)),
        Transform::Weights(w) => f64::from(w.factor(col)),
        _ => 1.0,
    };
    transforms.iter().map(of).product()
}

/// Every finite value divided as its weight was multiplied: the error in the weighted domain.
fn weighted_error(s: &Sample, back: &[u8], factor: impl Fn(usize, usize) -> f64) -> f64 {
    let (a, b, cols) = (s.reals(), to_reals(s.dtype, back), s.view().cols());
    let terms = a.iter().zip(&b).enumerate().filter(|(_, (a, _))| a.is_finite());
    let errors: Vec<f64> = terms.map(|(i, (a, b))| ((a - b) * factor(i / cols, i % cols)).powi(2)).collect();
    errors.iter().sum::<f64>() / errors.len() as f64
}

#[test]
fn every_float_comes_back_through_weights() {
    for (i, dtype) in FLOATS.into_iter().enumerate() {
        for (j, effort) in EFFORTS.into_iter().enumerate() {
            let (rows, cols) = ([60, 30, 150, 300][(i + j) % 4], [133, 170, 53, 25][(i + j) % 4]);
            let s = Sample::make(dtype, &[rows, cols], Kind::Gaussian, (i * 3 + j) as u64).sprinkle(400, 4);
            let transforms = [
                vec![weights(Axis::Columns, cols, 1)],
                vec![weights(Axis::Rows, rows, 2)],
                vec![weights(Axis::Rows, rows, 3), weights(Axis::Columns, cols, 4)],
            ];
            for transforms in transforms {
                // Fine enough that an error of the wrong size would be seen, not so fine that lossless wins.
                let step = if dtype.size() <= 2 { 0.3 } else { 0.05 };
                let options =
                    options(Goal::Step(step), transforms.clone()).with_effort(effort).with_lane_values(64);
                let blob = tenfold::encode(&s.view(), &options).unwrap();
                let info = tenfold::inspect(&blob).unwrap();
                assert_eq!(info.codec, Codec::Levels, "{dtype} {rows} x {cols}");
                assert_eq!(
                    info.transforms.iter().filter(|s| matches!(s, Transform::Weights(_))).count(),
                    transforms.len()
                );
                let back = decode(&blob);
                let reals = to_reals(dtype, &back.data);
                for (k, (a, b)) in s.reals().iter().zip(&reals).enumerate() {
                    if !a.is_finite() {
                        let at = k * dtype.size()..(k + 1) * dtype.size();
                        assert_eq!(back.data[at.clone()], s.data[at], "bits of {a} at {k}");
                    } else {
                        let most = 4.0 * step / factor(&transforms, k / cols, k % cols);
                        assert!((a - b).abs() < most + 0.13 * a.abs(), "{dtype} at {k}: {a} {b}");
                    }
                }
            }
        }
    }
}

#[test]
fn columns_that_count_more_are_off_by_less() {
    let s = Sample::make(Dtype::F32, &[512, 64], Kind::Gaussian, 5);
    let importance: Vec<f64> = (0..64).map(|j| if j % 2 == 0 { 1.0 } else { 16.0 }).collect();
    let weights = Weights::from_importance(&importance).unwrap();
    let factors: Vec<f64> = (0..64).map(|j| f64::from(weights.factor(j))).collect();
    let with = options(Goal::Bits(2.5), vec![Transform::Weights(weights)]);
    let blob = tenfold::encode(&s.view(), &with).unwrap();
    let bits = blob.len() as f64 * 8.0 / 32768.0;
    assert!((bits / 2.5 - 1.0).abs() < 0.01, "{bits} bits");
    let back = decode(&blob).data;
    let of = |odd: usize| weighted_error(&s, &back, |_, j| f64::from(u8::from(j % 2 == odd))) * 2.0;
    let ratio = of(0) / of(1);
    assert!((10.0..22.0).contains(&ratio), "errors in a ratio of {ratio}, not 16");
    let plain = decode(&tenfold::encode(&s.view(), &EncodeOptions::new(Goal::Bits(2.5))).unwrap()).data;
    let weigh = |data: &[u8]| weighted_error(&s, data, |_, j| factors[j]);
    assert!(weigh(&back) < 0.6 * weigh(&plain), "{} {}", weigh(&back), weigh(&plain));
}

#[test]
fn goals_speak_of_weighted_errors() {
    let s = Sample::make(Dtype::F32, &[256, 128], Kind::Laplace, 6);
    let transforms = vec![weights(Axis::Columns, 128, 7)];
    let Transform::Weights(w) = &transforms[0] else { unreachable!() };
    let error = |blob: &[u8]| weighted_error(&s, &decode(blob).data, |_, j| f64::from(w.factor(j)));
    let mse = tenfold::encode(&s.view(), &options(Goal::Mse(0.02), transforms.clone())).unwrap();
    assert!(error(&mse) <= 0.02 && error(&mse) > 0.018, "{}", error(&mse));
    let cap = tenfold::encode(&s.view(), &options(Goal::MaxBytes(9000), transforms.clone())).unwrap();
    assert!(cap.len() <= 9000 && cap.len() > 8700, "{}", cap.len());
    let ratio = tenfold::encode(&s.view(), &options(Goal::Ratio(12.0), transforms.clone())).unwrap();
    assert!((s.data.len() as f64 / ratio.len() as f64 / 12.0 - 1.0).abs() < 0.01);
    let guess =
        tenfold::engine::estimate_bits(&s.view(), 0.3, tenfold::Effort::Balanced, &transforms).unwrap();
    let real = tenfold::encode(&s.view(), &options(Goal::Step(0.3), transforms)).unwrap();
    assert!((real.len() as f64 * 8.0 / 32768.0 / guess - 1.0).abs() < 0.02, "{guess}");
}

#[test]
fn rows_are_slices_of_the_whole() {
    for (dtype, shape) in [(Dtype::Bf16, [500, 37]), (Dtype::F64, [90, 200])] {
        let s = Sample::make(dtype, &shape, Kind::Gaussian, 8).sprinkle(50, 9);
        let transforms = vec![weights(Axis::Columns, shape[1], 1), weights(Axis::Rows, shape[0], 2)];
        let blob =
            tenfold::encode(&s.view(), &options(Goal::Bits(3.0), transforms).with_lane_values(32)).unwrap();
        let all = decode(&blob);
        let size = shape[1] * dtype.size();
        for (from, to) in [(0, shape[0]), (0, 1), (shape[0] - 1, shape[0]), (17, 61), (40, 40)] {
            let part = tenfold::decode_rows(&blob, from..to, &DecodeOptions::default()).unwrap();
            assert!(part.data == all.data[from * size..to * size], "{from}..{to}");
        }
        for threads in [1, 2, 5] {
            let options = DecodeOptions::default().with_threads(threads);
            assert_eq!(tenfold::decode(&blob, &options).unwrap(), all);
        }
    }
}

#[test]
fn nothing_but_oddities_and_lossless_goals_take_no_steps() {
    let transforms = vec![weights(Axis::Columns, 64, 1)];
    let s = Sample::make(Dtype::F32, &[8, 64], Kind::Gaussian, 1);
    let blob = tenfold::encode(&s.view(), &options(Goal::Lossless, transforms.clone())).unwrap();
    assert_eq!(tenfold::inspect(&blob).unwrap().transforms, []);
    assert_eq!(decode(&blob).data, s.data);
    for odd in [f32::NAN, f32::INFINITY, 0.0] {
        let values = vec![odd; 512];
        let view = TensorView::from_slice(&values, &[8, 64]).unwrap();
        let blob = tenfold::encode(&view, &options(Goal::Bits(3.0), transforms.clone())).unwrap();
        assert_eq!(decode(&blob).data, view.data());
    }
    // Weights that throw values out of range: stored as they are.
    let values = vec![3e38f32; 512];
    let view = TensorView::from_slice(&values, &[8, 64]).unwrap();
    let far = vec![Transform::Weights(Weights::new(Axis::Rows, vec![127; 8]))];
    let blob = tenfold::encode(&view, &options(Goal::Bits(3.0), far)).unwrap();
    assert_eq!(decode(&blob).data, view.data());
}

#[test]
fn what_does_not_go_together_is_the_callers_fault() {
    let s = Sample::make(Dtype::F32, &[20, 30], Kind::Gaussian, 1);
    let cases = [
        (Goal::Bits(3.0), vec![weights(Axis::Columns, 20, 1)], "30"),
        (Goal::Bits(3.0), vec![weights(Axis::Rows, 30, 1)], "20"),
        (Goal::MaxError(0.1), vec![weights(Axis::Columns, 30, 1)], "another goal"),
        (Goal::Bits(3.0), vec![Transform::Means(Means::new(&[0.0; 20]))], "30"),
        (Goal::Bits(3.0), vec![Transform::Rope(Rope::new(8, 1e4).unwrap())], "heads of 8"),
        (Goal::Bits(3.0), vec![Transform::Delta(Delta::new(2).unwrap()); 2], "only one"),
        (Goal::Bits(3.0), vec![Transform::Transposed; 2], "before all other"),
    ];
    for (goal, transforms, says) in cases {
        let e = tenfold::encode(&s.view(), &options(goal, transforms)).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Caller);
        assert!(e.to_string().contains(says), "{e}");
    }
}

/// One of each step that keeps squared errors, and some of them together.
fn chains(cols: usize, values: &[f64]) -> Vec<(&'static str, Vec<Transform>)> {
    let means = || Transform::Means(Means::measure(values, cols));
    let rope = |head: usize| {
        Transform::Rope(Rope::new(head, 1e4).unwrap().with_positions(Positions::From(1000)).unwrap())
    };
    vec![
        ("means", vec![means()]),
        ("Hadamard", vec![Transform::Hadamard(Hadamard::new(5, 3).unwrap())]),
        ("DCT", vec![Transform::Dct(Dct::new(3).unwrap())]),
        ("rope", vec![rope(cols)]),
        ("delta", vec![Transform::Delta(Delta::new(7).unwrap())]),
        ("transposed", vec![Transform::Transposed]),
        (
            "transposed and more",
            vec![
                Transform::Transposed,
                Transform::Dct(Dct::new(3).unwrap()),
                Transform::Delta(Delta::new(5).unwrap()),
            ],
        ),
        (
            "all",
            vec![
                rope(cols),
                means(),
                Transform::Dct(Dct::new(2).unwrap()),
                Transform::Delta(Delta::new(4).unwrap()),
            ],
        ),
    ]
}

#[test]
fn every_step_comes_back_in_every_dtype() {
    for (i, dtype) in FLOATS.into_iter().enumerate() {
        let s = Sample::make(dtype, &[203, 46], Kind::Shifted, i as u64).sprinkle(700, 4);
        for (name, transforms) in chains(46, &s.reals()) {
            let step = if dtype.size() == 1 { 0.8 } else { 0.2 };
            let options = options(Goal::Step(step), transforms).with_lane_values(64);
            let blob = tenfold::encode(&s.view(), &options).unwrap();
            let info = tenfold::inspect(&blob).unwrap();
            let back = decode(&blob);
            if dtype.size() == 1 && info.codec == Codec::Planes {
                // Few different values: lossless takes less.
                assert_eq!(back.data, s.data);
                continue;
            }
            assert_eq!(info.codec, Codec::Levels, "{dtype} {name}");
            for (k, (a, b)) in s.reals().iter().zip(to_reals(dtype, &back.data)).enumerate() {
                if !a.is_finite() {
                    let at = k * dtype.size()..(k + 1) * dtype.size();
                    assert_eq!(back.data[at.clone()], s.data[at], "{dtype} {name}: bits of {a} at {k}");
                } else {
                    // Differences add errors up; an f8 has three bits.
                    assert!((a - b).abs() < 15.0 * step + 0.13 * a.abs(), "{dtype} {name} at {k}: {a} {b}");
                }
            }
            let size = 46 * dtype.size();
            for (from, to) in [(0, 203), (0, 1), (202, 203), (17, 61), (8, 9), (40, 40)] {
                let part = tenfold::decode_rows(&blob, from..to, &DecodeOptions::default()).unwrap();
                assert!(part.data == back.data[from * size..to * size], "{dtype} {name}: {from}..{to}");
            }
            let alone = DecodeOptions::default().with_threads(1);
            assert_eq!(tenfold::decode(&blob, &alone).unwrap(), back);
        }
    }
}

#[test]
fn errors_are_those_of_the_tensor() {
    let s = Sample::make(Dtype::F32, &[512, 64], Kind::Shifted, 9);
    for (name, transforms) in chains(64, &s.reals()) {
        for goal in [Goal::Nmse(0.01), Goal::Mse(0.01)] {
            let blob = tenfold::encode(&s.view(), &options(goal, transforms.clone())).unwrap();
            let (mse, variance) = (
                common::mse(&s.reals(), &to_reals(s.dtype, &decode(&blob).data)),
                common::variance(&s.reals()),
            );
            let got = if matches!(goal, Goal::Nmse(_)) { mse / variance } else { mse };
            // Errors of differences add up as if they were independent, which they nearly are.
            let slack = if name == "delta" || name == "all" { 1.15 } else { 1.001 };
            assert!(got <= 0.01 * slack && got > 0.007, "{name} {goal:?}: {got}");
        }
    }
}

#[test]
fn steps_that_fit_save_bits() {
    // A mean for each column, and channels that follow the position.
    let cols = 64;
    let mut r = Random::new(3);
    let centre: Vec<f64> = (0..cols).map(|_| r.normal() * 5.0).collect();
    let reals: Vec<f64> = (0..256 * cols).map(|i| centre[i % cols] + r.normal() * 0.3).collect();
    let plain = Sample::new(Dtype::F32, &[256, cols], &reals);
    let rope = Rope::new(cols, 1e4).unwrap().with_positions(Positions::From(5)).unwrap();
    let mut turned = reals.clone();
    rope.inverse(&mut turned, cols, 0);
    let turned = Sample::new(Dtype::F32, &[256, cols], &turned);
    let means = Transform::Means(Means::measure(&reals, cols));
    let bits = |s: &Sample, transforms: &[Transform]| {
        let options = options(Goal::Mse(0.01), transforms.to_vec());
        tenfold::encode(&s.view(), &options).unwrap().len() as f64 * 8.0 / s.len() as f64
    };
    let (with, without) = (bits(&plain, std::slice::from_ref(&means)), bits(&plain, &[]));
    assert!(with < without - 0.9, "means: {with} {without}");
    let back = bits(&turned, &[Transform::Rope(rope), means]);
    assert!(back < with + 0.02, "positions: {back} {with}");
}

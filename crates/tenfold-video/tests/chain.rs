//! Transforms before pictures: done, recorded, undone, and refused where they cannot be.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests
#![cfg(feature = "video")]

mod common;

use std::sync::Arc;

use common::{bits, nmse, values};
use tenfold::prepare::{Axis, Basis, Delta, Means, Preparation, Rotation, Transform, Weights};
use tenfold::{DecodeOptions, Dtype, Effort, EncodeOptions, Error, Goal, Tensor};
use tenfold_video::{Scaling, Standard, VideoOptions};

const COLS: usize = 48;

/// Rows that lie near the first few of some directions, and those directions.
fn correlated(rows: usize) -> (Tensor, Arc<Basis>) {
    // Columns in no order that a codec's own transform could use.
    let entry = |k: usize, c: usize| {
        let c = (c * 19 + 7) % COLS;
        let turn = std::f64::consts::PI * k as f64 * (2 * c + 1) as f64 / (2 * COLS) as f64;
        turn.cos() * ((if k == 0 { 1.0 } else { 2.0 }) / COLS as f64).sqrt()
    };
    let noise = values(&common::gaussian(Dtype::F64, &[rows, COLS], 7));
    let mut table = vec![0.0; rows * COLS];
    for (row, noise) in table.chunks_exact_mut(COLS).zip(noise.chunks_exact(COLS)) {
        for (k, z) in noise.iter().map(|v| (v - 0.1) / 0.02).enumerate() {
            let size = 0.7f64.powi(k as i32);
            row.iter_mut().enumerate().for_each(|(c, v)| *v += z * size * entry(k, c));
        }
        row.iter_mut().enumerate().for_each(|(c, v)| *v += c as f64 / 64.0);
    }
    let vectors: Vec<f32> = (0..COLS).flat_map(|k| (0..COLS).map(move |c| entry(k, c) as f32)).collect();
    let means: Vec<f32> = (0..COLS).map(|c| c as f32 / 64.0).collect();
    let tensor = Tensor::from_f64(Dtype::F32, &[rows, COLS], &table).unwrap();
    (tensor, Arc::new(Basis::orthonormal(&means, &vectors).unwrap()))
}

fn first(basis: &Basis, rank: usize) -> Arc<Basis> {
    Arc::new(Basis::orthonormal(basis.means(), &basis.vectors()[..rank * COLS]).unwrap())
}

fn chain(transforms: Vec<Transform>, goal: Goal) -> EncodeOptions {
    EncodeOptions::new(goal).with_effort(Effort::Fast).with_transforms(transforms)
}

#[test]
fn a_basis_before_pictures_saves_most_of_their_error() {
    let (tensor, basis) = correlated(1500);
    let view = tensor.view().unwrap();
    let known = DecodeOptions::default().with_bases(vec![basis.clone(), first(&basis, 12)]);
    for standard in [Standard::H264, Standard::H265] {
        let video = VideoOptions::new(standard);
        let plain = EncodeOptions::new(Goal::Bits(1.5)).with_effort(Effort::Fast);
        let blob = tenfold_video::encode(&view, &plain, &video).unwrap();
        let without = nmse(&tensor, &tenfold_video::decode(&blob, &DecodeOptions::default()).unwrap());
        for basis in [basis.clone(), first(&basis, 12)] {
            let options = chain(vec![Transform::Basis(Rotation::named(&basis))], Goal::Bits(1.5));
            let blob = tenfold_video::encode(&view, &options, &video).unwrap();
            assert!((bits(&blob, &tensor) / 1.5 - 1.0).abs() < 0.02, "{standard}: {}", bits(&blob, &tensor));
            let missing = tenfold_video::decode(&blob, &DecodeOptions::default()).unwrap_err();
            assert!(matches!(missing, tenfold_video::Error::Tensor(Error::MissingBasis { .. })));
            let back = tenfold_video::decode(&blob, &known).unwrap();
            assert!(nmse(&tensor, &back) < without / 8.0, "{standard}: {} {without}", nmse(&tensor, &back));
            // Rows from the middle are those of the whole.
            let rows = tenfold_video::decode_rows(&blob, 700..703, &known).unwrap();
            assert!(rows.data == back.data[700 * COLS * 4..703 * COLS * 4]);
        }
    }
}

#[test]
fn errors_stay_below_the_goal_whatever_a_basis_leaves_out() {
    let (tensor, basis) = correlated(600);
    let view = tensor.view().unwrap();
    let video = VideoOptions::new(Standard::H265).with_scaling(Scaling::Columns);
    let of = |rank: usize| vec![Transform::Basis(Rotation::embedded(&first(&basis, rank)))];
    for (rank, goal) in [(COLS, 1e-3), (12, 1e-3), (24, 1e-4)] {
        let blob = tenfold_video::encode(&view, &chain(of(rank), Goal::Nmse(goal)), &video).unwrap();
        let got = nmse(&tensor, &tenfold_video::decode(&blob, &DecodeOptions::default()).unwrap());
        assert!(got <= goal && got > 0.7 * goal, "{rank}: {got} of {goal}");
        assert_eq!(tenfold::inspect(&blob).unwrap().coded, 600 * rank as u64);
    }
    let error = tenfold_video::encode(&view, &chain(of(4), Goal::Nmse(1e-3)), &video).unwrap_err();
    assert!(error.to_string().contains("more vectors"), "{error}");
}

#[test]
fn outliers_survive_transforms() {
    let (mut tensor, basis) = correlated(100);
    let odd = [(5usize, f32::NAN), (700, f32::NEG_INFINITY), (4799, 3e30)];
    for (at, v) in odd {
        tensor.data[4 * at..4 * at + 4].copy_from_slice(&v.to_le_bytes());
    }
    let weights = Weights::new(Axis::Rows, (0..100).map(|r| (r % 17) as i8 - 8).collect());
    let transforms = vec![
        Transform::Weights(weights),
        Transform::Means(Means::new(&[0.5; COLS])),
        Transform::Basis(Rotation::embedded(&basis)),
    ];
    let options = chain(transforms, Goal::Bits(6.0));
    let blob =
        tenfold_video::encode(&tensor.view().unwrap(), &options, &VideoOptions::new(Standard::H265)).unwrap();
    let back = tenfold_video::decode(&blob, &DecodeOptions::default()).unwrap();
    for (at, _) in odd {
        assert_eq!(back.data[4 * at..4 * at + 4], tensor.data[4 * at..4 * at + 4], "{at}");
    }
    let rows = tenfold_video::decode_rows(&blob, 99..100, &DecodeOptions::default()).unwrap();
    assert!(rows.data == back.data[99 * COLS * 4..]);
}

#[test]
fn other_chains_are_refused() {
    let (tensor, _) = correlated(64);
    let view = tensor.view().unwrap();
    let video = VideoOptions::new(Standard::H265);
    let refused = |options: EncodeOptions| {
        let error = tenfold_video::encode(&view, &options, &video).unwrap_err();
        assert_eq!(error.kind(), tenfold::engine::ErrorKind::Caller, "{error}");
        error.to_string()
    };
    let goal = Goal::Bits(3.0);
    assert!(refused(chain(vec![Transform::Delta(Delta::new(4).unwrap())], goal)).contains("delta"));
    assert!(refused(chain(vec![Transform::Transposed], goal)).contains("transposed"));
    assert!(refused(EncodeOptions::new(goal).with_prepare(Preparation::Auto)).contains("auto"));
    let means = || vec![Transform::Means(Means::new(&[0.5; COLS]))];
    assert!(refused(chain(means(), Goal::MaxError(0.1))).contains("each value"));
    assert!(refused(chain(means(), goal).with_minor(2)).contains("1.3"));
    assert!(refused(chain(vec![Transform::Means(Means::new(&[0.5; 3]))], goal)).contains("48"));
}

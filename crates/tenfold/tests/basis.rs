//! Coordinates in a basis: what comes back, what it saves, and what is refused.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::Arc;

use common::{EFFORTS, FLOATS, Kind, Random, Sample, decode, to_reals};
use tenfold::engine::{Coordinates, ErrorKind};
use tenfold::format::Codec;
use tenfold::prepare::{Basis, Positions, Rope, Rotation, Transform};
use tenfold::{DecodeOptions, Dtype, EncodeOptions, Error, Goal};

/// Cosines: orthonormal, and far from the unit vectors.
fn cosines(cols: usize, rank: usize) -> Vec<f32> {
    let entry = |k: usize, i: usize| {
        let scale = (if k == 0 { 1.0 } else { 2.0 } / cols as f64).sqrt();
        (scale * (std::f64::consts::PI * (i as f64 + 0.5) * k as f64 / cols as f64).cos()) as f32
    };
    (0..rank).flat_map(|k| (0..cols).map(move |i| entry(k, i))).collect()
}

fn basis(cols: usize, rank: usize) -> Arc<Basis> {
    let means: Vec<f32> = (0..cols).map(|i| (i as f32 * 0.3).sin()).collect();
    Arc::new(Basis::orthonormal(&means, &cosines(cols, rank)).unwrap())
}

/// Rows of coordinates of falling size in a basis of cosines, and noise in all columns.
fn rows_of(basis: &Basis, rows: usize, noise: f64, seed: u64) -> Vec<f64> {
    let mut r = Random::new(seed);
    let mut out = Vec::with_capacity(rows * basis.cols());
    for _ in 0..rows {
        let c: Vec<f64> = (0..basis.rank()).map(|k| r.normal() * 8.0 * 0.9f64.powi(k as i32)).collect();
        for i in 0..basis.cols() {
            let sum: f64 = c.iter().enumerate().map(|(k, c)| c * f64::from(basis.vector(k)[i])).sum();
            out.push(sum + f64::from(basis.means()[i]) + noise * r.normal());
        }
    }
    out
}

fn options(goal: Goal, step: Rotation) -> EncodeOptions {
    EncodeOptions::new(goal).with_transforms(vec![Transform::Basis(step)])
}

/// Decodes a blob that names a basis.
fn read(blob: &[u8], basis: &Arc<Basis>) -> tenfold::Tensor {
    tenfold::decode(blob, &knowing(basis)).unwrap()
}

fn knowing(basis: &Arc<Basis>) -> DecodeOptions {
    DecodeOptions::default().with_bases(vec![basis.clone()])
}

fn bits(blob: &[u8], s: &Sample) -> f64 {
    blob.len() as f64 * 8.0 / s.len() as f64
}

#[test]
fn every_float_comes_back_through_a_basis() {
    for (i, dtype) in FLOATS.into_iter().enumerate() {
        let whole = basis(46, 46);
        let reals = rows_of(&whole, 203, 0.0, i as u64);
        let s = Sample::new(dtype, &[203, 46], &reals).sprinkle(700, 4);
        for effort in EFFORTS {
            let step = if dtype.size() == 1 { 0.8 } else { 0.2 };
            let options = options(Goal::Step(step), Rotation::named(&whole));
            let blob = tenfold::encode(&s.view(), &options.with_effort(effort).with_lane_values(64)).unwrap();
            assert_eq!(tenfold::inspect(&blob).unwrap().codec, Codec::Levels);
            let back = read(&blob, &whole);
            for (k, (a, b)) in s.reals().iter().zip(to_reals(dtype, &back.data)).enumerate() {
                if !a.is_finite() {
                    let at = k * dtype.size()..(k + 1) * dtype.size();
                    assert_eq!(back.data[at.clone()], s.data[at], "{dtype}: bits of {a} at {k}");
                } else {
                    assert!((a - b).abs() < 10.0 * step + 0.13 * a.abs(), "{dtype} at {k}: {a} {b}");
                }
            }
            for (from, to) in [(0, 203), (0, 1), (17, 61), (40, 40)] {
                let part = tenfold::decode_rows(&blob, from..to, &knowing(&whole)).unwrap();
                assert!(part.data == back.data[from * 46 * dtype.size()..to * 46 * dtype.size()]);
            }
            let apart = Coordinates::decode(&blob, &knowing(&whole)).unwrap();
            let middle = apart.columns(7..30).unwrap();
            let line = 46 * dtype.size();
            for (row, part) in back.data.chunks(line).zip(middle.data.chunks(23 * dtype.size())) {
                assert_eq!(&row[7 * dtype.size()..30 * dtype.size()], part, "{dtype}");
            }
        }
    }
}

#[test]
fn goals_speak_of_the_tensor_also_where_a_basis_leaves_something_out() {
    let small = basis(64, 40);
    let s = Sample::new(Dtype::F32, &[512, 64], &rows_of(&small, 512, 0.02, 3));
    let variance = common::variance(&s.reals());
    let error = |blob: &[u8]| common::mse(&s.reals(), &to_reals(s.dtype, &read(blob, &small).data));
    let blob = tenfold::encode(&s.view(), &options(Goal::Nmse(0.002), Rotation::named(&small))).unwrap();
    let got = error(&blob) / variance;
    assert!(got <= 0.002 && got > 0.0014, "{got}");
    let blob = tenfold::encode(&s.view(), &options(Goal::Bits(2.0), Rotation::named(&small))).unwrap();
    assert!((bits(&blob, &s) - 2.0).abs() < 0.04, "{}", bits(&blob, &s));
    // Noise outside the basis is more than this allows, so that only a lossless blob will do.
    let exact = tenfold::encode(&s.view(), &options(Goal::Mse(1e-5), Rotation::named(&small))).unwrap();
    assert_eq!(tenfold::inspect(&exact).unwrap().codec, Codec::Planes);
}

#[test]
fn rounding_of_vectors_is_not_seen_at_fine_steps() {
    let whole = basis(64, 64);
    let s = Sample::new(Dtype::F32, &[256, 64], &rows_of(&whole, 256, 0.02, 4));
    let blob = tenfold::encode(&s.view(), &options(Goal::Mse(1e-7), Rotation::named(&whole))).unwrap();
    let known = DecodeOptions::default().with_bases(vec![basis(8, 8), whole.clone()]);
    let back = tenfold::decode(&blob, &known).unwrap();
    let got = common::mse(&s.reals(), &to_reals(s.dtype, &back.data));
    assert!(got < 1.1e-7 && got > 0.8e-7, "{got}");
}

#[test]
fn a_basis_that_fits_saves_bits_and_one_that_knows_deviations_more() {
    let whole = basis(64, 64);
    let s = Sample::new(Dtype::Bf16, &[64, 64], &rows_of(&whole, 64, 0.01, 5));
    let deviations: Vec<f64> = (0..64).map(|k| 8.0 * 0.9f64.powi(k)).collect();
    let scaled = Arc::new(Basis::clone(&whole).with_deviations(&deviations).unwrap());
    assert_eq!((scaled.scales()[0], scaled.scales()[63]), (63, 25));
    assert_ne!(scaled.fingerprint(), whole.fingerprint());
    let size = |transforms: Vec<Transform>| {
        let options = EncodeOptions::new(Goal::Nmse(0.01)).with_transforms(transforms);
        tenfold::encode(&s.view(), &options).unwrap().len()
    };
    let (none, plain, most) = (
        size(vec![]),
        size(vec![Transform::Basis(Rotation::named(&whole))]),
        size(vec![Transform::Basis(Rotation::named(&scaled))]),
    );
    assert!(plain * 10 < none * 7 && most + 20 < plain, "{none} {plain} {most}");
    let blob = tenfold::encode(&s.view(), &options(Goal::Nmse(0.01), Rotation::named(&scaled))).unwrap();
    // The plain one has the same vectors, but another name.
    let e = tenfold::decode(&blob, &DecodeOptions::default().with_bases(vec![whole])).unwrap_err();
    assert!(matches!(e, Error::MissingBasis { .. }) && e.kind() == ErrorKind::Caller, "{e}");
    assert!(e.to_string().contains(&scaled.fingerprint().to_string()));
    let back = tenfold::decode(&blob, &DecodeOptions::default().with_bases(vec![scaled])).unwrap();
    let got = common::mse(&s.reals(), &to_reals(s.dtype, &back.data)) / common::variance(&s.reals());
    assert!(got <= 0.01 * 1.01, "{got}");
}

#[test]
fn a_metric_weighs_errors() {
    // Columns count by their number; the vectors are unit vectors made shorter where errors count more.
    let cols = 32;
    let weight = |i: usize| 1.0 + i as f32;
    let unit = |i: usize, v: f32| (0..cols).map(move |j| if i == j { v } else { 0.0 });
    let vectors: Vec<f32> = (0..cols).flat_map(|i| unit(i, 1.0 / weight(i))).collect();
    let rounded: Vec<f32> = vectors.iter().map(|&v| half::bf16::from_f32(v).to_f32()).collect();
    let forward: Vec<f32> = (0..cols).flat_map(|i| unit(i, 1.0 / rounded[i * cols + i])).collect();
    let basis = Arc::new(Basis::with_forward(&vec![0.0; cols], &vectors, &forward).unwrap());
    let s = Sample::make(Dtype::F32, &[512, cols], Kind::Gaussian, 6);
    let blob = tenfold::encode(&s.view(), &options(Goal::Step(0.2), Rotation::embedded(&basis))).unwrap();
    let back = to_reals(s.dtype, &decode(&blob).data);
    let off = |col: usize| {
        let terms = s.reals().into_iter().zip(&back).skip(col).step_by(cols);
        terms.map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
    };
    let ratio = off(3) / off(31) / f64::from(weight(31) / weight(3));
    assert!((0.8..1.25).contains(&ratio), "{ratio}");
    // What comes out of a blob can decode, not encode.
    let stored = tenfold::inspect(&blob).unwrap().transforms;
    let again = EncodeOptions::new(Goal::Bits(3.0)).with_transforms(stored);
    let e = tenfold::encode(&s.view(), &again).unwrap_err();
    assert!(e.kind() == ErrorKind::Caller && e.to_string().contains("decoding only"), "{e}");
}

#[test]
fn layers_come_out_of_a_page_with_positions() {
    let (heads, head) = (6, 16);
    let cols = heads * head;
    let s = Sample::make(Dtype::Bf16, &[64, cols], Kind::Shifted, 8).sprinkle(900, 2);
    let rope = Rope::new(head, 1e4).unwrap().with_positions(Positions::From(128)).unwrap();
    let transforms = vec![Transform::Rope(rope), Transform::Basis(Rotation::embedded(&basis(cols, 80)))];
    let options = EncodeOptions::new(Goal::Bits(3.0)).with_transforms(transforms);
    let blob = tenfold::encode(&s.view(), &options).unwrap();
    let whole = decode(&blob).data;
    let apart = Coordinates::decode(&blob, &DecodeOptions::default()).unwrap();
    assert_eq!((apart.rows(), apart.cols(), apart.dtype()), (64, cols, Dtype::Bf16));
    // The last range cuts a head in two.
    for range in [0..cols, 0..head, 2 * head..5 * head, 3 * head..3 * head, 5..40] {
        let part = apart.columns(range.clone()).unwrap();
        assert_eq!(part.shape, [64, range.len()]);
        let rows = whole.chunks(cols * 2).map(|row| &row[range.start * 2..range.end * 2]);
        assert_eq!(part.data, rows.collect::<Vec<_>>().concat(), "{range:?}");
    }
    assert_eq!(apart.columns(90..97).unwrap_err().kind(), ErrorKind::Caller);
    // Without a basis, too.
    let plain = tenfold::encode(&s.view(), &EncodeOptions::new(Goal::Lossless)).unwrap();
    let part = Coordinates::decode(&plain, &DecodeOptions::default()).unwrap().columns(5..7).unwrap();
    let rows = s.data.chunks(cols * 2).map(|row| &row[10..14]);
    assert_eq!(part.data, rows.collect::<Vec<_>>().concat());
}

#[test]
fn what_is_no_basis_is_the_callers_fault() {
    let bad = |result: tenfold::engine::Result<Basis>, says: &str| {
        let e = result.unwrap_err();
        assert!(e.kind() == ErrorKind::Caller && e.to_string().contains(says), "{e}");
    };
    bad(Basis::orthonormal(&[], &[]), "1 to 0 vectors");
    bad(Basis::orthonormal(&[0.0; 2], &[1.0, 0.0, 0.0]), "3 numbers");
    bad(Basis::orthonormal(&[0.0], &[1.0, 1.0]), "2 numbers");
    bad(Basis::orthonormal(&[f32::NAN, 0.0], &[1.0, 0.0]), "finite numbers only");
    bad(Basis::orthonormal(&[0.0; 2], &[1.0, 0.0, 0.6, 0.8]), "do not match the forward matrix");
    bad(Basis::with_forward(&[0.0; 2], &[2.0, 0.0], &[2.0, 0.0]), "do not match the forward matrix");
    bad(Basis::with_forward(&[0.0; 2], &[2.0, 0.0], &[0.5]), "the shape of its vectors");
    bad(basis(4, 4).as_ref().clone().with_deviations(&[1.0; 3]), "deviations");
    bad(basis(4, 4).as_ref().clone().with_deviations(&[1.0, 1.0, 1.0, f64::NAN]), "deviations");
    let s = Sample::make(Dtype::F32, &[20, 30], Kind::Gaussian, 1);
    let e =
        tenfold::encode(&s.view(), &options(Goal::Bits(3.0), Rotation::named(&basis(20, 20)))).unwrap_err();
    assert!(e.to_string().contains("the tensor has 30"), "{e}");
}

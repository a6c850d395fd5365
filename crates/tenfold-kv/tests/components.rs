//! Moments, components, metrics and gains against what is known beforehand.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{hadamard, rows};
use tenfold::engine::ErrorKind;
use tenfold_kv::Error;
use tenfold_kv::basis::{Components, Metric, Moments, leave_one_out};

const MEANS: [f64; 8] = [5.0, -3.0, 0.0, 10.0, 0.5, -20.0, 1.0, 2.0];
const DEVIATIONS: [f64; 8] = [0.5, 8.0, 0.1, 4.0, 1.0, 2.0, 0.25, 0.05];

fn moments(count: usize, seed: u64) -> Moments {
    let mut moments = Moments::new(8).unwrap();
    moments.add(&rows(count, &MEANS, &DEVIATIONS, seed), "rows", 0).unwrap();
    moments
}

#[test]
fn a_known_covariance_is_found_again() {
    let found = Components::from_moments(&moments(20_000, 1), None).unwrap();
    let mut order: Vec<usize> = (0..8).collect();
    order.sort_by(|&a, &b| DEVIATIONS[b].total_cmp(&DEVIATIONS[a]));
    let vectors = found.vectors(8).unwrap();
    for (k, &which) in order.iter().enumerate() {
        let ratio = found.variances()[k] / DEVIATIONS[which].powi(2);
        assert!((ratio - 1.0).abs() < 0.05, "variance {k} is off by {ratio}");
        let vector = &vectors[k * 8..][..8];
        let along: f64 = vector.iter().zip(hadamard()[which]).map(|(v, h)| f64::from(*v) * h).sum();
        assert!(along.abs() > 0.999, "vector {k}: {along}");
    }
    for (mean, known) in found.means().iter().zip(MEANS) {
        assert!((mean - known).abs() < 0.15, "{mean} for {known}");
    }
}

#[test]
fn vectors_are_orthonormal_and_their_signs_are_settled() {
    let found = Components::from_moments(&moments(500, 2), None).unwrap();
    let vectors = found.vectors(8).unwrap();
    for (j, a) in vectors.chunks_exact(8).enumerate() {
        let largest = a.iter().fold(0f32, |m, v| if v.abs() > m.abs() { *v } else { m });
        assert!(largest > 0.0);
        for (k, b) in vectors.chunks_exact(8).enumerate() {
            let dot: f64 = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            assert!((dot - f64::from(u8::from(j == k))).abs() < 1e-6, "{j} and {k}: {dot}");
        }
    }
    assert!(found.vectors(0).is_err() && found.vectors(9).is_err());
}

#[test]
fn rows_may_come_in_any_pieces() {
    let all = rows(1500, &MEANS, &DEVIATIONS, 3);
    let whole = moments(1500, 3);
    let mut pieces = Moments::new(8).unwrap();
    for piece in all.chunks(7 * 8) {
        let mut part = Moments::new(8).unwrap();
        part.add(piece, "rows", 0).unwrap();
        pieces.merge(&part).unwrap();
    }
    assert_eq!((whole.count(), pieces.count()), (1500, 1500));
    let (a, b) =
        (Components::from_moments(&whole, None).unwrap(), Components::from_moments(&pieces, None).unwrap());
    for (a, b) in a.variances().iter().zip(b.variances()) {
        assert!((a - b).abs() < 1e-9 * a.max(1.0));
    }
    let one = whole.columns(3..4).unwrap();
    assert!((one.means()[0] - whole.means()[3]).abs() < 1e-12);
    assert_eq!(one.spread(&[10.0]), [whole.spread(&MEANS)[3]]);
}

#[test]
fn what_is_no_row_is_refused() {
    let mut moments = Moments::new(8).unwrap();
    let mut bad = rows(20, &MEANS, &DEVIATIONS, 4);
    bad[13 * 8 + 5] = f32::NAN;
    let error = moments.add(&bad, "layers.3.k", 100).unwrap_err();
    assert!(
        matches!(&error, Error::NotFinite { tensor, row: 113, column: 5 } if tensor == "layers.3.k"),
        "{error}"
    );
    assert_eq!(error.kind(), ErrorKind::Data);
    bad[13 * 8 + 5] = f32::NEG_INFINITY;
    assert!(matches!(moments.add(&bad, "x", 0), Err(Error::NotFinite { row: 13, .. })));
    assert_eq!(moments.count(), 0, "nothing of a refused piece counts");
    assert!(moments.add(&[0.0; 12], "x", 0).is_err());
    assert!(moments.merge(&Moments::new(7).unwrap()).is_err());
    assert!(moments.columns(6..9).is_err());
    assert!(Moments::new(0).is_err());
    moments.add(&[1.0; 8], "x", 0).unwrap();
    assert!(
        matches!(Components::from_moments(&moments, None), Err(Error::InvalidArgument(_))),
        "one row is none"
    );
}

#[test]
fn a_metric_makes_equal_errors_of_coordinates_do_equal_harm() {
    // Two blocks of 4×4: a·aᵀ + diagonal.
    let size = 4;
    let entry = |b: usize, i: usize, j: usize| {
        let a = |i: usize| ((b * 4 + i) as f64 * 1.7).sin();
        a(i) * a(j) + if i == j { 0.1 + i as f64 } else { 0.0 }
    };
    let values: Vec<f64> = (0..2 * 16).map(|i| entry(i / 16, i / 4 % 4, i % 4)).collect();
    let metric = Metric::with_ridge(size, &values, 0.0).unwrap();
    let found = Components::from_moments(&moments(5000, 5), Some(&metric)).unwrap();
    let vectors = found.vectors(8).unwrap();
    let harm = |a: &[f32], b: &[f32]| -> f64 {
        let pairs = (0..8).flat_map(|i| (0..8).map(move |j| (i, j))).filter(|(i, j)| i / 4 == j / 4);
        pairs.map(|(i, j)| f64::from(a[i]) * f64::from(b[j]) * entry(i / 4, i % 4, j % 4)).sum()
    };
    for (j, a) in vectors.chunks_exact(8).enumerate() {
        for (k, b) in vectors.chunks_exact(8).enumerate() {
            let off = harm(a, b) - f64::from(u8::from(j == k));
            // Vectors are stored in f32.
            assert!(off.abs() < 1e-5, "{j} and {k}: {off}");
        }
    }
    assert!(found.variances().is_sorted_by(|a, b| a >= b));
    assert!(
        Components::from_moments(&moments(50, 6), Some(&Metric::from_columns(&[1.0; 7]).unwrap())).is_err()
    );
}

#[test]
fn column_weights_are_columns_scaled_beforehand() {
    let weights = [4.0f64, 1.0, 0.25, 1.0, 9.0, 1.0, 1.0, 16.0];
    let mut scaled = rows(3000, &MEANS, &DEVIATIONS, 7);
    scaled.iter_mut().enumerate().for_each(|(i, v)| *v *= weights[i % 8].sqrt() as f32);
    let mut by_hand = Moments::new(8).unwrap();
    by_hand.add(&scaled, "rows", 0).unwrap();
    let by_hand = Components::from_moments(&by_hand, None).unwrap();
    let metric = Metric::with_ridge(1, &weights, 0.0).unwrap();
    let found = Components::from_moments(&moments(3000, 7), Some(&metric)).unwrap();
    for (a, b) in found.variances().iter().zip(by_hand.variances()) {
        assert!((a / b - 1.0).abs() < 1e-4, "{a} and {b}");
    }
}

#[test]
fn metrics_that_are_none_are_refused() {
    assert!(Metric::from_columns(&[]).is_err());
    assert!(Metric::from_columns(&[1.0, f64::NAN]).is_err());
    assert!(Metric::from_columns(&[1.0, -1.0]).is_err());
    assert!(Metric::from_blocks(2, &[1.0; 5]).is_err());
    assert!(Metric::from_blocks(2, &[2.0, 1.0, -1.0, 2.0]).is_err(), "not symmetric");
    let one = Metric::from_columns(&[1.0]).unwrap();
    assert!(Metric::join(&[one, Metric::from_blocks(2, &[1.0, 0.0, 0.0, 1.0]).unwrap()]).is_err());
    assert!(Metric::from_blocks(2, &[1.0, 0.0, 0.0, 1.0]).unwrap().part(1..2).is_err());
}

#[test]
fn the_gain_is_what_theory_says() {
    let parts: Vec<Moments> = (0..4).map(|seed| moments(5000, 10 + seed)).collect();
    let gain = leave_one_out(&parts, None, &[0.5, 6.0]).unwrap();
    let variance = |c: usize| -> f64 { (0..8).map(|k| (DEVIATIONS[k] * hadamard()[k][c]).powi(2)).sum() };
    let mean = MEANS.iter().sum::<f64>() / 8.0;
    let common = (0..8).map(|c| variance(c) + (MEANS[c] - mean).powi(2)).sum::<f64>() / 8.0;
    let means = (0..8).map(|c| 0.5 * (common / variance(c)).log2()).sum::<f64>() / 8.0;
    let basis = DEVIATIONS.iter().map(|d| 0.5 * (common / (d * d)).log2()).sum::<f64>() / 8.0;
    assert!((gain.means - means).abs() < 0.02, "{} for {means}", gain.means);
    assert!((gain.basis - basis).abs() < 0.02, "{} for {basis}", gain.basis);
    // At a high rate all components are coded; at a low one weak ones are not, and nothing is gained from them.
    assert!((gain.at[1].basis - gain.basis).abs() < 1e-9);
    assert!(gain.at[0].basis < gain.basis - 0.5);
    assert!(leave_one_out(&parts[..1], None, &[]).is_err());
}

//! Bounds hold: no error above `max_error`, no blob above `max_bytes`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{EFFORTS, FLOATS, Faults, Kind, Random, SMOOTH, Sample, decode, max_error, measure, to_reals};
use tenfold::{Dtype, Effort, EncodeOptions, Error, Goal};

#[test]
fn no_value_is_off_by_more_than_the_bound() {
    let mut faults = Faults::default();
    let mut turn = 0;
    for dtype in FLOATS {
        for kind in SMOOTH.into_iter().chain([Kind::Sparse, Kind::Ramp, Kind::Constant]) {
            for bound in [1e4, 3.0, 0.7, 0.1, 0.01, 1e-3, 1e-5, 1e-7, 3e-9, 1e-17] {
                turn += 1;
                let s = Sample::make(dtype, &[37, 83], kind, turn as u64).sprinkle(500, turn as u64);
                let blob = s.encode(Goal::MaxError(bound), EFFORTS[turn % 3]);
                let got = max_error(&s.reals(), &to_reals(dtype, &decode(&blob).data));
                faults.check(got <= bound, || format!("{} {kind:?}: {got} for {bound}", s.name()));
            }
        }
    }
    faults.done();
}

#[test]
fn bounds_hold_over_the_whole_range_of_a_dtype() {
    // Any finite bit pattern, so every exponent; bounds from a tiny to a huge share of the range.
    let mut faults = Faults::default();
    for dtype in FLOATS {
        let s = Sample::noise(dtype, &[3000], 4);
        for exponent in [-300, -80, -40, -20, -10, -3, 0, 3, 10, 30, 37, 200] {
            let bound = 10f64.powi(exponent);
            let blob = s.encode(Goal::MaxError(bound), Effort::Fast);
            let got = max_error(&s.reals(), &to_reals(dtype, &decode(&blob).data));
            faults.check(got <= bound, || format!("{dtype}: {got} for {bound}"));
            assert!(blob.len() <= s.data.len() + 200, "{dtype} {bound}: {} bytes", blob.len());
        }
    }
    faults.done();
}

#[test]
fn a_bound_saves_bits() {
    // Gaussian, spacing 2·bound: entropy log2(4.13 / 0.2) = 4.4 bits.
    let s = Sample::make(Dtype::F32, &[200, 200], Kind::Gaussian, 1);
    let (bits, _) = measure(&s, &s.encode(Goal::MaxError(0.1), Effort::Balanced));
    assert!(bits < 4.6, "{bits}");
}

#[test]
fn no_blob_exceeds_its_cap() {
    let mut faults = Faults::default();
    let mut r = Random::new(77);
    for turn in 0..3000 {
        let n = if turn % 10 == 0 { 1 + r.below(20_000) } else { 1 + r.below(3000) };
        let cols = 1 + r.below(200.min(n));
        let shape = [n / cols, cols];
        let dtype = FLOATS[r.below(6)];
        let mut s = Sample::make(dtype, &shape, common::KINDS[r.below(9)], turn);
        if r.below(4) == 0 {
            s = s.sprinkle(200, turn);
        }
        let cap = (s.len() as f64 * (r.uniform() * 6.0 - 3.0).exp2() / 8.0) as usize + r.below(150);
        let effort = if turn % 100 == 0 { Effort::Best } else { EFFORTS[r.below(2)] };
        let options = EncodeOptions::new(Goal::MaxBytes(cap)).with_effort(effort);
        match tenfold::encode(&s.view(), &options) {
            Ok(blob) => {
                faults.check(blob.len() <= cap, || format!("{}: {} > {cap}", s.name(), blob.len()));
                assert_eq!(decode(&blob).shape, shape);
            }
            Err(Error::DoesNotFit { need, .. }) => {
                // Exact values must be kept, and nobody can help what they take.
                let exact = s.reals().iter().filter(|v| !v.is_finite()).count() * (dtype.size() + 3);
                let small = cap < 100 + exact || (cap as f64) < s.len() as f64 * 0.05 / 8.0 + exact as f64;
                faults.check(small, || {
                    format!("{} {}: does not fit {cap}, needs {need}", s.name(), effort.name())
                });
                faults.check(need > cap as u64, || format!("{}: needs {need}, has {cap}", s.name()));
            }
            Err(e) => faults.check(false, || format!("{}: {e}", s.name())),
        }
    }
    faults.done();
}

#[test]
fn caps_are_used() {
    let mut faults = Faults::default();
    for dtype in FLOATS {
        for (n, bits) in [(4096, 1.0), (8192, 2.0), (20_000, 4.0), (65_536, 0.5), (65_536, 3.0)] {
            let s = Sample::make(dtype, &[n / 64, 64], Kind::Gaussian, 1);
            let cap = (s.len() as f64 * bits / 8.0) as usize;
            for effort in [Effort::Fast, Effort::Balanced] {
                let blob = s.encode(Goal::MaxBytes(cap), effort);
                let used = blob.len() as f64 / cap as f64;
                // Eight-bit floats take few values, so that their rate jumps as the step changes.
                let least = if dtype.size() == 1 { 0.6 } else { 0.97 };
                let ok = (least..=1.0).contains(&used) || measure(&s, &blob).1 < 1e-9;
                faults.check(ok, || format!("{} {effort:?}: {used:.4} of {cap}", s.name()));
            }
        }
    }
    faults.done();
}

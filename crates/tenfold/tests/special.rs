//! NaN, infinities, zeros, outliers and the ends of every range neither get lost nor spoil the rest.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{
    EFFORTS, FLOATS, Faults, Kind, Sample, decode, max_error, measure, mse, specials, to_bytes, to_reals,
    variance,
};
use tenfold::{Dtype, Effort, Goal};

const GOALS: [Goal; 7] = [
    Goal::Bits(3.0),
    Goal::Ratio(4.0),
    Goal::Mse(0.01),
    Goal::Nmse(0.01),
    Goal::MaxError(0.1),
    Goal::MaxBytes(6000),
    Goal::Step(0.2),
];

/// Every element that is not finite has the same bits in the same place, and nothing else became so.
fn keeps_specials(s: &Sample, blob: &[u8]) -> bool {
    let size = s.dtype.size();
    let back = decode(blob).data;
    s.data.chunks_exact(size).zip(back.chunks_exact(size)).all(|(a, b)| {
        let finite = to_reals(s.dtype, a)[0].is_finite();
        if finite { to_reals(s.dtype, b)[0].is_finite() } else { a == b }
    })
}

#[test]
fn lossy_keeps_nan_and_infinities_in_place() {
    let mut faults = Faults::default();
    for (i, dtype) in FLOATS.into_iter().enumerate() {
        for goal in GOALS {
            for effort in EFFORTS {
                let s = Sample::make(dtype, &[60, 100], Kind::Gaussian, i as u64).sprinkle(100, i as u64);
                let blob = s.encode(goal, effort);
                faults.check(keeps_specials(&s, &blob), || format!("{} {goal:?} {effort:?}", s.name()));
            }
        }
    }
    faults.done();
}

#[test]
fn special_values_do_not_spoil_the_rest() {
    let mut faults = Faults::default();
    for dtype in [Dtype::F64, Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::F8E5M2] {
        for effort in EFFORTS {
            let clean = Sample::make(dtype, &[160, 200], Kind::Gaussian, 1);
            // One in 4000: what they take themselves is far below the tolerance.
            let mut s = clean.clone();
            let specials = specials(dtype);
            let size = dtype.size();
            for (i, at) in (17..s.len()).step_by(4000).enumerate() {
                s.data[at * size..][..size].copy_from_slice(&specials[i % 4]);
            }
            for goal in [Goal::Bits(2.0), Goal::Bits(4.0)] {
                let (rate, without) = measure(&clean, &clean.encode(goal, effort));
                let blob = s.encode(goal, effort);
                let (special_rate, with) = measure(&s, &blob);
                // Rates may differ by what the goal allows; a bit is worth a factor of four.
                let fair = with * (2.0 * (special_rate - rate)).exp2();
                faults
                    .check(fair <= without * 1.05 || dtype == Dtype::F8E5M2 && fair <= without * 1.5, || {
                        format!("{dtype} {goal:?} {effort:?}: nmse {without:.5} became {fair:.5}")
                    });
                faults.check(keeps_specials(&s, &blob), || format!("{dtype} {goal:?} {effort:?}: lost"));
            }
        }
    }
    faults.done();
}

#[test]
fn tensors_of_nothing_but_one_special_value_are_tiny() {
    let mut faults = Faults::default();
    for dtype in FLOATS {
        let zero = vec![0; dtype.size()];
        for element in specials(dtype).into_iter().chain([zero]) {
            let s = Sample { dtype, shape: vec![100, 100], data: element.repeat(10_000) };
            for goal in GOALS.into_iter().chain([Goal::Lossless]) {
                let blob = s.encode(goal, Effort::Balanced);
                faults.check(blob.len() <= 200, || {
                    format!("{dtype} {element:x?} {goal:?}: {} bytes", blob.len())
                });
                let back = decode(&blob).data;
                // Lossy may turn negative zeros into zeros.
                let same = back == s.data
                    || to_reals(dtype, &element)[0] == 0.0
                        && to_reals(dtype, &back).iter().all(|v| *v == 0.0);
                faults.check(same, || format!("{dtype} {element:x?} {goal:?}: changed"));
            }
        }
    }
    faults.done();
}

#[test]
fn mixtures_of_special_values_come_back() {
    for dtype in FLOATS {
        let s = Sample::make(dtype, &[40, 100], Kind::Gaussian, 1).sprinkle(1, 2);
        for goal in GOALS.into_iter().filter(|g| !matches!(g, Goal::MaxBytes(_))) {
            assert!(keeps_specials(&s, &s.encode(goal, Effort::Balanced)), "{dtype} {goal:?}");
        }
    }
}

#[test]
fn masks_stay_small() {
    let mut faults = Faults::default();
    for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16, Dtype::F8E5M2] {
        let rows = 256;
        let infinity = to_bytes(dtype, &[f64::NEG_INFINITY]);
        let infinity = if dtype == Dtype::F8E5M2 { vec![0xfc] } else { infinity };
        // A causal mask and nothing else: additive masks look like this.
        let mut s = Sample { dtype, shape: vec![rows, rows], data: vec![0; rows * rows * dtype.size()] };
        // Scores under the same mask.
        let mut scores = Sample::make(dtype, &[rows, rows], Kind::Gaussian, 1);
        for at in (0..rows * rows).filter(|at| at % rows > at / rows) {
            for s in [&mut s, &mut scores] {
                s.data[at * dtype.size()..][..dtype.size()].copy_from_slice(&infinity);
            }
        }
        for goal in [Goal::Nmse(0.01), Goal::MaxError(0.01), Goal::Step(0.1)] {
            let blob = s.encode(goal, Effort::Balanced);
            faults.check(keeps_specials(&s, &blob), || format!("{dtype} {goal:?}: lost"));
            let bits = blob.len() as f64 * 8.0 / s.len() as f64;
            faults.check(bits < 0.5, || format!("{dtype} {goal:?}: mask of {bits:.3} bits a value"));
        }
        // A masked value takes up to a bit, so the others have about three of the two bits a value.
        for (goal, most_bits, most_nmse) in [(Goal::Bits(2.0), 2.04, 0.02), (Goal::Nmse(0.01), 3.2, 0.01)] {
            let blob = scores.encode(goal, Effort::Balanced);
            faults.check(keeps_specials(&scores, &blob), || format!("{dtype} {goal:?}: lost"));
            let (bits, nmse) = measure(&scores, &blob);
            faults.check(bits <= most_bits, || format!("{dtype} {goal:?}: scores of {bits:.3} bits a value"));
            faults.check(nmse <= most_nmse, || format!("{dtype} {goal:?}: nmse {nmse:.5}"));
        }
    }
    faults.done();
}

#[test]
fn one_huge_value_does_not_spoil_the_rest() {
    let mut faults = Faults::default();
    for (dtype, common, huge) in [
        (Dtype::F32, 1e-3, 1e30),
        (Dtype::F32, 1e-3, 1e15),
        (Dtype::F32, 1e-3, -3e38),
        (Dtype::Bf16, 1e-3, 1e30),
        (Dtype::F64, 1e-3, 1e30),
        (Dtype::F64, 1e-3, 1e300),
        (Dtype::F16, 1e-3, 65504.0),
    ] {
        let mut reals: Vec<f64> = Kind::Gaussian.reals(20_000, 100, 1).iter().map(|v| v * common).collect();
        reals[7777] = huge;
        let s = Sample::new(dtype, &[200, 100], &reals);
        for effort in [Effort::Fast, Effort::Balanced] {
            for goal in [Goal::Bits(4.0), Goal::MaxBytes(10_000)] {
                let Some(blob) = faults.encode(&s, goal, effort) else {
                    continue;
                };
                let (mut a, mut b) = (s.reals(), to_reals(dtype, &decode(&blob).data));
                let kept = (a.remove(7777) - b.remove(7777)).abs() / huge.abs();
                let name = || format!("{dtype} {huge:e} among {common:e}, {goal:?} {effort:?}");
                faults.check(kept < 1e-3, || format!("{}: off by a share of {kept:.1e}", name()));
                let nmse = mse(&a, &b) / variance(&a);
                // Four bits: 2^-8, plus what quantiser and header cost.
                faults.check(nmse < 0.007, || format!("{}: nmse of the rest {nmse:.4}", name()));
                let off = blob.len() as f64 / 10_000.0 - 1.0;
                faults.check((-0.03..=0.02).contains(&off), || {
                    format!("{}: {:+.1} % bytes", name(), off * 100.0)
                });
            }
        }
    }
    faults.done();
}

#[test]
fn small_and_large_magnitudes_are_coded_like_any_other() {
    // The same values times a power of two take the same bytes and have the same relative error.
    let mut faults = Faults::default();
    for (dtype, exponents) in [
        (Dtype::F32, &[-100, -66, -40, 40, 66, 100][..]),
        (Dtype::Bf16, &[-100, -66, 66, 100][..]),
        (Dtype::F16, &[-4, 8][..]),
        (Dtype::F64, &[-900, -300, 300, 900][..]),
    ] {
        let unit = Kind::Gaussian.reals(8192, 64, 1);
        for goal in [Goal::Bits(3.0), Goal::Nmse(0.01), Goal::MaxBytes(3000)] {
            let plain = Sample::new(dtype, &[128, 64], &unit);
            let (rate, nmse) = measure(&plain, &plain.encode(goal, Effort::Balanced));
            for &e in exponents {
                let scaled: Vec<f64> = unit.iter().map(|v| v * 2f64.powi(e)).collect();
                let s = Sample::new(dtype, &[128, 64], &scaled);
                let Some(blob) = faults.encode(&s, goal, Effort::Balanced) else {
                    continue;
                };
                // Squares of such numbers do not fit f64: measure in their own unit.
                let back: Vec<f64> =
                    to_reals(dtype, &decode(&blob).data).iter().map(|v| v * 2f64.powi(-e)).collect();
                let reals: Vec<f64> = s.reals().iter().map(|v| v * 2f64.powi(-e)).collect();
                let (r, n) = (blob.len() as f64 * 8.0 / 8192.0, mse(&reals, &back) / variance(&reals));
                faults.check((r / rate - 1.0).abs() < 0.03 && (n / nmse - 1.0).abs() < 0.05, || {
                    format!("{dtype} times 2^{e}, {goal:?}: {r:.3} bits, nmse {n:.2e}; unscaled {rate:.3}, {nmse:.2e}")
                });
            }
        }
    }
    faults.done();
}

#[test]
fn results_stay_finite_at_the_ends_of_a_range() {
    let mut faults = Faults::default();
    for (dtype, top) in [
        (Dtype::F16, 65504.0),
        (Dtype::Bf16, 3.3895313892515355e38),
        (Dtype::F32, f32::MAX as f64),
        (Dtype::F64, f64::MAX),
        (Dtype::F8E4M3, 448.0),
        (Dtype::F8E5M2, 57344.0),
    ] {
        for sign in [1.0, -1.0] {
            // All near the end, and spread up to it.
            for near in [0.9, 0.0] {
                let mut r = common::Random::new(3);
                let reals: Vec<f64> =
                    (0..6000).map(|_| sign * top * (near + (1.0 - near) * r.uniform())).collect();
                let mut s = Sample::new(dtype, &[60, 100], &reals);
                let end = to_bytes(dtype, &[sign * top]);
                s.data[..dtype.size()].copy_from_slice(&end);
                assert!(s.reals().iter().all(|v| v.is_finite()), "{dtype}");
                for goal in [
                    Goal::Bits(1.0),
                    Goal::Bits(5.0),
                    Goal::MaxError(top * 0.01),
                    Goal::Step(top * 0.3),
                    Goal::MaxBytes(900),
                ] {
                    for effort in EFFORTS {
                        let Some(blob) = faults.encode(&s, goal, effort) else {
                            continue;
                        };
                        faults.check(keeps_specials(&s, &blob), || {
                            format!("{dtype} {sign} {near} {goal:?} {effort:?}: not finite")
                        });
                        let back = to_reals(dtype, &decode(&blob).data);
                        let worst = max_error(&s.reals(), &back) / top;
                        let most = if let Goal::MaxError(_) = goal { 0.01 } else { 1.05 };
                        faults.check(worst <= most, || {
                            format!("{dtype} {sign} {near} {goal:?} {effort:?}: off by {worst:.3}")
                        });
                    }
                }
            }
        }
    }
    faults.done();
}

#[test]
fn denormals_survive_lossy_goals() {
    let mut faults = Faults::default();
    for dtype in [Dtype::F32, Dtype::F64, Dtype::F16, Dtype::Bf16] {
        let tiny = match dtype {
            Dtype::F32 | Dtype::Bf16 => f32::MIN_POSITIVE as f64,
            Dtype::F64 => f64::MIN_POSITIVE,
            _ => 2f64.powi(-14),
        };
        let reals: Vec<f64> = Kind::Gaussian.reals(6000, 100, 1).iter().map(|v| v * tiny * 0.2).collect();
        let s = Sample::new(dtype, &[60, 100], &reals);
        let full = s.data.len() + 200;
        for goal in [
            Goal::Bits(4.0),
            Goal::MaxBytes(full),
            Goal::Nmse(0.01),
            Goal::Mse(1e-3),
            Goal::MaxError(tiny * 0.01),
            Goal::Step(tiny),
        ] {
            let blob = s.encode(goal, Effort::Balanced);
            let back = to_reals(dtype, &decode(&blob).data);
            let off = max_error(&s.reals(), &back) / tiny;
            let most = match goal {
                Goal::MaxError(_) => 0.01,
                Goal::Bits(_) | Goal::Nmse(_) => 0.2,
                Goal::MaxBytes(_) => 0.0,
                _ => 2.0,
            };
            faults.check(off <= most, || format!("{dtype} {goal:?}: off by {off:.3} of the smallest normal"));
            faults.check(blob.len() <= full, || format!("{dtype} {goal:?}: {} bytes", blob.len()));
        }
    }
    faults.done();
}

#[test]
fn both_ends_of_f64_share_a_tensor() {
    let reals: Vec<f64> = Kind::Gaussian
        .reals(6000, 100, 1)
        .iter()
        .enumerate()
        .map(|(i, v)| v * if i % 2 == 0 { 1e300 } else { 1e-300 })
        .collect();
    let s = Sample::new(Dtype::F64, &[60, 100], &reals);
    for effort in EFFORTS {
        let back = to_reals(Dtype::F64, &decode(&s.encode(Goal::Bits(4.0), effort)).data);
        let scaled = |v: &[f64]| v.iter().map(|v| v * 1e-300).collect::<Vec<f64>>();
        let nmse = mse(&scaled(&reals), &scaled(&back)) / variance(&scaled(&reals));
        // Half of the values are as good as zero, so the others have eight bits.
        assert!(nmse < 1e-3, "{effort:?}: {nmse}");
        assert!(back.iter().all(|v| v.is_finite()));
        let exact = decode(&s.encode(Goal::MaxError(1e-310), effort));
        assert!(exact.data == s.data);
    }
}

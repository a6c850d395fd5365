//! Bits buy quality, and so does effort.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{EFFORTS, Faults, Kind, Sample, measure, real_tensors};
use tenfold::{Dtype, Effort, Goal};

#[test]
fn more_bits_never_hurt() {
    let mut faults = Faults::default();
    let rates = [0.3, 0.5, 0.8, 1.2, 1.6, 2.0, 2.5, 3.0, 4.0, 5.0, 6.5, 8.0, 10.0, 12.0];
    for kind in [Kind::Gaussian, Kind::HeavyTails, Kind::Rows] {
        for effort in [Effort::Fast, Effort::Balanced] {
            let s = Sample::make(Dtype::F32, &[96, 128], kind, 8);
            let mut last = f64::INFINITY;
            for bits in rates {
                let (_, now) = measure(&s, &s.encode(Goal::Bits(bits), effort));
                faults.check(now <= last, || {
                    format!("{kind:?} {effort:?} at {bits} bits: {last:.3e} became {now:.3e}")
                });
                last = now;
            }
        }
    }
    faults.done();
}

#[test]
fn gaussian_tensors_come_close_to_the_bound() {
    // 0.255 is the gap of the uniform scalar quantiser; rates that small tensors lose to headers on top.
    let mut faults = Faults::default();
    let s = Sample::make(Dtype::F32, &[256, 512], Kind::Gaussian, 1);
    for (effort, most) in [(Effort::Fast, 0.285), (Effort::Balanced, 0.16), (Effort::Best, 0.11)] {
        for bits in [1.5, 2.5, 4.0] {
            let (rate, nmse) = measure(&s, &s.encode(Goal::Bits(bits), effort));
            let gap = rate + 0.5 * nmse.log2();
            faults.check(gap <= most, || format!("{effort:?} at {bits}: gap {gap:.4}"));
        }
    }
    faults.done();
}

#[test]
fn more_effort_never_hurts() {
    let mut faults = Faults::default();
    let mut samples = real_tensors();
    samples.push(("gaussian".into(), Sample::make(Dtype::F32, &[200, 200], Kind::Gaussian, 2)));
    for (name, s) in samples {
        for bits in [1.0, 2.5] {
            // Error corrected to the same rate: a bit is worth a factor of four.
            let scores = EFFORTS.map(|effort| {
                let (rate, nmse) = measure(&s, &s.encode(Goal::Bits(bits), effort));
                nmse * (2.0 * (rate - bits)).exp2()
            });
            let ok = scores[2] <= scores[1] * 1.002 && scores[1] <= scores[0] * 1.002;
            faults.check(ok, || {
                format!(
                    "{name} at {bits}: fast {:.4e}, balanced {:.4e}, best {:.4e}",
                    scores[0], scores[1], scores[2]
                )
            });
        }
    }
    faults.done();
}

#[test]
fn estimates_are_close_to_what_a_step_takes() {
    let mut faults = Faults::default();
    for kind in [Kind::Gaussian, Kind::HeavyTails, Kind::Rows] {
        for effort in [Effort::Fast, Effort::Balanced] {
            for step in [0.05, 0.3, 1.0] {
                let s = Sample::make(Dtype::F32, &[150, 200], kind, 4);
                let guess = tenfold::engine::estimate_bits(&s.view(), step, effort, &[]).unwrap();
                let (rate, _) = measure(&s, &s.encode(Goal::Step(step), effort));
                faults.check((guess / rate - 1.0).abs() < 0.1, || {
                    format!("{kind:?} {effort:?} {step}: {guess} for {rate}")
                });
            }
        }
    }
    faults.done();
}

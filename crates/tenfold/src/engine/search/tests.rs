use super::tolerance::{FINE_SAMPLE, Tolerance, VIDEO_RATE};
use super::*;

#[test]
fn finds_the_step_of_steep_and_flat_curves() {
    let curves: [fn(f64) -> f64; 3] =
        [|s| 1000.0 / s, |s| 100.0 / (1.0 + s.powi(8)) + 1.0, |s| 500.0 - 10.0 * s];
    let exact = Tolerance { over: 0.0, under: 0.0, rounds: 14, ..FINE_SAMPLE };
    for f in curves {
        let want = f(1.7);
        let search = Search::new(want, Slope::Unknown, &exact);
        let step = search.run(0.9, |knob| Ok::<_, ()>(Some(Point { knob, got: f(knob) }))).unwrap();
        assert!((f(step) / want - 1.0).abs() < 1e-3, "{step}");
    }
}

#[test]
fn a_cliff_is_found_where_the_curve_is_flat_on_both_sides() {
    // Values that are all alike: a coarser step sends nothing at all.
    let bytes =
        |step: f64| if step < 1.005 { 6700.0 } else { 6700.0 * (-150.0 * (step - 1.005)).exp() + 60.0 };
    let near = Tolerance { over: 0.0, under: 0.02, rounds: 18, ..FINE_SAMPLE };
    for want in [5500.0, 4768.0, 3000.0, 1000.0] {
        for start in [0.7, 1.0166, 1.2] {
            let search = Search::new(want, Slope::bytes(50e3), &near);
            let step = search.run(start, |knob| Ok::<_, ()>(Some(Point { knob, got: bytes(knob) }))).unwrap();
            assert!((-0.02..=0.0).contains(&(bytes(step) / want - 1.0)), "{want} from {start}: {step}");
        }
    }
}

/// Bits of an entropy-coded Gaussian: straight at high rates, flat towards zero.
fn bits(coarseness: f64) -> f64 {
    0.5 * (1.0 + (2.0 * (6.0 - coarseness)).exp2()).log2()
}

#[test]
fn any_ladder_is_climbed_in_few_trials() {
    for (rungs, per_bit) in [(0..=51, 6.0), (0..=63, 8.0), (0..=255, 30.0)] {
        for want in [0.3, 1.0, 2.5, 5.0] {
            let (mut trials, octave) = (0, f64::from(*rungs.end()) / 8.0);
            let found = last_rung(rungs.clone(), rungs.end() / 2, octave, want, |qp| {
                trials += 1;
                Ok::<_, ()>(bits(f64::from(qp) / per_bit))
            });
            let Ok(Rung::Last(qp, got)) = found else { panic!("{want} is within reach") };
            assert!(got >= want && (qp == *rungs.end() || bits(f64::from(qp + 1) / per_bit) < want));
            assert!(trials <= 9, "{trials}");
            // Between two rungs, a factor on the step of the samples.
            let search = Search::new(want, Slope::Rate { bit: 1.0 }, &VIDEO_RATE);
            let mut off = 1.0;
            let trial = |x: f64| {
                let got = bits(f64::from(qp) / per_bit + x.log2());
                off = got / want - 1.0;
                Ok::<_, ()>(Some(Point { knob: x, got }))
            };
            search.with_known(Point { knob: 1.0, got }).run(1.04, trial).unwrap();
            assert!(f64::abs(off) < 0.01, "{want}: {off}");
        }
    }
}

#[test]
fn rungs_out_of_reach_are_told() {
    let found = last_rung(0..=51, 25, 6.0, 9.0, |qp| Ok::<_, ()>(bits(f64::from(qp) / 6.0))).unwrap();
    assert!(matches!(found, Rung::None(best) if (best - 6.0).abs() < 0.01));
}

#[test]
fn a_start_far_off_and_a_knob_out_of_range_end() {
    // Twenty octaves away, by a slope that lies.
    let bytes = |step: f64| 1e6 / step.sqrt();
    let search = Search::new(1e6, Slope::bytes(1e3), &FINE_SAMPLE);
    let step = search.run(1e-6, |knob| Ok::<_, ()>(Some(Point { knob, got: bytes(knob) }))).unwrap();
    assert!((bytes(step) / 1e6 - 1.0).abs() < 0.01, "{step}");
    let search = Search::new(1.0, Slope::Unknown, &FINE_SAMPLE);
    let mut tried = 0;
    let stopped = search.run(1.0, |knob| {
        tried += 1;
        Ok::<_, ()>((knob < 1.1).then_some(Point { knob, got: 2.0 }))
    });
    assert_eq!((tried, stopped), (2, Ok(SLOPES.up)));
}

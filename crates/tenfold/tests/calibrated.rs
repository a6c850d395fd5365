//! Errors of a linear layer's weights go to where they cost the model least, and never make it worse in silence.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::Arc;

use common::{EFFORTS, Random, Sample, decode, to_reals};
use tenfold::calibrated::{self, Calibrated, Curvature};
use tenfold::engine::{ErrorKind, Subject};
use tenfold::prepare::{Preparation, Transform};
use tenfold::{Dtype, Effort, EncodeOptions, Goal};

/// E[x·xᵀ] of inputs that a few hidden causes have in common, with scales of their own.
fn moments(cols: usize, seed: u64) -> Vec<f32> {
    let mut r = Random::new(seed);
    let causes = cols / 4 + 1;
    let mixing: Vec<f64> = (0..cols * causes).map(|_| r.normal()).collect();
    let scale: Vec<f64> = (0..cols).map(|_| (r.normal() * 0.7).exp()).collect();
    let mut h = vec![0f32; cols * cols];
    for a in 0..cols {
        for b in 0..=a {
            let shared: f64 = (0..causes).map(|c| mixing[a * causes + c] * mixing[b * causes + c]).sum();
            let own = if a == b { causes as f64 * 0.2 } else { 0.0 };
            let v = ((shared + own) * scale[a] * scale[b]) as f32;
            (h[a * cols + b], h[b * cols + a]) = (v, v);
        }
    }
    h
}

fn weights(dtype: Dtype, rows: usize, cols: usize) -> Sample {
    let mut r = Random::new(3);
    let reals: Vec<f64> = (0..rows * cols).map(|_| r.normal() * 0.05).collect();
    Sample::new(dtype, &[rows, cols], &reals)
}

fn sensitivities(rows: usize) -> Vec<f64> {
    let mut r = Random::new(11);
    (0..rows).map(|_| (r.normal() * 1.2).exp() * 1e-4).collect()
}

fn curvature(rows: usize, cols: usize) -> Arc<Curvature> {
    Arc::new(Curvature::new(moments(cols, 5), cols).unwrap().with_outputs(sensitivities(rows)).unwrap())
}

fn encode(s: &Sample, options: &EncodeOptions) -> Calibrated {
    calibrated::encode(&s.view(), options).unwrap()
}

#[test]
fn feedback_costs_the_model_less_than_importance() {
    let (rows, cols) = (192, 160);
    let of = curvature(rows, cols);
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let s = weights(dtype, rows, cols);
        for effort in EFFORTS {
            for bits in [1.75, 2.5, 4.0] {
                let options =
                    EncodeOptions::new(Goal::Bits(bits)).with_effort(effort).with_curvature(of.clone());
                let coded = encode(&s, &options);
                assert_eq!(coded.fell_back, None, "{dtype}, {effort:?}, {bits} bits");
                assert!(coded.loss < 0.8 * coded.plain, "{coded:?}", coded = (coded.loss, coded.plain));
                let off = coded.blob.len() as f64 * 8.0 / s.len() as f64 / bits - 1.0;
                assert!(off.abs() < 0.02, "{off} off {bits} bits at {effort:?}");
                // A plain call makes the same blob.
                assert!(tenfold::encode(&s.view(), &options).unwrap() == coded.blob);
            }
        }
    }
}

#[test]
fn a_trellis_runs_along_outputs_and_gains_what_it_gains_elsewhere() {
    // Outputs that fill no whole number of lanes, and tiles that end within a column.
    for (rows, cols) in [(192, 160), (131, 77), (1000, 40), (33, 600)] {
        let (s, of) = (weights(Dtype::F32, rows, cols), curvature(rows, cols));
        let at = |effort: Effort, minor: u8, lane_values: u32| {
            let options = EncodeOptions::new(Goal::Bits(3.0)).with_effort(effort).with_minor(minor);
            encode(&s, &options.with_lane_values(lane_values).with_curvature(of.clone()))
        };
        let scalar = at(Effort::Fast, 2, 0);
        for (effort, states, gain) in [(Effort::Balanced, 8, 0.95), (Effort::Best, 256, 0.93)] {
            for lane_values in [0, 100] {
                let coded = at(effort, 2, lane_values);
                let info = tenfold::inspect(&coded.blob).unwrap();
                assert_eq!((info.states, &info.transforms[0]), (Some(states), &Transform::Transposed));
                // Short lanes take bits of their own.
                let most = if lane_values == 0 { gain * scalar.loss } else { scalar.plain };
                assert!(coded.loss < most, "{rows} × {cols}, {effort:?}: {} and {}", coded.loss, scalar.loss);
            }
        }
        // Readers of 1.1 know no transposition.
        let older = at(Effort::Best, 1, 0);
        assert!(!tenfold::inspect(&older.blob).unwrap().transforms.contains(&Transform::Transposed));
        assert_eq!(older.loss, scalar.loss);
    }
}

#[test]
fn rows_of_a_transposed_blob_are_those_of_the_whole() {
    let (rows, cols) = (150, 96);
    let (s, of) = (weights(Dtype::Bf16, rows, cols), curvature(rows, cols));
    let blob = encode(&s, &EncodeOptions::new(Goal::Bits(3.0)).with_curvature(of)).blob;
    let whole = decode(&blob);
    for range in [0..150, 0..1, 149..150, 31..33, 7..7] {
        let part = tenfold::decode_rows(&blob, range.clone(), &Default::default()).unwrap();
        assert!(part.data == whole.data[range.start * cols * 2..range.end * cols * 2], "{range:?}");
    }
}

#[test]
fn the_predicted_loss_is_what_its_definition_says() {
    let (rows, cols) = (80, 48);
    let s = weights(Dtype::F32, rows, cols);
    let of = curvature(rows, cols);
    let options = EncodeOptions::new(Goal::Bits(3.0)).with_curvature(of.clone());
    let coded = encode(&s, &options);
    let (h, g) = (moments(cols, 5), sensitivities(rows));
    let decoded = to_reals(Dtype::F32, &decode(&coded.blob).data);
    let off: Vec<f64> = s.reals().iter().zip(&decoded).map(|(a, b)| a - b).collect();
    let mut loss = 0.0;
    for (row, g) in off.chunks(cols).zip(&g) {
        for a in 0..cols {
            loss += (0..cols).map(|b| 0.5 * g * row[a] * f64::from(h[a * cols + b]) * row[b]).sum::<f64>();
        }
    }
    assert!((coded.loss / loss - 1.0).abs() < 1e-3, "{} for {loss}", coded.loss);
}

#[test]
fn caps_hold_and_finer_steps_cost_less() {
    let (rows, cols) = (128, 128);
    let (s, of) = (weights(Dtype::Bf16, rows, cols), curvature(rows, cols));
    for cap in [3000, 4097, 8000] {
        let coded = encode(&s, &EncodeOptions::new(Goal::MaxBytes(cap)).with_curvature(of.clone()));
        assert!(coded.blob.len() <= cap && coded.blob.len() * 20 > cap * 19, "{} of {cap}", coded.blob.len());
    }
    let unit = of.unit().unwrap();
    let at = |step: f64| encode(&s, &EncodeOptions::new(Goal::Step(step * unit)).with_curvature(of.clone()));
    let (coarse, fine) = (at(0.004), at(0.002));
    assert!(fine.blob.len() > coarse.blob.len() && fine.loss < coarse.loss);
    // The step of the stored values is the one that was asked for.
    let stored = tenfold::inspect(&fine.blob).unwrap().step.unwrap();
    assert!((stored / (0.002 * unit) - 1.0).abs() < 1e-6);
}

#[test]
fn threads_change_no_byte() {
    let (rows, cols) = (301, 200);
    let s = weights(Dtype::F32, rows, cols);
    for effort in [Effort::Fast, Effort::Balanced] {
        // Factors of its own for each run: they must not depend on threads either.
        let run = |threads: usize| {
            let options = EncodeOptions::new(Goal::Bits(2.5)).with_effort(effort).with_threads(threads);
            encode(&s, &options.with_curvature(curvature(rows, cols)))
        };
        assert!(run(1) == run(3), "{effort:?}");
    }
}

#[test]
fn blocks_are_the_whole_where_nothing_is_between_them() {
    let (rows, cols, first) = (128, 96, 40);
    let s = weights(Dtype::F32, rows, cols);
    let parts = vec![moments(first, 1), moments(cols - first, 2)];
    let mut whole = vec![0f32; cols * cols];
    for (from, part) in [(0, &parts[0]), (first, &parts[1])] {
        let side = part.len().isqrt();
        for (r, row) in part.chunks(side).enumerate() {
            whole[(from + r) * cols + from..][..side].copy_from_slice(row);
        }
    }
    let options = |c: Curvature| {
        EncodeOptions::new(Goal::Bits(3.0)).with_effort(Effort::Fast).with_curvature(Arc::new(c))
    };
    let (one, two) = (
        encode(&s, &options(Curvature::new(whole, cols).unwrap())),
        encode(&s, &options(Curvature::blocks(parts).unwrap())),
    );
    assert!(one.blob == two.blob);
    assert!((one.loss / two.loss - 1.0).abs() < 1e-5);
}

#[test]
fn inputs_that_were_never_active_cost_nothing() {
    let (rows, cols) = (128, 96);
    let s = weights(Dtype::F32, rows, cols);
    let mut h = moments(cols, 5);
    for dead in [0, 17, 95] {
        for k in 0..cols {
            h[dead * cols + k] = 0.0;
            h[k * cols + dead] = 0.0;
        }
    }
    for damping in [0.0, 0.2] {
        let of = Curvature::new(h.clone(), cols).unwrap().with_damping(damping);
        let coded = encode(&s, &EncodeOptions::new(Goal::Bits(2.5)).with_curvature(Arc::new(of)));
        assert!(coded.fell_back.is_none() && coded.loss.is_finite() && coded.loss < coded.plain);
    }
    // None was: whatever comes back costs nothing.
    let of = Curvature::new(vec![0.0; cols * cols], cols).unwrap();
    assert_eq!(encode(&s, &EncodeOptions::new(Goal::Bits(2.5)).with_curvature(Arc::new(of))).loss, 0.0);
}

#[test]
fn damping_keeps_outputs_that_have_next_to_no_gradients() {
    let (rows, cols) = (192, 128);
    let s = weights(Dtype::F32, rows, cols);
    // As an attention head that is sure of itself: its gradients hold for small errors only.
    let sure = 64 * cols..96 * cols;
    let outputs: Vec<f64> = (0..rows).map(|i| if (64..96).contains(&i) { 1e-9 } else { 1e-5 }).collect();
    let lost = |damping: f64| {
        let of = Curvature::new(moments(cols, 5), cols).unwrap().with_outputs(outputs.clone()).unwrap();
        let options = EncodeOptions::new(Goal::Bits(3.0)).with_curvature(Arc::new(of.with_damping(damping)));
        let coded = encode(&s, &options);
        assert!(coded.fell_back.is_none() && coded.loss < coded.plain);
        let (before, after) = (s.reals(), to_reals(Dtype::F32, &decode(&coded.blob).data));
        let power = |f: &dyn Fn(usize) -> f64| sure.clone().map(|i| f(i).powi(2)).sum::<f64>();
        power(&|i| after[i] - before[i]) / power(&|i| before[i])
    };
    let (none, some) = (lost(0.0), lost(Curvature::DAMPING));
    assert!(none > 0.9 && some < 0.5, "{none:.2} of these rows without damping, {some:.2} with it");
}

#[test]
fn importance_is_taken_where_it_costs_less() {
    let (rows, cols) = (192, 128);
    let s = weights(Dtype::F32, rows, cols);
    // Inputs that have nothing to do with each other leave feedback nothing to gain.
    let apart: Vec<f32> = (0..cols * cols).map(|i| if i / cols == i % cols { 1.0 } else { 0.0 }).collect();
    for effort in EFFORTS {
        let of = Arc::new(Curvature::new(apart.clone(), cols).unwrap());
        let coded = encode(&s, &EncodeOptions::new(Goal::Bits(2.5)).with_effort(effort).with_curvature(of));
        assert!(coded.loss <= coded.plain, "{effort:?}: {} and {}", coded.loss, coded.plain);
        assert_eq!(coded.fell_back.is_some(), coded.loss == coded.plain);
    }
}

#[test]
fn what_cannot_be_fed_back_says_so_and_is_coded_all_the_same() {
    let (rows, cols) = (64, 32);
    let of = curvature(rows, cols);
    let options = |goal: Goal| EncodeOptions::new(goal).with_curvature(of.clone());
    let wide = weights(Dtype::F64, rows, cols);
    let coded = encode(&wide, &options(Goal::Bits(3.0)));
    assert!(coded.fell_back.unwrap().contains("float64") && coded.loss > 0.0);
    let exact = encode(&weights(Dtype::F32, rows, cols), &options(Goal::Lossless));
    assert!(exact.fell_back.unwrap().contains("lossless") && exact.loss == 0.0);
    let mut reals = weights(Dtype::F32, rows, cols).reals();
    (reals[5], reals[700]) = (f64::NAN, f64::INFINITY);
    let odd = Sample::new(Dtype::F32, &[rows, cols], &reals);
    let coded = encode(&odd, &options(Goal::Bits(3.0)));
    assert!(coded.fell_back.unwrap().contains("not finite") && coded.loss.is_finite());
    let back = to_reals(Dtype::F32, &decode(&coded.blob).data);
    assert!(back[5].is_nan() && back[700] == f64::INFINITY);
}

#[test]
fn bad_curvatures_are_refused() {
    let refused = |found: Result<Curvature, tenfold::Error>, word: &str| {
        let error = found.unwrap_err();
        assert!(error.kind() == ErrorKind::Caller && error.to_string().contains(word), "{error}");
    };
    let with = |change: &dyn Fn(&mut Vec<f32>)| {
        let mut h = moments(16, 5);
        change(&mut h);
        Curvature::new(h, 16)
    };
    refused(with(&|h| h.truncate(255)), "16 inputs");
    refused(with(&|h| h[3] = f32::NAN), "not finite");
    refused(with(&|h| h[17] = f32::INFINITY), "not finite");
    refused(with(&|h| h[34] = -1.0), "negative");
    refused(with(&|h| h[1] += 10.0), "not symmetric");
    refused(Curvature::blocks(vec![vec![1.0; 3]]), "1 inputs");
    refused(Curvature::blocks(Vec::new()), "at least one");
    refused(with(&|_| ()).unwrap().with_outputs(vec![1.0, f64::NAN]), "E[g²]");
    refused(with(&|_| ()).unwrap().with_outputs(vec![-1.0]), "E[g²]");

    let s = weights(Dtype::F32, 64, 16);
    let refused = |of: Curvature, options: EncodeOptions, word: &str| {
        let options = options.with_curvature(Arc::new(of));
        let error = calibrated::encode(&s.view(), &options).unwrap_err();
        assert!(error.kind() == ErrorKind::Caller && error.to_string().contains(word), "{error}");
        assert_eq!(tenfold::encode(&s.view(), &options).unwrap_err(), error);
    };
    let bits = || EncodeOptions::new(Goal::Bits(3.0));
    let good = || Curvature::new(moments(16, 5), 16).unwrap();
    refused(Curvature::new(moments(15, 5), 15).unwrap(), bits(), "15 inputs");
    refused(good().with_outputs(vec![1.0; 63]).unwrap(), bits(), "63 outputs");
    refused(good().with_damping(f64::NAN), bits(), "damping");
    refused(good().with_damping(-0.1), bits(), "damping");
    // Symmetric, but no product of anything with itself.
    let wild: Vec<f32> = (0..256).map(|i| if i % 17 == 0 { 1.0 } else { -0.9 }).collect();
    refused(Curvature::new(wild, 16).unwrap(), bits(), "positive definite");
    for other in [
        EncodeOptions::new(Goal::Mse(0.1)),
        EncodeOptions::new(Goal::MaxError(0.1)),
        bits().with_residual(Goal::Bits(2.0)),
        bits().with_prepare(Preparation::Auto),
    ] {
        refused(good(), other, "a curvature goes with");
    }
}

#[test]
fn a_subject_reckons_with_the_weights_of_a_curvature() {
    let (rows, cols) = (256, 128);
    let (s, of) = (weights(Dtype::F32, rows, cols), curvature(rows, cols));
    let step = 0.001 * of.unit().unwrap();
    let options = EncodeOptions::new(Goal::Step(step)).with_effort(Effort::Fast).with_curvature(of);
    let subject = Subject::new(&s.view(), &options).unwrap();
    let coded = encode(&s, &options);
    let bits = coded.blob.len() as f64 * 8.0 / s.len() as f64;
    let reckoned = subject.estimate_bits(step, Effort::Fast).unwrap();
    // What is fed back is not in the estimate.
    assert!((reckoned / bits - 1.0).abs() < 0.05, "{reckoned} and {bits}");
    assert!(subject.encode(&options).unwrap() == coded.blob);
    let info = tenfold::inspect(&coded.blob).unwrap();
    assert!(info.transforms.iter().all(|t| matches!(t, Transform::Weights(_))));
}

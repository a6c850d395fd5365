//! Weights of a linear layer as three blobs of a rate: plain, with the importance of inputs, and calibrated. The last one is
//! transposed; what that costs a decoder is what is measured here.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use tenfold::calibrated::{self, Curvature};
use tenfold::prepare::{Transform, Weights};
use tenfold::{DecodeOptions, Dtype, Effort, Goal, Tensor};
use tenfold_cuda::{Order, lane_values};

use super::decode::{BASE, Subject, options};
use super::repeat::repeat;
use crate::synth;

/// Plain, with importance, calibrated as it is coded and in the tensor's order: a matrix of at most [`BASE`] values, repeated to at
/// least `size`.
pub(super) fn subjects(size: usize, bits: f64, threads: usize) -> Result<Vec<Subject>> {
    let log = size.clamp(2, BASE).ilog2();
    let (outputs, inputs) = (1usize << log.div_ceil(2), 1usize << (log / 2));
    let tensor = synth::gaussian(Dtype::Bf16, &[outputs, inputs], 0.02, 5).context("bf16 is a float")?;
    // A power of two, so that tiles are whole.
    let plain = options(size, Goal::Bits(bits), Effort::Balanced, threads)
        .with_lane_values(1 << lane_values(size as u64).ilog2());
    let curvature = curvature(outputs, inputs)?;
    let importance = Weights::from_importance(&curvature.importance())?;
    let weighted = plain.clone().with_transforms(vec![Transform::Weights(importance)]);
    let coded = calibrated::encode(&tensor.view()?, &plain.clone().with_curvature(curvature))?;
    ensure!(coded.fell_back.is_none(), "the weights were not calibrated: {}", coded.fell_back.unwrap_or(""));
    let mut all = vec![
        Subject::new("weights".into(), &tensor, size, plain)?,
        Subject::new("weights, importance".into(), &tensor, size, weighted)?,
    ];
    all.extend(transposed(&tensor, &coded.blob, size)?);
    Ok(all)
}

/// Second moments of inputs of different sizes that go together with their neighbours, and E[g²] of outputs.
fn curvature(outputs: usize, inputs: usize) -> Result<Arc<Curvature>> {
    let scale = |i: usize| ((i * 37 % 64) as f32 / 32.0 - 1.0).exp2();
    let second = |i: usize, j: usize| scale(i) * scale(j) * 0.9f32.powi(i.abs_diff(j).min(1000) as i32);
    let matrix = (0..inputs * inputs).map(|k| second(k / inputs, k % inputs)).collect();
    let counts = (0..outputs).map(|i| ((i * 29 % 128) as f64 / 16.0 - 4.0).exp2()).collect();
    Ok(Arc::new(Curvature::new(matrix, inputs)?.with_outputs(counts)?))
}

/// A transposed blob, repeated side by side: in its own order, and in the tensor's.
fn transposed(tensor: &Tensor, blob: &[u8], size: usize) -> Result<[Subject; 2]> {
    let info = tenfold::inspect(blob)?;
    ensure!(info.is_transposed(), "the calibrated blob is not transposed");
    let (outputs, inputs) = (tensor.shape[0], tensor.shape[1]);
    let once = tenfold::decode(blob, &DecodeOptions::default())?.data;
    let times = size.div_ceil(outputs * inputs).max(1);
    let at = |i: usize, j: usize| (i * inputs + j) * Dtype::Bf16.size();
    let coded = (0..inputs).flat_map(|j| (0..outputs).flat_map(move |i| [at(i, j), at(i, j) + 1]));
    let subject = |name: &str, order, once| -> Result<Subject> {
        Ok(Subject {
            name: name.into(),
            values: outputs * inputs * times,
            blob: repeat(blob, times)?,
            once,
            states: info.states,
            classes: info.classes,
            order,
        })
    };
    let turned = coded.map(|k| once[k]).collect();
    let rows = once.chunks(inputs * Dtype::Bf16.size()).flat_map(|row| row.repeat(times)).collect();
    Ok([
        subject("weights, calibrated", Order::Coded, turned)?,
        subject("weights, calibrated, transposed back", Order::Tensor, rows)?,
    ])
}

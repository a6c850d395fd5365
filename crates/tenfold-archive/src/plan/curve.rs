//! How many bits a tensor takes at a step: its scale, and a curve from estimates on some of its rows. The search for one step is
//! in `step.rs`.

use rayon::prelude::*;
use tenfold::engine::Subject;
use tenfold::{Dtype, EncodeOptions, Goal, TensorView};

use super::{Action, CompressOptions};
use crate::error::{Error, Result};
use crate::model::Model;
use crate::safetensors::codec_dtype;
use crate::values;

/// Points of a curve: octaves of the step from the first guess, from coarse to fine.
pub(super) const OCTAVES: [f64; 9] = [3.0, 2.0, 1.0, 0.5, 0.0, -0.5, -1.0, -2.0, -3.0];
/// Values of a tensor that its curve is estimated from, and those that its scale is.
const CURVE_VALUES: usize = 1 << 20;
const SCALE_VALUES: usize = 1 << 16;

/// Bits a value over log2 of the step, from coarse to fine.
#[derive(Debug, Clone)]
pub(super) struct Curve {
    pub points: Vec<(f64, f64)>,
    /// Values of the tensor.
    pub weight: f64,
}

impl Curve {
    /// Between points along the line. Finer than the last, a bit more each octave; coarser than the first,
    /// half the bits each octave: roughly what a Gaussian's entropy does.
    pub fn bits(&self, log_step: f64) -> f64 {
        let at = self.points.partition_point(|(x, _)| *x > log_step);
        match (at.checked_sub(1).and_then(|i| self.points.get(i)), self.points.get(at)) {
            (Some(&(x0, y0)), Some(&(x1, y1))) => y0 + (y1 - y0) * (x0 - log_step) / (x0 - x1),
            (Some(&(x0, y0)), None) => y0 + (x0 - log_step),
            (None, Some(&(x1, y1))) => y1 * (x1 - log_step).exp2(),
            (None, None) => 0.0,
        }
    }
}

/// log2 of a tensor's root mean square, and its number of values.
pub(super) fn measure_scale(model: &Model, index: usize) -> Result<(f64, f64)> {
    let item = &model.items[index];
    let Some(dtype) = codec_dtype(item.dtype) else {
        return Ok((0.0, 0.0));
    };
    let (data, _) = sample_rows(model, index, dtype, SCALE_VALUES)?;
    Ok((log_rms(dtype, &data), item.values() as f64))
}

pub(super) fn measure_curve(
    model: &Model,
    index: usize,
    action: Action,
    options: &CompressOptions,
    (guess, unit): (f64, f64),
) -> Result<Curve> {
    let item = &model.items[index];
    let weight = item.values() as f64;
    let (Action::Encode { effort, .. }, Some(dtype)) = (action, codec_dtype(item.dtype)) else {
        return Ok(Curve { points: Vec::new(), weight });
    };
    let curvature = options.curvature(&item.name)?;
    // A curvature is that of all rows.
    let most = if curvature.is_some() { usize::MAX / 2 } else { CURVE_VALUES };
    let (data, shape) = sample_rows(model, index, dtype, most)?;
    let view = TensorView::new(dtype, &shape, &data).map_err(Error::codec(&item.name))?;
    let mut at = EncodeOptions::new(Goal::Step(guess.exp2())).with_effort(effort);
    at.curvature = curvature;
    let subject = Subject::new(&view, &at.with_prepare(options.preparation(&item.name)));
    let subject = subject.map_err(Error::codec(&item.name))?;
    let estimate = |octave: &f64| -> Result<(f64, f64)> {
        let log_step = guess + octave;
        let bits = subject.estimate_bits(log_step.exp2() * unit, effort).map_err(Error::codec(&item.name))?;
        Ok((log_step, bits))
    };
    let points: Vec<(f64, f64)> = OCTAVES.par_iter().map(estimate).collect::<Result<_>>()?;
    Ok(Curve { points: make_rising(points), weight })
}

/// Rows spread over a tensor, enough for so many values; all of them where that is not much more.
fn sample_rows(model: &Model, index: usize, dtype: Dtype, values: usize) -> Result<(Vec<u8>, Vec<usize>)> {
    let item = &model.items[index];
    let cols = item.shape.last().copied().unwrap_or(1);
    let width = (cols * dtype.size()) as u64;
    let rows = item.bytes / width.max(1);
    let wanted = values.div_ceil(cols.max(1));
    if rows <= 2 * wanted as u64 {
        return Ok((model.read(index)?.into_owned(), item.shape.clone()));
    }
    let stride = rows / wanted as u64;
    let starts: Vec<u64> = (0..wanted as u64).map(|i| i * stride * width).collect();
    Ok((model.read_pieces(index, &starts, width)?, vec![wanted, cols]))
}

/// Keeps what rises: estimates from samples may waver, a curve that falls would have no single solution.
pub(super) fn make_rising(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let mut last = 0.0f64;
    let keep = |(x, y): (f64, f64)| {
        last = if y.is_finite() { y.max(last) } else { last };
        (x, last)
    };
    points.into_iter().map(keep).collect()
}

/// log2 of the root of the mean square; 0 where there is nothing to measure.
fn log_rms(dtype: Dtype, data: &[u8]) -> f64 {
    let stride = (data.len() / dtype.size() / SCALE_VALUES).max(1);
    let (mut sum, mut count) = (0.0, 0u32);
    for element in data.chunks_exact(dtype.size()).step_by(stride) {
        let mut value = [0.0];
        values::load(dtype, element, &mut value);
        if value[0].is_finite() {
            sum += value[0] * value[0];
            count += 1;
        }
    }
    let rms = (sum / f64::from(count)).sqrt();
    if rms.is_normal() { rms.log2() } else { 0.0 }
}

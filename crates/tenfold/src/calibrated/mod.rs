//! Weights of a linear layer, encoded so that the model loses least: errors are fed back along the layer's inputs.
//!
//! `curvature` is what a calibration run knows of the layer, `factors` what follows from it (with `cholesky`): `steps` of columns and
//! rows, stored as weights, and how columns answer to the errors of those before them. `feed` makes a pass over the matrix,
//! `column` finds the levels of a column; `rate::fed` makes passes until a goal is met. A trellis runs along outputs, so that a
//! column is done before its error is fed on; its blobs hold the transposed matrix. Nothing else concerns a decoder. `choose` is
//! what engines share: whether feedback pays.

mod cholesky;
mod choose;
mod column;
mod curvature;
mod factors;
mod feed;
mod steps;
mod transpose;

use crate::blob::Parts;
use crate::engine::{Outcome, meet_goal};
use crate::error::Result;
use crate::lossless;
use crate::options::{DecodeOptions, Effort, EncodeOptions, Goal};
use crate::prepare::{Prepared, Transform};
use crate::rate::{self, Label, Target};
use crate::view::TensorView;
use crate::workers::Workers;

pub use choose::{Calibrated, Matrix, encode_with};
pub use curvature::{Curvature, Inputs};
pub(crate) use feed::Feed;
pub use feed::Order;
pub use steps::Steps;

/// Encodes the matrix of a linear layer (outputs × inputs) with the curvature of its options, and predicts what that costs the
/// model. Where importance alone would cost less, it is what the blob has.
///
/// ```
/// use std::sync::Arc;
/// use tenfold::calibrated::{self, Curvature};
/// use tenfold::{EncodeOptions, Goal, TensorView};
/// // Inputs that go together in pairs.
/// let cols = 64;
/// let inputs = (0..cols * cols).map(|i| (i / cols, i % cols));
/// let inputs = inputs.map(|(r, c)| if r == c { 1.0 } else if r ^ 1 == c { 0.9 } else { 0.0 }).collect();
/// let curvature = Arc::new(Curvature::new(inputs, cols)?);
/// let weights: Vec<f32> = (0..64 * cols).map(|i| (i as f32 * 0.7).sin()).collect();
/// let view = TensorView::from_slice(&weights, &[64, 64])?;
/// let options = EncodeOptions::new(Goal::Bits(3.0)).with_curvature(curvature);
/// let coded = calibrated::encode(&view, &options)?;
/// assert!(coded.fell_back.is_none() && coded.loss < coded.plain);
/// assert_eq!(tenfold::decode(&coded.blob, &Default::default())?.shape, [64, cols]);
/// # Ok::<(), tenfold::Error>(())
/// ```
pub fn encode(view: &TensorView<'_>, options: &EncodeOptions) -> Result<Calibrated> {
    let Calibrated { blob, loss, plain, fell_back } = encode_parts(view, options)?;
    Ok(Calibrated { blob: blob.into_blob()?, loss, plain, fell_back })
}

/// The same, the blob left in parts.
pub(crate) fn encode_parts(view: &TensorView<'_>, options: &EncodeOptions) -> Result<Calibrated<Parts>> {
    let workers = Workers::new(options.threads, &options.stop)?;
    encode_with(&Host { view, options, workers: &workers }, (view.dtype(), view.rows(), view.cols()), options)
}

/// A matrix in the host's memory.
struct Host<'a> {
    view: &'a TensorView<'a>,
    options: &'a EncodeOptions,
    workers: &'a Workers,
}

impl Matrix for Host<'_> {
    type Blob = Parts;

    fn encode_fed(&self) -> Result<Option<Parts>> {
        let Host { view, options, workers } = *self;
        let Some(curvature) = &options.curvature else { return Ok(None) };
        // 1. The matrix, weighted.
        let factors = curvature.factors(workers)?;
        let order = Order::for_options(options);
        let transforms = factors.steps.transforms(order);
        let prepared = Prepared::new(view, &transforms, workers)?;
        if !prepared.finite || prepared.transforms.len() != transforms.len() {
            return Ok(None);
        }
        // 2. Levels with feedback, or a lossless blob where that is smaller.
        let worked = prepared.view()?;
        let values: Vec<f32> = bytemuck::pod_collect_to_vec(worked.data());
        let feed = Feed::new(factors, &values, view.rows(), order);
        let label = Label::new(view, &prepared.transforms)?;
        let mut fed = options.clone();
        if order == Order::Rows {
            fed.effort = Effort::Fast;
        }
        let parts = meet_goal(
            view.dtype(),
            view.len(),
            options,
            || lossless::encode(view, options.lane_values, workers),
            || match Target::from_goal(options.goal, view) {
                Some(target) => rate::encode_fed(&worked, &feed, &label, &fed, workers, target),
                None => Ok(Outcome::Failed(None)),
            },
        )?;
        Ok(Some(parts))
    }

    fn encode_plain(&self, options: &EncodeOptions) -> Result<Parts> {
        crate::engine::Cpu.encode_parts(self.view, options)
    }

    fn loss(&self, parts: &Parts) -> Result<f64> {
        let Host { view, options, workers } = *self;
        let Some(curvature) = &options.curvature else { return Ok(0.0) };
        let decoding = DecodeOptions::default().with_threads(options.threads).with_stop(options.stop.clone());
        let decoded = crate::decode(&parts.to_blob(), &decoding)?;
        curvature.loss_with(view, &decoded.view()?, workers)
    }
}

/// The transforms that a curvature has for a tensor.
pub(crate) fn transforms(
    curvature: &Curvature,
    view: &TensorView<'_>,
    options: &EncodeOptions,
) -> Result<Vec<Transform>> {
    if !view.dtype().is_float() || options.goal == Goal::Lossless {
        return Ok(Vec::new());
    }
    curvature.check_shape(view.rows(), view.cols())?;
    let workers = Workers::new(options.threads, &options.stop)?;
    Ok(curvature.factors(&workers)?.steps.transforms(Order::for_options(options)))
}

//! Weights of a linear layer, encoded so that the model loses least: errors are fed back along the layer's inputs.
//!
//! `curvature` is what a calibration run knows of the layer, `factors` what follows from it (with `cholesky`): steps of columns and
//! rows, stored as weights, and how columns answer to the errors of those before them. `feed` makes a pass over the matrix,
//! `column` finds the levels of a column; `rate::fed` makes passes until a goal is met. A trellis runs along outputs, so that a
//! column is done before its error is fed on; its blobs hold the transposed matrix. Nothing else concerns a decoder.

mod cholesky;
mod column;
mod curvature;
mod factors;
mod feed;
mod transpose;

use crate::blob::Parts;
use crate::engine::{Outcome, TINY, meet_goal};
use crate::error::{Error, Result};
use crate::lossless;
use crate::options::{DecodeOptions, Effort, EncodeOptions, Goal};
use crate::prepare::{Prepared, Transform, Weights};
use crate::rate::{self, Label, Target};
use crate::view::{Dtype, TensorView};
use crate::workers::Workers;

pub use curvature::Curvature;
pub(crate) use feed::{Feed, Order};

/// A matrix that was encoded with a curvature.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Calibrated {
    /// The blob.
    pub blob: Vec<u8>,
    /// Predicted rise of the model's loss, in nats a token where the curvature is in these; see [`Curvature`].
    pub loss: f64,
    /// What the rise would be for a blob of no more bytes that knows the importance of inputs alone.
    pub plain: f64,
    /// Why errors were not fed back, if they were not.
    pub fell_back: Option<&'static str>,
}

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
    let coded = encode_parts(view, options)?;
    let (blob, loss, plain, fell_back) = (coded.parts.into_blob()?, coded.loss, coded.plain, coded.fell_back);
    Ok(Calibrated { blob, loss, plain, fell_back })
}

/// The same, the blob left in parts.
pub(crate) struct CalibratedParts {
    pub(crate) parts: Parts,
    loss: f64,
    plain: f64,
    fell_back: Option<&'static str>,
}

pub(crate) fn encode_parts(view: &TensorView<'_>, options: &EncodeOptions) -> Result<CalibratedParts> {
    options.validate()?;
    let Some(curvature) = &options.curvature else {
        return Err(Error::InvalidArgument("there is no curvature to encode with".into()));
    };
    curvature.check(view)?;
    let workers = Workers::new(options.threads, &options.stop)?;
    let matrix = Matrix { view, curvature, options, workers: &workers };
    let plain_only = match view.dtype() {
        _ if options.goal == Goal::Lossless => Some("the goal is lossless"),
        dtype if !dtype.is_float() => Some("the tensor has no floats"),
        Dtype::F64 => Some("the tensor is one of float64"),
        _ if view.len() < TINY => Some("the tensor is tiny"),
        _ => None,
    };
    if let Some(why) = plain_only {
        return matrix.fall_back(why);
    }
    // 1. The matrix, weighted; errors of what is not a number cannot be fed back.
    let factors = curvature.factors(&workers)?;
    let order = Order::for_options(options);
    let transforms = factors.transforms(order);
    let prepared = Prepared::new(view, &transforms, &workers)?;
    if !prepared.finite || prepared.transforms.len() != transforms.len() {
        return matrix.fall_back("the tensor has values that are not finite");
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
        || lossless::encode(view, options.lane_values, &workers),
        || match Target::from_goal(options.goal, view) {
            Some(target) => rate::encode_fed(&worked, &feed, &label, &fed, &workers, target),
            None => Ok(Outcome::Failed(None)),
        },
    )?;
    // 3. What importance alone would cost, in as many bytes.
    let loss = matrix.loss(&parts)?;
    match matrix.plain(Goal::MaxBytes(parts.blob_len())) {
        Ok(instead) => {
            let plain = matrix.loss(&instead)?;
            if plain < loss {
                let why = "importance alone costs the model less";
                return Ok(CalibratedParts { parts: instead, loss: plain, plain, fell_back: Some(why) });
            }
            Ok(CalibratedParts { parts, loss, plain, fell_back: None })
        }
        Err(Error::DoesNotFit { .. }) => {
            Ok(CalibratedParts { parts, loss, plain: f64::INFINITY, fell_back: None })
        }
        Err(error) => Err(error),
    }
}

/// A matrix on its way to a blob.
struct Matrix<'a> {
    view: &'a TensorView<'a>,
    curvature: &'a Curvature,
    options: &'a EncodeOptions,
    workers: &'a Workers,
}

impl Matrix<'_> {
    /// A blob that knows the importance of inputs alone.
    fn plain(&self, goal: Goal) -> Result<Parts> {
        let mut options = EncodeOptions { goal, curvature: None, ..self.options.clone() };
        if self.view.dtype().is_float() && goal != Goal::Lossless {
            let weights = Weights::from_importance(&self.curvature.importance())?;
            options = options.with_transforms(vec![Transform::Weights(weights)]);
        }
        crate::engine::Cpu.encode_parts(self.view, &options)
    }

    fn fall_back(&self, why: &'static str) -> Result<CalibratedParts> {
        let parts = self.plain(self.options.goal)?;
        let loss = if self.view.dtype().is_float() { self.loss(&parts)? } else { 0.0 };
        Ok(CalibratedParts { parts, loss, plain: loss, fell_back: Some(why) })
    }

    /// Predicted rise of the model's loss.
    fn loss(&self, parts: &Parts) -> Result<f64> {
        let options =
            DecodeOptions::default().with_threads(self.options.threads).with_stop(self.options.stop.clone());
        let decoded = crate::decode(&parts.to_blob(), &options)?;
        self.curvature.loss_with(self.view, &decoded.view()?, self.workers)
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
    curvature.check(view)?;
    let workers = Workers::new(options.threads, &options.stop)?;
    Ok(curvature.factors(&workers)?.transforms(Order::for_options(options)))
}

//! Feedback or importance alone, whichever costs the model less in as many bytes, for any engine that can do both.

use super::curvature::Curvature;
use crate::engine::{Coded, TINY};
use crate::error::{Error, Result};
use crate::options::{EncodeOptions, Goal};
use crate::prepare::{Transform, Weights};
use crate::view::Dtype;

/// A matrix that was encoded with a curvature.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Calibrated<B = Vec<u8>> {
    /// The blob.
    pub blob: B,
    /// Predicted rise of the model's loss, in nats a token where the curvature is in these; see [`Curvature`].
    pub loss: f64,
    /// What the rise would be for a blob of no more bytes that knows the importance of inputs alone.
    pub plain: f64,
    /// Why errors were not fed back, if they were not.
    pub fell_back: Option<&'static str>,
}

impl<B> Calibrated<B> {
    /// The same with the blob as a function gives it, such as in other memory.
    pub fn map<C>(self, f: impl FnOnce(B) -> C) -> Calibrated<C> {
        let Calibrated { blob, loss, plain, fell_back } = self;
        Calibrated { blob: f(blob), loss, plain, fell_back }
    }
}

/// A matrix on its way to a blob, in an engine's memory.
pub trait Matrix {
    /// A blob in that memory.
    type Blob: Coded;

    /// A blob with errors fed back, or a lossless one where that is smaller; nothing if a value is not finite.
    fn encode_fed(&self) -> Result<Option<Self::Blob>>;

    /// A blob by options without a curvature.
    fn encode_plain(&self, options: &EncodeOptions) -> Result<Self::Blob>;

    /// The predicted rise of the model's loss by a blob of the matrix.
    fn loss(&self, blob: &Self::Blob) -> Result<f64>;
}

/// Encodes a matrix of so many rows and columns with the curvature of its options.
pub fn encode_with<M: Matrix>(
    matrix: &M,
    (dtype, rows, cols): (Dtype, usize, usize),
    options: &EncodeOptions,
) -> Result<Calibrated<M::Blob>> {
    options.validate()?;
    let Some(curvature) = &options.curvature else {
        return Err(Error::InvalidArgument("there is no curvature to encode with".into()));
    };
    curvature.check_shape(rows, cols)?;
    // 1. Errors of what is not a number cannot be fed back.
    let fed = match why_plain(dtype, rows * cols, options.goal) {
        Some(why) => Err(why),
        None => matrix.encode_fed()?.ok_or("the tensor has values that are not finite"),
    };
    let blob = match fed {
        Ok(blob) => blob,
        Err(why) => {
            let blob = matrix.encode_plain(&plain(curvature, dtype, options.goal, options)?)?;
            let loss = if dtype.is_float() { matrix.loss(&blob)? } else { 0.0 };
            return Ok(Calibrated { blob, loss, plain: loss, fell_back: Some(why) });
        }
    };
    // 2. What importance alone would cost, in as many bytes.
    let loss = matrix.loss(&blob)?;
    match matrix.encode_plain(&plain(curvature, dtype, Goal::MaxBytes(blob.coded_len()), options)?) {
        Ok(instead) => {
            let plain = matrix.loss(&instead)?;
            if plain < loss {
                let why = "importance alone costs the model less";
                return Ok(Calibrated { blob: instead, loss: plain, plain, fell_back: Some(why) });
            }
            Ok(Calibrated { blob, loss, plain, fell_back: None })
        }
        Err(Error::DoesNotFit { .. }) => Ok(Calibrated { blob, loss, plain: f64::INFINITY, fell_back: None }),
        Err(error) => Err(error),
    }
}

/// Why errors of a matrix are not fed back, if they are not.
fn why_plain(dtype: Dtype, values: usize, goal: Goal) -> Option<&'static str> {
    match dtype {
        _ if goal == Goal::Lossless => Some("the goal is lossless"),
        dtype if !dtype.is_float() => Some("the tensor has no floats"),
        Dtype::F64 => Some("the tensor is one of float64"),
        _ if values < TINY => Some("the tensor is tiny"),
        _ => None,
    }
}

/// Options for a blob that knows the importance of inputs alone.
fn plain(curvature: &Curvature, dtype: Dtype, goal: Goal, options: &EncodeOptions) -> Result<EncodeOptions> {
    let options = EncodeOptions { goal, curvature: None, ..options.clone() };
    if !dtype.is_float() || goal == Goal::Lossless {
        return Ok(options);
    }
    let weights = Weights::from_importance(&curvature.importance())?;
    Ok(options.with_transforms(vec![Transform::Weights(weights)]))
}

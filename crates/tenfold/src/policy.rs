//! Lossy or lossless? Which of the two meets a goal with fewer bytes, for any engine that can do both.

use crate::error::{Error, Result};
use crate::options::{EncodeOptions, Goal};
use crate::view::TensorView;

/// Below this many values a soft goal (bits, ratio, error) is met losslessly: a header and a table would
/// take more than quantising saves.
pub const TINY: usize = 256;

/// How an attempt at a lossy goal ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A blob that reaches the goal.
    Blob(Vec<u8>),
    /// Nothing to quantise: zeros and values stored exactly.
    Trivial(Vec<u8>),
    /// Not reached: a quantiser cannot hold these values or the goal is out of range. The smallest blob seen, in
    /// bytes, if any was made.
    Failed(Option<usize>),
}

/// Meets a goal with whatever takes fewer bytes: `exact` makes a lossless blob, `lossy` tries the goal. Either is
/// called only where it may be of use.
pub fn meet_goal(
    view: &TensorView<'_>,
    options: &EncodeOptions,
    mut exact: impl FnMut() -> Result<Vec<u8>>,
    mut lossy: impl FnMut() -> Result<Outcome>,
) -> Result<Vec<u8>> {
    let bytes = view.data().len() as f64;
    // Goals that are sizes: how many bytes, and whether that is the most.
    let (size, cap) = match options.goal {
        Goal::Lossless => return exact(),
        Goal::Bits(b) => (Some(b * view.len() as f64 / 8.0), None),
        Goal::Ratio(r) => (Some(bytes / r), None),
        Goal::MaxBytes(cap) => (Some(cap as f64), Some(cap)),
        _ => (None, None),
    };
    if !view.dtype().is_float() {
        // A cap is not about error: an integer tensor may meet it exactly.
        if let Some(cap) = cap {
            let blob = exact()?;
            return if blob.len() <= cap { Ok(blob) } else { Err(does_not_fit(cap, blob.len())) };
        }
        return Err(Error::InvalidArgument(format!(
            "{} tensors are only coded losslessly; use Goal::Lossless",
            view.dtype()
        )));
    }
    if cap.is_none() && view.len() < TINY {
        return exact();
    }
    // Close to the size of the elements a lossless blob may be the better answer; try it first where
    // the goal is a size that it could meet.
    if size.is_some_and(|s| s >= bytes * 0.5) || view.len() < TINY {
        let blob = exact()?;
        if size.is_some_and(|s| blob.len() as f64 <= s) {
            return Ok(blob);
        }
    }
    match (lossy()?, size, cap) {
        // A lossless blob is seldom this small, so it is seldom made for nothing.
        (Outcome::Blob(blob), ..) if blob.len() as f64 > bytes * 0.4 => {
            let other = exact()?;
            Ok(if other.len() <= blob.len() { other } else { blob })
        }
        // Much smaller than asked: no finer step was of use, as in a tensor that is mostly zero.
        (Outcome::Blob(blob), Some(want), None) if (blob.len() as f64) < want * 0.95 => {
            let other = exact()?;
            Ok(if other.len() as f64 <= want { other } else { blob })
        }
        (Outcome::Trivial(blob), _, cap) => {
            let other = exact()?;
            let blob = if other.len() <= blob.len() { other } else { blob };
            match cap {
                Some(cap) if blob.len() > cap => Err(does_not_fit(cap, blob.len())),
                _ => Ok(blob),
            }
        }
        (Outcome::Blob(blob), ..) => Ok(blob),
        (Outcome::Failed(smallest), _, Some(cap)) => {
            let blob = exact()?;
            if blob.len() <= cap {
                return Ok(blob);
            }
            Err(does_not_fit(cap, smallest.map_or(blob.len(), |s| s.min(blob.len()))))
        }
        (Outcome::Failed(_), _, None) => exact(),
    }
}

fn does_not_fit(cap: usize, need: usize) -> Error {
    Error::DoesNotFit { cap: cap as u64, need: need as u64 }
}

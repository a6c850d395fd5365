//! Chooses lossy or lossless coding, whichever meets a goal with fewer bytes, for any engine that can do both.

use crate::blob::Parts;
use crate::error::{Error, Result};
use crate::options::{EncodeOptions, Goal};
use crate::view::Dtype;

/// Below this many values a soft goal (bits, ratio, error) is met losslessly: a header and a table would
/// take more than quantising saves.
pub const TINY: usize = 256;

/// How an attempt at a lossy goal ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<B = Parts> {
    /// A blob that reaches the goal.
    Blob(B),
    /// Nothing to quantise: zeros and values stored exactly.
    Trivial(B),
    /// Not reached: a quantiser cannot hold these values or the goal is out of range. The smallest blob seen, in
    /// bytes, if any was made.
    Failed(Option<usize>),
}

/// A blob in any memory: of the host, of a device, of another language.
pub trait Coded {
    /// Bytes that it takes.
    fn coded_len(&self) -> usize;
}

impl Coded for Vec<u8> {
    fn coded_len(&self) -> usize {
        self.len()
    }
}

/// Meets a goal with fewest bytes: `exact` makes a lossless blob, `lossy` tries the goal. Each is called only if it can
/// help. `dtype` and `values` are those of the tensor.
pub fn meet_goal<B: Coded>(
    dtype: Dtype,
    values: usize,
    options: &EncodeOptions,
    mut exact: impl FnMut() -> Result<B>,
    mut lossy: impl FnMut() -> Result<Outcome<B>>,
) -> Result<B> {
    let bytes = values as f64 * dtype.size() as f64;
    // Goals that are sizes: how many bytes, and whether that is a limit.
    let (size, cap) = match options.goal {
        Goal::Lossless => return exact(),
        Goal::Bits(b) => (Some(b * values as f64 / 8.0), None),
        Goal::Ratio(r) => (Some(bytes / r), None),
        Goal::MaxBytes(cap) => (Some(cap as f64), Some(cap)),
        _ => (None, None),
    };
    if !dtype.is_float() {
        // A cap does not concern the error: an integer tensor may meet it losslessly.
        if let Some(cap) = cap {
            let blob = exact()?;
            return if blob.coded_len() <= cap { Ok(blob) } else { Err(does_not_fit(cap, blob.coded_len())) };
        }
        return Err(Error::InvalidArgument(format!(
            "{} tensors need lossless coding: ask for the goal lossless",
            dtype
        )));
    }
    if cap.is_none() && values < TINY {
        return exact();
    }
    // Near the size of the elements a lossless blob may be smaller; try it first if it could meet the goal.
    if size.is_some_and(|s| s >= bytes * 0.5) || values < TINY {
        let blob = exact()?;
        if size.is_some_and(|s| blob.coded_len() as f64 <= s) {
            return Ok(blob);
        }
    }
    match (lossy()?, size, cap) {
        // A lossless blob is seldom this small, so one is seldom made in vain.
        (Outcome::Blob(blob), ..) if blob.coded_len() as f64 > bytes * 0.4 => {
            let other = exact()?;
            Ok(if other.coded_len() <= blob.coded_len() { other } else { blob })
        }
        // Much smaller than the goal: no finer step helped, as in a tensor that is mostly zero.
        (Outcome::Blob(blob), Some(want), None) if (blob.coded_len() as f64) < want * 0.95 => {
            let other = exact()?;
            Ok(if other.coded_len() as f64 <= want { other } else { blob })
        }
        (Outcome::Trivial(blob), _, cap) => {
            let other = exact()?;
            let blob = if other.coded_len() <= blob.coded_len() { other } else { blob };
            match cap {
                Some(cap) if blob.coded_len() > cap => Err(does_not_fit(cap, blob.coded_len())),
                _ => Ok(blob),
            }
        }
        (Outcome::Blob(blob), ..) => Ok(blob),
        (Outcome::Failed(smallest), _, Some(cap)) => {
            let blob = exact()?;
            if blob.coded_len() <= cap {
                return Ok(blob);
            }
            Err(does_not_fit(cap, smallest.map_or(blob.coded_len(), |s| s.min(blob.coded_len()))))
        }
        (Outcome::Failed(_), _, None) => exact(),
    }
}

fn does_not_fit(cap: usize, need: usize) -> Error {
    Error::DoesNotFit { cap: cap as u64, need: need as u64 }
}

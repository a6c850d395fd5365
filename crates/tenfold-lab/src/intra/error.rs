//! Why pictures were not coded or bytes not decoded.

use thiserror::Error;

/// An error of the study codec.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IntraError {
    /// Pictures or settings that the codec does not take.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The bytes end before the pictures do.
    #[error("the stream is truncated")]
    Truncated,
    /// The bytes are no stream of this codec, or a damaged one.
    #[error("the stream is corrupt: {0}")]
    Corrupt(&'static str),
}

//! Errors, by who must act: those of [`tenfold::Error`] and those of codec libraries.

use tenfold::engine::ErrorKind;
use thiserror::Error;

use crate::codec::Standard;

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum Error {
    /// An error about the tensor, the blob around the pictures or a goal.
    #[error(transparent)]
    Tensor(#[from] tenfold::Error),
    /// This build has no codec for it.
    #[error("this build has no {standard} {role}; build tenfold with the feature {features}")]
    NotBuilt {
        /// The standard that is missing.
        standard: Standard,
        /// Encoder or decoder.
        role: &'static str,
        /// Features of the build that would have one.
        features: &'static str,
    },
    /// The codec is part of the build, but this machine lacks a library, a driver or a device for it.
    #[error("{name} is not available here: {reason}")]
    NotAvailable {
        /// The codec.
        name: String,
        /// What is missing and what to do.
        reason: String,
    },
    /// The codec does not support the request: a sample depth, a size, a mode.
    #[error("{name} cannot do this: {reason}")]
    Refused {
        /// The codec.
        name: String,
        /// What it cannot do.
        reason: String,
    },
    /// The codec failed on valid input.
    #[error("{name} failed: {reason}")]
    Codec {
        /// The codec.
        name: String,
        /// What it reported.
        reason: String,
    },
    /// The compressed pictures are damaged, or contradict the blob.
    #[error("the {standard} stream is corrupt: {reason}")]
    Stream {
        /// What the stream should be.
        standard: Standard,
        /// What is wrong.
        reason: String,
    },
}

impl Error {
    /// Who must act.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Tensor(e) => e.kind(),
            Error::NotBuilt { .. } => ErrorKind::Unsupported,
            Error::Refused { .. } => ErrorKind::Caller,
            Error::NotAvailable { .. } | Error::Codec { .. } => ErrorKind::Environment,
            Error::Stream { .. } => ErrorKind::Data,
        }
    }
}

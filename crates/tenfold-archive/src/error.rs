//! Errors of model files.

use std::path::PathBuf;

use thiserror::Error;

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong with a model file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// Reading or writing failed.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The file is not what its name says, or is damaged.
    #[error("{path}: {reason}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The codec refused a tensor.
    #[error("tensor {name:?}: {source}")]
    Codec {
        /// The tensor.
        name: String,
        /// What the codec said.
        #[source]
        source: tenfold::Error,
    },
    /// The caller asked for something that cannot work.
    #[error("{0}")]
    InvalidArgument(String),
}

impl Error {
    /// Who must act.
    pub fn kind(&self) -> tenfold::ErrorKind {
        match self {
            Error::Io { .. } => tenfold::ErrorKind::Environment,
            Error::Malformed { .. } => tenfold::ErrorKind::Data,
            Error::Codec { source, .. } => source.kind(),
            Error::InvalidArgument(_) => tenfold::ErrorKind::Caller,
        }
    }
}

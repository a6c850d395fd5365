//! Errors, grouped by who must act.

use tenfold::engine::ErrorKind;
use thiserror::Error;

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller asked for something that cannot work.
    #[error("{0}")]
    InvalidArgument(String),
    /// A connection, a file or a thread failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// What the system reported.
        #[source]
        source: std::io::Error,
    },
    /// The other end sent something that is no answer.
    #[error("the other end does not keep to the protocol: {0}")]
    Protocol(String),
    /// A model file was refused.
    #[error(transparent)]
    Archive(#[from] tenfold_archive::Error),
    /// The codec refused a tensor.
    #[error(transparent)]
    Codec(#[from] tenfold::Error),
    /// A file of inputs for the cluster model is not what it should be.
    #[error("{0}")]
    Inputs(String),
}

impl Error {
    /// Who must act.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::InvalidArgument(_) => ErrorKind::Caller,
            Error::Io { .. } => ErrorKind::Environment,
            Error::Protocol(_) | Error::Inputs(_) => ErrorKind::Data,
            Error::Archive(error) => error.kind(),
            Error::Codec(error) => error.kind(),
        }
    }

    /// For `map_err` on system errors.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }
}

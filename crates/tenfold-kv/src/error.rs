//! Errors, grouped by who must act.

use tenfold::engine::ErrorKind;
use thiserror::Error;

use crate::basis::Kind;

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. [`Error::kind`] says who has to act.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The codec refused something.
    #[error(transparent)]
    Codec(#[from] tenfold::Error),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] tenfold_archive::Error),
    /// A captured row holds a NaN or an infinity.
    #[error(
        "tensor {tensor:?}: row {row} holds a NaN or an infinity in column {column}; leave such rows out"
    )]
    NotFinite {
        /// The tensor.
        tensor: String,
        /// Its row.
        row: u64,
        /// The row's first column that is not finite.
        column: usize,
    },
    /// A captured tensor has another number of columns than those before it.
    #[error("tensor {tensor:?} has {found} columns, but the others have {expected}")]
    Columns {
        /// The tensor.
        tensor: String,
        /// Its columns.
        found: usize,
        /// Columns of the others.
        expected: usize,
    },
    /// A basis file contradicts itself.
    #[error("not a basis file, or damaged: {0}")]
    Malformed(String),
    /// A basis file of a later version.
    #[error("basis file of version {found} (this build reads {supported}); use a newer tenfold")]
    Version {
        /// Version of the file.
        found: u64,
        /// Version that this build reads.
        supported: u64,
    },
    /// The basis file belongs to another model.
    #[error("the basis file was made for model {found:?}, not for {expected:?}; use the file of this model")]
    ForeignModel {
        /// The model at hand.
        expected: String,
        /// The model that the file names.
        found: String,
    },
    /// The basis file has no basis for a layer.
    #[error("the basis file has no basis for {kind} of layer {layer}")]
    MissingGroup {
        /// Keys, values or hidden states.
        kind: Kind,
        /// The layer.
        layer: usize,
    },
    /// A cap on bytes cannot be met.
    #[error(
        "the bases do not fit into {cap} bytes: the smallest file takes {need}; let fewer layers share a basis, or raise the cap"
    )]
    DoesNotFit {
        /// Bytes allowed.
        cap: u64,
        /// Bytes of the smallest file.
        need: u64,
    },
    /// An argument is invalid.
    #[error("{0}")]
    InvalidArgument(String),
}

impl Error {
    /// Who must act.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Codec(error) => error.kind(),
            Error::File(error) => error.kind(),
            Error::NotFinite { .. } | Error::Columns { .. } | Error::Malformed(_) => ErrorKind::Data,
            Error::Version { .. } => ErrorKind::Unsupported,
            Error::ForeignModel { .. } | Error::MissingGroup { .. } | Error::InvalidArgument(_) => {
                ErrorKind::Caller
            }
            Error::DoesNotFit { .. } => ErrorKind::Limit,
        }
    }
}

/// The error for an invalid argument.
pub(crate) fn invalid(reason: impl Into<String>) -> Error {
    Error::InvalidArgument(reason.into())
}

//! Errors of model files.

use std::path::{Path, PathBuf};

use thiserror::Error;

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong with a model file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// Reading or writing failed.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system reported.
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
    /// The file may be fine, but this build cannot read it.
    #[error("{path}: not supported: {what}")]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What is not supported.
        what: String,
    },
    /// The codec refused a tensor.
    #[error("tensor {name:?}: {source}")]
    Codec {
        /// The tensor.
        name: String,
        /// What the codec reported.
        #[source]
        source: tenfold::Error,
    },
    /// The caller stopped the work.
    #[error("stopped before the end; nothing was written")]
    Stopped,
    /// The worker threads did not start.
    #[error(transparent)]
    Threads(tenfold::Error),
    /// The output exists, and the caller did not allow overwriting it.
    #[error("{} already exists; allow overwriting to replace it", .0.display())]
    OutputExists(PathBuf),
    /// A delta belongs to another model.
    #[error(
        "{path}: the delta belongs to a model with the fingerprint {expected}, and {reason}; name that model, or first apply the deltas that lead to it"
    )]
    WrongBase {
        /// The delta.
        path: PathBuf,
        /// Fingerprint of the model that it belongs to.
        expected: String,
        /// What is wrong with the model that was given.
        reason: String,
    },
    /// Deltas do not follow one another: they are out of order, or one is missing.
    #[error("{after} does not follow {before}: {reason}")]
    Chain {
        /// A delta.
        before: PathBuf,
        /// The one that was given after it.
        after: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// Deltas cannot be made one without the model that the first belongs to.
    #[error(
        "tensor {name:?} is changed by more than one delta: what they make of it together can only be told with the base; name it (`--base`)"
    )]
    NeedsBase {
        /// The tensor.
        name: String,
    },
    /// A delta was given where a model is needed.
    #[error(
        "{} is a delta, not a model: apply it to its base (`tenfold delta apply`), or list it (`tenfold delta inspect`)", .0.display()
    )]
    IsDelta(PathBuf),
    /// A part of a model that is made in parts is not there.
    #[error("part {part} is missing in {}: make it (`tenfold compress IN -o OUT --part {part}`), then join again", folder.display())]
    MissingPart {
        /// Which one.
        part: String,
        /// Where it should be.
        folder: PathBuf,
    },
    /// A part is not of this model, or was made with other options.
    #[error("part {part}, {}: {reason}", path.display())]
    OtherPart {
        /// Which one.
        part: String,
        /// Its file.
        path: PathBuf,
        /// What is different.
        reason: String,
    },
    /// The caller asked for something that cannot work.
    #[error("{0}")]
    InvalidArgument(String),
}

impl Error {
    /// Who must act.
    pub fn kind(&self) -> tenfold::engine::ErrorKind {
        match self {
            Error::Io { .. } | Error::Threads(_) => tenfold::engine::ErrorKind::Environment,
            Error::Malformed { .. } | Error::IsDelta(_) => tenfold::engine::ErrorKind::Data,
            Error::Unsupported { .. } => tenfold::engine::ErrorKind::Unsupported,
            Error::Codec { source, .. } => source.kind(),
            Error::OutputExists(_)
            | Error::Stopped
            | Error::WrongBase { .. }
            | Error::Chain { .. }
            | Error::NeedsBase { .. }
            | Error::MissingPart { .. }
            | Error::OtherPart { .. }
            | Error::InvalidArgument(_) => tenfold::engine::ErrorKind::Caller,
        }
    }

    /// For `map_err` on system errors about a path.
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Error + '_ {
        move |source| Error::Io { path: path.to_owned(), source }
    }

    pub(crate) fn malformed(path: &Path, reason: impl Into<String>) -> Error {
        Error::Malformed { path: path.to_owned(), reason: reason.into() }
    }

    /// For `map_err` on codec errors about a tensor.
    pub(crate) fn codec(name: &str) -> impl FnOnce(tenfold::Error) -> Error + '_ {
        move |source| Error::Codec { name: name.to_owned(), source }
    }
}

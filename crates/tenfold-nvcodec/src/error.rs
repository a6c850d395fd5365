//! Errors, by who must act: those of the driver's libraries beside those of tensors and devices.

use tenfold::engine::ErrorKind;
use tenfold_video::Standard;

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. [`Error::kind`] says who has to act.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A library cannot be loaded.
    #[error("not available: {library}: {reason}; it comes with {origin}")]
    LibraryMissing {
        /// The file's name.
        library: String,
        /// What the loader reported.
        reason: String,
        /// What installs it.
        origin: &'static str,
    },
    /// A library lacks a function that this crate calls.
    #[error("not available: {library} has no function {symbol}; install a newer driver")]
    SymbolMissing {
        /// The file's name.
        library: String,
        /// The function.
        symbol: &'static str,
    },
    /// The driver is older than the interface that this crate speaks.
    #[error(
        "not available: {library} speaks version {found}, but tenfold needs {needed}; install a newer driver"
    )]
    Version {
        /// The file's name.
        library: String,
        /// What tenfold needs.
        needed: String,
        /// What the driver has.
        found: String,
    },
    /// A call into NVIDIA's libraries failed.
    #[error("{call} failed: {name} ({code})")]
    Call {
        /// The function.
        call: &'static str,
        /// What it returned.
        code: u32,
        /// NVIDIA's name for that.
        name: &'static str,
    },
    /// A call of an encoding session failed, and the driver says why.
    #[error("{call} failed: {name} ({code}): {detail}")]
    Session {
        /// The function.
        call: &'static str,
        /// What it returned.
        code: u32,
        /// NVIDIA's name for that.
        name: &'static str,
        /// The session's last error.
        detail: String,
    },
    /// The GPU lacks the engine altogether.
    #[error("not available: {0}")]
    NoEngine(String),
    /// The driver allows no more encoding sessions, and other programs have them all.
    #[error(
        "no encoding session is free: the driver allows no more of them; close other programs that encode"
    )]
    NoSession,
    /// The GPU has no engine for this: a codec, a chroma format, a depth or a size.
    #[error("the GPU's video engine cannot do this: {0}")]
    Unsupported(String),
    /// The compressed pictures are damaged, or contradict the blob.
    #[error("the {standard} stream is corrupt: {reason}")]
    Stream {
        /// What the stream should be.
        standard: Standard,
        /// What is wrong.
        reason: String,
    },
    /// No engine was free, or one did not answer.
    #[error("{what} for {seconds} s; nothing more is written, try again")]
    Timeout {
        /// What was waited for.
        what: &'static str,
        /// How long.
        seconds: u64,
    },
    /// An argument is invalid: a pointer, a size, a data type.
    #[error("{0}")]
    InvalidArgument(String),
    /// The device failed; [`tenfold_cuda::Error::DeviceLost`] where it is gone.
    #[error(transparent)]
    Cuda(#[from] tenfold_cuda::Error),
    /// An error about the tensor, the blob or its pictures.
    #[error(transparent)]
    Video(#[from] tenfold_video::Error),
}

impl Error {
    /// Who must act.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::LibraryMissing { .. }
            | Error::SymbolMissing { .. }
            | Error::Version { .. }
            | Error::Call { .. }
            | Error::Session { .. }
            | Error::NoEngine(_)
            | Error::NoSession
            | Error::Timeout { .. } => ErrorKind::Environment,
            Error::Unsupported(_) => ErrorKind::Unsupported,
            Error::Stream { .. } => ErrorKind::Data,
            Error::InvalidArgument(_) => ErrorKind::Caller,
            Error::Cuda(e) => e.kind(),
            Error::Video(e) => e.kind(),
        }
    }
}

impl From<tenfold::Error> for Error {
    fn from(error: tenfold::Error) -> Error {
        Error::Video(error.into())
    }
}

impl From<Error> for tenfold::Error {
    fn from(error: Error) -> tenfold::Error {
        match error {
            Error::Cuda(e) => e.into(),
            Error::Video(e) => e.into(),
            other => tenfold::Error::Engine { kind: other.kind(), reason: other.to_string() },
        }
    }
}

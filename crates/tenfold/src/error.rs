//! Errors, grouped by who must act: the data, the caller, a limit, the engine or the environment.

use thiserror::Error;

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong. [`Error::kind`] says who has to act.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes do not start like a blob.
    #[error("not a tenfold blob: the magic number is missing")]
    NotABlob,
    /// The blob was written by a newer format.
    #[error(
        "format version {found} is not supported (this build reads version {supported}); use a newer tenfold"
    )]
    UnsupportedVersion {
        /// Version named in the blob.
        found: u8,
        /// Newest version this build reads.
        supported: u8,
    },
    /// The blob uses a codec, dtype or transform that this build does not have.
    #[error("the blob needs {what} {id}, which this build does not have; use a newer tenfold")]
    UnsupportedFeature {
        /// Kind of feature.
        what: &'static str,
        /// Its stored number.
        id: u64,
    },
    /// Another engine decodes this blob.
    #[error(
        "the blob needs codec {id}: it holds {codec} pictures; decode it with the video engine (tenfold-video)"
    )]
    OtherEngine {
        /// Stored number of the codec.
        id: u8,
        /// How the values are coded.
        codec: &'static str,
    },
    /// An engine outside this crate failed.
    #[error("{reason}")]
    Engine {
        /// Who must act.
        kind: ErrorKind,
        /// What it reported.
        reason: String,
    },
    /// The blob ends before its content does.
    #[error("the blob is truncated: it needs {need} bytes and has {have}")]
    Truncated {
        /// Bytes that the content needs.
        need: u64,
        /// Bytes of the blob.
        have: u64,
    },
    /// A checksum or a consistency rule fails.
    #[error("the blob is corrupt: {0}")]
    Corrupt(&'static str),
    /// The blob asks for more than the caller allows.
    #[error("{what} of {asked} exceeds the limit of {limit}; raise it in `Limits` if the source is trusted")]
    LimitExceeded {
        /// What is limited.
        what: &'static str,
        /// What the blob asks for.
        asked: u64,
        /// The caller's limit.
        limit: u64,
    },
    /// The blob names a basis that the caller did not pass.
    #[error("the blob needs the basis {fingerprint}; pass it in `DecodeOptions::bases`")]
    MissingBasis {
        /// The name of the basis, in hexadecimal digits.
        fingerprint: String,
    },
    /// The blob is a delta, and a delta alone is no tensor.
    #[error("the blob is a delta: apply it to its base (`tenfold delta apply`, `tenfold::delta::apply`)")]
    NeedsBase,
    /// A delta belongs to another tensor.
    #[error(
        "the delta belongs to a tensor with the fingerprint {expected}, and this one has {found}: another base, or another delta comes first"
    )]
    WrongBase {
        /// Fingerprint of the delta's base.
        expected: String,
        /// Fingerprint of the tensor.
        found: String,
    },
    /// An argument is invalid.
    #[error("{0}")]
    InvalidArgument(String),
    /// The tensor cannot be stored within the bytes allowed, even at the coarsest step.
    #[error("the tensor does not fit into {cap} bytes: the smallest blob takes {need}; allow more bytes")]
    DoesNotFit {
        /// Bytes allowed.
        cap: u64,
        /// Bytes of the smallest blob found.
        need: u64,
    },
    /// The caller's output buffer is too small.
    #[error("the output buffer has {have} bytes but needs {need}")]
    BufferTooSmall {
        /// Bytes needed.
        need: u64,
        /// Bytes of the buffer.
        have: u64,
    },
    /// The worker threads did not start.
    #[error("cannot start worker threads: {0}")]
    Threads(String),
    /// The caller stopped the work with a [`Stop`](crate::engine::Stop).
    #[error("the caller stopped the work")]
    Stopped,
}

/// Who must act on an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The data is bad: corrupt, truncated or of another format.
    Data,
    /// The data may be fine, but this build cannot read it.
    Unsupported,
    /// The caller passed something that cannot work.
    Caller,
    /// A limit of the caller stopped the work.
    Limit,
    /// The machine failed or lacks something.
    Environment,
}

impl Error {
    /// Who must act.
    ///
    /// ```
    /// let err = tenfold::decode(b"nonsense", &Default::default()).unwrap_err();
    /// assert_eq!(err.kind(), tenfold::engine::ErrorKind::Data);
    /// ```
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::NotABlob | Error::Truncated { .. } | Error::Corrupt(_) => ErrorKind::Data,
            Error::UnsupportedVersion { .. }
            | Error::UnsupportedFeature { .. }
            | Error::OtherEngine { .. } => ErrorKind::Unsupported,
            Error::Engine { kind, .. } => *kind,
            Error::LimitExceeded { .. } | Error::DoesNotFit { .. } => ErrorKind::Limit,
            Error::InvalidArgument(_)
            | Error::MissingBasis { .. }
            | Error::NeedsBase
            | Error::WrongBase { .. }
            | Error::BufferTooSmall { .. }
            | Error::Stopped => ErrorKind::Caller,
            Error::Threads(_) => ErrorKind::Environment,
        }
    }
}

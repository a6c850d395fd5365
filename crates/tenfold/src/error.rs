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
    /// The blob uses a codec, dtype or preparation step that this build does not have.
    #[error("the blob needs {what} {id}, which this build does not have")]
    UnsupportedFeature {
        /// Kind of feature.
        what: &'static str,
        /// Its stored number.
        id: u64,
    },
    /// The blob belongs to an engine that the caller did not ask.
    #[error(
        "the blob needs codec {id}: it holds {codec} pictures; decode it with the video engine (tenfold-video)"
    )]
    OtherEngine {
        /// Stored number of the codec.
        id: u8,
        /// How the values are coded.
        codec: &'static str,
    },
    /// An engine other than this crate's own says why not.
    #[error("{reason}")]
    Engine {
        /// Who must act.
        kind: ErrorKind,
        /// What it said.
        reason: String,
    },
    /// The blob ends before its content does.
    #[error("the blob is truncated: {need} bytes needed, {have} there")]
    Truncated {
        /// Bytes that the content needs.
        need: u64,
        /// Bytes that are there.
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
    /// The blob names a basis that the caller has not given.
    #[error("the blob needs the basis {fingerprint}; give it in `DecodeOptions::bases`")]
    MissingBasis {
        /// The name of the basis, in hexadecimal digits.
        fingerprint: String,
    },
    /// An argument makes no sense.
    #[error("{0}")]
    InvalidArgument(String),
    /// The tensor cannot be stored within the bytes allowed, even at the coarsest step.
    #[error("the tensor does not fit {cap} bytes: the smallest blob takes {need}")]
    DoesNotFit {
        /// Bytes allowed.
        cap: u64,
        /// Bytes of the smallest blob found.
        need: u64,
    },
    /// The caller's output buffer is too small.
    #[error("the output buffer has {have} bytes, {need} are needed")]
    BufferTooSmall {
        /// Bytes needed.
        need: u64,
        /// Bytes given.
        have: u64,
    },
    /// The worker threads asked for could not be started.
    #[error("could not start worker threads: {0}")]
    Threads(String),
    /// The caller ended the work with a [`Stop`](crate::engine::Stop).
    #[error("the work was stopped")]
    Stopped,
}

/// Who must act on an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The data is bad: corrupt, truncated or not ours.
    Data,
    /// The data is fine but this build cannot read it.
    Unsupported,
    /// The caller passed something that cannot work.
    Caller,
    /// A limit of the caller stopped the work.
    Limit,
    /// The machine failed us.
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
            | Error::BufferTooSmall { .. }
            | Error::Stopped => ErrorKind::Caller,
            Error::Threads(_) => ErrorKind::Environment,
        }
    }
}

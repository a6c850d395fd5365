//! What can go wrong between a caller and a device.

use tenfold::engine::ErrorKind;

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong. [`Error::kind`] says who has to act.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No driver, or no device, or one that is too old.
    #[error("no CUDA device: {0}")]
    NoDevice(String),
    /// The device has no memory left for what was asked.
    #[error("the device has no room for {asked} bytes; free some memory or work in smaller pieces")]
    OutOfMemory {
        /// Bytes asked for.
        asked: u64,
    },
    /// The device does not answer any more: an earlier kernel failed on it, or it was taken away. Nothing that
    /// lies on it can be used; a new process can.
    #[error("the CUDA device is lost ({0}); start a new process to use it again")]
    DeviceLost(String),
    /// Any other refusal by the driver.
    #[error("{what}: {reason}")]
    Driver {
        /// What was being done.
        what: &'static str,
        /// The driver's words.
        reason: String,
    },
    /// An argument makes no sense: a pointer, a size, a stream.
    #[error("{0}")]
    InvalidArgument(String),
    /// What the codec says of the data or the options.
    #[error(transparent)]
    Codec(#[from] tenfold::Error),
}

impl Error {
    /// Who must act.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::NoDevice(_) | Error::DeviceLost(_) | Error::Driver { .. } => ErrorKind::Environment,
            Error::OutOfMemory { .. } => ErrorKind::Limit,
            Error::InvalidArgument(_) => ErrorKind::Caller,
            Error::Codec(e) => e.kind(),
        }
    }
}

impl From<Error> for tenfold::Error {
    fn from(error: Error) -> tenfold::Error {
        match error {
            Error::Codec(e) => e,
            other => tenfold::Error::Engine { kind: other.kind(), reason: other.to_string() },
        }
    }
}

//! Errors of devices.

use tenfold::engine::ErrorKind;

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong. [`Error::kind`] says who has to act.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No driver, no device, or a device that is too old.
    #[error("no CUDA device: {0}")]
    NoDevice(String),
    /// The device has too little free memory.
    #[error("the device has no room for {asked} bytes; free memory or work in smaller pieces")]
    OutOfMemory {
        /// Bytes asked for.
        asked: u64,
    },
    /// The device no longer responds: an earlier kernel failed, or the device was removed. Its memory is lost to this
    /// process; a new process can use the device again.
    #[error("the CUDA device is lost ({0}); start a new process to use it again")]
    DeviceLost(String),
    /// Any other error of the driver.
    #[error("{what}: {reason}")]
    Driver {
        /// What was being done.
        what: &'static str,
        /// What the driver reported.
        reason: String,
    },
    /// An argument is invalid: a pointer, a size, a stream.
    #[error("{0}")]
    InvalidArgument(String),
    /// The codec refused the data or the options.
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

//! Errors of links, grouped by who must act.

use std::path::PathBuf;

use tenfold::engine::ErrorKind;
use thiserror::Error;

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong on the way.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A model file is not what it should be.
    #[error(transparent)]
    Archive(#[from] tenfold_archive::Error),
    /// The codec refused a tensor.
    #[error(transparent)]
    Codec(#[from] tenfold::Error),
    /// Reading or writing a file failed.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system reported.
        #[source]
        source: std::io::Error,
    },
    /// The connection failed, more often than was allowed.
    #[error("{url}: {reason}; what has arrived is kept: run the same command again to go on")]
    Link {
        /// What was asked for.
        url: String,
        /// How it failed the last time.
        reason: String,
    },
    /// The server refuses the request.
    #[error("{url}: the server answers {status}{}", advice(*.status))]
    Refused {
        /// What was asked for.
        url: String,
        /// Its answer.
        status: u16,
    },
    /// The server's answer contradicts itself or the request.
    #[error("{url}: {reason}")]
    Protocol {
        /// What was asked for.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// What arrived is not what the server, or the file itself, says it is, however often it was fetched.
    #[error("{url}: {reason}")]
    Corrupt {
        /// What was asked for.
        url: String,
        /// What does not match.
        reason: String,
    },
    /// The file is not what it was when its transfer began.
    #[error(
        "{0}: the file changed on the server while it was pulled; run the same command again to get the new one"
    )]
    Changed(String),
    /// Another process writes the same output.
    #[error("{} is being written by another process", .0.display())]
    Busy(PathBuf),
    /// The output exists, and the caller did not allow replacing it.
    #[error("{} already exists; allow overwriting to replace it", .0.display())]
    OutputExists(PathBuf),
    /// A limit of the caller stopped the work.
    #[error("{0}")]
    Limit(String),
    /// The caller asked for something that cannot work.
    #[error("{0}")]
    InvalidArgument(String),
    /// This build leaves out what is asked for.
    #[error("{0}")]
    Unsupported(String),
    /// The caller stopped the work.
    #[error("stopped; what has arrived is kept: run the same command again to go on")]
    Stopped,
    /// The machine lacks something: threads, certificates, a port.
    #[error("{0}")]
    Environment(String),
}

fn advice(status: u16) -> &'static str {
    match status {
        401 | 403 => ": it wants another token",
        404 | 410 => ": it has no such file",
        _ => "",
    }
}

impl Error {
    /// Who must act.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Archive(error) => error.kind(),
            Error::Codec(error) => error.kind(),
            Error::Protocol { .. } | Error::Corrupt { .. } | Error::Changed(_) => ErrorKind::Data,
            Error::Limit(_) => ErrorKind::Limit,
            Error::Unsupported(_) => ErrorKind::Unsupported,
            Error::OutputExists(_) | Error::InvalidArgument(_) | Error::Stopped => ErrorKind::Caller,
            Error::Io { .. }
            | Error::Link { .. }
            | Error::Refused { .. }
            | Error::Busy(_)
            | Error::Environment(_) => ErrorKind::Environment,
        }
    }

    /// For `map_err` on system errors about a path.
    #[cfg(feature = "http")]
    pub(crate) fn io(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Error + '_ {
        move |source| Error::Io { path: path.to_owned(), source }
    }
}

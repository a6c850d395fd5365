//! Why a race cannot start.

use thiserror::Error;

/// What the caller must change.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RaceError {
    /// The arguments ask for something that cannot work.
    #[error("{0}")]
    Usage(String),
    /// A file is not what it should be.
    #[error("{0}")]
    Data(String),
}

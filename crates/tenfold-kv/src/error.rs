//! Errors (to be merged).
use tenfold::ErrorKind;
use thiserror::Error;
/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
/// What went wrong.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The codec refused something.
    #[error(transparent)]
    Codec(#[from] tenfold::Error),
    /// An argument makes no sense.
    #[error("{0}")]
    InvalidArgument(String),
}
impl Error {
    /// Who must act.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Codec(error) => error.kind(),
            Error::InvalidArgument(_) => ErrorKind::Caller,
        }
    }
}
/// For arguments that make no sense.
pub(crate) fn invalid(reason: impl Into<String>) -> Error {
    Error::InvalidArgument(reason.into())
}

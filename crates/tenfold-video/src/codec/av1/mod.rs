//! AV1 by `rav1e` and `rav1d`: permissive, and nothing but cargo needed to build them.
//!
//! Pictures are coded as stills, so that each decodes alone with the sequence header.

mod decode;
mod encode;
#[cfg(not(feature = "video"))]
mod library;
#[cfg(feature = "video")]
#[path = "left_out.rs"]
mod library;
#[cfg(test)]
#[cfg(not(feature = "video"))]
mod tests;

pub use decode::Rav1d;
pub use encode::Rav1e;

use super::Standard;
use crate::error::Error;

fn stream_error(reason: impl Into<String>) -> Error {
    Error::Stream { standard: Standard::Av1, reason: reason.into() }
}

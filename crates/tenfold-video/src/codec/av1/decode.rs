//! Decoding with `rav1d`: what is checked before the library sees a byte.
//!
//! The units and the sequence header are parsed first and must describe pictures of the blob's format, which bounds the
//! largest frame that the library may allocate.

use super::library;
use crate::codec::{Decoder, Format, Standard, stream};
use crate::error::{Error, Result};

pub(super) const NAME: &str = "rav1d";
/// As many as the library's own limit of a frame can say.
const MAX_SAMPLES: usize = u32::MAX as usize;

/// The decoder `rav1d`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rav1d;

impl Decoder for Rav1d {
    fn name(&self) -> &'static str {
        NAME
    }

    fn standard(&self) -> Standard {
        Standard::Av1
    }

    fn probe(&self) -> Result<()> {
        library::probe()
    }

    fn decode(
        &self,
        format: &Format,
        parameter_sets: &[u8],
        pictures: &[&[u8]],
        out: &mut [u16],
    ) -> Result<()> {
        // 1. The sizes, before anything is allocated for them.
        let samples = format.width.checked_mul(format.height).filter(|s| (1..=MAX_SAMPLES).contains(s));
        let samples = samples.ok_or_else(|| refused("pictures of this size"))?;
        if pictures.len().checked_mul(samples) != Some(out.len()) {
            return Err(refused("room for another number of pictures"));
        }
        // 2. The headers of the stream.
        stream::check(Standard::Av1, format, parameter_sets, pictures)?;
        // 3. The pictures.
        library::decode(format, parameter_sets, pictures, out)
    }
}

fn refused(reason: &str) -> Error {
    Error::Refused { name: NAME.into(), reason: reason.into() }
}

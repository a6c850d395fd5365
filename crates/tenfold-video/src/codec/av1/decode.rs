//! Decoding with `rav1d`: what is checked before the library sees a byte.
//!
//! Its units have been walked and its sequence header has been found to speak of pictures of the blob's
//! format: then the largest frame the library may allocate is known.

use super::sequence::Sequence;
use super::units::{Units, kind};
use super::{library, stream_error};
use crate::codec::{Decoder, Format, Standard};
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
        // 2. What the stream says of itself.
        check_header(format, parameter_sets)?;
        pictures.iter().try_for_each(|p| check_picture(p))?;
        // 3. The pictures.
        library::decode(format, parameter_sets, pictures, out)
    }
}

fn refused(reason: &str) -> Error {
    Error::Refused { name: NAME.into(), reason: reason.into() }
}

/// One sequence header, of the format, and nothing else.
fn check_header(format: &Format, parameter_sets: &[u8]) -> Result<()> {
    let mut units = Units::new(parameter_sets);
    let unit = units.next().ok_or_else(|| stream_error("the sequence header is missing"))??;
    if unit.kind != kind::SEQUENCE_HEADER || units.next().is_some() {
        return Err(stream_error("the parameter sets are not one sequence header"));
    }
    Sequence::parse(unit.payload)?.check(format)
}

/// Units of a frame alone: a second sequence header would bring its own frame size.
fn check_picture(picture: &[u8]) -> Result<()> {
    let mut frames = 0;
    for unit in Units::new(picture) {
        match unit?.kind {
            kind::FRAME | kind::FRAME_HEADER => frames += 1,
            kind::TILE_GROUP => {}
            other => return Err(stream_error(format!("a picture has a unit of type {other}"))),
        }
    }
    if frames == 1 { Ok(()) } else { Err(stream_error(format!("{frames} frames in place of a picture"))) }
}

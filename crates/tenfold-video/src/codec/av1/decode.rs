//! Decoding with `rav1d`.
//!
//! The library sees a stream only after its units have been walked and its sequence header has been found
//! to speak of pictures of the blob's format: then the largest frame it may allocate is known.

use re_rav1d::{Decoder as Library, PixelLayout, PlanarImageComponent, Settings};

use super::stream_error;
use super::units::{Sequence, Units, kind};
use crate::codec::{Chroma, Decoder, Format, Standard};
use crate::error::{Error, Result};

const NAME: &str = "rav1d";

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
        Ok(())
    }

    fn decode(
        &self,
        format: &Format,
        parameter_sets: &[u8],
        pictures: &[&[u8]],
        out: &mut [u16],
    ) -> Result<()> {
        // 1. The sizes, before anything is allocated for them.
        let samples = format.width.checked_mul(format.height);
        let limit = samples.and_then(|s| u32::try_from(s).ok()).filter(|&s| s > 0);
        let limit = limit.ok_or_else(|| refused("pictures of this size"))?;
        if pictures.len().checked_mul(limit as usize) != Some(out.len()) {
            return Err(refused("room for another number of pictures"));
        }
        // 2. What the stream says of itself.
        check_header(format, parameter_sets)?;
        pictures.iter().try_for_each(|p| check_picture(p))?;
        // 3. The pictures.
        let mut library = open(limit)?;
        for (i, (picture, out)) in pictures.iter().zip(out.chunks_exact_mut(limit as usize)).enumerate() {
            let header: &[u8] = if i == 0 { parameter_sets } else { &[] };
            decode_picture(&mut library, format, [header, picture].concat(), out)?;
        }
        Ok(())
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
            kind::TILE_GROUP | kind::METADATA | kind::REDUNDANT_FRAME_HEADER | kind::PADDING => {}
            other => return Err(stream_error(format!("a picture has a unit of type {other}"))),
        }
    }
    if frames == 1 { Ok(()) } else { Err(stream_error(format!("{frames} frames in place of a picture"))) }
}

fn open(limit: u32) -> Result<Library> {
    let mut settings = Settings::new();
    settings.set_n_threads(1);
    settings.set_max_frame_delay(1);
    settings.set_apply_grain(false);
    settings.set_strict_std_compliance(true);
    settings.set_frame_size_limit(limit);
    Library::with_settings(&settings).map_err(|e| Error::Codec { name: NAME.into(), reason: e.to_string() })
}

fn decode_picture(library: &mut Library, format: &Format, data: Vec<u8>, out: &mut [u16]) -> Result<()> {
    library.send_data(data, None, None, None).map_err(|e| stream_error(e.to_string()))?;
    let picture = library.get_picture().map_err(|e| match e.is_again() {
        true => stream_error("a picture is incomplete"),
        false => stream_error(e.to_string()),
    })?;
    let layout = match format.chroma {
        Chroma::None => PixelLayout::I400,
        Chroma::Constant => PixelLayout::I420,
    };
    let size = (picture.width() as usize, picture.height() as usize);
    if size != (format.width, format.height)
        || picture.bit_depth() != usize::from(format.depth)
        || picture.pixel_layout() != layout
    {
        return Err(stream_error("a picture is not of the size, depth or layout its header says"));
    }
    let stride = picture.stride(PlanarImageComponent::Y) as usize;
    let plane = picture.plane(PlanarImageComponent::Y);
    for (row, out) in plane.chunks(stride).zip(out.chunks_exact_mut(format.width)) {
        if format.depth == 8 {
            out.iter_mut().zip(row).for_each(|(to, &from)| *to = u16::from(from));
        } else {
            let (row, _) = row.as_chunks::<2>();
            out.iter_mut().zip(row).for_each(|(to, &from)| *to = u16::from_ne_bytes(from));
        }
    }
    match library.get_picture() {
        Err(e) if e.is_again() => Ok(()),
        _ => Err(stream_error("more comes after a picture")),
    }
}

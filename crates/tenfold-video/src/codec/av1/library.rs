//! The calls of `rav1d`, all of them safe.

use re_rav1d::{Decoder, PixelLayout, PlanarImageComponent, Settings};

use super::decode::NAME;
use super::stream_error;
use crate::codec::stream::obu::Units;
use crate::codec::{Chroma, Format};
use crate::error::{Error, Result};

pub(super) fn probe() -> Result<()> {
    Ok(())
}

/// Decodes pictures of a stream whose framing and size have been checked.
pub(super) fn decode(format: &Format, header: &[u8], pictures: &[&[u8]], out: &mut [u16]) -> Result<()> {
    let mut decoder = open(format)?;
    let mut header = header;
    for (picture, out) in pictures.iter().zip(out.chunks_exact_mut(format.samples())) {
        decode_picture(&mut decoder, format, [header, picture].concat(), out)?;
        header = &[];
        if Units::new(picture).nth(1).is_some() {
            check_end(&mut decoder)?;
        }
    }
    Ok(())
}

fn open(format: &Format) -> Result<Decoder> {
    let mut settings = Settings::new();
    settings.set_n_threads(1);
    settings.set_max_frame_delay(1);
    settings.set_apply_grain(false);
    settings.set_strict_std_compliance(true);
    settings.set_frame_size_limit(format.samples() as u32);
    Decoder::with_settings(&settings).map_err(|e| Error::Codec { name: NAME.into(), reason: e.to_string() })
}

fn decode_picture(decoder: &mut Decoder, format: &Format, data: Vec<u8>, out: &mut [u16]) -> Result<()> {
    decoder.send_data(data, None, None, None).map_err(|e| stream_error(e.to_string()))?;
    let picture = decoder.get_picture().map_err(|e| match e.is_again() {
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
    Ok(())
}

/// Whether a picture of several units ends with its last tile. One of a single unit, as `rav1e` writes it,
/// has nothing to ask for, and the library leaves 48 bytes unfreed each time it is asked.
fn check_end(decoder: &mut Decoder) -> Result<()> {
    match decoder.get_picture() {
        Err(e) if e.is_again() => Ok(()),
        _ => Err(stream_error("more comes after a picture")),
    }
}

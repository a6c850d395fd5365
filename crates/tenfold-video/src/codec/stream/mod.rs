//! What a coded stream says of itself, read before any codec library sees it: units, and the size and kind of its
//! pictures.
//!
//! A library then never gets a stream of other pictures than the blob promises, nor one that changes its mind
//! half-way.

pub(super) mod annexb;
mod bits;
pub(super) mod obu;
mod sequence;
mod sps;

use rayon::prelude::*;

use self::obu::{Units, kind};
use super::{Chroma, Format, Standard};
use crate::error::{Error, Result};

/// The pictures that a header describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StreamInfo {
    width: usize,
    height: usize,
    depth: u8,
    /// Nothing for layouts this crate has no use for: 4:2:2 and 4:4:4.
    chroma: Option<Chroma>,
}

impl StreamInfo {
    /// Whether these pictures are what the blob says.
    fn check(&self, format: &Format) -> Result<(), String> {
        if (self.width, self.height) != (format.width, format.height) {
            let said = format!("{} × {}", self.width, self.height);
            return Err(format!("its pictures are {said}, not {} × {}", format.width, format.height));
        }
        if self.depth != format.depth {
            return Err(format!("it has {} bits, not {}", self.depth, format.depth));
        }
        if self.chroma != Some(format.chroma) {
            return Err("its chroma layout is another".to_string());
        }
        Ok(())
    }
}

/// Parameter sets and what is of a picture, apart; everything that is neither is gone.
pub fn split(standard: Standard, stream: &[u8]) -> Result<(Vec<u8>, Vec<u8>), String> {
    Ok(match standard {
        Standard::Av1 => (
            obu::filter(stream, &[kind::SEQUENCE_HEADER])?,
            obu::filter(stream, &[kind::FRAME_HEADER, kind::TILE_GROUP, kind::FRAME])?,
        ),
        _ => (
            annexb::filter(standard, stream, annexb::Unit::ParameterSet),
            annexb::filter(standard, stream, annexb::Unit::Slice),
        ),
    })
}

/// A stream of one picture, 256 × 256 samples of middle gray with constant chroma: what probes of hardware decode.
pub fn gray(standard: Standard) -> &'static [u8] {
    match standard {
        Standard::H264 => include_bytes!("../libav/probe/gray.h264"),
        Standard::H265 => include_bytes!("../libav/probe/gray.h265"),
        Standard::Av1 => include_bytes!("../libav/probe/gray.av1"),
    }
}

/// Holds parameter sets and pictures against the format.
pub fn check(standard: Standard, format: &Format, parameter_sets: &[u8], pictures: &[&[u8]]) -> Result<()> {
    let checked = match standard {
        Standard::Av1 => check_av1(format, parameter_sets, pictures),
        _ => check_h26x(standard, format, parameter_sets, pictures),
    };
    checked.map_err(|reason| Error::Stream { standard, reason })
}

/// One sequence header, of the format, and nothing else; pictures of one frame each. A second sequence header
/// would bring its own frame size.
fn check_av1(format: &Format, parameter_sets: &[u8], pictures: &[&[u8]]) -> Result<(), String> {
    let mut units = Units::new(parameter_sets);
    let unit = units.next().ok_or("the sequence header is missing")??;
    if unit.kind != kind::SEQUENCE_HEADER || units.next().is_some() {
        return Err("the parameter sets are not one sequence header".to_string());
    }
    StreamInfo::from_sequence(unit.payload)?.check(format)?;
    for picture in pictures {
        let mut frames = 0;
        for unit in Units::new(picture) {
            match unit?.kind {
                kind::FRAME | kind::FRAME_HEADER => frames += 1,
                kind::TILE_GROUP => {}
                other => return Err(format!("a picture has a unit of type {other}")),
            }
        }
        if frames != 1 {
            return Err(format!("{frames} frames in place of a picture"));
        }
    }
    Ok(())
}

/// One sequence parameter set, of the format; pictures that are slices and nothing else.
fn check_h26x(
    standard: Standard,
    format: &Format,
    parameter_sets: &[u8],
    pictures: &[&[u8]],
) -> Result<(), String> {
    let mut found = 0;
    for unit in annexb::units(parameter_sets) {
        match (annexb::kind(standard, unit), standard, unit.first().copied().unwrap_or(0)) {
            (annexb::Unit::ParameterSet, Standard::H264, first) if first & 31 == 7 => {
                StreamInfo::parse_h264(unit)?.check(format)?;
                found += 1;
            }
            (annexb::Unit::ParameterSet, Standard::H265, first) if first >> 1 & 63 == 33 => {
                StreamInfo::parse_h265(unit)?.check(format)?;
                found += 1;
            }
            (annexb::Unit::ParameterSet, ..) => {}
            _ => return Err("a unit among the parameter sets is none".to_string()),
        }
    }
    if found != 1 {
        return Err(format!("{found} sequence parameter sets in place of one"));
    }
    let is_slices = |picture: &&[u8]| {
        let units = annexb::units(picture);
        !units.is_empty() && units.iter().all(|u| annexb::kind(standard, u) == annexb::Unit::Slice)
    };
    // The seven engines of an H200 take 0.6 GB of streams a second: too much for one core beside its other work.
    let good = match pictures.iter().map(|p| p.len()).sum::<usize>() > MANY {
        true => pictures.par_iter().all(is_slices),
        false => pictures.iter().all(is_slices),
    };
    if good { Ok(()) } else { Err("a picture is not slices alone".to_string()) }
}

/// Bytes of pictures that are worth more than one thread.
const MANY: usize = 1 << 20;

/// The pictures that parameter sets describe.
pub fn read_format(standard: Standard, parameter_sets: &[u8]) -> Result<Format, String> {
    let missing = || "the sequence's parameter set is missing".to_string();
    let info = match standard {
        Standard::Av1 => {
            let found = Units::new(parameter_sets).flatten().find(|u| u.kind == kind::SEQUENCE_HEADER);
            StreamInfo::from_sequence(found.ok_or_else(missing)?.payload)?
        }
        Standard::H264 => {
            let found =
                annexb::units(parameter_sets).into_iter().find(|u| matches!(u, [b, ..] if b & 31 == 7));
            StreamInfo::parse_h264(found.ok_or_else(missing)?)?
        }
        Standard::H265 => {
            let is_sequence = |u: &&[u8]| matches!(u, [b, ..] if b >> 1 & 63 == 33);
            let found = annexb::units(parameter_sets).into_iter().find(is_sequence);
            StreamInfo::parse_h265(found.ok_or_else(missing)?)?
        }
    };
    let StreamInfo { width, height, depth, chroma } = info;
    let chroma = chroma.ok_or("its chroma layout is none of ours")?;
    Ok(Format { width, height, depth, chroma })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_read() {
        let gray = Format { width: 256, height: 256, depth: 8, chroma: Chroma::Constant };
        for standard in [Standard::H264, Standard::H265, Standard::Av1] {
            let (sets, picture) = split(standard, super::gray(standard)).unwrap();
            assert_eq!(read_format(standard, &sets), Ok(gray), "{standard}");
            assert!(read_format(standard, &picture).is_err() && read_format(standard, &[]).is_err());
        }
    }

    #[test]
    fn any_difference_from_the_format_is_an_error() {
        let format = Format { width: 64, height: 48, depth: 8, chroma: Chroma::None };
        let said = StreamInfo { width: 64, height: 48, depth: 8, chroma: Some(Chroma::None) };
        said.check(&format).unwrap();
        for other in [
            StreamInfo { width: 65536, ..said },
            StreamInfo { height: 47, ..said },
            StreamInfo { depth: 12, ..said },
            StreamInfo { chroma: Some(Chroma::Constant), ..said },
            StreamInfo { chroma: None, ..said },
        ] {
            assert!(other.check(&format).is_err(), "{other:?}");
        }
    }
}

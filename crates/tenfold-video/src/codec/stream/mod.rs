//! What a coded stream says of itself, read before any codec library sees it: units, and the size and kind of its
//! pictures.
//!
//! A library then never gets a stream of other pictures than the blob promises, nor one that changes its mind
//! half-way.

#[cfg_attr(not(feature = "video"), allow(dead_code))] // cutting is for what libavcodec writes
pub(super) mod annexb;
mod bits;
#[cfg_attr(not(feature = "video"), allow(dead_code))]
pub(super) mod obu;
mod sequence;
mod sps;

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
#[cfg(feature = "video")]
pub(super) fn split(standard: Standard, stream: &[u8]) -> Result<(Vec<u8>, Vec<u8>), String> {
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

/// Holds parameter sets and pictures against the format.
pub(super) fn check(
    standard: Standard,
    format: &Format,
    parameter_sets: &[u8],
    pictures: &[&[u8]],
) -> Result<()> {
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
    for picture in pictures {
        let units = annexb::units(picture);
        if units.is_empty() || units.iter().any(|u| annexb::kind(standard, u) != annexb::Unit::Slice) {
            return Err("a picture is not slices alone".to_string());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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

//! Open bitstream units (AV1 specification, chapter 5): the framing of a stream and the few fields of
//! its sequence header that say how large pictures are. Nothing is decoded here; the encoder's output is
//! cut with it, and what a decoder is about to be fed is checked with it.

use super::stream_error;
use crate::codec::{Chroma, Format};
use crate::error::Result;

/// Types of units.
pub(super) mod kind {
    pub const SEQUENCE_HEADER: u8 = 1;
    pub const TEMPORAL_DELIMITER: u8 = 2;
    pub const FRAME_HEADER: u8 = 3;
    pub const TILE_GROUP: u8 = 4;
    pub const METADATA: u8 = 5;
    pub const FRAME: u8 = 6;
    pub const REDUNDANT_FRAME_HEADER: u8 = 7;
    pub const PADDING: u8 = 15;
}

/// One unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unit<'a> {
    pub kind: u8,
    /// All of it, header included.
    pub whole: &'a [u8],
    pub payload: &'a [u8],
}

/// Walks units that each carry their size; ends after the first that does not fit.
pub(super) struct Units<'a> {
    rest: &'a [u8],
}

impl<'a> Units<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Units { rest: data }
    }

    fn unit(&self) -> Result<(Unit<'a>, &'a [u8])> {
        let data = self.rest;
        let first = *data.first().ok_or_else(|| stream_error("a unit is missing"))?;
        if first & 0x81 != 0 {
            return Err(stream_error("a unit's header has reserved bits set"));
        }
        if first & 0x02 == 0 {
            return Err(stream_error("a unit does not say its size"));
        }
        let at = if first & 0x04 != 0 { 2 } else { 1 };
        let (size, bytes) = leb128(data.get(at..).unwrap_or_default())?;
        let start = at + bytes;
        let end = start.checked_add(size).filter(|&e| e <= data.len());
        let end = end.ok_or_else(|| stream_error("a unit is longer than its picture"))?;
        let unit = Unit { kind: first >> 3 & 15, whole: &data[..end], payload: &data[start..end] };
        Ok((unit, &data[end..]))
    }
}

impl<'a> Iterator for Units<'a> {
    type Item = Result<Unit<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        match self.unit() {
            Ok((unit, rest)) => {
                self.rest = rest;
                Some(Ok(unit))
            }
            Err(e) => {
                self.rest = &[];
                Some(Err(e))
            }
        }
    }
}

/// A number of seven bits a byte, the least significant first; the number and the bytes it took.
fn leb128(data: &[u8]) -> Result<(usize, usize)> {
    let mut value = 0u64;
    for (i, &byte) in data.iter().take(8).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            // The specification allows no larger size.
            return match u32::try_from(value) {
                Ok(v) => Ok((v as usize, i + 1)),
                Err(_) => Err(stream_error("a unit's size is out of range")),
            };
        }
    }
    Err(stream_error("a unit's size is cut off"))
}

/// What a sequence header says of its pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sequence {
    pub width: usize,
    pub height: usize,
    pub depth: u8,
    /// Nothing for layouts this crate has no use for: 4:2:2 and 4:4:4.
    pub chroma: Option<Chroma>,
}

impl Sequence {
    /// Reads a sequence header's payload.
    pub fn parse(payload: &[u8]) -> Result<Self> {
        let mut bits = Bits { data: payload, at: 0 };
        let profile = bits.take(3)?;
        bits.skip(1)?; // still_picture
        let reduced = bits.flag()?;
        if reduced {
            bits.skip(5)?; // level
        } else {
            operating_points(&mut bits)?;
        }
        let width_bits = bits.take(4)? + 1;
        let height_bits = bits.take(4)? + 1;
        let width = bits.take(width_bits)? as usize + 1;
        let height = bits.take(height_bits)? as usize + 1;
        if !reduced && bits.flag()? {
            bits.skip(4 + 3)?; // lengths of frame numbers
        }
        bits.skip(3)?; // superblock size, filter_intra, intra_edge_filter
        if !reduced {
            inter_tools(&mut bits)?;
        }
        bits.skip(3)?; // superres, cdef, restoration
        let (depth, chroma) = colour(&mut bits, profile)?;
        Ok(Sequence { width, height, depth, chroma })
    }

    /// Whether pictures of this sequence are what the blob says.
    pub fn check(&self, format: &Format) -> Result<()> {
        if (self.width, self.height) != (format.width, format.height) {
            let said = format!("{} × {}", self.width, self.height);
            let want = format!("{} × {}", format.width, format.height);
            return Err(stream_error(format!("its pictures are {said}, not {want}")));
        }
        if self.depth != format.depth {
            return Err(stream_error(format!("it has {} bits, not {}", self.depth, format.depth)));
        }
        if self.chroma != Some(format.chroma) {
            return Err(stream_error("its chroma layout is another"));
        }
        Ok(())
    }
}

fn operating_points(bits: &mut Bits<'_>) -> Result<()> {
    let mut delay_bits = None;
    if bits.flag()? {
        bits.skip(32 + 32)?; // display tick, time scale
        if bits.flag()? {
            bits.skip_uvlc()?;
        }
        if bits.flag()? {
            delay_bits = Some(bits.take(5)? + 1);
            bits.skip(32 + 5 + 5)?; // decoding tick, lengths of times
        }
    }
    let display_delay = bits.flag()?;
    for _ in 0..=bits.take(5)? {
        // With layers a temporal unit is several pictures, and which of them is shown is a choice.
        if bits.take(12)? != 0 {
            return Err(stream_error("it has scalability layers"));
        }
        if bits.take(5)? > 7 {
            bits.skip(1)?; // tier
        }
        if let Some(n) = delay_bits
            && bits.flag()?
        {
            bits.skip(2 * n + 1)?;
        }
        if display_delay && bits.flag()? {
            bits.skip(4)?;
        }
    }
    Ok(())
}

fn inter_tools(bits: &mut Bits<'_>) -> Result<()> {
    bits.skip(4)?; // interintra, masked, warped, dual filter
    let order_hint = bits.flag()?;
    if order_hint {
        bits.skip(2)?; // jnt_comp, ref_frame_mvs
    }
    let screen_content = bits.flag()? || bits.flag()?;
    if screen_content && !bits.flag()? {
        bits.skip(1)?; // force_integer_mv
    }
    if order_hint {
        bits.skip(3)?;
    }
    Ok(())
}

/// Depth and layout.
fn colour(bits: &mut Bits<'_>, profile: u32) -> Result<(u8, Option<Chroma>)> {
    if profile > 2 {
        return Err(stream_error("its profile is unknown"));
    }
    let depth = match bits.flag()? {
        false => 8,
        true if profile == 2 && bits.flag()? => 12,
        true => 10,
    };
    if profile != 1 && bits.flag()? {
        return Ok((depth, Some(Chroma::None)));
    }
    const SRGB: u32 = 0x01_0d_00; // Primaries of BT.709, transfer of sRGB, identity matrix: always 4:4:4.
    let described = bits.flag()?;
    if described && bits.take(24)? == SRGB {
        return Ok((depth, None));
    }
    bits.skip(1)?; // range
    let half = match profile {
        0 => true,
        2 if depth == 12 => bits.flag()? && bits.flag()?,
        _ => false,
    };
    Ok((depth, half.then_some(Chroma::Constant)))
}

/// Bits, the most significant of a byte first.
struct Bits<'a> {
    data: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    /// At most 32 bits.
    fn take(&mut self, n: u32) -> Result<u32> {
        let mut value = 0;
        for _ in 0..n {
            let byte = self.data.get(self.at / 8).ok_or_else(|| stream_error("its header is cut off"))?;
            value = value << 1 | u32::from(byte >> (7 - self.at % 8) & 1);
            self.at += 1;
        }
        Ok(value)
    }

    fn flag(&mut self) -> Result<bool> {
        Ok(self.take(1)? == 1)
    }

    fn skip(&mut self, n: u32) -> Result<()> {
        (0..n).try_for_each(|_| self.take(1).map(drop))
    }

    /// A number as long as the zeros before it.
    fn skip_uvlc(&mut self) -> Result<()> {
        let mut zeros = 0;
        while !self.flag()? {
            zeros += 1;
        }
        // From 32 zeros on the number is a fixed one and no bits follow.
        if zeros < 32 { self.skip(zeros) } else { Ok(()) }
    }
}

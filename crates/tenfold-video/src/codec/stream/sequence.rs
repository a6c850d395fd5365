//! The fields of a sequence header (AV1 specification, 5.5) that say how large its pictures are and of what
//! kind, read before any decoder sees them.

use super::StreamInfo;
use super::bits::Bits;
use crate::codec::Chroma;

impl StreamInfo {
    /// Reads a sequence header's payload.
    pub(super) fn from_sequence(payload: &[u8]) -> Result<StreamInfo, String> {
        let mut bits = Bits::new(payload);
        let profile = bits.take(3)?;
        bits.skip(1)?; // still_picture
        let reduced = bits.flag()?;
        if reduced {
            bits.skip(5)?; // level
        } else {
            skip_operating_points(&mut bits)?;
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
            skip_inter_tools(&mut bits)?;
        }
        bits.skip(3)?; // superres, cdef, restoration
        let (depth, chroma) = read_colour(&mut bits, profile)?;
        Ok(StreamInfo { width, height, depth, chroma })
    }
}

fn skip_operating_points(bits: &mut Bits<'_>) -> Result<(), String> {
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
            return Err("it has scalability layers".to_string());
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

fn skip_inter_tools(bits: &mut Bits<'_>) -> Result<(), String> {
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
fn read_colour(bits: &mut Bits<'_>, profile: u32) -> Result<(u8, Option<Chroma>), String> {
    if profile > 2 {
        return Err("its profile is unknown".to_string());
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields of (bits, value) as bytes.
    fn pack(fields: &[(u32, u64)]) -> Vec<u8> {
        let bits: Vec<u8> =
            fields.iter().flat_map(|&(n, v)| (0..n).rev().map(move |i| (v >> i & 1) as u8)).collect();
        bits.chunks(8).map(|c| c.iter().enumerate().fold(0, |b, (i, &x)| b | x << (7 - i))).collect()
    }

    /// A header with every optional part, of profile 2: clock, decoder model, two operating points.
    fn long(idc: u64, colour: &[(u32, u64)]) -> Vec<u8> {
        let start = [
            (3, 2),
            (1, 0),
            (1, 0), // profile, still, reduced
            (1, 1),
            (32, 1),
            (32, 25),
            (1, 1),
            (5, 0b00110), // clock; the last is 5 as a universal code
            (1, 1),
            (5, 9),
            (32, 1),
            (5, 3),
            (5, 4), // decoder model, delays of 10 bits
            (1, 1),
            (5, 1), // display delay, two points
            (12, 0),
            (5, 8),
            (1, 1),
            (1, 1),
            (10, 1023),
            (10, 0),
            (1, 1),
            (1, 1),
            (4, 9),
            (12, idc),
            (5, 7),
            (1, 0),
            (1, 0),
            (4, 10),
            (4, 9),
            (11, 1919),
            (10, 799), // 1920 × 800
            (1, 1),
            (4, 7),
            (3, 2), // frame numbers
            (3, 0),
            (4, 15),
            (1, 1),
            (2, 3),
            (1, 0),
            (1, 1),
            (1, 0),
            (1, 1),
            (3, 6), // tools
            (3, 7),
        ];
        pack(&[&start[..], colour].concat())
    }

    #[test]
    fn long_headers_are_read() {
        let of = |depth, chroma| StreamInfo { width: 1920, height: 800, depth, chroma };
        let cases: [(&[(u32, u64)], StreamInfo); 6] = [
            (&[(1, 0), (1, 1)], of(8, Some(Chroma::None))),
            (&[(2, 0b10), (1, 1)], of(10, Some(Chroma::None))),
            (&[(2, 0b11), (1, 0), (1, 0), (1, 1), (2, 0b11)], of(12, Some(Chroma::Constant))),
            (&[(2, 0b11), (1, 0), (1, 0), (1, 1), (2, 0b10)], of(12, None)),
            (&[(2, 0b10), (1, 0), (1, 0), (1, 1)], of(10, None)),
            (&[(2, 0b11), (1, 0), (1, 1), (24, 0x01_0d_00)], of(12, None)),
        ];
        for (colour, want) in cases {
            assert_eq!(StreamInfo::from_sequence(&long(0, colour)).unwrap(), want);
        }
        assert!(StreamInfo::from_sequence(&long(0x101, cases[0].0)).is_err(), "layers");
        let whole = long(0, cases[2].0);
        assert!((0..whole.len()).all(|n| StreamInfo::from_sequence(&whole[..n]).is_err()));
    }
}

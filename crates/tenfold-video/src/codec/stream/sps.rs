//! The fields of an H.264 or H.265 sequence parameter set that say how large its pictures are and of what
//! kind, read before any decoder sees them.

use super::StreamInfo;
use super::bits::Bits;
use crate::codec::Chroma;

/// Takes out the bytes that keep a unit from looking like a start code.
fn unescape(unit: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(unit.len());
    let mut zeros = 0;
    for &b in unit {
        if zeros >= 2 && b == 3 {
            zeros = 0;
            continue;
        }
        zeros = if b == 0 { zeros + 1 } else { 0 };
        out.push(b);
    }
    out
}

/// Samples of a side, less what is cropped on both ends in units of `unit`.
fn crop_side(coded: u64, unit: u64, first: u32, second: u32) -> Result<usize, String> {
    let cropped = unit * (u64::from(first) + u64::from(second));
    let left = coded.checked_sub(cropped).filter(|&s| s > 0).ok_or("a picture is cropped to nothing")?;
    usize::try_from(left).map_err(|_| "a picture is too large".to_string())
}

fn chroma_from_idc(idc: u32) -> Option<Chroma> {
    match idc {
        0 => Some(Chroma::None),
        1 => Some(Chroma::Constant),
        _ => None,
    }
}

fn depth_from_offset(above_eight: u32) -> u8 {
    u8::try_from(above_eight).map_or(u8::MAX, |d| d.saturating_add(8))
}

impl StreamInfo {
    /// Reads an H.264 sequence parameter set, its unit header included.
    pub(super) fn parse_h264(unit: &[u8]) -> Result<StreamInfo, String> {
        let data = unescape(unit.get(1..).unwrap_or_default());
        let mut bits = Bits::new(&data);
        let profile = bits.take(8)?;
        bits.skip(16)?; // constraints, level
        bits.ue()?; // number
        let (mut idc, mut luma) = (1, 0);
        if [100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135].contains(&profile) {
            idc = bits.ue()?;
            if idc == 3 {
                bits.skip(1)?; // planes apart
            }
            luma = bits.ue()?;
            bits.ue()?; // depth of chroma
            bits.skip(1)?; // lossless transform bypass
            if bits.flag()? {
                skip_scaling_lists(&mut bits, if idc == 3 { 12 } else { 8 })?;
            }
        }
        bits.ue()?; // length of frame numbers
        match bits.ue()? {
            0 => drop(bits.ue()?),
            1 => {
                bits.skip(1)?;
                bits.se()?;
                bits.se()?;
                for _ in 0..bits.ue()?.min(255) {
                    bits.se()?;
                }
            }
            _ => {}
        }
        bits.ue()?; // reference pictures
        bits.skip(1)?; // gaps
        let (columns, rows) = (u64::from(bits.ue()?) + 1, u64::from(bits.ue()?) + 1);
        let frames_only = bits.flag()?;
        if !frames_only {
            bits.skip(1)?;
        }
        bits.skip(1)?; // direct_8x8
        let crop = read_crop(&mut bits)?;
        let fields = if frames_only { 1 } else { 2 };
        let across = if matches!(idc, 1 | 2) { 2 } else { 1 };
        let down = if idc == 1 { 2 } else { 1 };
        Ok(StreamInfo {
            width: crop_side(columns * 16, across, crop[0], crop[1])?,
            height: crop_side(rows * 16 * fields, down * fields, crop[2], crop[3])?,
            depth: depth_from_offset(luma),
            chroma: chroma_from_idc(idc),
        })
    }

    /// Reads an H.265 sequence parameter set, its unit header included.
    pub(super) fn parse_h265(unit: &[u8]) -> Result<StreamInfo, String> {
        let data = unescape(unit.get(2..).unwrap_or_default());
        let mut bits = Bits::new(&data);
        bits.skip(4)?; // number of the video parameter set
        let layers = bits.take(3)?;
        bits.skip(1 + 88 + 8)?; // nesting, profile, level
        let flags =
            (0..layers).map(|_| Ok((bits.flag()?, bits.flag()?))).collect::<Result<Vec<_>, String>>()?;
        if layers > 0 {
            bits.skip(2 * (8 - layers))?;
        }
        for (profile, level) in flags {
            bits.skip(if profile { 88 } else { 0 } + if level { 8 } else { 0 })?;
        }
        bits.ue()?; // number
        let idc = bits.ue()?;
        if idc == 3 {
            bits.skip(1)?; // planes apart
        }
        let (width, height) = (u64::from(bits.ue()?), u64::from(bits.ue()?));
        let crop = read_crop(&mut bits)?;
        let across = if matches!(idc, 1 | 2) { 2 } else { 1 };
        let down = if idc == 1 { 2 } else { 1 };
        Ok(StreamInfo {
            width: crop_side(width, across, crop[0], crop[1])?,
            height: crop_side(height, down, crop[2], crop[3])?,
            depth: depth_from_offset(bits.ue()?),
            chroma: chroma_from_idc(idc),
        })
    }
}

/// What is cut off left, right, at the top and at the bottom.
fn read_crop(bits: &mut Bits<'_>) -> Result<[u32; 4], String> {
    if bits.flag()? { Ok([bits.ue()?, bits.ue()?, bits.ue()?, bits.ue()?]) } else { Ok([0; 4]) }
}

fn skip_scaling_lists(bits: &mut Bits<'_>, lists: usize) -> Result<(), String> {
    for list in 0..lists {
        if !bits.flag()? {
            continue;
        }
        let (mut last, mut next) = (8i64, 8i64);
        for _ in 0..if list < 6 { 16 } else { 64 } {
            if next != 0 {
                next = (last + bits.se()?).rem_euclid(256);
            }
            last = if next == 0 { last } else { next };
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::annexb;
    use super::*;

    fn first_set(stream: &[u8], is_sps: impl Fn(u8) -> bool) -> &[u8] {
        annexb::units(stream).into_iter().find(|u| is_sps(u[0])).unwrap()
    }

    #[test]
    fn real_sets_are_read_and_cut_ones_refused() {
        let gray = StreamInfo { width: 256, height: 256, depth: 8, chroma: Some(Chroma::Constant) };
        let h264 = first_set(include_bytes!("../libav/probe/gray.h264"), |b| b & 31 == 7);
        assert_eq!(StreamInfo::parse_h264(h264).unwrap(), gray);
        let h265 = first_set(include_bytes!("../libav/probe/gray.h265"), |b| b >> 1 == 33);
        assert_eq!(StreamInfo::parse_h265(h265).unwrap(), gray);
        // Up to the fields that are read, which for both end well before byte 20.
        assert!((0..10).all(|n| StreamInfo::parse_h264(&h264[..n.min(5)]).is_err()));
        assert!((0..18).all(|n| StreamInfo::parse_h265(&h265[..n]).is_err()));
    }

    #[test]
    fn any_bytes_are_read_or_refused() {
        let mut x = 1u32;
        for len in 0..4000usize {
            let bytes: Vec<u8> = (0..len % 60)
                .map(|_| {
                    x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (x >> 24) as u8
                })
                .collect();
            let _ = (StreamInfo::parse_h264(&bytes), StreamInfo::parse_h265(&bytes));
        }
    }
}

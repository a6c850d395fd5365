//! H.264 and H.265 byte streams (Annex B): cut into units, and sorted into what a picture needs and
//! what is stored once.
//!
//! Supplemental messages are dropped: they name the encoder, and nothing in a blob may.

use crate::codec::Standard;

/// The role of a unit in a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::codec) enum Unit {
    /// VPS, SPS, PPS.
    ParameterSet,
    /// A slice of a picture.
    Slice,
    /// Delimiters, messages, filler.
    Other,
}

/// Sorts a unit by its first byte.
pub(in crate::codec) fn kind(standard: Standard, unit: &[u8]) -> Unit {
    let Some(&first) = unit.first() else { return Unit::Other };
    match standard {
        Standard::H264 => match first & 31 {
            1..=5 => Unit::Slice,
            7 | 8 => Unit::ParameterSet,
            _ => Unit::Other,
        },
        _ => match first >> 1 & 63 {
            0..=31 => Unit::Slice,
            32..=34 => Unit::ParameterSet,
            _ => Unit::Other,
        },
    }
}

/// The units of a byte stream, without start codes. Bytes before the first start code belong to none.
pub(in crate::codec) fn units(stream: &[u8]) -> Vec<&[u8]> {
    let mut starts = Vec::new();
    // The third byte of a start code is looked at: most are above 1, and none of the three places with it is one's begin.
    let mut i = 2;
    while let Some(&third) = stream.get(i) {
        match third {
            1 if stream[i - 2..i] == [0, 0] => {
                starts.push(i - 2);
                i += 3;
            }
            0 => i += 1,
            _ => i += 3,
        }
    }
    let ends = starts.iter().skip(1).copied().chain([stream.len()]);
    starts.iter().zip(ends).map(|(&a, b)| trim(&stream[a + 3..b])).collect()
}

/// A unit never ends in zero bytes: they belong to the next start code.
fn trim(unit: &[u8]) -> &[u8] {
    let len = unit.iter().rposition(|&b| b != 0).map_or(0, |i| i + 1);
    &unit[..len]
}

/// Appends a start code and a unit.
pub(in crate::codec) fn push(out: &mut Vec<u8>, unit: &[u8]) {
    out.extend_from_slice(&[0, 0, 1]);
    out.extend_from_slice(unit);
}

/// Those units of a stream that are of one kind, with start codes.
pub(in crate::codec) fn filter(standard: Standard, stream: &[u8], wanted: Unit) -> Vec<u8> {
    let mut out = Vec::with_capacity(stream.len());
    units(stream).into_iter().filter(|u| kind(standard, u) == wanted).for_each(|u| push(&mut out, u));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_cut_and_sorted() {
        let stream =
            [&[0, 0, 0, 1, 0x67, 7][..], &[0, 0, 1, 0x68], &[0, 0, 1, 6, 9], &[0, 0, 1, 0x65, 1, 2, 0, 0]];
        let stream = stream.concat();
        assert_eq!(units(&stream), [&[0x67, 7][..], &[0x68], &[6, 9], &[0x65, 1, 2]]);
        let sets = filter(Standard::H264, &stream, Unit::ParameterSet);
        assert_eq!(sets, [0, 0, 1, 0x67, 7, 0, 0, 1, 0x68]);
        assert_eq!(filter(Standard::H264, &stream, Unit::Slice), [0, 0, 1, 0x65, 1, 2]);
        assert_eq!(kind(Standard::H265, &[0x42, 1]), Unit::ParameterSet);
        assert_eq!(kind(Standard::H265, &[0x4e, 1]), Unit::Other);
        assert!(units(&[0, 0]).is_empty() && units(&[]).is_empty());
        // Every sequence of eight bytes out of four, against a look at every place.
        for code in 0..1u32 << 16 {
            let stream: Vec<u8> = (0..8).map(|i| (code >> (2 * i) & 3) as u8).collect();
            let plain = (0..6).filter(|&i| stream[i..i + 3] == [0, 0, 1]).count();
            assert_eq!(units(&stream).len(), plain, "{stream:?}");
        }
    }
}

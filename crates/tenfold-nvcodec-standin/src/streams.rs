//! As much of the streams as a parser must see: where parameter sets and pictures begin.

use tenfold_video::Standard;

/// A piece of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// A parameter set or sequence header.
    Set,
    /// The first unit of a picture.
    First,
    /// A further unit of the same picture.
    More,
    /// Anything else.
    Other,
}

/// Cuts a stream into units, each with its framing.
pub(crate) fn cut(standard: Standard, data: &[u8]) -> Vec<(Part, &[u8])> {
    match standard {
        Standard::Av1 => cut_obus(data),
        _ => cut_units(standard, data),
    }
}

fn cut_units(standard: Standard, data: &[u8]) -> Vec<(Part, &[u8])> {
    let codes: Vec<usize> =
        (0..data.len().saturating_sub(3)).filter(|&i| data[i..i + 3] == [0, 0, 1]).collect();
    let mut parts = Vec::with_capacity(codes.len());
    for (i, &at) in codes.iter().enumerate() {
        let end = codes.get(i + 1).copied().unwrap_or(data.len());
        let unit = &data[at + 3..end];
        let byte = |n: usize| unit.get(n).copied().unwrap_or(0);
        let part = match standard {
            Standard::H264 => match byte(0) & 31 {
                7 | 8 => Part::Set,
                1..=5 if byte(1) & 0x80 != 0 => Part::First,
                1..=5 => Part::More,
                _ => Part::Other,
            },
            _ => match byte(0) >> 1 & 63 {
                32..=34 => Part::Set,
                0..=31 if byte(2) & 0x80 != 0 => Part::First,
                0..=31 => Part::More,
                _ => Part::Other,
            },
        };
        parts.push((part, &data[at..end]));
    }
    parts
}

fn cut_obus(data: &[u8]) -> Vec<(Part, &[u8])> {
    let mut parts = Vec::new();
    let mut rest = data;
    while let Some(&first) = rest.first() {
        let start = 1 + usize::from(first >> 2 & 1);
        let (mut size, mut len) = (0usize, 0);
        while let Some(&byte) = rest.get(start + len).filter(|_| len < 5) {
            size |= usize::from(byte & 0x7f) << (7 * len);
            len += 1;
            if byte & 0x80 == 0 {
                break;
            }
        }
        let end = start + len + size;
        if first & 2 == 0 || end > rest.len() {
            break;
        }
        let part = match first >> 3 & 15 {
            1 => Part::Set,
            3 | 6 => Part::First,
            4 => Part::More,
            _ => Part::Other,
        };
        parts.push((part, &rest[..end]));
        rest = &rest[end..];
    }
    parts
}

//! AV1 streams in the low-overhead format: cut into open bitstream units, and sorted into what a picture
//! needs and what is stored once.
//!
//! Temporal delimiters, metadata and padding are dropped: they carry nothing a picture needs.

/// What a unit is to a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Sequence header.
    Sequence,
    /// Frame header, tile group, or both in one.
    Frame,
    /// Everything else.
    Other,
}

/// The units of a stream, each with its header.
pub(super) fn units(stream: &[u8]) -> Result<Vec<(Unit, &[u8])>, String> {
    let broken = || "an AV1 unit is malformed".to_string();
    let mut rest = stream;
    let mut found = Vec::new();
    while let Some(&first) = rest.first() {
        let (extended, sized) = (first & 4 != 0, first & 2 != 0);
        if first & 0x81 != 0 || !sized {
            return Err(broken());
        }
        let head = 1 + usize::from(extended);
        let (size, bytes) = leb128(rest.get(head..).ok_or_else(broken)?).ok_or_else(broken)?;
        let end = (head + bytes).checked_add(size).ok_or_else(broken)?;
        let unit = rest.get(..end).ok_or_else(broken)?;
        let kind = match first >> 3 & 15 {
            1 => Unit::Sequence,
            3 | 4 | 6 => Unit::Frame,
            _ => Unit::Other,
        };
        found.push((kind, unit));
        rest = &rest[end..];
    }
    Ok(found)
}

/// A number in groups of seven bits, and the bytes it takes.
fn leb128(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut value = 0u64;
    for (i, &b) in bytes.iter().take(8).enumerate() {
        value |= u64::from(b & 0x7f) << (7 * i);
        if b < 0x80 {
            return Some((usize::try_from(value).ok()?, i + 1));
        }
    }
    None
}

/// Those units of a stream that are of one kind.
pub(super) fn only(stream: &[u8], wanted: Unit) -> Result<Vec<u8>, String> {
    Ok(units(stream)?.into_iter().filter(|u| u.0 == wanted).flat_map(|u| u.1).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_cut_and_sorted() {
        let stream = [0x12, 0, 0x0a, 2, 7, 8, 0x32, 3, 1, 2, 3];
        let kinds: Vec<Unit> = units(&stream).unwrap().iter().map(|u| u.0).collect();
        assert_eq!(kinds, [Unit::Other, Unit::Sequence, Unit::Frame]);
        assert_eq!(only(&stream, Unit::Sequence).unwrap(), [0x0a, 2, 7, 8]);
        assert_eq!(only(&stream, Unit::Frame).unwrap(), [0x32, 3, 1, 2, 3]);
        for cut in [3, 5, 7, 10] {
            assert!(units(&stream[..cut]).is_err(), "{cut}");
        }
        assert!(units(&[0x0a, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0]).is_err());
    }
}

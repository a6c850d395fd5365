//! Open bitstream units (AV1 specification, 5.3): the framing of a stream. The encoder's output is cut with
//! it, and what a decoder is about to be fed is checked with it.

/// Types of units.
pub(in crate::codec) mod kind {
    pub const SEQUENCE_HEADER: u8 = 1;
    #[cfg(any(test, feature = "av1"))]
    pub const TEMPORAL_DELIMITER: u8 = 2;
    pub const FRAME_HEADER: u8 = 3;
    pub const TILE_GROUP: u8 = 4;
    pub const FRAME: u8 = 6;
}

/// One unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::codec) struct Unit<'a> {
    pub kind: u8,
    /// All of it, header included.
    pub whole: &'a [u8],
    pub payload: &'a [u8],
}

/// Walks units that each carry their size; ends after the first that does not fit.
pub(in crate::codec) struct Units<'a> {
    rest: &'a [u8],
}

impl<'a> Units<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Units { rest: data }
    }

    fn unit(&self) -> Result<(Unit<'a>, &'a [u8]), String> {
        let data = self.rest;
        let first = *data.first().ok_or_else(|| "a unit is missing".to_string())?;
        if first & 0x81 != 0 {
            return Err("a unit's header has reserved bits set".to_string());
        }
        if first & 0x02 == 0 {
            return Err("a unit does not say its size".to_string());
        }
        let at = if first & 0x04 != 0 { 2 } else { 1 };
        let (size, bytes) = leb128(data.get(at..).unwrap_or_default())?;
        let start = at + bytes;
        let end = start.checked_add(size).filter(|&e| e <= data.len());
        let end = end.ok_or_else(|| "a unit is longer than its picture".to_string())?;
        let unit = Unit { kind: first >> 3 & 15, whole: &data[..end], payload: &data[start..end] };
        Ok((unit, &data[end..]))
    }
}

impl<'a> Iterator for Units<'a> {
    type Item = Result<Unit<'a>, String>;

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
fn leb128(data: &[u8]) -> Result<(usize, usize), String> {
    let mut value = 0u64;
    for (i, &byte) in data.iter().take(8).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            // The specification allows no larger size.
            return match u32::try_from(value) {
                Ok(v) => Ok((v as usize, i + 1)),
                Err(_) => Err("a unit's size is out of range".to_string()),
            };
        }
    }
    Err("a unit's size is cut off".to_string())
}

/// Those units of a stream that are of one of these types.
pub(in crate::codec) fn filter(stream: &[u8], wanted: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(stream.len());
    for unit in Units::new(stream) {
        let unit = unit?;
        if wanted.contains(&unit.kind) {
            out.extend_from_slice(unit.whole);
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_walked_to_the_end() {
        // A temporal delimiter, padding of three bytes, padding with an extension header and a long size.
        let data = [0x12, 0, 0x7a, 3, 1, 2, 3, 0x7e, 0, 0x81, 0x80, 0, 9];
        let units: Vec<_> = Units::new(&data).map(Result::unwrap).collect();
        let kinds: Vec<_> = units.iter().map(|u| u.kind).collect();
        assert_eq!(kinds, [kind::TEMPORAL_DELIMITER, 15, 15]);
        assert_eq!(units[1].payload, [1, 2, 3]);
        assert_eq!(units[2].payload, [9]);
        assert_eq!(units.iter().map(|u| u.whole.len()).sum::<usize>(), data.len());
    }

    #[test]
    fn broken_framing_ends_the_walk() {
        let broken: [&[u8]; 8] = [
            &[0x92, 0],                                                 // forbidden bit
            &[0x13, 0],                                                 // reserved bit
            &[0x10],                                                    // no size
            &[0x12],                                                    // size cut off
            &[0x7e],                                                    // extension cut off
            &[0x7a, 2, 0],                                              // longer than there is
            &[0x7a, 0xff, 0xff, 0xff, 0xff, 0x1f],                      // larger than 32 bits
            &[0x7a, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0], // size without end
        ];
        for data in broken {
            let results: Vec<_> = Units::new(&[&[0x12, 0], data].concat()).map(|u| u.is_ok()).collect();
            assert_eq!(results, [true, false], "{data:?}");
        }
    }
}

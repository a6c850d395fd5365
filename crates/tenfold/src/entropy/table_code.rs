//! Symbol tables as bits in a header. Normative: docs/format.md, 'Tables'.
//!
//! Large tensors carry measured frequencies; small ones carry three numbers from which both sides
//! compute the frequencies with the same integers.

use super::ESCAPE;
use super::bits::{BitReader, BitWriter};
use super::table::Freqs;
use crate::error::{Error, Result};

/// How a table is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // a blob has at most 32 of them
pub(crate) enum Coded {
    /// Frequencies one by one.
    Measured(Freqs),
    /// Frequencies computed from a shape.
    Shaped(Shape),
    /// The table before this one again.
    Again,
}

/// A bell or tent of frequencies in three numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Slots of level zero (unused where levels have raw low bits).
    pub zero: u16,
    /// Ratio of the second weight to the first, in 1/256.
    pub ratio: u8,
    /// Change of that ratio from one weight to the next, in 1/128: 128 is exponential, less is a bell.
    pub bend: u8,
}

/// What symbols stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Bytes.
    Bytes,
    /// Levels, with an escape.
    Levels,
    /// Levels without their raw low bits, so that symbols −1 and 0 are equally likely neighbours.
    Halved,
}

/// The symbols of a table and the sum of their frequencies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Alphabet {
    pub log: u32,
    pub kind: Kind,
}

impl Alphabet {
    pub(crate) fn levels(log: u32, low_bits: u32) -> Self {
        Alphabet { log, kind: if low_bits > 0 { Kind::Halved } else { Kind::Levels } }
    }

    pub(crate) fn bytes(log: u32) -> Self {
        Alphabet { log, kind: Kind::Bytes }
    }

    /// Whether symbols are signed and one of them is the escape.
    pub(crate) fn is_signed(self) -> bool {
        self.kind != Kind::Bytes
    }

    /// Symbol of a rank: ranks run in the order of the values.
    fn symbol(self, rank: usize) -> usize {
        if self.is_signed() { rank ^ 0x80 } else { rank }
    }
}

impl Shape {
    /// The frequencies, or `None` if the numbers leave no room.
    pub(crate) fn freqs(self, alphabet: Alphabet) -> Option<Freqs> {
        let total = 1u64 << alphabet.log;
        let halved = alphabet.kind == Kind::Halved;
        let zero = if halved { 0 } else { self.zero as u64 };
        // One slot is the escape's; both sides of zero get half of the rest.
        let side = total.checked_sub(zero + 1)? / 2;
        let mut weight = [0u64; 127];
        let (mut w, mut r) = (1u64 << 24, (self.ratio as u64) << 8);
        // Weights fall, and those that are zero give no slots.
        let mut some = 0;
        while some < weight.len() && w > 0 {
            weight[some] = w;
            some += 1;
            w = (w * r) >> 16;
            r = ((r * self.bend as u64) >> 7).min(0xff00);
        }
        let sum: u64 = weight[..some].iter().sum();
        let mut of = [0u16; 256];
        let mut used = 1;
        for (j, w) in weight[..some].iter().enumerate() {
            // Numerators have 36 bits, denominators 31: too few for a quotient to be rounded up to an integer that it does not reach,
            // and floats divide faster.
            let f = ((w * side + sum / 2) as i64 as f64 / sum as i64 as f64) as u32 as u64;
            let (above, below) = if halved { (j, 255 - j) } else { (j + 1, 255 - j) };
            of[above] = f as u16;
            of[below] = f as u16;
            used += 2 * f;
        }
        of[ESCAPE as usize] = 1;
        // Level zero absorbs the rounding error.
        let centre = of[0] as u64 + total;
        of[0] = centre.checked_sub(used).filter(|&f| f >= 1)? as u16;
        Some(Freqs { log: alphabet.log, of })
    }
}

/// Writes tables, each with its alphabet.
pub(crate) fn write<'a>(tables: impl IntoIterator<Item = (&'a Coded, Alphabet)>) -> Vec<u8> {
    let mut w = BitWriter::default();
    for (table, alphabet) in tables {
        match table {
            Coded::Shaped(s) => {
                w.put(0, 2);
                w.put(s.zero as u32, alphabet.log + 1);
                w.put(s.ratio as u32, 8);
                w.put(s.bend as u32, 8);
            }
            Coded::Measured(f) => {
                w.put(1, 2);
                let first = if alphabet.is_signed() { 1 } else { 0 };
                if alphabet.is_signed() {
                    w.put_gamma(f.of[ESCAPE as usize] as u32);
                }
                let used = |&r: &usize| f.of[alphabet.symbol(r)] > 0;
                let low = (first..256).find(used).unwrap_or(first);
                let high = (first..256).rfind(used).unwrap_or(first);
                w.put(low as u32, 8);
                w.put((high - low) as u32, 8);
                for rank in low..=high {
                    w.put_gamma(f.of[alphabet.symbol(rank)] as u32);
                }
            }
            Coded::Again => w.put(2, 2),
        }
    }
    w.finish()
}

/// Reads as many tables as there are alphabets.
pub(crate) fn read(bytes: &[u8], alphabets: &[Alphabet]) -> Result<Vec<Freqs>> {
    let mut r = BitReader::new(bytes);
    let mut tables: Vec<Freqs> = Vec::with_capacity(alphabets.len());
    for &alphabet in alphabets {
        let table = match r.take(2)? {
            0 if alphabet.is_signed() => {
                let zero = r.take(alphabet.log + 1)? as u16;
                let shape = Shape { zero, ratio: r.take(8)? as u8, bend: r.take(8)? as u8 };
                shape.freqs(alphabet).ok_or(Error::Corrupt("a table's shape leaves no room"))?
            }
            1 => {
                let mut of = [0u16; 256];
                if alphabet.is_signed() {
                    of[ESCAPE as usize] = r.take_gamma()? as u16;
                }
                let low = r.take(8)? as usize;
                let high = low + r.take(8)? as usize;
                if high > 255 || (alphabet.is_signed() && low == 0) {
                    return Err(Error::Corrupt("a table's range of symbols"));
                }
                for rank in low..=high {
                    of[alphabet.symbol(rank)] = r.take_gamma()? as u16;
                }
                Freqs { log: alphabet.log, of }
            }
            2 => tables.last().cloned().ok_or(Error::Corrupt("the first table repeats none"))?,
            _ => return Err(Error::Corrupt("unknown kind of table")),
        };
        if !table.is_complete() {
            return Err(Error::Corrupt("a table's frequencies do not add up"));
        }
        tables.push(table);
    }
    if r.bytes_read() != bytes.len() {
        return Err(Error::Corrupt("bytes left over after the tables"));
    }
    Ok(tables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_fill_every_table_exactly() {
        for log in 8..=12 {
            for kind in [Kind::Levels, Kind::Halved] {
                let alphabet = Alphabet { log, kind };
                let mut made = 0;
                for zero in [0u16, 1, 100, (1 << log) - 2] {
                    for ratio in [0u8, 1, 30, 128, 200, 255] {
                        for bend in [0u8, 60, 110, 128, 140, 255] {
                            if let Some(f) = (Shape { zero, ratio, bend }).freqs(alphabet) {
                                assert!(f.is_complete());
                                made += 1;
                            }
                        }
                    }
                }
                assert!(made > 60, "{made}");
            }
        }
    }

    #[test]
    fn tables_come_back() {
        let alphabet = Alphabet::levels(11, 0);
        let shape = Shape { zero: 900, ratio: 120, bend: 120 };
        let mut measured = shape.freqs(alphabet).unwrap();
        measured.of[3] += 5;
        measured.of[0] -= 5;
        let coded = [Coded::Shaped(shape), Coded::Measured(measured.clone()), Coded::Again];
        let bytes = write(coded.iter().map(|c| (c, alphabet)));
        let back = read(&bytes, &[alphabet; 3]).unwrap();
        assert_eq!(back[0], shape.freqs(alphabet).unwrap());
        assert_eq!(back[1], measured);
        assert_eq!(back[2], measured);
        assert!(read(&bytes[..bytes.len() - 1], &[alphabet; 3]).is_err());
    }
}

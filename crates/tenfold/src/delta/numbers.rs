//! A new value and the old one as a number, in one of three ways.

use super::token::{LONG, SHORT, Tokens};
use crate::view::Dtype;

/// How a tile tells its new values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    /// By the difference of the bit patterns as integers; of floats that of the magnitudes, and whether the sign changes.
    Difference = 0,
    /// By the bits that change.
    Xor = 1,
    /// By the new value itself, whatever the old one was: its highest byte is a symbol.
    Overwrite = 2,
}

impl Way {
    pub(super) const ALL: [Way; 3] = [Way::Difference, Way::Xor, Way::Overwrite];

    pub(super) fn from_id(id: u32) -> Option<Way> {
        Way::ALL.get(id as usize).copied()
    }
}

/// What a value is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbers {
    bits: u32,
    /// Of floats: bits below the exponent. Of others: none.
    mantissa: Option<u32>,
    tokens: Tokens,
}

/// What a symbol says of a number: the bits that are known, and how many are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Meaning {
    pub(super) high: u64,
    pub(super) open: u32,
    /// Whether there is such a number.
    pub(super) exists: bool,
}

/// A symbol and the bits beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) symbol: u8,
    pub(super) open: u32,
    pub(super) raw: u64,
}

impl Numbers {
    pub(super) fn new(dtype: Dtype) -> Numbers {
        let bits = 8 * dtype.size() as u32;
        let mantissa = match dtype {
            Dtype::F8E4M3 => Some(3),
            Dtype::F8E5M2 => Some(2),
            Dtype::F16 => Some(10),
            Dtype::Bf16 => Some(7),
            Dtype::F32 => Some(23),
            Dtype::F64 => Some(52),
            _ => None,
        };
        Numbers { bits, mantissa, tokens: if bits == 64 { LONG } else { SHORT } }
    }

    fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    /// The old value's exponent, its eight highest bits: numbers of values with the same one are alike. 0 of what is not a float.
    pub(super) fn key(self, old: u64) -> u8 {
        let (low, mask) = self.key_bits();
        (old >> low) as u8 & mask
    }

    /// The lowest bit of the key, and the bits that count from there.
    pub(super) fn key_bits(self) -> (u32, u8) {
        let Some(mantissa) = self.mantissa else { return (0, 0) };
        let exponent = self.bits - 1 - mantissa;
        (mantissa + exponent.saturating_sub(8), (u16::MAX >> (16 - exponent.min(8))) as u8)
    }

    /// Magnitude and sign of a float.
    fn parts(self, value: u64) -> (u64, u64) {
        (value & self.magnitude(), value >> (self.bits - 1))
    }

    /// How a value becomes another.
    pub(super) fn split(self, way: Way, old: u64, new: u64) -> Told {
        if way == Way::Overwrite {
            let (turned, open) = (self.turn(new), self.bits - 8);
            return Told { symbol: (turned >> open) as u8, open, raw: turned & ((1 << open) - 1) };
        }
        let ((before, sign), (after, then)) = match self.mantissa {
            Some(_) => (self.parts(old), self.parts(new)),
            None => ((old, 0), (new, 0)),
        };
        let number = match way {
            Way::Difference => zigzag(self.extend(after.wrapping_sub(before))),
            _ => before ^ after,
        };
        let (token, open) = self.tokens.split(number);
        Told { symbol: (2 * token + u32::from(sign != then)) as u8, open, raw: number & ((1 << open) - 1) }
    }

    /// What a symbol means.
    pub(super) fn meaning(self, way: Way, symbol: u8) -> Meaning {
        if way == Way::Overwrite {
            let open = self.bits - 8;
            return Meaning { high: u64::from(symbol) << open, open, exists: true };
        }
        let flips = symbol & 1 == 1;
        match self.tokens.join(u32::from(symbol) / 2) {
            Some((high, open)) if high & !self.mask() == 0 => {
                Meaning { high, open, exists: !flips || self.mantissa.is_some() }
            }
            _ => Meaning { high: 0, open: 0, exists: false },
        }
    }

    /// The new value of a symbol that exists, and bits that are 0 if it is in the range of values.
    #[inline(always)]
    pub(super) fn join(self, way: Way, old: u64, symbol: u8, number: u64) -> (u64, u64) {
        if way == Way::Overwrite {
            return (self.turn_back(number), 0);
        }
        // What is beyond the magnitude is the sign, or nothing.
        let magnitude = self.magnitude();
        let before = old & magnitude;
        let after = match way {
            Way::Difference => before.wrapping_add(unzigzag(number) as u64),
            _ => before ^ number,
        };
        let sign = old & !magnitude ^ u64::from(symbol & 1) << (self.bits - 1);
        let beyond = if self.mantissa.is_some() { after & !magnitude } else { 0 };
        (after & magnitude | sign, beyond)
    }

    /// The bits of a value that are not its sign.
    fn magnitude(self) -> u64 {
        if self.mantissa.is_some() { self.mask() >> 1 } else { self.mask() }
    }

    /// Whole numbers with the sign of their highest bit. Magnitudes of floats have that bit to spare.
    fn extend(self, number: u64) -> i64 {
        let spare = 64 - self.bits;
        ((number << spare) as i64) >> spare
    }

    /// Exponent first, sign last.
    fn turn(self, value: u64) -> u64 {
        match self.mantissa {
            Some(_) => (value << 1 | value >> (self.bits - 1)) & self.mask(),
            None => value,
        }
    }

    #[inline(always)]
    fn turn_back(self, value: u64) -> u64 {
        match self.mantissa {
            Some(_) => value >> 1 | (value & 1) << (self.bits - 1),
            None => value,
        }
    }
}

fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

#[inline(always)]
fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(numbers: Numbers, way: Way, old: u64, symbol: u8, raw: u64) -> Option<u64> {
        let meaning = numbers.meaning(way, symbol);
        let (new, beyond) = numbers.join(way, old, symbol, meaning.high | raw);
        (beyond == 0 && meaning.exists).then_some(new)
    }

    #[test]
    fn every_value_becomes_every_other() {
        for dtype in Dtype::ALL {
            let numbers = Numbers::new(dtype);
            let mut x = 12345u64;
            let mut next = || {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                // Single bits, few bits, all bits.
                (x ^ x >> 29) >> (x >> 58) & numbers.mask()
            };
            let ends = [0, 1, numbers.mask(), numbers.mask() >> 1, (numbers.mask() >> 1) + 1];
            let pairs: Vec<(u64, u64)> = (0..20_000).map(|_| (next(), next())).collect();
            let all = ends.iter().flat_map(|&a| ends.iter().map(move |&b| (a, b)));
            for (old, new) in all.chain(pairs) {
                for way in Way::ALL {
                    let told = numbers.split(way, old, new);
                    assert_eq!(numbers.meaning(way, told.symbol).open, told.open, "{dtype} {way:?}");
                    let back = join(numbers, way, old, told.symbol, told.raw);
                    assert_eq!(back, Some(new), "{dtype} {way:?} {old:x} {new:x}");
                }
            }
        }
    }

    #[test]
    fn numbers_that_leave_the_range_are_refused() {
        let numbers = Numbers::new(Dtype::Bf16);
        // One less than zero, one more than the largest.
        let (less, more) = (2, 4);
        assert_eq!(join(numbers, Way::Difference, 0, less, 0), None);
        assert_eq!(join(numbers, Way::Difference, 0x7fff, more, 0), None);
        assert_eq!(join(numbers, Way::Difference, 0x7ffe, more, 0), Some(0x7fff));
        assert_eq!(join(Numbers::new(Dtype::U8), Way::Xor, 0, 1, 0), None);
        assert!(!numbers.meaning(Way::Difference, 255).exists);
    }
}

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
        (value & self.mask() >> 1, value >> (self.bits - 1))
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

    /// Bits that a symbol leaves open; `None` for one that means nothing.
    pub(super) fn open(self, way: Way, symbol: u8) -> Option<u32> {
        match way {
            Way::Overwrite => Some(self.bits - 8),
            _ => {
                let (high, open) = self.tokens.join(u32::from(symbol) / 2)?;
                (high & !self.mask() == 0).then_some(open)
            }
        }
    }

    /// The new value, from what is told of it; `None` where that leaves the range of values.
    pub(super) fn join(self, way: Way, old: u64, told: Told) -> Option<u64> {
        if way == Way::Overwrite {
            return Some(self.turn_back(u64::from(told.symbol) << (self.bits - 8) | told.raw));
        }
        let number = self.tokens.join(u32::from(told.symbol) / 2)?.0 | told.raw;
        let flips = u64::from(told.symbol & 1);
        let (before, sign) = match self.mantissa {
            Some(_) => self.parts(old),
            None if flips == 0 => (old, 0),
            None => return None,
        };
        let after = match way {
            Way::Difference => before.wrapping_add(unzigzag(number) as u64),
            _ => before ^ number,
        };
        match self.mantissa {
            Some(_) if after & !(self.mask() >> 1) == 0 => Some(after | (sign ^ flips) << (self.bits - 1)),
            Some(_) => None,
            None => Some(after & self.mask()),
        }
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

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

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
                    assert_eq!(numbers.open(way, told.symbol), Some(told.open), "{dtype} {way:?}");
                    assert_eq!(numbers.join(way, old, told), Some(new), "{dtype} {way:?} {old:x} {new:x}");
                }
            }
        }
    }

    #[test]
    fn numbers_that_leave_the_range_are_refused() {
        let numbers = Numbers::new(Dtype::Bf16);
        // One less than zero, one more than the largest.
        let less = Told { symbol: 2, open: 0, raw: 0 };
        let more = Told { symbol: 4, open: 0, raw: 0 };
        assert_eq!(numbers.join(Way::Difference, 0, less), None);
        assert_eq!(numbers.join(Way::Difference, 0x7fff, more), None);
        assert_eq!(numbers.join(Way::Difference, 0x7ffe, more), Some(0x7fff));
        assert_eq!(Numbers::new(Dtype::U8).join(Way::Xor, 0, Told { symbol: 1, open: 0, raw: 0 }), None);
        assert_eq!(numbers.open(Way::Difference, 255), None);
    }
}

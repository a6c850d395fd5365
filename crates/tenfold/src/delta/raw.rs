//! The raw bits of a tile.

use crate::error::{Error, Result};

const EARLY: Error = Error::Corrupt("a tile of a delta ends early");

/// Raw bits, and how many were taken. Behind the last one there are zeros without end, so whoever takes asks [`Raw::check`] later.
pub(super) struct Raw<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Raw<'b> {
    /// From the bit with number `at` on.
    pub(super) fn new(bytes: &'b [u8], at: usize) -> Raw<'b> {
        Raw { bytes, at }
    }

    /// The next `count` bits: at most 8 · `SIZE` − 1.
    #[inline(always)]
    pub(super) fn take<const SIZE: usize>(&mut self, count: u32) -> u64 {
        let (first, shift) = (self.at / 8, (self.at % 8) as u32);
        self.at += count as usize;
        let word = match self.bytes.get(first..).and_then(|some| some.first_chunk()) {
            Some(&eight) => u64::from_le_bytes(eight),
            None => last_word(self.bytes, first),
        };
        let mut bits = word >> shift;
        if SIZE == 8 && count + shift > 64 {
            bits |= u64::from(self.bytes.get(first + 8).copied().unwrap_or_default()) << (64 - shift);
        }
        bits & !(u64::MAX << count)
    }

    /// Whether all bits that were taken are there.
    pub(super) fn check(&self) -> Result<()> {
        if self.at > 8 * self.bytes.len() { Err(EARLY) } else { Ok(()) }
    }

    /// Up to three bytes of zeros stand behind the last bit.
    pub(super) fn finish(&self) -> Result<()> {
        let spare = self.bytes.get(self.at.div_ceil(8)..).ok_or(EARLY)?;
        if spare.len() > 3 || spare.iter().any(|&b| b != 0) {
            return Err(Error::Corrupt("a tile has bytes left over"));
        }
        Ok(())
    }
}

/// The bytes from `first` on, fewer than eight.
#[cold]
fn last_word(bytes: &[u8], first: usize) -> u64 {
    bytes.get(first..).unwrap_or_default().iter().rev().fold(0, |word, &b| word << 8 | u64::from(b))
}

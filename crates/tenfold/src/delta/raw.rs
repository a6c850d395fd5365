//! The raw bits of a tile.

use super::chunk::CHUNK;
use crate::error::{Error, Result};

const EARLY: Error = Error::Corrupt("a tile of a delta ends early");

/// Raw bits, and how many were taken. Behind the last one there are zeros without end, so whoever takes asks [`Raw::check`] later.
pub(super) struct Raw<'b> {
    bytes: &'b [u8],
    at: usize,
}

/// Bytes that a chunk takes at most, and a word behind them.
const WINDOW: usize = 8 * CHUNK + 8;

/// The raw bits of a chunk: of each change, 63 at most.
pub(super) struct Window<'w> {
    bytes: &'w [u8; WINDOW],
    at: usize,
}

impl<'b> Raw<'b> {
    /// From the bit with number `at` on.
    pub(super) fn new(bytes: &'b [u8], at: usize) -> Raw<'b> {
        Raw { bytes, at }
    }

    /// Lets `read` take the bits of a chunk.
    #[inline(always)]
    pub(super) fn chunk(&mut self, read: impl FnOnce(&mut Window<'_>)) {
        let (rest, start) = (self.bytes.get(self.at / 8..).unwrap_or_default(), self.at % 8);
        let mut last = [0; WINDOW];
        let bytes = rest.first_chunk().unwrap_or_else(|| {
            last[..rest.len()].copy_from_slice(rest);
            &last
        });
        let mut window = Window { bytes, at: start };
        read(&mut window);
        self.at += window.at - start;
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

impl Window<'_> {
    /// The next `count` bits: at most 8 · `SIZE` − 1.
    #[inline(always)]
    pub(super) fn take<const SIZE: usize>(&mut self, count: u32) -> u64 {
        // The remainder changes nothing: it says that a word is inside.
        let (first, shift) = (self.at / 8 % (8 * CHUNK), (self.at % 8) as u32);
        self.at += count as usize;
        let word = u64::from_le_bytes(self.bytes[first..].first_chunk().copied().unwrap_or_default());
        let mut bits = word >> shift;
        if SIZE == 8 && count + shift > 64 {
            bits |= u64::from(self.bytes[first + 8]) << (64 - shift);
        }
        bits & !(u64::MAX << count)
    }
}

//! An adaptive binary arithmetic coder in the manner of CABAC: a symbol is a path of bits from the
//! highest, each node of the tree has a probability of its own, learnt while coding.
//!
//! A probability is the mean of a fast and a slow estimate, as in later video standards: the fast one
//! follows changes, the slow one is exact where nothing changes.

use crate::peers::PeerError;
use crate::peers::plain::corrupt;
use crate::range::{AHEAD, Reader, Writer};

/// Shifts of the two estimates.
const FAST: u32 = 4;
const SLOW: u32 = 7;

/// Symbols that a bit can stand for at most: a bit of a symbol costs no less than log2(2^16 / (2^16 − 32)).
const SYMBOLS_A_BIT: usize = 1500;

/// Probability of a zero bit, in 2^−16.
#[derive(Clone, Copy)]
struct Model {
    fast: u16,
    slow: u16,
}

impl Model {
    const EVEN: Model = Model { fast: 1 << 15, slow: 1 << 15 };

    /// The part of an interval that stands for a zero bit.
    fn bound(self, range: u32) -> u32 {
        let mean = (u32::from(self.fast) + u32::from(self.slow)) / 2;
        (range >> 16) * mean.clamp(32, (1 << 16) - 32)
    }

    fn learn(&mut self, bit: bool) {
        for (p, shift) in [(&mut self.fast, FAST), (&mut self.slow, SLOW)] {
            *p = if bit { *p - (*p >> shift) } else { *p + ((u16::MAX - *p) >> shift) };
        }
    }
}

/// Codes symbols of `width` bits.
pub(super) fn encode(symbols: &[u8], width: u8) -> Vec<u8> {
    let mut models = vec![Model::EVEN; 1 << width];
    let mut writer = Writer::default();
    for &symbol in symbols {
        let mut node = 1;
        for i in (0..width).rev() {
            let bit = symbol >> i & 1 == 1;
            writer.keep(!bit, models[node].bound(writer.range));
            models[node].learn(bit);
            node = node << 1 | usize::from(bit);
        }
    }
    if symbols.is_empty() {
        return Vec::new();
    }
    // All four bytes of the interval's bottom and the one held back. A shorter number in the interval would do,
    // but then a decoder could not tell that bytes are missing.
    (0..=AHEAD).for_each(|_| writer.shift());
    writer.bytes
}

/// Decodes `n` symbols of `width` bits.
pub(super) fn decode(bytes: &[u8], n: usize, width: u8) -> Result<Vec<u8>, PeerError> {
    if n == 0 {
        return if bytes.is_empty() { Ok(Vec::new()) } else { Err(corrupt("codes for no symbols")) };
    }
    if n > bytes.len().saturating_mul(8 * SYMBOLS_A_BIT) {
        return Err(corrupt("truncated"));
    }
    let mut models = vec![Model::EVEN; 1 << width];
    let mut reader = Reader::new(bytes);
    let mut out = Vec::with_capacity(n);
    for _ in 0..n {
        let mut node = 1usize;
        for _ in 0..width {
            let bit = !reader.decode_below(models[node].bound(reader.range));
            models[node].learn(bit);
            node = node << 1 | usize::from(bit);
        }
        if reader.missing > 0 {
            return Err(corrupt("truncated"));
        }
        out.push(node as u8); // the leading one falls off at eight bits
    }
    let leading = 1u32 << width;
    if leading < 256 {
        out.iter_mut().for_each(|s| *s &= (leading - 1) as u8);
    }
    if reader.is_empty() { Ok(out) } else { Err(corrupt("bytes left over")) }
}

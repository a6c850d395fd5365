//! Raw low bits of levels: as many as the value's class has, one value after the other.
//!
//! Normative: docs/format.md, 'Low bits'.

use crate::entropy::MAX_CLASSES;
use crate::entropy::bits::BitWriter;
use crate::entropy::rans::low_word;

/// Low bits of each class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LowBits {
    of: [u8; MAX_CLASSES],
}

impl LowBits {
    pub(crate) fn new(of: &[u8]) -> Self {
        let mut low = LowBits::default();
        low.of.iter_mut().zip(of).for_each(|(l, &o)| *l = o);
        low
    }

    /// Low bits of a class.
    #[inline(always)]
    pub(crate) fn get(&self, class: u8) -> u32 {
        self.of[class as usize % MAX_CLASSES] as u32
    }

    /// Low bits of every class.
    pub(crate) fn shifts(&self) -> [u32; MAX_CLASSES] {
        self.of.map(u32::from)
    }

    /// Whether no class has any.
    pub(crate) fn none(&self) -> bool {
        self.of == [0; MAX_CLASSES]
    }

    /// The largest number of any class.
    pub(crate) fn most(&self) -> u32 {
        self.of.iter().copied().max().unwrap_or(0) as u32
    }

    pub(crate) fn as_slice(&self, classes: usize) -> &[u8] {
        &self.of[..classes.min(MAX_CLASSES)]
    }

    /// Packs the low bits of levels; `class` is empty where there is one class only.
    pub(crate) fn pack(&self, k: &[i32], class: &[u8], w: &mut BitWriter) {
        for (i, &k) in k.iter().enumerate() {
            let n = self.get(class.get(i).copied().unwrap_or(0));
            // Most values of most tensors have none.
            if n > 0 {
                w.put(k as u32 & ((1 << n) - 1), n);
            }
        }
    }
}

/// Reads packed low bits in order.
pub(crate) struct LowReader<'a> {
    bytes: &'a [u8],
    /// Bits read so far.
    at: usize,
}

impl<'a> LowReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        LowReader { bytes, at: 0 }
    }

    /// The next `out.len()` values as words for the decoder. Bits past the end read as zero; the length is
    /// checked by [`LowReader::finish`].
    pub(crate) fn read(&mut self, low: &LowBits, class: &[u8], out: &mut [u32]) {
        for (i, o) in out.iter_mut().enumerate() {
            let n = low.get(class.get(i).copied().unwrap_or(0));
            let byte = self.at / 8;
            let word = match self.bytes.get(byte..byte + 4) {
                Some(&[a, b, c, d]) => u32::from_le_bytes([a, b, c, d]),
                _ => self.bytes.get(byte..).unwrap_or(&[]).iter().rev().fold(0, |w, &b| w << 8 | b as u32),
            };
            *o = low_word((word >> (self.at % 8)) & ((1 << n) - 1), n);
            self.at += n as usize;
        }
    }

    /// Whether exactly the bytes there were have been read.
    pub(crate) fn is_done(&self) -> bool {
        self.at.div_ceil(8) == self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_bits_come_back_by_class() {
        let low = LowBits::new(&[0, 3, 16]);
        let class: Vec<u8> = (0..100).map(|i| (i * 7 % 3) as u8).collect();
        let k: Vec<i32> = (0..100).map(|i: i32| (i - 50).wrapping_mul(77_777)).collect();
        let mut w = BitWriter::default();
        low.pack(&k, &class, &mut w);
        let bytes = w.finish();
        let mut r = LowReader::new(&bytes);
        let mut out = [0u32; 100];
        r.read(&low, &class[..40], &mut out[..40]);
        assert!(!r.is_done());
        r.read(&low, &class[40..], &mut out[40..]);
        assert!(r.is_done());
        for i in 0..100 {
            let n = low.get(class[i]);
            assert_eq!(out[i], low_word(k[i] as u32 & ((1 << n) - 1), n));
        }
    }
}

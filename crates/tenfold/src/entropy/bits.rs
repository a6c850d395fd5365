//! Bit strings, least significant bit first.

use crate::error::{Error, Result};

/// Appends bits to bytes.
#[derive(Default)]
pub(crate) struct BitWriter {
    bytes: Vec<u8>,
    /// Bits that are no whole word yet: fewer than 32 between calls.
    acc: u64,
    fill: u32,
}

impl BitWriter {
    /// Appends the low `n` bits of `v`, n ≤ 32.
    pub(crate) fn put(&mut self, v: u32, n: u32) {
        debug_assert!(n <= 32 && (n == 32 || v >> n == 0));
        self.acc |= (v as u64) << self.fill;
        self.fill += n;
        if self.fill >= 32 {
            self.bytes.extend_from_slice(&(self.acc as u32).to_le_bytes());
            self.acc >>= 32;
            self.fill -= 32;
        }
    }

    /// Elias gamma code of `v` + 1: the length in zeros, a one, then the bits below the leading one.
    pub(crate) fn put_gamma(&mut self, v: u32) {
        let v = v + 1;
        let n = v.ilog2();
        self.put(1 << n, n + 1);
        self.put(v & ((1 << n) - 1), n);
    }

    /// The bytes, the last padded with zeros.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let rest = self.acc.to_le_bytes();
        self.bytes.extend_from_slice(&rest[..self.fill.div_ceil(8) as usize]);
        self.bytes
    }
}

/// Reads what [`BitWriter`] wrote.
pub(crate) struct BitReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> BitReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        BitReader { bytes, at: 0 }
    }

    /// The next `n` bits, n ≤ 32.
    pub(crate) fn take(&mut self, n: u32) -> Result<u32> {
        if self.at + n as usize > self.bytes.len() * 8 {
            return Err(Error::Corrupt("a bit string ends early"));
        }
        let mut v = 0u64;
        let first = self.at / 8;
        for (i, &b) in self.bytes[first..].iter().take(5).enumerate() {
            v |= (b as u64) << (8 * i);
        }
        let v = (v >> (self.at % 8)) & ((1u64 << n) - 1);
        self.at += n as usize;
        Ok(v as u32)
    }

    /// The inverse of [`BitWriter::put_gamma`]; values up to 2^16 − 2.
    pub(crate) fn take_gamma(&mut self) -> Result<u32> {
        let mut n = 0;
        while self.take(1)? == 0 {
            n += 1;
            if n > 15 {
                return Err(Error::Corrupt("a table entry is too large"));
            }
        }
        Ok((1 << n) + self.take(n)? - 1)
    }

    /// Bytes touched so far.
    pub(crate) fn bytes_read(&self) -> usize {
        self.at.div_ceil(8)
    }
}

/// Packs values of `n` bits each, value i at bit i·n.
pub(crate) fn pack(values: impl IntoIterator<Item = u32>, n: u32) -> Vec<u8> {
    let mut w = BitWriter::default();
    for v in values {
        w.put(v, n);
    }
    w.finish()
}

/// Unpacks `out.len()` values of `n` bits, n ≤ 16, starting at value `first`. Bits past the end read as zero;
/// callers have checked the length.
pub(crate) fn unpack(bytes: &[u8], n: u32, first: usize, out: &mut [u32]) {
    let mask = (1u32 << n) - 1;
    for (i, v) in out.iter_mut().enumerate() {
        let bit = (first + i) * n as usize;
        let at = bit / 8;
        let word = match bytes.get(at..at + 4) {
            Some(&[a, b, c, d]) => u32::from_le_bytes([a, b, c, d]),
            _ => bytes.get(at..).unwrap_or(&[]).iter().take(4).rev().fold(0, |w, &b| w << 8 | b as u32),
        };
        *v = (word >> (bit % 8)) & mask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gamma_codes_come_back() {
        let values = [0u32, 1, 2, 3, 100, 4096, 65534];
        let mut w = BitWriter::default();
        values.iter().for_each(|&v| w.put_gamma(v));
        let bytes = w.finish();
        let mut r = BitReader::new(&bytes);
        for v in values {
            assert_eq!(r.take_gamma().unwrap(), v);
        }
        assert_eq!(r.bytes_read(), bytes.len());
        assert!(r.take(9).is_err());
    }

    #[test]
    fn packed_values_come_back_from_any_start() {
        for n in 0..=16 {
            let values: Vec<u32> = (0..77u32).map(|i| i.wrapping_mul(2654435761) & ((1 << n) - 1)).collect();
            let bytes = pack(values.iter().copied(), n);
            for first in [0, 1, 13, 76] {
                let mut out = vec![0; values.len() - first];
                unpack(&bytes, n, first, &mut out);
                assert_eq!(out, values[first..]);
            }
        }
    }
}

//! Decisions as plain bits, for a codec without entropy coding.

use super::bins::Bins;
use super::cabac::Context;
use super::error::IntraError;

/// Packs bits, most significant first.
#[derive(Default)]
pub(super) struct BitWriter {
    bytes: Vec<u8>,
    free: u32,
}

impl BitWriter {
    /// The bytes, the last one filled with zeros.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

impl Bins for BitWriter {
    fn bit(&mut self, _: &mut Context, bit: bool) -> Result<bool, IntraError> {
        self.raw(u32::from(bit), 1)?;
        Ok(bit)
    }

    fn raw(&mut self, value: u32, bits: u32) -> Result<u32, IntraError> {
        for i in (0..bits).rev() {
            if self.free == 0 {
                self.bytes.push(0);
                self.free = 8;
            }
            self.free -= 1;
            if let Some(last) = self.bytes.last_mut() {
                *last |= ((value >> i & 1) as u8) << self.free;
            }
        }
        Ok(value)
    }
}

/// Reads what [`BitWriter`] packed.
pub(super) struct BitReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> BitReader<'a> {
    /// A reader at the first bit.
    pub fn new(bytes: &'a [u8]) -> Self {
        BitReader { bytes, at: 0 }
    }

    /// Checks that nothing but the filling of the last byte is left.
    pub fn finish(self) -> Result<(), IntraError> {
        if self.at.div_ceil(8) == self.bytes.len() {
            Ok(())
        } else {
            Err(IntraError::Corrupt("bytes left over"))
        }
    }
}

impl Bins for BitReader<'_> {
    fn bit(&mut self, _: &mut Context, _: bool) -> Result<bool, IntraError> {
        Ok(self.raw(0, 1)? == 1)
    }

    fn raw(&mut self, _: u32, bits: u32) -> Result<u32, IntraError> {
        let mut value = 0;
        for _ in 0..bits {
            let byte = *self.bytes.get(self.at / 8).ok_or(IntraError::Truncated)?;
            value = value << 1 | u32::from(byte >> (7 - self.at % 8) & 1);
            self.at += 1;
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_come_back_and_end() {
        let mut writer = BitWriter::default();
        for (value, bits) in [(5, 3), (0, 1), (1023, 10), (7, 16)] {
            writer.raw(value, bits).unwrap();
        }
        writer.bit(&mut Context::default(), true).unwrap();
        let bytes = writer.finish();
        assert_eq!(bytes.len(), 4);
        let mut reader = BitReader::new(&bytes);
        for (value, bits) in [(5, 3), (0, 1), (1023, 10), (7, 16)] {
            assert_eq!(reader.raw(0, bits).unwrap(), value);
        }
        assert!(reader.bit(&mut Context::default(), false).unwrap());
        assert_eq!(reader.raw(0, 2), Err(IntraError::Truncated));
        assert!(BitReader::new(&bytes).finish().is_err());
    }
}

//! The header of a stream.
//!
//! | bytes | field | a reader rejects |
//! |---|---|---|
//! | 1 | version | anything but 1 |
//! | 1 | stages, a bit each: prediction, transform, entropy, inter | bits above these |
//! | 1 | bits of a sample, smallest block as a power of two in the upper half | other than 8–12, 2–5 |
//! | 4 | step in 1/256 sample | 0, above 2²⁰ |
//! | 4, 4, 2 | width, height, number of pictures | 0, more than 2²⁵ samples in all |
//! | 2, 1 | without entropy coding: least level, bits of a level | more than 16 bits |
//! | 4 | CRC-32 of all other bytes of the stream | a mismatch |
//!
//! All little-endian; decisions follow up to the end.

use super::error::IntraError;
use super::levels::FixedCode;
use super::picture::check_size;
use super::quantise::Step;
use super::settings::Stages;

const VERSION: u8 = 1;

/// What a decoder must know before the first decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub stages: Stages,
    pub depth: u8,
    pub smallest: u8,
    pub step: Step,
    pub width: u32,
    pub height: u32,
    pub count: u16,
    pub fixed: Option<FixedCode>,
}

impl Header {
    /// The stream of this header and these decisions.
    pub fn write(&self, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![VERSION, self.stages.to_bits(), self.depth | self.smallest << 4];
        out.extend(self.step.to_stored().to_le_bytes());
        out.extend(self.width.to_le_bytes());
        out.extend(self.height.to_le_bytes());
        out.extend(self.count.to_le_bytes());
        if let Some(code) = self.fixed {
            out.extend(code.least.to_le_bytes());
            out.push(code.bits);
        }
        let sum = checksum(&out, payload);
        out.extend(sum.to_le_bytes());
        out.extend(payload);
        out
    }

    /// Reads and checks a header; returns the decisions too.
    pub fn read(bytes: &[u8]) -> Result<(Self, &[u8]), IntraError> {
        let mut rest = bytes;
        let [version, stages, sizes] = take(&mut rest)?;
        if version != VERSION {
            return Err(IntraError::Corrupt("unknown version"));
        }
        let stages = Stages::from_bits(stages)?;
        let (depth, smallest) = (sizes & 15, sizes >> 4);
        if !(8..=12).contains(&depth) || !(2..=5).contains(&smallest) {
            return Err(IntraError::Corrupt("depth or block size"));
        }
        let step = Step::from_stored(u32::from_le_bytes(take(&mut rest)?));
        let step = step.ok_or(IntraError::Corrupt("step"))?;
        let (width, height) = (u32::from_le_bytes(take(&mut rest)?), u32::from_le_bytes(take(&mut rest)?));
        let count = u16::from_le_bytes(take(&mut rest)?);
        check_size(width as usize, height as usize, usize::from(count))?;
        let mut fixed = None;
        if !stages.entropy {
            let least = i16::from_le_bytes(take(&mut rest)?);
            let [bits] = take(&mut rest)?;
            if bits > 16 {
                return Err(IntraError::Corrupt("levels of more than 16 bits"));
            }
            fixed = Some(FixedCode { least, bits });
        }
        let fields = &bytes[..bytes.len() - rest.len()];
        let sum = u32::from_le_bytes(take(&mut rest)?);
        if sum != checksum(fields, rest) {
            return Err(IntraError::Corrupt("checksum"));
        }
        Ok((Header { stages, depth, smallest, step, width, height, count, fixed }, rest))
    }
}

fn checksum(fields: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(fields);
    hasher.update(payload);
    hasher.finalize()
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], IntraError> {
    let (head, tail) = rest.split_first_chunk::<N>().ok_or(IntraError::Truncated)?;
    *rest = tail;
    Ok(*head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back() {
        for fixed in [None, Some(FixedCode { least: -9, bits: 5 })] {
            let stages = Stages { entropy: fixed.is_none(), ..Stages::INTRA };
            let step = Step::nearest(3.5).unwrap();
            let header =
                Header { stages, depth: 10, smallest: 3, step, width: 70, height: 9, count: 2, fixed };
            let bytes = header.write(&[1, 2, 3]);
            assert_eq!(Header::read(&bytes), Ok((header, &[1, 2, 3][..])));
            for cut in 0..bytes.len() {
                assert!(Header::read(&bytes[..cut]).is_err());
            }
        }
    }
}

//! GGUF's block quantisations: an own quantiser to the public layouts, decoded by the reader that opens
//! such files ([`tenfold_archive::gguf`]).
//!
//! Values are taken in flat order and the last block is filled with zeros, which cost bytes like others.
//! Bytes: dtype and shape, type number (1), exponent (2), blocks. The exponent scales the tensor into the
//! range of f16, which a file of gradients would fall out of.

mod fit;
mod kquant;
mod legacy;
#[cfg(test)]
mod tests;

use tenfold::{Tensor, TensorView};
use tenfold_archive::gguf::Blocks;

use super::header::{self, Cursor};
use super::plain::{self, corrupt};
use super::{Abilities, Fidelity, Peer, PeerError, Rate};

/// Magnitudes are scaled to just below 2^11: scales of sub-blocks are thousands of times smaller, and all
/// must be normal numbers in f16.
const TOP_EXPONENT: i32 = 11;

/// A block type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[allow(non_camel_case_types)] // the names of the format
pub enum Gguf {
    /// 4 bits in blocks of 32.
    Q4_0,
    /// 5 bits in blocks of 32.
    Q5_0,
    /// 8 bits in blocks of 32.
    Q8_0,
    /// 2 bits in sub-blocks of 16, with minima.
    Q2_K,
    /// 3 bits in sub-blocks of 16.
    Q3_K,
    /// 4 bits in sub-blocks of 32, with minima.
    Q4_K,
    /// 5 bits in sub-blocks of 32, with minima.
    Q5_K,
    /// 6 bits in sub-blocks of 16.
    Q6_K,
}

impl Gguf {
    /// The types with super-blocks, and 8 bits: what files use today.
    pub const MODERN: [Gguf; 6] = [Gguf::Q2_K, Gguf::Q3_K, Gguf::Q4_K, Gguf::Q5_K, Gguf::Q6_K, Gguf::Q8_0];

    /// The older types.
    pub const LEGACY: [Gguf; 3] = [Gguf::Q4_0, Gguf::Q5_0, Gguf::Q8_0];

    /// Bits a value.
    pub fn bits(self) -> f64 {
        match self {
            Gguf::Q2_K => 2.625,
            Gguf::Q3_K => 3.4375,
            Gguf::Q4_0 | Gguf::Q4_K => 4.5,
            Gguf::Q5_0 | Gguf::Q5_K => 5.5,
            Gguf::Q6_K => 6.5625,
            Gguf::Q8_0 => 8.5,
        }
    }

    /// Number of the type in a file.
    fn number(self) -> u8 {
        match self {
            Gguf::Q4_0 => 2,
            Gguf::Q5_0 => 6,
            Gguf::Q8_0 => 8,
            Gguf::Q2_K => 10,
            Gguf::Q3_K => 11,
            Gguf::Q4_K => 12,
            Gguf::Q5_K => 13,
            Gguf::Q6_K => 14,
        }
    }

    /// Appends the block of exactly so many values as a block has.
    fn block(self) -> fn(&[f32], &mut Vec<u8>) {
        match self {
            Gguf::Q4_0 => legacy::q4_0,
            Gguf::Q5_0 => legacy::q5_0,
            Gguf::Q8_0 => legacy::q8_0,
            Gguf::Q2_K => kquant::q2,
            Gguf::Q3_K => kquant::q3,
            Gguf::Q4_K => kquant::q4,
            Gguf::Q5_K => kquant::q5,
            Gguf::Q6_K => kquant::q6,
        }
    }
}

impl Peer for Gguf {
    fn name(&self) -> String {
        format!("gguf {self:?}")
    }

    fn abilities(&self) -> Abilities {
        Abilities { fidelity: Fidelity::Lossy, rate: Rate::Fixed, timed: true }
    }

    fn at_bits(&self, bits: f64) -> Option<Box<dyn Peer>> {
        let fits = Gguf::MODERN.iter().rev().find(|k| k.bits() <= bits);
        fits.map(|&k| Box::new(k) as Box<dyn Peer>)
    }

    fn encode(&self, view: &TensorView<'_>) -> Result<Vec<u8>, PeerError> {
        let values = plain::finite(view)?;
        let layout = layout(self.number()).ok_or_else(|| PeerError::Unsupported(self.name()))?;
        let exponent =
            i16::try_from(f64::from(plain::unit(&values)).log2().floor() as i32 + 1 - TOP_EXPONENT)
                .map_err(|e| PeerError::Failed(e.to_string()))?;
        let scale = 2f64.powi(-i32::from(exponent));
        let mut out = header::start(view)?;
        out.push(self.number());
        out.extend(exponent.to_le_bytes());
        let mut block = vec![0f32; layout.values];
        for chunk in values.chunks(layout.values) {
            block.fill(0.0);
            block.iter_mut().zip(chunk).for_each(|(b, v)| *b = (v * scale) as f32);
            self.block()(&block, &mut out);
        }
        Ok(out)
    }

    fn decode(&self, bytes: &[u8]) -> Result<Tensor, PeerError> {
        let header::Header { shape, values: n, rest, .. } = header::read(bytes)?;
        let mut cursor = Cursor(rest);
        let [number] = cursor.array()?;
        let scale = 2f64.powi(i32::from(i16::from_le_bytes(cursor.array()?)));
        let layout = layout(number).ok_or_else(|| corrupt(format!("type {number}")))?;
        let blocks = n.div_ceil(layout.values);
        if cursor.0.len() % layout.bytes != 0 || cursor.0.len() / layout.bytes != blocks {
            return Err(corrupt(format!("{} bytes for {blocks} blocks", cursor.0.len())));
        }
        let mut raw = vec![0u8; blocks * layout.values * 4];
        layout.expand(cursor.0, &mut raw);
        let value = |b: &[u8]| (f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]])) * scale) as f32;
        Ok(plain::tensor(shape, raw.chunks_exact(4).take(n).map(value)))
    }
}

fn layout(number: u8) -> Option<Blocks> {
    Blocks::from_type(u32::from(number))
}

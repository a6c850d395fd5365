//! Quantised blocks to f32. Two families: `legacy`, 32 values with one scale, and `kquant`, 256 values in
//! sub-blocks whose scales are quantised themselves. The arithmetic is f32, one rounding an operation, in the
//! order of the format's reference, so results are the same bit for bit.

mod kquant;
mod legacy;
#[cfg(test)]
mod tests;

use gguf_rs_lib::format::GGUFTensorType;
use half::f16;

/// Turns one block into its values.
type Decode = fn(&[u8], &mut [f32]);

/// How one quantised type is stored.
#[derive(Clone, Copy)]
pub struct Blocks {
    /// Values of a block.
    pub values: usize,
    /// Bytes of a block.
    pub bytes: usize,
    /// Gets slices of exactly the lengths above.
    decode: Decode,
}

impl Blocks {
    /// The layout of a type by its number in a file; `None` for types that are not read.
    pub fn from_type(number: u32) -> Option<Self> {
        GGUFTensorType::from_u32(number).ok().and_then(blocks)
    }

    /// Expands whole blocks into little-endian f32. `out` has four bytes for each value of `raw`.
    pub fn expand(&self, raw: &[u8], out: &mut [u8]) {
        let mut values = [0f32; kquant::VALUES];
        let values = &mut values[..self.values];
        for (block, room) in raw.chunks_exact(self.bytes).zip(out.chunks_exact_mut(4 * self.values)) {
            (self.decode)(block, values);
            for (value, bytes) in values.iter().zip(room.chunks_exact_mut(4)) {
                bytes.copy_from_slice(&value.to_le_bytes());
            }
        }
    }
}

/// The block layout of a type, or `None` for types that are not read.
pub(super) fn blocks(kind: GGUFTensorType) -> Option<Blocks> {
    use GGUFTensorType as T;
    let (values, bytes, decode): (_, _, Decode) = match kind {
        T::Q4_0 => (legacy::VALUES, 18, legacy::q4_0),
        T::Q4_1 => (legacy::VALUES, 20, legacy::q4_1),
        T::Q5_0 => (legacy::VALUES, 22, legacy::q5_0),
        T::Q5_1 => (legacy::VALUES, 24, legacy::q5_1),
        T::Q8_0 => (legacy::VALUES, 34, legacy::q8_0),
        T::Q2_K => (kquant::VALUES, 84, kquant::q2),
        T::Q3_K => (kquant::VALUES, 110, kquant::q3),
        T::Q4_K => (kquant::VALUES, 144, kquant::q4),
        T::Q5_K => (kquant::VALUES, 176, kquant::q5),
        T::Q6_K => (kquant::VALUES, 210, kquant::q6),
        _ => return None,
    };
    Some(Blocks { values, bytes, decode })
}

/// The f16 at byte `at` of a block.
fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

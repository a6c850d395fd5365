//! Blocks of 32 values: an f16 scale, for the `_1` types an f16 minimum, then the integers. Nibble `j` of the
//! low halves is value `j`, of the high halves value `j + 16`; the fifth bits lie in one 32-bit word.

use super::half_at;

/// Values of a block.
pub(super) const VALUES: usize = 32;

/// Scale (2 bytes), 32 nibbles offset by 8.
pub(super) fn q4_0(block: &[u8], out: &mut [f32]) {
    let scale = half_at(block, 0);
    nibbles(&block[2..18], 0, out, |q| scale * (q as f32 - 8.0));
}

/// Scale, minimum (2 bytes each), 32 nibbles.
pub(super) fn q4_1(block: &[u8], out: &mut [f32]) {
    let (scale, min) = (half_at(block, 0), half_at(block, 2));
    nibbles(&block[4..20], 0, out, |q| scale * q as f32 + min);
}

/// Scale, fifth bits (4 bytes), 32 nibbles; together offset by 16.
pub(super) fn q5_0(block: &[u8], out: &mut [f32]) {
    let scale = half_at(block, 0);
    nibbles(&block[6..22], fifth_bits(block, 2), out, |q| scale * (q as f32 - 16.0));
}

/// Scale, minimum, fifth bits, 32 nibbles.
pub(super) fn q5_1(block: &[u8], out: &mut [f32]) {
    let (scale, min) = (half_at(block, 0), half_at(block, 2));
    nibbles(&block[8..24], fifth_bits(block, 4), out, |q| scale * q as f32 + min);
}

/// Scale, 32 signed bytes.
pub(super) fn q8_0(block: &[u8], out: &mut [f32]) {
    let scale = half_at(block, 0);
    for (value, &q) in out.iter_mut().zip(&block[2..34]) {
        *value = scale * f32::from(q as i8); // the byte holds a signed number
    }
}

fn fifth_bits(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

/// Gives each nibble, with bit `i` of `fifth` above the nibble of value `i`, to `value`.
fn nibbles(packed: &[u8], fifth: u32, out: &mut [f32], value: impl Fn(u32) -> f32) {
    let (low, high) = out.split_at_mut(16);
    for (j, &byte) in packed.iter().enumerate() {
        low[j] = value(u32::from(byte & 15) | (fifth >> j & 1) << 4);
        high[j] = value(u32::from(byte >> 4) | (fifth >> (j + 16) & 1) << 4);
    }
}

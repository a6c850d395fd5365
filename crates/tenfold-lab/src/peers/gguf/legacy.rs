//! Blocks of 32 values with one f16 scale.

use half::f16;

use super::fit;

/// Scale, 32 nibbles offset by 8: value `j` in the low half of byte `j`, value `j + 16` in the high half.
pub(super) fn q4_0(x: &[f32], out: &mut Vec<u8>) {
    let q = integers(x, 8, out);
    nibbles(&q, out);
}

/// Scale, the fifth bits in a 32-bit word, nibbles; together offset by 16.
pub(super) fn q5_0(x: &[f32], out: &mut Vec<u8>) {
    let q = integers(x, 16, out);
    let fifth = q.iter().enumerate().fold(0u32, |word, (j, &q)| word | u32::from(q >> 4) << j);
    out.extend(fifth.to_le_bytes());
    nibbles(&q, out);
}

/// Scale, 32 signed bytes. With 255 levels the largest magnitude over 127 is as good as a search.
pub(super) fn q8_0(x: &[f32], out: &mut Vec<u8>) {
    let scale = f16::from_f32(x.iter().fold(0f32, |m, v| m.max(v.abs())) / 127.0);
    out.extend(scale.to_le_bytes());
    let inverse = inverse(scale.to_f32());
    out.extend(x.iter().map(|v| (v * inverse).round().clamp(-127.0, 127.0) as i8 as u8));
}

/// Writes the scale and returns integers offset by `half`.
fn integers(x: &[f32], half: i8, out: &mut Vec<u8>) -> Vec<u8> {
    let scale = f16::from_f32(fit::scale(x, -half, half - 1));
    out.extend(scale.to_le_bytes());
    let (inverse, half) = (inverse(scale.to_f32()), f32::from(half));
    x.iter().map(|v| ((v * inverse).round() + half).clamp(0.0, 2.0 * half - 1.0) as u8).collect()
}

fn nibbles(q: &[u8], out: &mut Vec<u8>) {
    let (low, high) = q.split_at(16);
    out.extend(low.iter().zip(high).map(|(l, h)| l & 15 | h << 4));
}

/// 1/x, or 0 where there is nothing to divide by.
pub(super) fn inverse(x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { 1.0 / x }
}

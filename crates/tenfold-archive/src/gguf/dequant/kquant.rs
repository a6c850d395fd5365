//! Super-blocks of 256 values. An f16 scale (and for some types an f16 minimum) applies to the whole;
//! sub-blocks of 16 or 32 values multiply it by small integers of their own.

use super::half_at;

/// Values of a super-block.
pub(super) const VALUES: usize = 256;

/// 16 bytes of scale | minimum << 4, 64 bytes of 2-bit integers, scale, minimum.
pub(super) fn q2(block: &[u8], out: &mut [f32]) {
    let (scales, packed) = (&block[..16], &block[16..80]);
    let (scale, min) = (half_at(block, 80), half_at(block, 82));
    for (sub, values) in out.chunks_exact_mut(16).enumerate() {
        let sub_scale = scale * f32::from(scales[sub] & 15);
        let sub_min = min * f32::from(scales[sub] >> 4);
        let (bytes, shift) = two_bit_place(sub);
        for (value, &byte) in values.iter_mut().zip(&packed[bytes..]) {
            *value = sub_scale * f32::from(byte >> shift & 3) - sub_min;
        }
    }
}

/// 32 bytes of third bits, 64 bytes of 2-bit integers, 16 scales of 6 bits in 12 bytes (offset by 32), scale.
/// A third bit that is clear subtracts 4.
pub(super) fn q3(block: &[u8], out: &mut [f32]) {
    let (third, packed, scales) = (&block[..32], &block[32..96], &block[96..108]);
    let scale = half_at(block, 108);
    for (sub, values) in out.chunks_exact_mut(16).enumerate() {
        let low = if sub < 8 { scales[sub] & 15 } else { scales[sub - 8] >> 4 };
        let high = scales[8 + sub % 4] >> (2 * (sub / 4)) & 3;
        let sub_scale = scale * (f32::from(low | high << 4) - 32.0);
        let (bytes, shift) = two_bit_place(sub);
        // One bit plane of 32 values for each two sub-blocks.
        let (bits, plane) = (&third[16 * (sub % 2)..], sub / 2);
        for ((value, &byte), &bit) in values.iter_mut().zip(&packed[bytes..]).zip(bits) {
            let offset = if bit >> plane & 1 == 1 { 0.0 } else { 4.0 };
            *value = sub_scale * (f32::from(byte >> shift & 3) - offset);
        }
    }
}

/// Scale, minimum, 12 bytes of sub-block scales and minima, 128 bytes of nibbles.
pub(super) fn q4(block: &[u8], out: &mut [f32]) {
    let packed = &block[16..144];
    for (sub, values) in out.chunks_exact_mut(32).enumerate() {
        let (sub_scale, sub_min) = scale_and_min(block, sub);
        for (value, &byte) in values.iter_mut().zip(&packed[32 * (sub / 2)..]) {
            *value = sub_scale * f32::from(byte >> (4 * (sub % 2)) & 15) - sub_min;
        }
    }
}

/// As `q4`, with 32 bytes of fifth bits before the nibbles: bit `s` of byte `l` is for value `l` of
/// sub-block `s`.
pub(super) fn q5(block: &[u8], out: &mut [f32]) {
    let (fifth, packed) = (&block[16..48], &block[48..176]);
    for (sub, values) in out.chunks_exact_mut(32).enumerate() {
        let (sub_scale, sub_min) = scale_and_min(block, sub);
        for ((value, &byte), &bits) in values.iter_mut().zip(&packed[32 * (sub / 2)..]).zip(fifth) {
            let q = byte >> (4 * (sub % 2)) & 15 | (bits >> sub & 1) << 4;
            *value = sub_scale * f32::from(q) - sub_min;
        }
    }
}

/// 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed scales, scale; integers offset by 32.
/// Each half of 128 values takes 64 bytes of nibbles and 32 of pairs.
pub(super) fn q6(block: &[u8], out: &mut [f32]) {
    let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let scale = half_at(block, 208);
    for (sub, values) in out.chunks_exact_mut(16).enumerate() {
        let sub_scale = scale * f32::from(scales[sub] as i8); // the byte holds a signed number
        let (half, quarter, second) = (sub / 8, sub % 8 / 2, 16 * (sub % 2));
        let nibbles = &low[64 * half + 32 * (quarter % 2) + second..];
        let pairs = &high[32 * half + second..];
        for ((value, &nibble), &pair) in values.iter_mut().zip(nibbles).zip(pairs) {
            let q = nibble >> (4 * (quarter / 2)) & 15 | (pair >> (2 * quarter) & 3) << 4;
            *value = sub_scale * (f32::from(q) - 32.0);
        }
    }
}

/// First byte and shift of the 2-bit integers of sub-block `sub`: each half of 128 values takes 32 bytes,
/// whose bit pairs go to four runs of 32 values.
fn two_bit_place(sub: usize) -> (usize, usize) {
    (32 * (sub / 8) + 16 * (sub % 2), 2 * (sub % 8 / 2))
}

/// Scale and minimum of sub-block `sub` (of 8) for `q4` and `q5`: 6 bits each, the first four in the low
/// bits of their own byte, the last four as a nibble plus the two bits left over above the first four.
fn scale_and_min(block: &[u8], sub: usize) -> (f32, f32) {
    let (scale, min, packed) = (half_at(block, 0), half_at(block, 2), &block[4..16]);
    let (s, m) = if sub < 4 {
        (packed[sub] & 63, packed[sub + 4] & 63)
    } else {
        (packed[sub + 4] & 15 | packed[sub - 4] >> 6 << 4, packed[sub + 4] >> 4 | packed[sub] >> 6 << 4)
    };
    (scale * f32::from(s), min * f32::from(m))
}

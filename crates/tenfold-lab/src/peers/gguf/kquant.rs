//! Super-blocks of 256 values: an f16 scale (and for some types an f16 minimum), sub-blocks of 16 or 32
//! values with small integers that multiply them.
//!
//! Sub-blocks are fitted on their own; their scales are then rounded to what the super-block can store,
//! trying the neighbours of each, and the values are rounded again under what is stored.

use half::f16;

use super::fit;
use super::legacy::inverse;

/// 16 bytes of scale | minimum << 4, 64 bytes of 2-bit integers, scale, minimum.
pub(super) fn q2(x: &[f32], out: &mut Vec<u8>) {
    let fitted = Affine::fit(x, 16, 3, 15);
    out.extend(fitted.pairs.iter().map(|&(s, m)| s | m << 4));
    out.extend(two_bits(&fitted.q));
    out.extend(fitted.scale.to_le_bytes());
    out.extend(fitted.min.to_le_bytes());
}

/// 32 bytes of third bits, 64 bytes of 2-bit integers, 16 scales of 6 bits in 12 bytes, scale.
pub(super) fn q3(x: &[f32], out: &mut Vec<u8>) {
    let fitted = Symmetric::fit(x, 4, 31);
    let mut third = [0u8; 32];
    for (i, q) in fitted.q.iter().enumerate() {
        third[i % 32] |= (q >> 2) << (i / 32);
    }
    out.extend(third);
    out.extend(two_bits(&fitted.q));
    let mut scales = [0u8; 12];
    for (sub, &s) in fitted.subs.iter().enumerate() {
        let s = (s + 32) as u8; // from −32 to 31: never negative now
        scales[sub % 8] |= (s & 15) << (4 * (sub / 8));
        scales[8 + sub % 4] |= (s >> 4) << (2 * (sub / 4));
    }
    out.extend(scales);
    out.extend(fitted.scale.to_le_bytes());
}

/// Scale, minimum, 12 bytes of sub-block scales and minima, 128 bytes of nibbles.
pub(super) fn q4(x: &[f32], out: &mut Vec<u8>) {
    let fitted = Affine::fit(x, 32, 15, 63);
    fitted.head(out);
    out.extend(nibble_pairs(&fitted.q));
}

/// As [`q4`], with 32 bytes of fifth bits before the nibbles.
pub(super) fn q5(x: &[f32], out: &mut Vec<u8>) {
    let fitted = Affine::fit(x, 32, 31, 63);
    fitted.head(out);
    let mut fifth = [0u8; 32];
    for (i, q) in fitted.q.iter().enumerate() {
        fifth[i % 32] |= (q >> 4) << (i / 32);
    }
    out.extend(fifth);
    out.extend(nibble_pairs(&fitted.q));
}

/// 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed scales, scale.
pub(super) fn q6(x: &[f32], out: &mut Vec<u8>) {
    let fitted = Symmetric::fit(x, 32, 127);
    let (mut low, mut high) = ([0u8; 128], [0u8; 64]);
    for (i, q) in fitted.q.iter().enumerate() {
        let (half, quarter, at) = (i / 128, i % 128 / 32, i % 32);
        low[64 * half + 32 * (quarter % 2) + at] |= (q & 15) << (4 * (quarter / 2));
        high[32 * half + at] |= (q >> 4) << (2 * quarter);
    }
    out.extend(low);
    out.extend(high);
    out.extend(fitted.subs.iter().map(|&s| s as u8)); // the byte holds a signed number
    out.extend(fitted.scale.to_le_bytes());
}

/// Values s·q with a signed integer scale a sub-block of 16.
struct Symmetric {
    scale: f16,
    subs: Vec<i8>,
    /// Offset to start at zero.
    q: Vec<u8>,
}

impl Symmetric {
    /// Integers from −`half` to `half` − 1 under sub-block scales from −`most` − 1 to `most`.
    fn fit(x: &[f32], half: i8, most: i8) -> Self {
        let wanted: Vec<f32> = x.chunks(16).map(|sub| fit::scale(sub, -half, half - 1)).collect();
        let largest = wanted.iter().fold(0f32, |m, &s| if s.abs() > m.abs() { s } else { m });
        let scale = f16::from_f32(largest / -(f32::from(most) + 1.0));
        let unit = scale.to_f32();
        let (mut subs, mut q) = (Vec::new(), Vec::new());
        for (sub, want) in x.chunks(16).zip(wanted) {
            let guess = want * inverse(unit);
            let integers = |s: i8| -> Vec<u8> {
                let inverse = inverse(unit * f32::from(s));
                let half = f32::from(half);
                sub.iter()
                    .map(|v| ((v * inverse).round() + half).clamp(0.0, 2.0 * half - 1.0) as u8)
                    .collect()
            };
            let error = |s: i8| -> f32 {
                let off = |(v, q): (&f32, u8)| unit * f32::from(s) * (f32::from(q) - f32::from(half)) - v;
                sub.iter().zip(integers(s)).map(|pair| off(pair).powi(2)).sum()
            };
            let bounded = |s: f32| s.clamp(-f32::from(most) - 1.0, f32::from(most)) as i8;
            let near = [-1.0, 0.0, 1.0].map(|d| bounded(guess.round() + d));
            let best = near.into_iter().min_by(|&a, &b| error(a).total_cmp(&error(b))).unwrap_or(0);
            q.extend(integers(best));
            subs.push(best);
        }
        Symmetric { scale, subs, q }
    }
}

/// Values s·q − m with an integer scale and an integer minimum a sub-block.
struct Affine {
    scale: f16,
    min: f16,
    pairs: Vec<(u8, u8)>,
    q: Vec<u8>,
}

impl Affine {
    /// Integers from 0 to `high` under scales and minima from 0 to `most`, in sub-blocks of `len` values.
    fn fit(x: &[f32], len: usize, high: u8, most: u8) -> Self {
        let wanted: Vec<(f32, f32)> = x.chunks(len).map(|sub| fit::scale_and_min(sub, high)).collect();
        let largest = wanted.iter().fold((0f32, 0f32), |a, b| (a.0.max(b.0), a.1.max(b.1)));
        let (scale, min) =
            (f16::from_f32(largest.0 / f32::from(most)), f16::from_f32(largest.1 / f32::from(most)));
        let stored = |(s, m): (u8, u8)| (scale.to_f32() * f32::from(s), min.to_f32() * f32::from(m));
        let (mut pairs, mut q) = (Vec::new(), Vec::new());
        for (sub, want) in x.chunks(len).zip(wanted) {
            let near = |v: f32, unit: f16| {
                let guess = (v * inverse(unit.to_f32())).round();
                [0.0, -1.0, 1.0].map(|d| (guess + d).clamp(0.0, f32::from(most)) as u8)
            };
            let mut best = (f32::MAX, (0, 0));
            for s in near(want.0, scale) {
                for m in near(want.1, min) {
                    let error = fit::error(sub, stored((s, m)), high);
                    if error < best.0 {
                        best = (error, (s, m));
                    }
                }
            }
            let pair = stored(best.1);
            q.extend(sub.iter().map(|&v| fit::integer(v, pair, high)));
            pairs.push(best.1);
        }
        Affine { scale, min, pairs, q }
    }

    /// Scale, minimum and eight pairs of 6 bits: the first four in the low bits of their own byte, the last
    /// four as a nibble, their upper bits above the first four.
    fn head(&self, out: &mut Vec<u8>) {
        out.extend(self.scale.to_le_bytes());
        out.extend(self.min.to_le_bytes());
        let mut packed = [0u8; 12];
        for (sub, &(s, m)) in self.pairs.iter().enumerate() {
            if sub < 4 {
                packed[sub] |= s;
                packed[sub + 4] |= m;
            } else {
                packed[sub + 4] |= s & 15 | (m & 15) << 4;
                packed[sub - 4] |= s >> 4 << 6;
                packed[sub] |= m >> 4 << 6;
            }
        }
        out.extend(packed);
    }
}

/// The lower two bits: each half of 128 values takes 32 bytes, whose bit pairs are four runs of 32 values.
fn two_bits(q: &[u8]) -> [u8; 64] {
    let mut packed = [0u8; 64];
    for (i, q) in q.iter().enumerate() {
        packed[32 * (i / 128) + i % 32] |= (q & 3) << (2 * (i % 128 / 32));
    }
    packed
}

/// The lower four bits: runs of 32 values alternate between the low and the high half of 32 bytes.
fn nibble_pairs(q: &[u8]) -> [u8; 128] {
    let mut packed = [0u8; 128];
    for (i, q) in q.iter().enumerate() {
        packed[32 * (i / 64) + i % 32] |= (q & 15) << (4 * (i / 32 % 2));
    }
    packed
}

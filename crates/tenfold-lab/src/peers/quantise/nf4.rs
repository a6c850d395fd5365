//! NF4, the four-bit type of QLoRA: blocks of 64 values over their largest magnitude, rounded to 16
//! quantiles of a normal distribution.

use super::super::header::Cursor;
use super::super::{PeerError, plain};
use super::{Codes, side};

/// Values of a block.
const BLOCK: usize = 64;

/// The published code values; a test derives them from their definition.
const VALUES: [f64; 16] = [
    -1.0,
    -0.696_192_800_998_687_7,
    -0.525_073_051_452_636_7,
    -0.394_917_488_098_144_53,
    -0.284_441_381_692_886_35,
    -0.184_773_430_228_233_34,
    -0.091_050_036_251_544_95,
    0.0,
    0.079_580_299_556_255_34,
    0.160_930_201_411_247_25,
    0.246_112_301_945_686_34,
    0.337_915_241_718_292_24,
    0.440_709_829_330_444_34,
    0.562_617_003_917_694_1,
    0.722_956_836_223_602_3,
    1.0,
];

/// NF4 in blocks of 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nf4 {
    /// Block maxima as f32 (4.5 bits a value), as bitsandbytes keeps them, and not as f16 (4.25).
    pub wide: bool,
}

impl Nf4 {
    pub(super) fn name(&self) -> String {
        if self.wide { "nf4 f32" } else { "nf4" }.to_string()
    }

    pub(super) fn side_bits(&self) -> f64 {
        if self.wide { 0.5 } else { 0.25 }
    }

    pub(super) fn side_len(&self, n: usize) -> usize {
        let blocks = n.div_ceil(BLOCK);
        if self.wide { 4 * blocks } else { 4 + 2 * blocks }
    }

    pub(super) fn quantise(&self, values: &[f64]) -> Codes {
        let unit = plain::unit(values);
        let mut codes = Vec::with_capacity(values.len());
        let (mut halves, mut stored) = (Vec::new(), Vec::new());
        for block in values.chunks(BLOCK) {
            let most = block.iter().fold(0f64, |m, v| m.max(v.abs()));
            let seen = if self.wide {
                stored.extend((most as f32).to_le_bytes());
                f64::from(most as f32)
            } else {
                halves.push(side::round_to_half(most, unit));
                side::value(side::round_to_half(most, unit), unit)
            };
            let inverse = if seen > 0.0 { 1.0 / seen } else { 0.0 };
            codes.extend(block.iter().map(|v| nearest(v * inverse)));
        }
        if !self.wide {
            stored.extend(unit.to_le_bytes());
            side::put(&mut stored, &halves);
        }
        Codes { codes, side: stored }
    }

    pub(super) fn restore(&self, codes: &[u8], side: &[u8]) -> Result<Vec<f64>, PeerError> {
        let mut cursor = Cursor(side);
        let blocks = codes.len().div_ceil(BLOCK);
        let maxima = if self.wide {
            (0..blocks).map(|_| cursor.f32().map(f64::from)).collect::<Result<Vec<_>, _>>()?
        } else {
            let unit = cursor.f32()?;
            side::take(&mut cursor, blocks, unit)?
        };
        let mut out = Vec::with_capacity(codes.len());
        for (block, most) in codes.chunks(BLOCK).zip(maxima) {
            out.extend(block.iter().map(|&c| most * VALUES[usize::from(c & 15)]));
        }
        Ok(out)
    }
}

/// The code whose value is nearest.
fn nearest(v: f64) -> u8 {
    // 15 comparisons without a branch beat a search.
    VALUES.windows(2).map(|w| u8::from(v > 0.5 * (w[0] + w[1]))).sum()
}

#[cfg(test)]
mod tests {
    use super::super::lloyd::normal_quantile;
    use super::*;

    #[test]
    fn values_follow_from_their_definition() {
        // Eight quantiles above zero and seven below, evenly spaced in probability up to the mean of
        // 1 − 1/32 and 1 − 1/30, over the largest.
        let end = 0.5 * ((1.0 - 1.0 / 32.0) + (1.0 - 1.0 / 30.0));
        let quantiles = |n: usize| {
            (0..n).map(move |i| normal_quantile(end + (0.5 - end) * i as f64 / n as f64)).collect::<Vec<_>>()
        };
        let (above, below) = (quantiles(8), quantiles(7));
        let mut wanted: Vec<f64> =
            below.iter().map(|v| -v).chain([0.0]).chain(above.iter().copied()).collect();
        wanted.sort_by(f64::total_cmp);
        let most = wanted[15];
        for (have, want) in VALUES.iter().zip(wanted.iter().map(|v| v / most)) {
            assert!((have - want).abs() < 2e-6, "{have} against {want}");
        }
    }

    #[test]
    fn codes_are_nearest() {
        for (i, &v) in VALUES.iter().enumerate() {
            assert_eq!(usize::from(nearest(v)), i);
        }
        assert_eq!((nearest(-9.0), nearest(9.0), nearest(0.03), nearest(0.05)), (0, 15, 7, 8));
    }

    #[test]
    fn maxima_of_both_widths() {
        let values: Vec<f64> = (0..130).map(|i| f64::from(i - 70) * 1e-12).collect();
        for wide in [false, true] {
            let nf4 = Nf4 { wide };
            let q = nf4.quantise(&values);
            assert_eq!(q.side.len(), nf4.side_len(values.len()));
            let back = nf4.restore(&q.codes, &q.side).unwrap();
            // The largest magnitude of a block is a code of its own.
            assert!((back[0] / values[0] - 1.0).abs() < 1e-3);
        }
    }
}

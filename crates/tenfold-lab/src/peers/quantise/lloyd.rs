//! The Lloyd–Max quantiser of a Gaussian behind a rotation, as TurboQuant has it: a row is divided by
//! its root mean square, and values go to the levels that are best for N(0, 1).

use std::f64::consts::PI;
use std::sync::LazyLock;

use super::super::header::Cursor;
use super::super::{PeerError, plain};
use super::{Codes, side};

/// Most bits of a code.
const MOST_BITS: u8 = 4;

/// Levels of 1 to 4 bits.
static LEVELS: LazyLock<[Vec<f64>; MOST_BITS as usize]> =
    LazyLock::new(|| std::array::from_fn(|i| levels(2 << i)));

/// Lloyd–Max levels of a Gaussian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lloyd {
    /// Bits of a code, 1 to 4.
    pub bits: u8,
}

impl Lloyd {
    pub(super) fn check(&self) -> Result<(), PeerError> {
        if (1..=MOST_BITS).contains(&self.bits) {
            return Ok(());
        }
        Err(PeerError::Unsupported(format!("Lloyd–Max levels at {} bits", self.bits)))
    }

    fn levels(&self) -> &'static [f64] {
        &LEVELS[usize::from(self.bits - 1)]
    }

    pub(super) fn quantise(&self, values: &[f64], row: usize) -> Codes {
        let unit = plain::unit(values);
        let levels = self.levels();
        let edges: Vec<f64> = levels.windows(2).map(|w| 0.5 * (w[0] + w[1])).collect();
        let mut codes = Vec::with_capacity(values.len());
        let mut norms = Vec::new();
        for line in values.chunks(row) {
            // In units, since squares of tiny values would underflow.
            let square = |v: &f64| (v / f64::from(unit)).powi(2);
            let mean = line.iter().map(square).sum::<f64>() / line.len() as f64;
            let norm = side::round_to_half(mean.sqrt() * f64::from(unit), unit);
            norms.push(norm);
            let norm = side::value(norm, unit);
            let inverse = if norm > 0.0 { 1.0 / norm } else { 0.0 };
            codes.extend(line.iter().map(|v| edges.iter().map(|&e| u8::from(v * inverse > e)).sum::<u8>()));
        }
        let mut stored = unit.to_le_bytes().to_vec();
        side::put(&mut stored, &norms);
        Codes { codes, side: stored }
    }

    pub(super) fn restore(&self, codes: &[u8], side: &[u8], row: usize) -> Result<Vec<f64>, PeerError> {
        let mut cursor = Cursor(side);
        let unit = cursor.f32()?;
        let norms = side::take(&mut cursor, codes.len().div_ceil(row), unit)?;
        let levels = self.levels();
        let mut out = Vec::with_capacity(codes.len());
        for (line, norm) in codes.chunks(row).zip(norms) {
            out.extend(line.iter().map(|&c| norm * levels[usize::from(c) & (levels.len() - 1)]));
        }
        Ok(out)
    }
}

/// Lloyd's iteration on N(0, 1): edges half-way between levels, levels at the centroids of their cells.
fn levels(n: usize) -> Vec<f64> {
    let density = |x: f64| if x.is_finite() { (-0.5 * x * x).exp() / (2.0 * PI).sqrt() } else { 0.0 };
    let mut levels: Vec<f64> = (0..n).map(|i| normal_quantile((i as f64 + 0.5) / n as f64)).collect();
    for _ in 0..3000 {
        let mut edges = vec![f64::NEG_INFINITY];
        edges.extend(levels.windows(2).map(|w| 0.5 * (w[0] + w[1])));
        edges.push(f64::INFINITY);
        for (level, e) in levels.iter_mut().zip(edges.windows(2)) {
            *level = (density(e[0]) - density(e[1])) / (normal_share(e[1]) - normal_share(e[0]));
        }
    }
    levels
}

/// Share of N(0, 1) below `x`: ½ + φ(x)·(x + x³/3 + x⁵/15 + …), which converges fast where it is needed
/// (|x| below 6).
fn normal_share(x: f64) -> f64 {
    if !(x.abs() < 9.0) {
        return if x > 0.0 { 1.0 } else { 0.0 };
    }
    let (mut term, mut sum, mut k) = (x, x, 1.0);
    while term.abs() > 1e-18 * sum.abs() {
        k += 2.0;
        term *= x * x / k;
        sum += term;
    }
    0.5 + sum * (-0.5 * x * x).exp() / (2.0 * PI).sqrt()
}

/// Where N(0, 1) has a share of `p` below, by bisection: it only builds tables.
pub(super) fn normal_quantile(p: f64) -> f64 {
    let (mut low, mut high) = (-8.0, 8.0);
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        if normal_share(middle) < p {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Fidelity;
    use crate::synth::{self, Shape};

    #[test]
    fn levels_are_those_of_max() {
        // Max (1960): output levels of the best quantisers for a Gaussian.
        let wanted: [&[f64]; 4] = [
            &[0.7979],
            &[0.4528, 1.510],
            &[0.2451, 0.7560, 1.344, 2.152],
            &[0.1284, 0.3881, 0.6568, 0.9424, 1.256, 1.618, 2.069, 2.733],
        ];
        for (have, want) in LEVELS.iter().zip(wanted) {
            for (a, b) in have[have.len() / 2..].iter().zip(want) {
                assert!((a - b).abs() < 6e-4, "{a} against {b}");
            }
            assert!(have.iter().zip(have.iter().rev()).all(|(a, b)| (a + b).abs() < 1e-9));
        }
    }

    #[test]
    fn errors_are_those_of_max() {
        for (bits, nmse) in [(1, 0.3634), (2, 0.1175), (3, 0.03454), (4, 0.009_497)] {
            let values: Vec<f64> =
                synth::values(Shape::Gaussian, 1e-7, 200_000, 9).iter().map(|&v| f64::from(v)).collect();
            let lloyd = Lloyd { bits };
            let q = lloyd.quantise(&values, 1000);
            let back = lloyd.restore(&q.codes, &q.side, 1000).unwrap();
            let got = Fidelity::new(&values, &back).nmse();
            assert!((got / nmse - 1.0).abs() < 0.02, "{bits} bits: {got} against {nmse}");
        }
    }
}

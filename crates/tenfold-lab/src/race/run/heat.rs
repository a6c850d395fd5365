//! Pictures of a tensor and of a coder's error: few cells, a byte each.

use serde::{Deserialize, Serialize};

/// Most cells along a side.
pub(crate) const SIDE: usize = 96;
/// Error bytes 1 to 255 span so many octaves, upwards from 2^[`FLOOR`] standard deviations; 0 is exact.
const OCTAVES: f64 = 16.0;
const FLOOR: f64 = -12.0;

/// A grid of bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Heat {
    pub rows: usize,
    pub cols: usize,
    #[serde(with = "packed")]
    pub data: Vec<u8>,
}

impl Heat {
    /// Means of the cells about the tensor's mean: 128 is the mean, 1 and 255 are `scale` away. Returns the
    /// picture and the scale, which leaves one cell in two hundred out of range so that an outlier does not
    /// turn everything else grey.
    pub fn from_values(values: &[f64], cols: usize, mean: f64) -> (Heat, f64) {
        let (grid, cells) = cells(values, cols, |v| v - mean, |sum, n| sum / n);
        let mut sizes: Vec<f64> = cells.iter().map(|v| v.abs()).collect();
        sizes.sort_by(f64::total_cmp);
        let scale = sizes.get(sizes.len().saturating_sub(1 + sizes.len() / 200)).copied().unwrap_or(0.0);
        let scale = if scale > 0.0 { scale } else { 1.0 };
        let byte = |v: f64| (128.0 + (127.0 * v / scale).clamp(-127.0, 127.0)).round() as u8;
        (Heat { rows: grid.0, cols: grid.1, data: cells.into_iter().map(byte).collect() }, scale)
    }

    /// Root mean square of the errors in each cell over the standard deviation of the tensor.
    pub fn from_errors(errors: &[f64], cols: usize, std: f64) -> Heat {
        let (grid, cells) = cells(errors, cols, |e| (e / std).powi(2), |sum, n| sum / n);
        Heat { rows: grid.0, cols: grid.1, data: cells.into_iter().map(error_byte).collect() }
    }

    /// The same picture of errors with at most `side` cells along a side.
    pub fn shrink(&self, side: usize) -> Heat {
        if self.rows <= side && self.cols <= side {
            return self.clone();
        }
        let powers: Vec<f64> = self.data.iter().map(|&b| error_power(b)).collect();
        let rows = bounds(self.rows, side);
        let columns = bounds(self.cols, side);
        let mut data = Vec::new();
        for r in rows.windows(2) {
            for c in columns.windows(2) {
                let lines = (r[0]..r[1]).flat_map(|y| &powers[y * self.cols + c[0]..y * self.cols + c[1]]);
                data.push(error_byte(lines.sum::<f64>() / ((r[1] - r[0]) * (c[1] - c[0])) as f64));
            }
        }
        Heat { rows: rows.len() - 1, cols: columns.len() - 1, data }
    }
}

fn error_byte(power: f64) -> u8 {
    if power > 0.0 {
        ((power.log2() / 2.0 - FLOOR) * 255.0 / OCTAVES).round().clamp(1.0, 255.0) as u8
    } else {
        0
    }
}

fn error_power(byte: u8) -> f64 {
    if byte == 0 { 0.0 } else { (2.0 * (f64::from(byte) * OCTAVES / 255.0 + FLOOR)).exp2() }
}

/// Ends of at most `side` stretches of `n` positions, as equal as can be.
fn bounds(n: usize, side: usize) -> Vec<usize> {
    let parts = n.min(side);
    (0..=parts).map(|i| i * n / parts.max(1)).collect()
}

/// Sums what `each` makes of the finite values of every cell and finishes it with their number.
fn cells(
    values: &[f64],
    cols: usize,
    each: impl Fn(f64) -> f64,
    finish: impl Fn(f64, f64) -> f64,
) -> ((usize, usize), Vec<f64>) {
    let cols = cols.max(1);
    let (rows, columns) = (bounds(values.len() / cols, SIDE), bounds(cols, SIDE));
    let mut out = Vec::new();
    for r in rows.windows(2) {
        for c in columns.windows(2) {
            let (mut sum, mut count) = (0.0, 0.0f64);
            for row in values.chunks(cols).skip(r[0]).take(r[1] - r[0]) {
                for &v in row[c[0]..c[1]].iter().filter(|v| v.is_finite()) {
                    sum += each(v);
                    count += 1.0;
                }
            }
            out.push(finish(sum, count.max(1.0)));
        }
    }
    ((rows.len() - 1, columns.len() - 1), out)
}

/// Bytes as base64, in the state file and in the page.
mod packed {
    use base64::{Engine, engine::general_purpose::STANDARD};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        STANDARD.decode(String::deserialize(from)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_hold_what_lies_under_them() {
        // 200 × 3: rows are averaged to 96 cells, columns stay.
        let values: Vec<f64> = (0..600).map(|i| if i % 3 == 1 { 2.0 } else { 0.0 }).collect();
        let (heat, scale) = Heat::from_values(&values, 3, 1.0);
        assert_eq!((heat.rows, heat.cols, heat.data.len()), (SIDE, 3, SIDE * 3));
        assert_eq!(scale, 1.0);
        assert!(heat.data.chunks(3).all(|r| r == [1, 255, 1]));
    }

    #[test]
    fn error_bytes_are_logarithms() {
        let errors: Vec<f64> = (0..16).map(|i| if i % 4 < 2 { 0.0 } else { 0.25 }).collect();
        let heat = Heat::from_errors(&errors, 4, 1.0);
        assert_eq!((heat.data[0], heat.data[2]), (0, 159));
        assert!((error_power(159).sqrt() / 0.25 - 1.0).abs() < 0.03);
        // Half of the power is left where half of the cells are exact.
        let half = heat.shrink(1);
        assert_eq!((half.rows, half.cols), (1, 1));
        assert!((error_power(half.data[0]) / 0.03125 - 1.0).abs() < 0.06);
        assert_eq!(heat.shrink(SIDE), heat);
    }

    #[test]
    fn nothing_and_odd_values_make_no_trouble() {
        let (heat, _) = Heat::from_values(&[], 5, 0.0);
        assert_eq!((heat.rows, heat.data.len()), (0, 0));
        let heat = Heat::from_errors(&[f64::NAN, 1.0], 2, 1.0);
        assert_eq!(heat.data, [0, 191]);
    }
}

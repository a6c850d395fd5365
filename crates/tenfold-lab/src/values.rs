//! Elements of any float dtype as f64, and 8-bit floats both ways.
//!
//! Deliberately independent of the codec's own conversions: a measurement must not share a mistake
//! with what it measures.

use half::{bf16, f16};
use tenfold::{Dtype, TensorView};

/// Value of an 8-bit float with 4 exponent and 3 mantissa bits: no infinities, the largest finite
/// value is 448, `S.1111.111` is NaN.
pub fn f8_e4m3(byte: u8) -> f64 {
    let (sign, exponent, mantissa) = (byte >> 7, i32::from(byte >> 3 & 15), f64::from(byte & 7));
    let magnitude = match (exponent, byte & 7) {
        (15, 7) => f64::NAN,
        (0, _) => mantissa * 2f64.powi(-9),
        _ => (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7),
    };
    if sign == 1 { -magnitude } else { magnitude }
}

/// Value of an 8-bit float with 5 exponent and 2 mantissa bits: f16 cut to its upper byte.
pub fn f8_e5m2(byte: u8) -> f64 {
    f16::from_bits(u16::from(byte) << 8).to_f64()
}

/// The finite 8-bit float nearest to a value; values out of range go to the largest finite one.
///
/// Searches a table of all 256 codes, so it is slow and plainly right: it only makes test tensors.
pub struct F8Rounder {
    sorted: Vec<(f64, u8)>,
}

impl F8Rounder {
    /// A rounder for one of the two 8-bit dtypes; `None` for any other.
    pub fn new(dtype: Dtype) -> Option<Self> {
        let decode = match dtype {
            Dtype::F8E4M3 => f8_e4m3,
            Dtype::F8E5M2 => f8_e5m2,
            _ => return None,
        };
        let mut sorted: Vec<(f64, u8)> =
            (0..=255u8).map(|b| (decode(b), b)).filter(|v| v.0.is_finite()).collect();
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
        Some(F8Rounder { sorted })
    }

    /// Nearest code.
    pub fn round(&self, value: f64) -> u8 {
        let above = self.sorted.partition_point(|v| v.0 < value).min(self.sorted.len() - 1);
        let below = above.saturating_sub(1);
        let (a, b) = (self.sorted[above], self.sorted[below]);
        if (a.0 - value).abs() <= (value - b.0).abs() { a.1 } else { b.1 }
    }
}

/// Reads elements `start..start + out.len()` of a float tensor into `out`. Returns `false`, leaving
/// `out` alone, if the dtype is not a float.
pub fn read_f64(view: &TensorView<'_>, start: usize, out: &mut [f64]) -> bool {
    let size = view.dtype().size();
    let data = &view.data()[start * size..(start + out.len()) * size];
    let pairs = out.iter_mut().zip(data.chunks_exact(size));
    match view.dtype() {
        Dtype::F8E4M3 => pairs.for_each(|(o, c)| *o = f8_e4m3(c[0])),
        Dtype::F8E5M2 => pairs.for_each(|(o, c)| *o = f8_e5m2(c[0])),
        Dtype::F16 => pairs.for_each(|(o, c)| *o = f16::from_le_bytes([c[0], c[1]]).to_f64()),
        Dtype::Bf16 => pairs.for_each(|(o, c)| *o = bf16::from_le_bytes([c[0], c[1]]).to_f64()),
        Dtype::F32 => pairs.for_each(|(o, c)| *o = f64::from(f32::from_le_bytes([c[0], c[1], c[2], c[3]]))),
        Dtype::F64 => {
            pairs.for_each(|(o, c)| *o = f64::from_le_bytes([c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]]))
        }
        _ => return false,
    }
    true
}

/// All values of a float tensor; `None` if the dtype is not a float.
pub fn to_f64(view: &TensorView<'_>) -> Option<Vec<f64>> {
    let mut out = vec![0.0; view.len()];
    read_f64(view, 0, &mut out).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f8_landmarks() {
        assert_eq!(f8_e4m3(0x7e), 448.0);
        assert!(f8_e4m3(0x7f).is_nan());
        assert_eq!(f8_e4m3(0x01), 2f64.powi(-9));
        assert_eq!(f8_e4m3(0x38), 1.0);
        assert_eq!(f8_e4m3(0xb8), -1.0);
        assert_eq!(f8_e5m2(0x7b), 57344.0);
        assert_eq!(f8_e5m2(0x7c), f64::INFINITY);
        assert_eq!(f8_e5m2(0x01), 2f64.powi(-16));
        assert_eq!(f8_e5m2(0x3c), 1.0);
    }

    #[test]
    fn f8_rounding_is_nearest() {
        let r = F8Rounder::new(Dtype::F8E4M3).unwrap();
        for code in (0..=255u8).filter(|&b| f8_e4m3(b).is_finite()) {
            assert_eq!(f8_e4m3(r.round(f8_e4m3(code))), f8_e4m3(code));
        }
        assert_eq!(f8_e4m3(r.round(1e9)), 448.0);
        assert_eq!(f8_e4m3(r.round(-1e9)), -448.0);
        assert_eq!(f8_e4m3(r.round(1.06)), 1.0);
        assert_eq!(f8_e4m3(r.round(1.07)), 1.125);
    }

    #[test]
    fn every_float_dtype_reads_the_same_values() {
        let wanted = [0.0, 1.0, -2.5, 0.125];
        let f8: Vec<u8> = wanted.iter().map(|&v| F8Rounder::new(Dtype::F8E5M2).unwrap().round(v)).collect();
        let view = TensorView::new(Dtype::F8E5M2, &[4], &f8).unwrap();
        assert_eq!(to_f64(&view).unwrap(), wanted);
        let h: Vec<bf16> = wanted.iter().map(|&v| bf16::from_f64(v)).collect();
        assert_eq!(to_f64(&TensorView::from_slice(&h, &[4]).unwrap()).unwrap(), wanted);
        let h: Vec<f16> = wanted.iter().map(|&v| f16::from_f64(v)).collect();
        assert_eq!(to_f64(&TensorView::from_slice(&h, &[4]).unwrap()).unwrap(), wanted);
        assert_eq!(to_f64(&TensorView::from_slice(&wanted, &[4]).unwrap()).unwrap(), wanted);
        assert!(to_f64(&TensorView::from_slice(&[1u8, 2], &[2]).unwrap()).is_none());
    }
}

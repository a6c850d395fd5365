//! Elements as doubles, independently of the codec's own conversions.

use tenfold::Dtype;

/// The elements of a float tensor.
pub fn numbers(dtype: Dtype, data: &[u8]) -> Vec<f64> {
    data.chunks_exact(dtype.size()).map(|bytes| number(dtype, bytes)).collect()
}

fn number(dtype: Dtype, bytes: &[u8]) -> f64 {
    match (dtype, bytes) {
        (Dtype::F8E4M3, &[b]) => e4m3(b),
        // The same layout as the upper half of an f16.
        (Dtype::F8E5M2, &[b]) => half::f16::from_le_bytes([0, b]).to_f64(),
        (Dtype::F16, &[a, b]) => half::f16::from_le_bytes([a, b]).to_f64(),
        (Dtype::Bf16, &[a, b]) => half::bf16::from_le_bytes([a, b]).to_f64(),
        (Dtype::F32, &[a, b, c, d]) => f64::from(f32::from_le_bytes([a, b, c, d])),
        (Dtype::F64, &[a, b, c, d, e, f, g, h]) => f64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => panic!("{dtype} is no float"),
    }
}

/// Four bits of exponent with bias 7, three of mantissa, no infinities, NaN at all ones.
fn e4m3(bits: u8) -> f64 {
    let sign = if bits & 0x80 == 0 { 1.0 } else { -1.0 };
    let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f64::from(bits & 7));
    match (exponent, bits & 7) {
        (15, 7) => f64::NAN,
        (0, _) => sign * mantissa * 0.001953125, // 2^-9
        _ => sign * (1.0 + mantissa / 8.0) * f64::from(exponent - 7).exp2(),
    }
}

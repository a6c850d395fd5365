//! Elements as real numbers, for measuring. Exact for every dtype but 64-bit integers.

use half::{bf16, f16};
use tenfold::Dtype;

/// Reads as many elements as `out` holds; `data` must have at least their bytes.
pub(crate) fn load(dtype: Dtype, data: &[u8], out: &mut [f64]) {
    macro_rules! each {
        ($t:ty) => {
            each!($t, |v: $t| v as f64)
        };
        ($t:ty, $f:expr) => {{
            const N: usize = size_of::<$t>();
            let (chunks, _) = data.as_chunks::<N>();
            for (out, chunk) in out.iter_mut().zip(chunks) {
                *out = $f(<$t>::from_le_bytes(*chunk));
            }
        }};
    }
    match dtype {
        Dtype::Bool | Dtype::U8 => each!(u8),
        Dtype::I8 => each!(i8),
        Dtype::U16 => each!(u16),
        Dtype::I16 => each!(i16),
        Dtype::U32 => each!(u32),
        Dtype::I32 => each!(i32),
        Dtype::U64 => each!(u64),
        Dtype::I64 => each!(i64),
        Dtype::F8E4M3 => each!(u8, e4m3),
        // The upper half of an f16.
        Dtype::F8E5M2 => each!(u8, |v: u8| f16::from_bits(u16::from(v) << 8).to_f64()),
        Dtype::F16 => each!(f16, f16::to_f64),
        Dtype::Bf16 => each!(bf16, bf16::to_f64),
        Dtype::F32 => each!(f32),
        Dtype::F64 => each!(f64),
        // A dtype that came later: not a number this code can know.
        _ => out.fill(f64::NAN),
    }
}

/// FP8 E4M3 without infinities: bias 7, all ones is NaN.
fn e4m3(v: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(v >> 3 & 15), f64::from(v & 7));
    let size = match (exponent, v & 7) {
        (15, 7) => f64::NAN,
        (0, _) => mantissa * 2f64.powi(-9),
        _ => (8.0 + mantissa) * 2f64.powi(exponent - 10),
    };
    if v & 0x80 == 0 { size } else { -size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bit_floats_have_the_values_of_their_definition() {
        assert_eq!(
            [0x00, 0x01, 0x08, 0x38, 0x7e, 0xb8].map(e4m3),
            [0.0, 2f64.powi(-9), 2f64.powi(-6), 1.0, 448.0, -1.0]
        );
        assert!(e4m3(0x7f).is_nan() && e4m3(0xff).is_nan());
        let mut out = [0.0; 4];
        load(Dtype::F8E5M2, &[0x3c, 0xbc, 0x7b, 0x7c], &mut out);
        assert_eq!(out, [1.0, -1.0, 57344.0, f64::INFINITY]);
    }

    #[test]
    fn wider_types_read_little_endian() {
        let mut out = [0.0];
        load(Dtype::Bf16, &[0x80, 0xbf], &mut out);
        assert_eq!(out, [-1.0]);
        load(Dtype::I32, &(-5i32).to_le_bytes(), &mut out);
        assert_eq!(out, [-5.0]);
    }
}

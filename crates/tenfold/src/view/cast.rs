//! Conversion between stored elements and real numbers.
//!
//! Reading is exact. Writing rounds to nearest, ties to even, and stays finite: what is too large for
//! the type becomes its largest finite number (docs/format.md, 'Values').

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::Dtype;
use crate::simd::{Isa, multiversion};

/// Largest finite number of a float type.
fn largest(dtype: Dtype) -> f32 {
    match dtype {
        Dtype::F8E4M3 => 448.0,
        Dtype::F8E5M2 => 57344.0,
        Dtype::F16 => 65504.0,
        Dtype::Bf16 => f32::from_bits(0x7f7f_0000),
        _ => f32::MAX,
    }
}

/// How far numbers of a float type are apart where a finite one lies.
pub(crate) fn spacing(dtype: Dtype, v: f64) -> f64 {
    let (mantissa, least) = match dtype {
        Dtype::F8E4M3 => (3, -6),
        Dtype::F8E5M2 => (2, -14),
        Dtype::F16 => (10, -14),
        Dtype::Bf16 => (7, -126),
        Dtype::F32 => (23, -126),
        _ => (52, -1022),
    };
    let exponent = (v.to_bits() >> 52 & 0x7ff) as i32 - 1023;
    2f64.powi(exponent.max(least) - mantissa)
}

/// Reads floats in a unit, as the encoder's search takes them.
pub(crate) fn load_scaled(isa: Isa, dtype: Dtype, data: &[u8], unit: f64, out: &mut [f32]) {
    let factor = 1.0 / unit;
    match dtype {
        Dtype::F64 => {
            for (o, b) in out.iter_mut().zip(data.chunks_exact(8)) {
                // Divided: the factor itself may be out of range.
                *o = (f64_of(b) / unit) as f32;
            }
        }
        Dtype::F32 => scale_f32(isa, data, factor as f32, out),
        Dtype::Bf16 => scale_bf16(isa, data, factor as f32, out),
        _ => {
            for (o, b) in out.iter_mut().zip(data.chunks_exact(dtype.size())) {
                *o = value(dtype, b) as f32 * factor as f32;
            }
        }
    }
}

multiversion! { fn scale_f32 / scale_f32_inner(data: &[u8], factor: f32, out: &mut [f32]) }
multiversion! { fn scale_bf16 / scale_bf16_inner(data: &[u8], factor: f32, out: &mut [f32]) }

#[inline(always)]
fn scale_f32_inner(data: &[u8], factor: f32, out: &mut [f32]) {
    for (o, b) in out.iter_mut().zip(data.as_chunks::<4>().0) {
        *o = f32::from_le_bytes(*b) * factor;
    }
}

#[inline(always)]
fn scale_bf16_inner(data: &[u8], factor: f32, out: &mut [f32]) {
    for (o, b) in out.iter_mut().zip(data.as_chunks::<2>().0) {
        *o = f32::from_bits((u16::from_le_bytes(*b) as u32) << 16) * factor;
    }
}

fn f64_of(b: &[u8]) -> f64 {
    b.try_into().map_or(0.0, f64::from_le_bytes)
}

/// One element as a real number. Integers are never asked for: they are only coded losslessly.
pub(crate) fn value(dtype: Dtype, b: &[u8]) -> f64 {
    match (dtype, b) {
        (Dtype::F64, _) => f64_of(b),
        (Dtype::F32, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]) as f64,
        (Dtype::Bf16, &[a, b]) => bf16::from_le_bytes([a, b]).to_f64(),
        (Dtype::F16, &[a, b]) => f16::from_le_bytes([a, b]).to_f64(),
        (Dtype::F8E4M3, &[a]) => f8_value(a, 4, 3, true),
        (Dtype::F8E5M2, &[a]) => f8_value(a, 5, 2, false),
        _ => 0.0,
    }
}

/// Value of an 8-bit float. E4M3 has no infinities: only all ones is NaN.
fn f8_value(b: u8, exp_bits: u32, man_bits: u32, finite_only: bool) -> f64 {
    let sign = if b & 0x80 != 0 { -1.0 } else { 1.0 };
    let man = (b & ((1 << man_bits) - 1)) as f64;
    let top = (1u32 << exp_bits) - 1;
    let exp = (b as u32 >> man_bits) & top;
    let bias = (1 << (exp_bits - 1)) - 1;
    let step = 2f64.powi(exp.max(1) as i32 - bias - man_bits as i32);
    if exp == top && (!finite_only || b & 0x7f == 0x7f) {
        return if finite_only || man != 0.0 { f64::NAN } else { sign * f64::INFINITY };
    }
    let implied = if exp == 0 { 0.0 } else { (1 << man_bits) as f64 };
    sign * (implied + man) * step
}

/// Nearest 8-bit float of a number within the type's range, ties to even.
fn f8_bits(v: f32, exp_bits: u32, man_bits: u32) -> u8 {
    let sign = if v.is_sign_negative() { 0x80 } else { 0 };
    let a = v.abs();
    if a == 0.0 {
        return sign;
    }
    let bias = (1 << (exp_bits - 1)) - 1;
    // Exponent of the number, but not below that of the subnormals; then count in the type's steps.
    let exp = ((a.to_bits() >> 23) as i32 - 127).max(1 - bias);
    let steps = (a as f64 * 2f64.powi(man_bits as i32 - exp)).round_ties_even() as u32;
    // Adding instead of packing lets a carry out of the mantissa raise the exponent.
    let code = (((exp + bias - 1) as u32) << man_bits) + steps;
    sign | code as u8
}

/// Writes real numbers as elements.
pub(crate) fn store(isa: Isa, dtype: Dtype, values: &[f32], out: &mut [u8]) {
    match dtype {
        Dtype::F32 => store_f32(isa, values, out),
        Dtype::Bf16 => store_bf16(isa, values, out),
        Dtype::F16 => {
            let mut buffer = [f16::ZERO; 256];
            let top = largest(dtype);
            for (v, o) in values.chunks(256).zip(out.chunks_mut(512)) {
                let mut held = [0f32; 256];
                held.iter_mut().zip(v).for_each(|(h, v)| *h = v.clamp(-top, top));
                buffer[..v.len()].convert_from_f32_slice(&held[..v.len()]);
                o.as_chunks_mut::<2>().0.iter_mut().zip(&buffer).for_each(|(o, b)| *o = b.to_le_bytes());
            }
        }
        Dtype::F8E4M3 | Dtype::F8E5M2 => {
            let top = largest(dtype);
            let (e, m) = if dtype == Dtype::F8E4M3 { (4, 3) } else { (5, 2) };
            out.iter_mut().zip(values).for_each(|(o, v)| *o = f8_bits(v.clamp(-top, top), e, m));
        }
        _ => {}
    }
}

multiversion! { fn store_f32 / store_f32_inner(values: &[f32], out: &mut [u8]) }
multiversion! { fn store_bf16 / store_bf16_inner(values: &[f32], out: &mut [u8]) }

#[inline(always)]
fn store_f32_inner(values: &[f32], out: &mut [u8]) {
    for (o, v) in out.as_chunks_mut::<4>().0.iter_mut().zip(values) {
        *o = v.clamp(-f32::MAX, f32::MAX).to_le_bytes();
    }
}

#[inline(always)]
fn store_bf16_inner(values: &[f32], out: &mut [u8]) {
    // The largest number that still rounds down to the largest finite bf16 is the clamp itself.
    let top = f32::from_bits(0x7f7f_0000);
    for (o, v) in out.as_chunks_mut::<2>().0.iter_mut().zip(values) {
        let bits = v.clamp(-top, top).to_bits();
        let round = 0x7fff + ((bits >> 16) & 1);
        *o = ((bits.wrapping_add(round) >> 16) as u16).to_le_bytes();
    }
}

/// Writes f64 elements.
pub(crate) fn store_f64(values: &[f64], out: &mut [u8]) {
    for (o, v) in out.as_chunks_mut::<8>().0.iter_mut().zip(values) {
        *o = v.clamp(-f64::MAX, f64::MAX).to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bit_floats_come_back_and_round_to_nearest() {
        for dtype in [Dtype::F8E4M3, Dtype::F8E5M2] {
            let finite: Vec<(u8, f64)> =
                (0..=255u8).map(|b| (b, value(dtype, &[b]))).filter(|(_, v)| v.is_finite()).collect();
            for &(b, v) in &finite {
                let mut out = [0u8];
                store(Isa::Plain, dtype, &[v as f32], &mut out);
                assert_eq!(out[0], b, "{dtype} {b:#x} = {v}");
            }
            // Every number between two neighbours goes to the nearer; the middle to the even one.
            let mut up: Vec<(u8, f64)> = finite.into_iter().filter(|(b, _)| *b < 0x80).collect();
            up.sort_by(|a, b| a.1.total_cmp(&b.1));
            for w in up.windows(2) {
                let middle = (w[0].1 + w[1].1) / 2.0;
                let even = if w[0].0 & 1 == 0 { w[0].0 } else { w[1].0 };
                let cases = [(middle, even), (middle * 1.001, w[1].0), (middle * 0.999, w[0].0)];
                for (v, expect) in cases {
                    let mut out = [0u8];
                    store(Isa::Plain, dtype, &[v as f32], &mut out);
                    assert_eq!(out[0], expect, "{dtype} {v}");
                }
            }
        }
        assert_eq!(value(Dtype::F8E4M3, &[0x7e]), 448.0);
        assert_eq!(value(Dtype::F8E5M2, &[0x7b]), 57344.0);
        assert!(value(Dtype::F8E4M3, &[0x7f]).is_nan());
        assert_eq!(value(Dtype::F8E5M2, &[0xfc]), f64::NEG_INFINITY);
    }

    #[test]
    fn writing_stays_finite_and_paths_agree() {
        let values: Vec<f32> = (0..1000)
            .map(|i| f32::from_bits((i as u32).wrapping_mul(0x9e37_79b9)))
            .filter(|v| !v.is_nan())
            .chain([3e38, -3.4e38, f32::MAX, 1e-40, -0.0, 65520.0, 460.0, 1e6])
            .collect();
        for dtype in [Dtype::F8E4M3, Dtype::F8E5M2, Dtype::F16, Dtype::Bf16, Dtype::F32] {
            let mut plain = vec![0u8; values.len() * dtype.size()];
            store(Isa::Plain, dtype, &values, &mut plain);
            assert!(plain.chunks_exact(dtype.size()).all(|b| value(dtype, b).is_finite()));
            for path in Isa::available() {
                let mut out = vec![0u8; plain.len()];
                store(path, dtype, &values, &mut out);
                assert_eq!(out, plain);
            }
        }
    }
}

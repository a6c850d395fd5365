//! The arithmetic of layers on the host: sums of working values that stay finite, and what is not finite through them untouched.

use crate::prepare::Elements;
use crate::simd::Isa;
use crate::view::Dtype;

/// A working precision that layers are added in.
trait Working: bytemuck::Pod {
    /// Sum so far and the next layer: finite sums stay so, and what is not finite stays what it is.
    fn plus(self, next: Self) -> Self;

    /// What is left of a value beside a sum so far; 0 where either is not finite.
    fn minus(self, sum: Self) -> Self;
}

macro_rules! working {
    ($t:ident) => {
        impl Working for $t {
            #[inline(always)]
            fn plus(self, next: $t) -> $t {
                let sum = (self + next).clamp(-$t::MAX, $t::MAX);
                let rest = if next.is_finite() { sum } else { next };
                if self.is_finite() { rest } else { self }
            }

            #[inline(always)]
            fn minus(self, sum: $t) -> $t {
                let left = (self - sum).clamp(-$t::MAX, $t::MAX);
                if self.is_finite() && sum.is_finite() { left } else { 0.0 }
            }
        }
    };
}

working!(f32);
working!(f64);

/// Adds values of a working dtype to others.
pub(super) fn add(dtype: Dtype, sum: &mut [u8], next: &[u8]) {
    fn each<R: Working>(sum: &mut [u8], next: &[u8]) {
        let size = size_of::<R>();
        for (sum, next) in sum.chunks_exact_mut(size).zip(next.chunks_exact(size)) {
            let joined = read::<R>(sum).plus(read(next));
            sum.copy_from_slice(bytemuck::bytes_of(&joined));
        }
    }
    if dtype == Dtype::F64 { each::<f64>(sum, next) } else { each::<f32>(sum, next) }
}

/// Subtracts sums of layers from values of a working dtype.
pub(super) fn subtract(dtype: Dtype, whole: &[u8], sum: &[u8], out: &mut [u8]) {
    fn each<R: Working>(whole: &[u8], sum: &[u8], out: &mut [u8]) {
        let size = size_of::<R>();
        let both = whole.chunks_exact(size).zip(sum.chunks_exact(size));
        for (out, (whole, sum)) in out.chunks_exact_mut(size).zip(both) {
            let left = read::<R>(whole).minus(read(sum));
            out.copy_from_slice(bytemuck::bytes_of(&left));
        }
    }
    if dtype == Dtype::F64 { each::<f64>(whole, sum, out) } else { each::<f32>(whole, sum, out) }
}

/// A value wherever it lies: a caller's bytes need not be aligned.
#[inline(always)]
fn read<R: Working>(bytes: &[u8]) -> R {
    bytemuck::pod_read_unaligned(bytes)
}

/// Rounds sums to elements narrower than f32.
pub(super) fn round(isa: Isa, dtype: Dtype, sums: &[f32], out: &mut [u8]) {
    f32::store(isa, dtype, sums, out);
    // Storing keeps numbers finite.
    for (v, o) in sums.iter().zip(out.chunks_exact_mut(dtype.size())).filter(|(v, _)| !v.is_finite()) {
        narrow(dtype, *v, o);
    }
}

/// Bits of the mantissa of a dtype narrower than f32.
fn mantissa(dtype: Dtype) -> u32 {
    match dtype {
        Dtype::F8E4M3 => 3,
        Dtype::F8E5M2 => 2,
        Dtype::F16 => 10,
        _ => 7,
    }
}

/// Elements narrower than f32 as f32. What is not finite keeps its sign and its mantissa, so that [`narrow`] gives the same bits.
pub(super) fn widen(isa: Isa, dtype: Dtype, data: &[u8], out: &mut [f32]) {
    f32::load(isa, dtype, data, out);
    let bits = mantissa(dtype);
    for (v, b) in out.iter_mut().zip(data.chunks_exact(dtype.size())).filter(|(v, _)| !v.is_finite()) {
        let element = b.iter().rev().fold(0u32, |bits, &b| bits << 8 | u32::from(b));
        let sign = element >> (8 * dtype.size() - 1);
        let rest = element & ((1 << bits) - 1);
        *v = f32::from_bits(sign << 31 | 0xff << 23 | rest << (23 - bits));
    }
}

/// What is not finite as an element narrower than f32. E4M3 has no infinities: its largest numbers stand for them.
fn narrow(dtype: Dtype, v: f32, out: &mut [u8]) {
    let bits = mantissa(dtype);
    let sign = v.to_bits() >> 31 << (8 * dtype.size() - 1);
    let rest = match v.is_nan() {
        true => (v.to_bits() & 0x7f_ffff) >> (23 - bits),
        false => 0,
    };
    let element = match (dtype, v.is_nan()) {
        (Dtype::F8E4M3, nan) => sign | if nan { 0x7f } else { 0x7e },
        (_, true) if rest == 0 => top(dtype) | sign | 1 << (bits - 1),
        _ => top(dtype) | sign | rest,
    };
    out.copy_from_slice(&element.to_le_bytes()[..out.len()]);
}

/// The exponent of what is not finite, in its place.
fn top(dtype: Dtype) -> u32 {
    let bits = mantissa(dtype);
    ((1 << (8 * dtype.size() as u32 - 1 - bits)) - 1) << bits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::value;

    /// Every element of the small dtypes comes back, NaN by NaN.
    #[test]
    fn elements_survive_f32() {
        for dtype in [Dtype::F8E4M3, Dtype::F8E5M2, Dtype::F16, Dtype::Bf16] {
            for bits in 0..1u32 << (8 * dtype.size()) {
                let bytes = &bits.to_le_bytes()[..dtype.size()];
                let (mut wide, mut back) = ([0f32], vec![0u8; dtype.size()]);
                widen(Isa::Plain, dtype, bytes, &mut wide);
                assert_eq!(wide[0].is_finite(), value(dtype, bytes).is_finite());
                round(Isa::Plain, dtype, &wide, &mut back);
                assert_eq!(back, bytes, "{dtype} {bits:#x}");
            }
        }
    }

    #[test]
    fn a_nan_of_low_bits_stays_one() {
        for (dtype, want) in [(Dtype::F16, 0xfe00u32), (Dtype::Bf16, 0xffc0), (Dtype::F8E5M2, 0xfe)] {
            let mut out = vec![0u8; dtype.size()];
            round(Isa::Plain, dtype, &[f32::from_bits(0xff80_0001)], &mut out);
            assert_eq!(out, want.to_le_bytes()[..dtype.size()], "{dtype}");
        }
    }

    #[test]
    fn sums_stay_finite_unless_a_layer_is_not() {
        assert_eq!(f32::MAX.plus(f32::MAX), f32::MAX);
        assert_eq!(f32::INFINITY.plus(f32::NEG_INFINITY), f32::INFINITY);
        assert_eq!(1f64.plus(f64::NEG_INFINITY), f64::NEG_INFINITY);
        assert!(1f64.plus(f64::NAN).is_nan() && f64::NAN.plus(1.0).is_nan());
        assert_eq!(f32::NAN.minus(f32::NAN), 0.0);
        assert_eq!(f32::MAX.minus(f32::MIN), f32::MAX);
    }
}

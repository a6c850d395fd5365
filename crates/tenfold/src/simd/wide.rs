//! Sixteen lanes of f32 or i32 as one value: plain arrays, two AVX2 registers, or one AVX-512 register.
//!
//! Only what the encoder's search needs. Each operation rounds as IEEE 754 says and none is fused, so
//! the three kinds give the same bits; the tests of `quant` compare them.
#![allow(unsafe_code)]

/// Number of lanes.
pub(crate) const WIDTH: usize = 16;

/// Sixteen lanes. Implementations with intrinsics must only be used inside a function compiled for
/// their instruction set; `multiversion`-like wrappers beside each use see to that.
pub(crate) trait Wide: Copy {
    /// Sixteen f32.
    type F: Copy;
    /// Sixteen i32.
    type I: Copy;
    /// Sixteen truth values.
    type M: Copy;

    fn load(a: &[f32; WIDTH]) -> Self::F;
    fn store(v: Self::F, a: &mut [f32; WIDTH]);
    fn splat(v: f32) -> Self::F;
    fn abs(v: Self::F) -> Self::F;
    fn add(a: Self::F, b: Self::F) -> Self::F;
    fn sub(a: Self::F, b: Self::F) -> Self::F;
    fn mul(a: Self::F, b: Self::F) -> Self::F;
    fn lt(a: Self::F, b: Self::F) -> Self::M;
    /// `b` where the mask is set, else `a`.
    fn pick(m: Self::M, a: Self::F, b: Self::F) -> Self::F;
    fn bits(m: Self::M) -> u16;

    fn load_i(a: &[i32; WIDTH]) -> Self::I;
    fn store_i(v: Self::I, a: &mut [i32; WIDTH]);
    fn splat_i(v: i32) -> Self::I;
    fn add_i(a: Self::I, b: Self::I) -> Self::I;
    fn min_i(a: Self::I, b: Self::I) -> Self::I;
    fn max_i(a: Self::I, b: Self::I) -> Self::I;
    fn or_i(a: Self::I, b: Self::I) -> Self::I;
    fn shl_i<const N: i32>(a: Self::I) -> Self::I;
    /// Zero where the mask is set.
    fn zero_where(m: Self::M, a: Self::I) -> Self::I;
    /// Towards zero; every lane must lie within the range of an i32.
    fn trunc(v: Self::F) -> Self::I;
    fn to_f(v: Self::I) -> Self::F;
    fn and_i(a: Self::I, b: Self::I) -> Self::I;
    fn xor_i(a: Self::I, b: Self::I) -> Self::I;
    fn sub_i(a: Self::I, b: Self::I) -> Self::I;
    /// Logical shift right by a count of its own for each lane, below 32.
    fn shr_each(a: Self::I, n: Self::I) -> Self::I;
    /// Where `m` is not zero `b`, else `a`.
    fn pick_i(m: Self::I, a: Self::I, b: Self::I) -> Self::I;
    /// −a where x is negative, else a.
    fn with_sign(a: Self::I, x: Self::F) -> Self::I;
    /// `table[i & 15]` in each lane.
    fn look_up(table: &[i32; 16], i: Self::I) -> Self::I;
    /// `table[i & (N − 1)]` in each lane; N is a power of two. One more entry must follow the N.
    fn gather_u16<const N: usize>(table: &[u16], i: Self::I) -> Self::I;
    /// Nearest bf16 of finite numbers, ties to even.
    fn to_bf16(v: Self::F, out: &mut [u8; 2 * WIDTH]);
    fn clamp(v: Self::F, top: f32) -> Self::F;
    fn abs_i(a: Self::I) -> Self::I;
    /// `table[i & (N − 1)]` in each lane; N is a power of two.
    fn gather<const N: usize>(table: &[f32; N], i: Self::I) -> Self::F;
}

/// Portable lanes.
#[derive(Clone, Copy)]
pub(crate) struct Plain;

#[inline(always)]
fn map<T: Copy, U: Copy + Default>(a: [T; WIDTH], f: impl Fn(T) -> U) -> [U; WIDTH] {
    let mut out = [U::default(); WIDTH];
    for l in 0..WIDTH {
        out[l] = f(a[l]);
    }
    out
}

#[inline(always)]
fn zip<T: Copy, U: Copy + Default>(a: [T; WIDTH], b: [T; WIDTH], f: impl Fn(T, T) -> U) -> [U; WIDTH] {
    let mut out = [U::default(); WIDTH];
    for l in 0..WIDTH {
        out[l] = f(a[l], b[l]);
    }
    out
}

#[rustfmt::skip]
impl Wide for Plain {
    type F = [f32; WIDTH];
    type I = [i32; WIDTH];
    type M = [bool; WIDTH];

    #[inline(always)] fn load(a: &[f32; WIDTH]) -> Self::F { *a }
    #[inline(always)] fn store(v: Self::F, a: &mut [f32; WIDTH]) { *a = v }
    #[inline(always)] fn splat(v: f32) -> Self::F { [v; WIDTH] }
    #[inline(always)] fn abs(v: Self::F) -> Self::F { map(v, f32::abs) }
    #[inline(always)] fn add(a: Self::F, b: Self::F) -> Self::F { zip(a, b, |a, b| a + b) }
    #[inline(always)] fn sub(a: Self::F, b: Self::F) -> Self::F { zip(a, b, |a, b| a - b) }
    #[inline(always)] fn mul(a: Self::F, b: Self::F) -> Self::F { zip(a, b, |a, b| a * b) }
    #[inline(always)] fn lt(a: Self::F, b: Self::F) -> Self::M { zip(a, b, |a, b| a < b) }
    #[inline(always)] fn pick(m: Self::M, a: Self::F, b: Self::F) -> Self::F {
        let mut out = a;
        for l in 0..WIDTH { if m[l] { out[l] = b[l]; } }
        out
    }
    #[inline(always)] fn bits(m: Self::M) -> u16 {
        let mut w = 0;
        for (l, &set) in m.iter().enumerate() { w |= (set as u16) << l; }
        w
    }
    #[inline(always)] fn load_i(a: &[i32; WIDTH]) -> Self::I { *a }
    #[inline(always)] fn store_i(v: Self::I, a: &mut [i32; WIDTH]) { *a = v }
    #[inline(always)] fn splat_i(v: i32) -> Self::I { [v; WIDTH] }
    #[inline(always)] fn add_i(a: Self::I, b: Self::I) -> Self::I { zip(a, b, i32::wrapping_add) }
    #[inline(always)] fn min_i(a: Self::I, b: Self::I) -> Self::I { zip(a, b, i32::min) }
    #[inline(always)] fn max_i(a: Self::I, b: Self::I) -> Self::I { zip(a, b, i32::max) }
    #[inline(always)] fn or_i(a: Self::I, b: Self::I) -> Self::I { zip(a, b, |a, b| a | b) }
    #[inline(always)] fn shl_i<const N: i32>(a: Self::I) -> Self::I { map(a, |a| a << N) }
    #[inline(always)] fn zero_where(m: Self::M, a: Self::I) -> Self::I {
        let mut out = a;
        for l in 0..WIDTH { if m[l] { out[l] = 0; } }
        out
    }
    #[inline(always)] fn and_i(a: Self::I, b: Self::I) -> Self::I { zip(a, b, |a, b| a & b) }
    #[inline(always)] fn xor_i(a: Self::I, b: Self::I) -> Self::I { zip(a, b, |a, b| a ^ b) }
    #[inline(always)] fn sub_i(a: Self::I, b: Self::I) -> Self::I { zip(a, b, i32::wrapping_sub) }
    #[inline(always)] fn shr_each(a: Self::I, n: Self::I) -> Self::I { zip(a, n, |a, n| ((a as u32) >> (n & 31)) as i32) }
    #[inline(always)] fn pick_i(m: Self::I, a: Self::I, b: Self::I) -> Self::I {
        let mut out = a;
        for l in 0..WIDTH { if m[l] != 0 { out[l] = b[l]; } }
        out
    }
    #[inline(always)] fn with_sign(a: Self::I, x: Self::F) -> Self::I {
        let mut out = a;
        for l in 0..WIDTH { if x[l] < 0.0 { out[l] = -a[l]; } }
        out
    }
    #[inline(always)] fn look_up(table: &[i32; 16], i: Self::I) -> Self::I { map(i, |i| table[i as usize & 15]) }
    #[inline(always)] fn gather_u16<const N: usize>(table: &[u16], i: Self::I) -> Self::I {
        assert!(table.len() > N);
        map(i, |i| table[i as usize & (N - 1)] as i32)
    }
    #[inline(always)] fn to_bf16(v: Self::F, out: &mut [u8; 2 * WIDTH]) {
        for (v, out) in v.iter().zip(out.as_chunks_mut::<2>().0) {
            let bits = v.to_bits();
            *out = ((bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16) as u16).to_le_bytes();
        }
    }
    #[inline(always)] fn clamp(v: Self::F, top: f32) -> Self::F { map(v, |v| v.clamp(-top, top)) }
    #[inline(always)] fn abs_i(a: Self::I) -> Self::I { map(a, |a| a.wrapping_abs()) }
    #[inline(always)] fn trunc(v: Self::F) -> Self::I { map(v, |v| v as i32) }
    #[inline(always)] fn to_f(v: Self::I) -> Self::F { map(v, |v| v as f32) }
    #[inline(always)] fn gather<const N: usize>(table: &[f32; N], i: Self::I) -> Self::F {
        map(i, |i| table[i as usize & (N - 1)])
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{WIDTH, Wide};

    /// One AVX-512 register.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx512;

    // SAFETY (all blocks below): the module's rule that these types are only used inside functions
    // compiled for their instruction set; loads and stores go through references of the full width;
    // gathers mask the index to the table's length.
    #[rustfmt::skip]
    impl Wide for Avx512 {
        type F = __m512;
        type I = __m512i;
        type M = __mmask16;

        #[inline(always)] fn load(a: &[f32; WIDTH]) -> Self::F { unsafe { _mm512_loadu_ps(a.as_ptr()) } }
        #[inline(always)] fn store(v: Self::F, a: &mut [f32; WIDTH]) { unsafe { _mm512_storeu_ps(a.as_mut_ptr(), v) } }
        #[inline(always)] fn splat(v: f32) -> Self::F { unsafe { _mm512_set1_ps(v) } }
        #[inline(always)] fn abs(v: Self::F) -> Self::F { unsafe { _mm512_abs_ps(v) } }
        #[inline(always)] fn add(a: Self::F, b: Self::F) -> Self::F { unsafe { _mm512_add_ps(a, b) } }
        #[inline(always)] fn sub(a: Self::F, b: Self::F) -> Self::F { unsafe { _mm512_sub_ps(a, b) } }
        #[inline(always)] fn mul(a: Self::F, b: Self::F) -> Self::F { unsafe { _mm512_mul_ps(a, b) } }
        #[inline(always)] fn lt(a: Self::F, b: Self::F) -> Self::M { unsafe { _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b) } }
        #[inline(always)] fn pick(m: Self::M, a: Self::F, b: Self::F) -> Self::F { unsafe { _mm512_mask_blend_ps(m, a, b) } }
        #[inline(always)] fn bits(m: Self::M) -> u16 { m }
        #[inline(always)] fn load_i(a: &[i32; WIDTH]) -> Self::I { unsafe { _mm512_loadu_si512(a.as_ptr().cast()) } }
        #[inline(always)] fn store_i(v: Self::I, a: &mut [i32; WIDTH]) { unsafe { _mm512_storeu_si512(a.as_mut_ptr().cast(), v) } }
        #[inline(always)] fn splat_i(v: i32) -> Self::I { unsafe { _mm512_set1_epi32(v) } }
        #[inline(always)] fn add_i(a: Self::I, b: Self::I) -> Self::I { unsafe { _mm512_add_epi32(a, b) } }
        #[inline(always)] fn min_i(a: Self::I, b: Self::I) -> Self::I { unsafe { _mm512_min_epi32(a, b) } }
        #[inline(always)] fn max_i(a: Self::I, b: Self::I) -> Self::I { unsafe { _mm512_max_epi32(a, b) } }
        #[inline(always)] fn or_i(a: Self::I, b: Self::I) -> Self::I { unsafe { _mm512_or_si512(a, b) } }
        #[inline(always)] fn shl_i<const N: i32>(a: Self::I) -> Self::I { unsafe { _mm512_sll_epi32(a, _mm_cvtsi32_si128(N)) } }
        #[inline(always)] fn zero_where(m: Self::M, a: Self::I) -> Self::I { unsafe { _mm512_maskz_mov_epi32(!m, a) } }
        #[inline(always)] fn and_i(a: Self::I, b: Self::I) -> Self::I { unsafe { _mm512_and_si512(a, b) } }
        #[inline(always)] fn xor_i(a: Self::I, b: Self::I) -> Self::I { unsafe { _mm512_xor_si512(a, b) } }
        #[inline(always)] fn sub_i(a: Self::I, b: Self::I) -> Self::I { unsafe { _mm512_sub_epi32(a, b) } }
        #[inline(always)] fn shr_each(a: Self::I, n: Self::I) -> Self::I { unsafe { _mm512_srlv_epi32(a, n) } }
        #[inline(always)] fn pick_i(m: Self::I, a: Self::I, b: Self::I) -> Self::I { unsafe { _mm512_mask_blend_epi32(_mm512_test_epi32_mask(m, m), a, b) } }
        #[inline(always)] fn with_sign(a: Self::I, x: Self::F) -> Self::I {
            unsafe {
                let below = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(x, _mm512_setzero_ps());
                _mm512_mask_sub_epi32(a, below, _mm512_setzero_si512(), a)
            }
        }
        #[inline(always)] fn look_up(table: &[i32; 16], i: Self::I) -> Self::I { unsafe { _mm512_permutexvar_epi32(i, _mm512_loadu_si512(table.as_ptr().cast())) } }
        #[inline(always)] fn gather_u16<const N: usize>(table: &[u16], i: Self::I) -> Self::I {
            const { assert!(N.is_power_of_two()) };
            assert!(table.len() > N);
            unsafe {
                let i = _mm512_and_si512(i, _mm512_set1_epi32(N as i32 - 1));
                // Each lane reads the entry and the one behind it.
                _mm512_and_si512(_mm512_i32gather_epi32::<2>(i, table.as_ptr().cast()), _mm512_set1_epi32(0xffff))
            }
        }
        #[inline(always)] fn to_bf16(v: Self::F, out: &mut [u8; 2 * WIDTH]) {
            unsafe {
                let bits = _mm512_castps_si512(v);
                let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
                let sum = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
                _mm256_storeu_si256(out.as_mut_ptr().cast(), _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(sum)));
            }
        }
        #[inline(always)] fn clamp(v: Self::F, top: f32) -> Self::F { unsafe { _mm512_min_ps(_mm512_max_ps(v, _mm512_set1_ps(-top)), _mm512_set1_ps(top)) } }
        #[inline(always)] fn abs_i(a: Self::I) -> Self::I { unsafe { _mm512_abs_epi32(a) } }
        #[inline(always)] fn trunc(v: Self::F) -> Self::I { unsafe { _mm512_cvttps_epi32(v) } }
        #[inline(always)] fn to_f(v: Self::I) -> Self::F { unsafe { _mm512_cvtepi32_ps(v) } }
        #[inline(always)] fn gather<const N: usize>(table: &[f32; N], i: Self::I) -> Self::F {
            const { assert!(N.is_power_of_two()) };
            unsafe {
                let i = _mm512_and_si512(i, _mm512_set1_epi32(N as i32 - 1));
                _mm512_i32gather_ps::<4>(i, table.as_ptr())
            }
        }
    }

    /// Two AVX2 registers.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx2;

    // SAFETY: as above.
    #[rustfmt::skip]
    impl Wide for Avx2 {
        type F = [__m256; 2];
        type I = [__m256i; 2];
        type M = [__m256; 2];

        #[inline(always)] fn load(a: &[f32; WIDTH]) -> Self::F { unsafe { [_mm256_loadu_ps(a.as_ptr()), _mm256_loadu_ps(a.as_ptr().add(8))] } }
        #[inline(always)] fn store(v: Self::F, a: &mut [f32; WIDTH]) { unsafe { _mm256_storeu_ps(a.as_mut_ptr(), v[0]); _mm256_storeu_ps(a.as_mut_ptr().add(8), v[1]) } }
        #[inline(always)] fn splat(v: f32) -> Self::F { unsafe { [_mm256_set1_ps(v); 2] } }
        #[inline(always)] fn abs(v: Self::F) -> Self::F { unsafe { let s = _mm256_set1_ps(-0.0); [_mm256_andnot_ps(s, v[0]), _mm256_andnot_ps(s, v[1])] } }
        #[inline(always)] fn add(a: Self::F, b: Self::F) -> Self::F { unsafe { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] } }
        #[inline(always)] fn sub(a: Self::F, b: Self::F) -> Self::F { unsafe { [_mm256_sub_ps(a[0], b[0]), _mm256_sub_ps(a[1], b[1])] } }
        #[inline(always)] fn mul(a: Self::F, b: Self::F) -> Self::F { unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] } }
        #[inline(always)] fn lt(a: Self::F, b: Self::F) -> Self::M { unsafe { [_mm256_cmp_ps::<_CMP_LT_OQ>(a[0], b[0]), _mm256_cmp_ps::<_CMP_LT_OQ>(a[1], b[1])] } }
        #[inline(always)] fn pick(m: Self::M, a: Self::F, b: Self::F) -> Self::F { unsafe { [_mm256_blendv_ps(a[0], b[0], m[0]), _mm256_blendv_ps(a[1], b[1], m[1])] } }
        #[inline(always)] fn bits(m: Self::M) -> u16 { unsafe { (_mm256_movemask_ps(m[0]) | _mm256_movemask_ps(m[1]) << 8) as u16 } }
        #[inline(always)] fn load_i(a: &[i32; WIDTH]) -> Self::I { unsafe { [_mm256_loadu_si256(a.as_ptr().cast()), _mm256_loadu_si256(a.as_ptr().add(8).cast())] } }
        #[inline(always)] fn store_i(v: Self::I, a: &mut [i32; WIDTH]) { unsafe { _mm256_storeu_si256(a.as_mut_ptr().cast(), v[0]); _mm256_storeu_si256(a.as_mut_ptr().add(8).cast(), v[1]) } }
        #[inline(always)] fn splat_i(v: i32) -> Self::I { unsafe { [_mm256_set1_epi32(v); 2] } }
        #[inline(always)] fn add_i(a: Self::I, b: Self::I) -> Self::I { unsafe { [_mm256_add_epi32(a[0], b[0]), _mm256_add_epi32(a[1], b[1])] } }
        #[inline(always)] fn min_i(a: Self::I, b: Self::I) -> Self::I { unsafe { [_mm256_min_epi32(a[0], b[0]), _mm256_min_epi32(a[1], b[1])] } }
        #[inline(always)] fn max_i(a: Self::I, b: Self::I) -> Self::I { unsafe { [_mm256_max_epi32(a[0], b[0]), _mm256_max_epi32(a[1], b[1])] } }
        #[inline(always)] fn or_i(a: Self::I, b: Self::I) -> Self::I { unsafe { [_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])] } }
        #[inline(always)] fn shl_i<const N: i32>(a: Self::I) -> Self::I { unsafe { let n = _mm_cvtsi32_si128(N); [_mm256_sll_epi32(a[0], n), _mm256_sll_epi32(a[1], n)] } }
        #[inline(always)] fn zero_where(m: Self::M, a: Self::I) -> Self::I { unsafe { [_mm256_andnot_si256(_mm256_castps_si256(m[0]), a[0]), _mm256_andnot_si256(_mm256_castps_si256(m[1]), a[1])] } }
        #[inline(always)] fn and_i(a: Self::I, b: Self::I) -> Self::I { unsafe { [_mm256_and_si256(a[0], b[0]), _mm256_and_si256(a[1], b[1])] } }
        #[inline(always)] fn xor_i(a: Self::I, b: Self::I) -> Self::I { unsafe { [_mm256_xor_si256(a[0], b[0]), _mm256_xor_si256(a[1], b[1])] } }
        #[inline(always)] fn sub_i(a: Self::I, b: Self::I) -> Self::I { unsafe { [_mm256_sub_epi32(a[0], b[0]), _mm256_sub_epi32(a[1], b[1])] } }
        #[inline(always)] fn shr_each(a: Self::I, n: Self::I) -> Self::I { unsafe { [_mm256_srlv_epi32(a[0], n[0]), _mm256_srlv_epi32(a[1], n[1])] } }
        #[inline(always)] fn pick_i(m: Self::I, a: Self::I, b: Self::I) -> Self::I {
            unsafe {
                let pick = |m, a, b| _mm256_blendv_epi8(b, a, _mm256_cmpeq_epi32(m, _mm256_setzero_si256()));
                [pick(m[0], a[0], b[0]), pick(m[1], a[1], b[1])]
            }
        }
        #[inline(always)] fn with_sign(a: Self::I, x: Self::F) -> Self::I {
            unsafe {
                let flip = |a, x| {
                    let below = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_LT_OQ>(x, _mm256_setzero_ps()));
                    _mm256_sub_epi32(_mm256_xor_si256(a, below), below)
                };
                [flip(a[0], x[0]), flip(a[1], x[1])]
            }
        }
        #[inline(always)] fn look_up(table: &[i32; 16], i: Self::I) -> Self::I {
            unsafe {
                let (low, high) = (_mm256_loadu_si256(table.as_ptr().cast()), _mm256_loadu_si256(table.as_ptr().add(8).cast()));
                let find = |i| {
                    let upper = _mm256_slli_epi32::<28>(i);
                    let (a, b) = (_mm256_permutevar8x32_epi32(low, i), _mm256_permutevar8x32_epi32(high, i));
                    _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), _mm256_castsi256_ps(upper)))
                };
                [find(i[0]), find(i[1])]
            }
        }
        #[inline(always)] fn gather_u16<const N: usize>(table: &[u16], i: Self::I) -> Self::I {
            const { assert!(N.is_power_of_two()) };
            assert!(table.len() > N);
            unsafe {
                let get = |i| {
                    let i = _mm256_and_si256(i, _mm256_set1_epi32(N as i32 - 1));
                    _mm256_and_si256(_mm256_i32gather_epi32::<2>(table.as_ptr().cast(), i), _mm256_set1_epi32(0xffff))
                };
                [get(i[0]), get(i[1])]
            }
        }
        #[inline(always)] fn to_bf16(v: Self::F, out: &mut [u8; 2 * WIDTH]) {
            unsafe {
                let half = |v| {
                    let bits = _mm256_castps_si256(v);
                    let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
                    let sum = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
                    _mm256_srli_epi32::<16>(sum)
                };
                // The pack works within 128-bit halves.
                let packed = _mm256_permute4x64_epi64::<0b1101_1000>(_mm256_packus_epi32(half(v[0]), half(v[1])));
                _mm256_storeu_si256(out.as_mut_ptr().cast(), packed);
            }
        }
        #[inline(always)] fn clamp(v: Self::F, top: f32) -> Self::F {
            unsafe {
                let (low, high) = (_mm256_set1_ps(-top), _mm256_set1_ps(top));
                [_mm256_min_ps(_mm256_max_ps(v[0], low), high), _mm256_min_ps(_mm256_max_ps(v[1], low), high)]
            }
        }
        #[inline(always)] fn abs_i(a: Self::I) -> Self::I { unsafe { [_mm256_abs_epi32(a[0]), _mm256_abs_epi32(a[1])] } }
        #[inline(always)] fn trunc(v: Self::F) -> Self::I { unsafe { [_mm256_cvttps_epi32(v[0]), _mm256_cvttps_epi32(v[1])] } }
        #[inline(always)] fn to_f(v: Self::I) -> Self::F { unsafe { [_mm256_cvtepi32_ps(v[0]), _mm256_cvtepi32_ps(v[1])] } }
        #[inline(always)] fn gather<const N: usize>(table: &[f32; N], i: Self::I) -> Self::F {
            const { assert!(N.is_power_of_two()) };
            unsafe {
                let top = _mm256_set1_epi32(N as i32 - 1);
                [_mm256_i32gather_ps::<4>(table.as_ptr(), _mm256_and_si256(i[0], top)),
                 _mm256_i32gather_ps::<4>(table.as_ptr(), _mm256_and_si256(i[1], top))]
            }
        }
    }
}
#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

//! Multiples of the step to elements. Normative: docs/format.md, 'Values'.

use super::params::{LevelsParams, OFFSETS, UNITS};
use crate::simd::wide::{WIDTH, Wide};
use crate::simd::{Isa, widen};
use crate::view::{Dtype, store, store_f64};

/// Everything that turns an integer into a real number.
#[derive(Debug, Clone)]
pub(crate) struct Dequant {
    pub dtype: Dtype,
    pub scale: f64,
    /// What to take off 64·|m|, by min(|m|, 8); entry 0 is 0.
    offsets: [i32; 16],
}

/// Values dequantised at a time, so that intermediate results stay in the fastest cache.
pub(crate) const CHUNK: usize = 2048;

impl Dequant {
    pub(crate) fn new(dtype: Dtype, scale: f64, offsets: &[i8; OFFSETS]) -> Self {
        let mut table = [0; 16];
        table[1..=OFFSETS].iter_mut().zip(offsets).for_each(|(t, &o)| *t = o as i32);
        Dequant { dtype, scale, offsets: table }
    }

    pub(crate) fn from_params(dtype: Dtype, params: &LevelsParams) -> Self {
        Dequant::new(dtype, params.scale, &params.offsets)
    }

    /// The offsets as a header holds them.
    pub(crate) fn stored_offsets(&self) -> [i8; OFFSETS] {
        let mut out = [0; OFFSETS];
        out.iter_mut().zip(&self.offsets[1..]).for_each(|(o, &t)| *o = t as i8);
        out
    }

    /// Writes `m.len()` elements (at most [`CHUNK`]).
    pub(crate) fn write(&self, isa: Isa, m: &[i32], out: &mut [u8]) {
        if self.dtype == Dtype::F64 {
            let mut real = [0f64; CHUNK];
            real.iter_mut().zip(m).for_each(|(r, &m)| *r = self.units(m) as f64 * self.scale);
            store_f64(&real[..m.len().min(CHUNK)], out);
            return;
        }
        if self.dtype == Dtype::Bf16 {
            let done = bf16_rows(isa, m, self.scale as f32, &self.offsets, out);
            if done < m.len() {
                self.write_rest(isa, &m[done..], &mut out[done * 2..]);
            }
            return;
        }
        self.write_rest(isa, m, out);
    }

    fn write_rest(&self, isa: Isa, m: &[i32], out: &mut [u8]) {
        let mut real = [0f32; CHUNK];
        let real = &mut real[..m.len().min(CHUNK)];
        self.real(isa, m, real);
        store(isa, self.dtype, real, out);
    }

    /// The real numbers before they are rounded to the dtype.
    pub(crate) fn real(&self, isa: Isa, m: &[i32], out: &mut [f32]) {
        let done = real_rows(isa, m, self.scale as f32, &self.offsets, out);
        for (o, &m) in out.iter_mut().zip(m).skip(done) {
            *o = self.units(m) as f32 * self.scale as f32;
        }
    }

    /// Position of a multiple of the step, in 1/64 steps.
    #[inline(always)]
    fn units(&self, m: i32) -> i32 {
        units(m, &self.offsets)
    }
}

#[inline(always)]
fn units(m: i32, offsets: &[i32; 16]) -> i32 {
    let a = m.unsigned_abs().min(OFFSETS as u32);
    UNITS * m - m.signum() * offsets[a as usize & 15]
}

widen! { fn real_rows / real_rows_on(m: &[i32], scale: f32, offsets: &[i32; 16], out: &mut [f32]) -> usize }
widen! { fn bf16_rows / bf16_rows_on(m: &[i32], scale: f32, offsets: &[i32; 16], out: &mut [u8]) -> usize }

#[inline(always)]
fn real_row<W: Wide>(m: &[i32; WIDTH], scale: f32, offsets: &[i32; 16]) -> W::F {
    let m = W::load_i(m);
    let near = W::min_i(W::abs_i(m), W::splat_i(OFFSETS as i32));
    let offset = W::look_up(offsets, near);
    // The offset with the sign of m: for m < 0 all bits flip and one is added.
    let below = W::shr_each(m, W::splat_i(31));
    let negative = W::sub_i(W::splat_i(0), below);
    let signed = W::sub_i(W::xor_i(offset, negative), negative);
    let units = W::sub_i(W::shl_i::<6>(m), signed);
    W::mul(W::to_f(units), W::splat(scale))
}

/// Whole rows of sixteen; returns the values done.
#[inline(always)]
fn real_rows_on<W: Wide>(m: &[i32], scale: f32, offsets: &[i32; 16], out: &mut [f32]) -> usize {
    let rows = m.as_chunks::<WIDTH>().0;
    for (m, o) in rows.iter().zip(out.as_chunks_mut::<WIDTH>().0) {
        W::store(real_row::<W>(m, scale, offsets), o);
    }
    rows.len() * WIDTH
}

/// Whole rows of sixteen, as bf16; returns the values done.
#[inline(always)]
fn bf16_rows_on<W: Wide>(m: &[i32], scale: f32, offsets: &[i32; 16], out: &mut [u8]) -> usize {
    let rows = m.as_chunks::<WIDTH>().0;
    let top = f32::from_bits(0x7f7f_0000);
    for (m, o) in rows.iter().zip(out.as_chunks_mut::<{ 2 * WIDTH }>().0) {
        W::to_bf16(W::clamp(real_row::<W>(m, scale, offsets), top), o);
    }
    rows.len() * WIDTH
}

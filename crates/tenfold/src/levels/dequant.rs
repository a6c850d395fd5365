//! Multiples of the step to elements. Normative: docs/format.md, 'Values'.

use super::params::{OFFSETS, Params, UNITS};
use crate::simd::{Level, multiversion};
use crate::view::{Dtype, store, store_f64};

/// Everything that turns an integer into a real number.
#[derive(Debug, Clone)]
pub(crate) struct Dequant {
    pub dtype: Dtype,
    pub scale: f64,
    /// What to take off 64·|m|, by min(|m|, 8); entry 0 is 0.
    offsets: [i32; 16],
    plain: bool,
}

/// Values dequantised at a time, so that intermediate results stay in the fastest cache.
pub(crate) const CHUNK: usize = 2048;

impl Dequant {
    pub(crate) fn new(dtype: Dtype, scale: f64, offsets: &[i8; OFFSETS]) -> Self {
        let mut table = [0; 16];
        table[1..=OFFSETS].iter_mut().zip(offsets).for_each(|(t, &o)| *t = o as i32);
        Dequant { dtype, scale, offsets: table, plain: offsets.iter().all(|&o| o == 0) }
    }

    pub(crate) fn of(dtype: Dtype, params: &Params) -> Self {
        Dequant::new(dtype, params.scale, &params.offsets)
    }

    /// The offsets as a header holds them.
    pub(crate) fn stored_offsets(&self) -> [i8; OFFSETS] {
        let mut out = [0; OFFSETS];
        out.iter_mut().zip(&self.offsets[1..]).for_each(|(o, &t)| *o = t as i8);
        out
    }

    /// Writes `m.len()` elements (at most [`CHUNK`]).
    pub(crate) fn write(&self, level: Level, m: &[i32], out: &mut [u8]) {
        if self.dtype == Dtype::F64 {
            let mut real = [0f64; CHUNK];
            real.iter_mut().zip(m).for_each(|(r, &m)| *r = self.units(m) as f64 * self.scale);
            store_f64(&real[..m.len().min(CHUNK)], out);
            return;
        }
        let mut real = [0f32; CHUNK];
        let real = &mut real[..m.len().min(CHUNK)];
        self.real(level, m, real);
        store(level, self.dtype, real, out);
    }

    /// The real numbers before they are rounded to the dtype.
    pub(crate) fn real(&self, level: Level, m: &[i32], out: &mut [f32]) {
        if self.plain {
            scale_plain(level, m, self.scale as f32, out);
        } else {
            scale_offset(level, m, self.scale as f32, &self.offsets, out);
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

multiversion! { fn scale_plain / scale_plain_inner(m: &[i32], scale: f32, out: &mut [f32]) }
multiversion! { fn scale_offset / scale_offset_inner(m: &[i32], scale: f32, offsets: &[i32; 16], out: &mut [f32]) }

#[inline(always)]
fn scale_plain_inner(m: &[i32], scale: f32, out: &mut [f32]) {
    for (o, &m) in out.iter_mut().zip(m) {
        *o = (UNITS * m) as f32 * scale;
    }
}

#[inline(always)]
fn scale_offset_inner(m: &[i32], scale: f32, offsets: &[i32; 16], out: &mut [f32]) {
    for (o, &m) in out.iter_mut().zip(m) {
        *o = units(m, offsets) as f32 * scale;
    }
}

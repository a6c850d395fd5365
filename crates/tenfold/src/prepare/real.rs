//! The two precisions that transforms work in.

use bytemuck::Pod;

use crate::simd::Isa;
use crate::view::{Dtype, load_scaled, store, store_f64, value};

/// f32, or f64 for tensors of f64 and for codecs that say so.
pub trait Real: Pod + Send + Sync {
    /// Of what a codec sees.
    const DTYPE: Dtype;

    /// The nearest number.
    fn from_f64(v: f64) -> Self;

    /// The same number, wider.
    fn wide(self) -> f64;

    /// Product, rounded once.
    fn times(self, by: Self) -> Self;

    /// Sum, rounded once.
    fn plus(self, other: Self) -> Self;

    /// Sum and difference, each rounded once.
    fn butterfly(self, other: Self) -> (Self, Self);
}

/// Elements of a tensor to working numbers and back.
pub(crate) trait Elements: Real {
    fn load(isa: Isa, dtype: Dtype, data: &[u8], out: &mut [Self]);
    fn store(isa: Isa, dtype: Dtype, values: &[Self], out: &mut [u8]);
}

impl Elements for f32 {
    fn load(isa: Isa, dtype: Dtype, data: &[u8], out: &mut [f32]) {
        load_scaled(isa, dtype, data, 1.0, out);
    }

    fn store(isa: Isa, dtype: Dtype, values: &[f32], out: &mut [u8]) {
        store(isa, dtype, values, out);
    }
}

impl Elements for f64 {
    fn load(_: Isa, dtype: Dtype, data: &[u8], out: &mut [f64]) {
        out.iter_mut().zip(data.chunks_exact(dtype.size())).for_each(|(o, b)| *o = value(dtype, b));
    }

    // Only tensors of f64 have this for their working precision.
    fn store(_: Isa, _: Dtype, values: &[f64], out: &mut [u8]) {
        store_f64(values, out);
    }
}

macro_rules! real {
    ($t:ident, $d:ident) => {
        impl Real for $t {
            const DTYPE: Dtype = Dtype::$d;

            #[inline(always)]
            fn from_f64(v: f64) -> $t {
                v as $t
            }

            #[inline(always)]
            fn wide(self) -> f64 {
                self as f64
            }

            #[inline(always)]
            fn times(self, by: $t) -> $t {
                self * by
            }

            #[inline(always)]
            fn plus(self, other: $t) -> $t {
                self + other
            }

            #[inline(always)]
            fn butterfly(self, other: $t) -> ($t, $t) {
                (self + other, self - other)
            }
        }
    };
}
real!(f32, F32);
real!(f64, F64);

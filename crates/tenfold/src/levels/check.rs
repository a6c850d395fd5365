//! Reconstructs levels in the encoder, as a decoder will, to measure the error.

use super::exact::Exact;
use super::quantise::{Plan, Rounding};
use crate::entropy::MAX_LANES;
use crate::quant::machine::grid;
use crate::view::value;

/// What [`check`] adds up.
#[derive(Default)]
pub(super) struct Checked {
    /// Squared error in units²; values stored exactly have none.
    pub squared_error: f64,
    /// Finite values.
    pub finite: usize,
}

/// Reconstructs values `first`, … of a tile as a decoder will, and adds up the error. Under a bound, values beyond it
/// are stored exactly; otherwise `exact` already has the values set aside.
pub(super) fn check(plan: &Plan, first: usize, data: &[u8], k: &[i32], exact: &mut Exact, sum: &mut Checked) {
    let size = plan.dequant.dtype.size();
    let lanes = plan.geometry.lanes;
    // Neighbours that are consecutive ticks of one lane.
    let each = if plan.paired { 2 } else { 1 };
    let mut state = [0u32; MAX_LANES];
    let mut bytes = [0u8; 256 * 8];
    let mut m = [0i32; 256];
    let step = plan.step();
    let bounded = matches!(plan.rounding, Rounding::Bounded(_));
    for (c, (ks, xs)) in k.chunks(256).zip(data.chunks(256 * size)).enumerate() {
        for (i, (m, &k)) in m.iter_mut().zip(ks).enumerate() {
            let s = &mut state[(c * 256 + i) / each % lanes];
            *m = grid(k, *s & 1);
            *s = plan.machine.next(*s, k);
        }
        plan.dequant.write(plan.isa, &m[..ks.len()], &mut bytes[..ks.len() * size]);
        for (i, x) in xs.chunks_exact(size).enumerate() {
            let v = value(plan.dequant.dtype, x);
            let e = v - value(plan.dequant.dtype, &bytes[i * size..][..size]);
            let in_units = e / plan.unit;
            let over = matches!(plan.rounding, Rounding::Bounded(b) if !(e.abs() <= b));
            let aside = !((v / step).abs() <= plan.max_u as f64);
            sum.finite += v.is_finite() as usize;
            if over || !v.is_finite() {
                if bounded {
                    exact.push(first + c * 256 + i, x);
                }
            } else if !aside {
                sum.squared_error += in_units * in_units;
            }
        }
    }
}

//! Scalar levels: nearest, or nearest but one where that saves more rate than it costs distance.

use super::cost::{CLASSES, CostTable, LEVELS};
use crate::simd::wide::{WIDTH, Wide};
use crate::simd::{Isa, multiversion, widen};

/// Values beyond this many steps are stored exactly: their level would not fit.
pub(crate) const MAX_U: f32 = 1.6e7;

type Lanes<T> = [T; WIDTH];

multiversion! {
    /// The nearest level of each value (in steps; levels are two steps apart).
    pub(crate) fn nearest / nearest_inner(u: &[Lanes<f32>], out: &mut [Lanes<i32>])
}

#[inline(always)]
fn nearest_inner(u: &[Lanes<f32>], out: &mut [Lanes<i32>]) {
    for (u, o) in u.iter().zip(out) {
        for l in 0..WIDTH {
            o[l] = (u[l] * 0.5).round_ties_even() as i32;
        }
    }
}

/// Entries of one sign in the threshold table.
const HALF: usize = CLASSES * LEVELS;
/// Length of the threshold table.
const ENTRIES: usize = 2 * HALF;

/// Where each level starts to pay against the one nearer to zero.
pub(crate) struct Thresholds {
    /// Indexed by class · LEVELS + |level|, plus [`HALF`] for negative values; levels are 1 apart.
    from: Box<[f32; ENTRIES]>,
}

impl Thresholds {
    pub(crate) fn new(costs: &CostTable) -> Self {
        // (u − 2k)² + R(k) = (u − 2k + 2)² + R(k − 1), solved for u/2.
        let mut from = Box::new([0f32; ENTRIES]);
        for c in 0..2 * CLASSES {
            let bits = &costs.bits[c * 2 * LEVELS..][..LEVELS];
            for k in 1..LEVELS {
                from[c * LEVELS + k] = k as f32 - 0.5 + ((bits[k] - bits[k - 1]) / 8.0).clamp(0.0, 1.0);
            }
        }
        Thresholds { from }
    }
}

/// Levels with a rate-distortion choice between the two nearest towards zero.
pub(crate) fn search(
    isa: Isa,
    thresholds: &Thresholds,
    u: &[Lanes<f32>],
    class: &[Lanes<u8>],
    out: &mut [Lanes<i32>],
) {
    run(isa, &thresholds.from, u, class, out);
}

widen! {
    fn run / run_on(from: &[f32; ENTRIES], u: &[Lanes<f32>], class: &[Lanes<u8>], out: &mut [Lanes<i32>])
}

#[inline(always)]
fn run_on<W: Wide>(from: &[f32; ENTRIES], u: &[Lanes<f32>], class: &[Lanes<u8>], out: &mut [Lanes<i32>]) {
    let none = [0u8; WIDTH];
    for (t, (u, o)) in u.iter().zip(out).enumerate() {
        let c = class.get(t).unwrap_or(&none);
        let base = W::load_i(&c.map(|c| c as i32 * LEVELS as i32));
        let real = W::load(u);
        let sign = W::splat_i(HALF as i32);
        let base = W::add_i(base, W::sub_i(sign, W::zero_where(W::lt(real, W::splat(0.0)), sign)));
        let a = W::mul(W::abs(real), W::splat(0.5));
        let k = W::trunc(W::add(a, W::splat(0.5)));
        // Beyond the table nothing is gained by a smaller level.
        let near = W::min_i(k, W::splat_i(LEVELS as i32 - 1));
        let pays_from = W::gather(from, W::add_i(base, near));
        let down = W::zero_where(W::lt(pays_from, a), W::splat_i(-1));
        let k = W::max_i(W::add_i(k, down), W::splat_i(0));
        W::store_i(W::with_sign(k, real), o);
    }
}

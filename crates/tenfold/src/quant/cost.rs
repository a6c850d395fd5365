//! What a level costs, for the encoder's choices: λ·bits by class, quantiser and magnitude.

use crate::entropy::fit::Counts;
use crate::levels::LowBits;

/// Magnitudes with a cost of their own; larger ones cost as much as the last.
pub(crate) const LEVELS: usize = 64;
/// Most classes a tensor may have.
pub(crate) const CLASSES: usize = crate::entropy::MAX_CLASSES;
/// Entries of one sign.
pub(crate) const SIGN: usize = CLASSES * 2 * LEVELS;
/// Length of the table, a power of two.
pub(crate) const ENTRIES: usize = 2 * SIGN;

/// Bits of the rarest level that the search reckons with.
const MOST_BITS: f64 = 28.0;

/// λ·bits of (sign, class, quantiser, |level|).
#[derive(Clone)]
pub(crate) struct CostTable {
    /// Indexed by `(class · 2 + quantiser) · LEVELS + |level|`, plus [`SIGN`] for negative values.
    pub bits: Box<[f32; ENTRIES]>,
}

impl CostTable {
    /// Costs before anything was counted: one bit for zero, one more for each step away.
    pub(crate) fn guess(lambda: f64) -> CostTable {
        let mut bits = Box::new([0.0; ENTRIES]);
        for (i, b) in bits.iter_mut().enumerate() {
            *b = (lambda * (1.0 + (i % LEVELS) as f64).min(12.0)) as f32;
        }
        CostTable { bits }
    }

    /// Costs from counted symbols. Magnitudes are taken together for both signs, since a sample says
    /// little about rare levels; the signs' shares are added where they plainly differ. Levels with raw
    /// low bits cost what their symbol and those bits cost.
    pub(crate) fn from_counts(counts: &[Counts], low: &LowBits, lambda: f64) -> CostTable {
        let mut bits = Box::new([0.0; ENTRIES]);
        let (plus, minus) = bits.split_at_mut(SIGN);
        let tables = plus.chunks_exact_mut(LEVELS).zip(minus.chunks_exact_mut(LEVELS));
        for (i, ((plus, minus), counts)) in tables.zip(counts).enumerate() {
            let low_bits = low.get(i as u8 / 2);
            let total = counts.iter().sum::<u64>() as f64 + 1.0;
            let [above, below] = sign_bits(counts);
            let mut last = 0.0f64;
            for k in 0..LEVELS {
                let of = |k: i32| counts[(k >> low_bits) as u8 as usize] as f64;
                let both = (of(k as i32) + of(-(k as i32))) / 2.0;
                // A small count says little: never cheaper than its neighbour towards zero.
                let own = ((total / (both + 0.25)).log2() + low_bits as f64).min(MOST_BITS);
                let own = if both < 8.0 { own.max(last) } else { own };
                last = own;
                let (a, b) = if k == 0 { (0.0, 0.0) } else { (above, below) };
                plus[k] = (lambda * (own + a).max(0.0)) as f32;
                minus[k] = (lambda * (own + b).max(0.0)) as f32;
            }
        }
        CostTable { bits }
    }
}

impl CostTable {
    /// The same costs, each times `factor`.
    pub(crate) fn scaled(&self, factor: f64) -> CostTable {
        CostTable { bits: Box::new(self.bits.map(|b| b * factor as f32)) }
    }
}

/// Bits by which positive and negative levels differ from the mean of both.
fn sign_bits(counts: &Counts) -> [f64; 2] {
    let above = counts[1..128].iter().sum::<u64>() as f64;
    let below = counts[129..].iter().sum::<u64>() as f64;
    let sum = above + below;
    if (above - below).abs() < 6.0 * sum.sqrt() {
        return [0.0; 2];
    }
    [above, below].map(|n| (sum / 2.0 / (n + 1.0)).log2().clamp(-1.0, 12.0))
}

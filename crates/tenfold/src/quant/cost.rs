//! What a level costs, for the encoder's choices: λ·bits by class, quantiser and magnitude.

use crate::entropy::fit::Counts;

/// Magnitudes with a cost of their own; larger ones cost as much as the last.
pub(crate) const LEVELS: usize = 64;
/// Most classes a tensor may have.
pub(crate) const CLASSES: usize = crate::entropy::MAX_CLASSES;
/// Length of the table, a power of two.
pub(crate) const ENTRIES: usize = CLASSES * 2 * LEVELS;

/// Bits of the rarest level that the search reckons with.
const MOST_BITS: f64 = 28.0;

/// λ·bits of (class, quantiser, |level|).
#[derive(Clone)]
pub(crate) struct CostTable {
    /// Indexed by `(class · 2 + quantiser) · LEVELS + |level|`.
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

    /// Costs from counted symbols, positive and negative levels taken together. Levels with raw low
    /// bits cost what their symbol and those bits cost.
    pub(crate) fn measured(counts: &[Counts], low_bits: u32, lambda: f64) -> CostTable {
        let mut bits = Box::new([0.0; ENTRIES]);
        for (table, counts) in bits.chunks_exact_mut(LEVELS).zip(counts) {
            let total = counts.iter().sum::<u64>() as f64 + 1.0;
            let mut last = 0.0f64;
            for (k, b) in table.iter_mut().enumerate() {
                let of = |k: i32| counts[(k >> low_bits) as u8 as usize] as f64;
                let both = (of(k as i32) + of(-(k as i32))) / 2.0;
                // A small count says little: never cheaper than its neighbour towards zero by much.
                let own = ((total / (both + 0.25)).log2() + low_bits as f64).min(MOST_BITS);
                let own = if both < 8.0 { own.max(last) } else { own };
                last = own;
                *b = (lambda * own) as f32;
            }
        }
        CostTable { bits }
    }
}

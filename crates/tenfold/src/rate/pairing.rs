//! Whether levels are coded in pairs, and what that costs.

use super::encoding::Encoding;
use super::trial::Trial;
use crate::entropy::MAX_LANES;
use crate::entropy::fit::{Counts, normalise};
use crate::entropy::pairs::Price;
use crate::entropy::table::Freqs;
use crate::entropy::table_code::Alphabet;
use crate::error::Result;
use crate::levels::Plan;
use crate::quant::machine::Machine;

/// Bits a value that pairs may cost.
const MOST: f64 = 0.01;

/// Share of pairs that may have no symbol: decoders stop at each.
const MOST_ESCAPED: f64 = 0.004;

/// Bits a value that a class map may take more for neighbours to share their classes.
pub(super) const SHARED: f64 = 0.005;

/// Values of a tensor below which pairs are not worth a reader's tables.
const LEAST_VALUES: usize = 1 << 14;

impl Encoding<'_> {
    /// Whether pairs are worth a thought, before anything is known of the levels.
    pub(super) fn may_pair(&self, lanes: usize) -> bool {
        self.options.minor >= 1 && lanes == MAX_LANES && self.view.len() >= LEAST_VALUES
    }

    /// Gives pairs up where they cost too much, or levels have low bits.
    pub(super) fn settle_pairs(
        &self,
        plan: &mut Plan,
        trial: impl FnOnce(&Plan) -> Result<Trial>,
    ) -> Result<()> {
        if !plan.paired {
            return Ok(());
        }
        let worth = plan.low.none() && {
            let counts = trial(plan)?.counts;
            let values = counts.as_flattened().iter().sum::<u64>() as f64;
            let price = price_of_counts(&counts, plan.machine);
            price.excess <= MOST * values && price.escaped <= MOST_ESCAPED * values / 2.0
        };
        if !worth {
            plan.paired = false;
            plan.classes.iter_mut().for_each(|map| map.paired = false);
        }
        Ok(())
    }
}

/// What pairs cost where levels occur so often: bits, and pairs that escape.
pub(super) fn price_of_counts(counts: &[Counts], machine: Machine) -> Price {
    let freqs: Vec<Freqs> = counts.iter().map(|c| normalise(c, Alphabet::levels(12, 0))).collect();
    price(counts, &freqs, machine)
}

/// The same for tables that were chosen.
pub(super) fn price(counts: &[Counts], freqs: &[Freqs], machine: Machine) -> Price {
    let mut sum = Price::default();
    for (counts, freqs) in counts.chunks_exact(2).zip(freqs.chunks_exact(2)) {
        let pairs = counts.as_flattened().iter().sum::<u64>() as f64 / 2.0;
        if pairs > 0.0 {
            let Price { excess, escaped } = Price::new(freqs, machine);
            sum.excess += pairs * excess;
            sum.escaped += pairs * escaped;
        }
    }
    sum
}

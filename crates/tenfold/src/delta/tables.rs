//! The statistics that a delta's symbols are coded with: classes of old values, ways of telling new ones, tables of gaps.

use super::numbers::{Numbers, Way};
use super::params::{LOG, MAX_GAPS};
use super::scan::Changes;
use super::token::GAPS;
use crate::entropy::MAX_CLASSES;
use crate::entropy::fit::{Counts, normalise};
use crate::entropy::table::Freqs;
use crate::entropy::table_code::{self, Alphabet, Coded};

/// How often each symbol occurs, by the key of the old value.
pub(super) struct ByKey(Vec<Counts>);

impl ByKey {
    pub(super) fn new() -> ByKey {
        ByKey(vec![[0; 256]; 256])
    }

    pub(super) fn add(&mut self, other: &ByKey) {
        self.0.iter_mut().zip(&other.0).for_each(|(sum, part)| add(sum, part));
    }

    /// Counts the symbols of a tile.
    pub(super) fn count(&mut self, numbers: Numbers, way: Way, changes: &Changes) {
        for (&old, &new) in changes.old.iter().zip(&changes.new) {
            let told = numbers.split(way, old, new);
            self.0[usize::from(numbers.key(old))][usize::from(told.symbol)] += 1;
        }
    }

    /// Cuts keys into classes whose symbols are alike: their thresholds.
    pub(super) fn classes(&self) -> Vec<u8> {
        // A class for each key that occurs; then the two neighbours that lose least become one, again and again.
        let mut classes: Vec<(usize, Counts)> =
            self.0.iter().copied().enumerate().filter(|(_, counts)| counts.iter().any(|&n| n > 0)).collect();
        let mut prices: Vec<f64> = classes.iter().map(|(_, counts)| price(counts)).collect();
        let loss = |classes: &[(usize, Counts)], prices: &[f64], i: usize| {
            let mut both = classes[i].1;
            add(&mut both, &classes[i + 1].1);
            price(&both) - prices[i] - prices[i + 1]
        };
        let mut losses: Vec<f64> =
            (0..classes.len().saturating_sub(1)).map(|i| loss(&classes, &prices, i)).collect();
        while let Some(i) = (0..losses.len()).min_by(|&a, &b| losses[a].total_cmp(&losses[b])) {
            if losses[i] > 0.0 && classes.len() <= MAX_CLASSES {
                break;
            }
            let (_, gone) = classes.remove(i + 1);
            add(&mut classes[i].1, &gone);
            prices.remove(i + 1);
            prices[i] = price(&classes[i].1);
            losses.remove(i);
            for j in [i.wrapping_sub(1), i] {
                if j < losses.len() {
                    losses[j] = loss(&classes, &prices, j);
                }
            }
        }
        classes.iter().skip(1).map(|&(key, _)| key as u8).collect()
    }

    /// A table for each class.
    pub(super) fn tables(&self, thresholds: &[u8]) -> Vec<Freqs> {
        let mut sums = vec![[0u64; 256]; thresholds.len() + 1];
        for (key, counts) in self.0.iter().enumerate() {
            let class = thresholds.iter().filter(|&&t| usize::from(t) <= key).count();
            add(&mut sums[class], counts);
        }
        sums.iter().map(|counts| normalise(counts, Alphabet::bytes(LOG))).collect()
    }
}

fn add(sum: &mut Counts, part: &Counts) {
    sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
}

/// Bits of symbols under a table.
fn cost(counts: &Counts, table: &Freqs) -> f64 {
    let some = counts.iter().enumerate().filter(|(_, n)| **n > 0);
    some.map(|(symbol, &n)| n as f64 * table.bits(symbol as u8)).sum()
}

/// Bits of symbols under a table of their own, which counts too.
fn price(counts: &Counts) -> f64 {
    let alphabet = Alphabet::bytes(LOG);
    let table = normalise(counts, alphabet);
    let header = 8.0 * table_code::write([(&Coded::Measured(table.clone()), alphabet)]).len() as f64;
    cost(counts, &table) + header
}

/// Bits of each symbol under a table; without end where it has no place there.
pub(super) type Prices = [f32; 256];

pub(super) fn prices(table: &Freqs) -> Prices {
    std::array::from_fn(|symbol| table.bits(symbol as u8) as f32)
}

/// Bits of a tile's symbols, and of what is open beside them.
pub(super) fn cost_of(
    numbers: Numbers,
    way: Way,
    changes: &Changes,
    class_of: &[u8; 256],
    prices: &[Prices],
) -> f64 {
    let price = |(&old, &new): (&u64, &u64)| {
        let told = numbers.split(way, old, new);
        let prices = &prices[usize::from(class_of[usize::from(numbers.key(old))])];
        f64::from(prices[usize::from(told.symbol)]) + f64::from(told.open)
    };
    changes.old.iter().zip(&changes.new).map(price).sum()
}

/// Counts the gaps of a tile.
pub(super) fn count_gaps(changes: &Changes) -> Counts {
    let mut counts = [0; 256];
    changes.gaps().for_each(|gap| counts[GAPS.split(gap.into()).0 as usize] += 1);
    counts
}

/// Tables of gaps, and which of them each tile has: tiles with as many changes have the same one. A tile without changes has none.
pub(super) fn gap_tables(tiles: &[Counts]) -> (Vec<Freqs>, Vec<usize>) {
    // The densest tiles first.
    let mean = |counts: &Counts| {
        let (mut all, mut bits) = (0u64, 0.0);
        for (token, &n) in counts.iter().enumerate() {
            let size = GAPS.join(token as u32).map_or(0, |(gap, _)| gap);
            all += n;
            bits += n as f64 * (size as f64 + 1.0).log2();
        }
        bits / all.max(1) as f64
    };
    let mut groups: Vec<(Counts, Vec<usize>)> = vec![([0; 256], Vec::new()); 64];
    for (tile, counts) in tiles.iter().enumerate().filter(|(_, counts)| counts.iter().any(|&n| n > 0)) {
        let group = &mut groups[((2.0 * mean(counts)) as usize).min(63)];
        add(&mut group.0, counts);
        group.1.push(tile);
    }
    groups.retain(|(_, tiles)| !tiles.is_empty());
    loop {
        let loss = |i: usize| {
            let mut both = groups[i].0;
            add(&mut both, &groups[i + 1].0);
            price(&both) - price(&groups[i].0) - price(&groups[i + 1].0)
        };
        let least =
            (0..groups.len().saturating_sub(1)).map(|i| (loss(i), i)).min_by(|a, b| a.0.total_cmp(&b.0));
        let Some((loss, i)) = least.filter(|(loss, _)| *loss <= 0.0 || groups.len() > MAX_GAPS) else {
            break;
        };
        debug_assert!(loss.is_finite());
        let (counts, tiles) = groups.remove(i + 1);
        add(&mut groups[i].0, &counts);
        groups[i].1.extend(tiles);
    }
    let mut of_tile = vec![0; tiles.len()];
    for (number, (_, tiles)) in groups.iter().enumerate() {
        tiles.iter().for_each(|&tile| of_tile[tile] = number);
    }
    (groups.iter().map(|(counts, _)| normalise(counts, Alphabet::bytes(LOG))).collect(), of_tile)
}

//! How often symbols occur, by table.

use super::fit::Counts;

/// Counters side by side, so that equal neighbours do not wait for each other.
const WAYS: usize = 4;

/// Symbols after which a counter of 16 bits may be full.
const FULL: usize = u16::MAX as usize * WAYS;

/// Counts symbols: table · 256 + symbol.
pub(crate) struct Tally {
    /// One after the other the counters of each way; small, so that they stay in the nearest cache.
    parts: Vec<u16>,
    /// Symbols in `parts`.
    pending: usize,
    counts: Vec<Counts>,
}

impl Tally {
    /// For so many tables. Symbols are of these tables.
    pub(crate) fn new(tables: usize) -> Tally {
        Tally { parts: vec![0; tables * 256 * WAYS], pending: 0, counts: vec![[0; 256]; tables] }
    }

    pub(crate) fn add(&mut self, symbols: &[u16]) {
        let n = self.counts.len() * 256;
        for symbols in symbols.chunks(FULL) {
            if self.pending + symbols.len() > FULL {
                self.fold();
            }
            // What four symbols do not fill goes to the first way: one symbol more each time than its share.
            self.pending += symbols.len() + WAYS * WAYS;
            let (quads, rest) = symbols.as_chunks::<WAYS>();
            for s in quads {
                for (way, &s) in s.iter().enumerate() {
                    self.parts[way * n + s as usize] += 1;
                }
            }
            rest.iter().for_each(|&s| self.parts[s as usize] += 1);
        }
    }

    /// The occurrences of what was added.
    pub(crate) fn into_counts(mut self) -> Vec<Counts> {
        self.fold();
        self.counts
    }

    fn fold(&mut self) {
        let counts = self.counts.as_flattened_mut();
        for part in self.parts.chunks_exact(counts.len().max(1)) {
            counts.iter_mut().zip(part).for_each(|(c, &p)| *c += p as u64);
        }
        self.parts.fill(0);
        self.pending = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_emptied_before_they_are_full() {
        for pieces in [1, 7, 100_000, 1 << 20] {
            let mut tally = Tally::new(2);
            // The same symbol over and over is what fills a counter first.
            let symbols: Vec<u16> = (0..1_000_003).map(|i| if i % 1000 == 0 { 511 } else { 300 }).collect();
            symbols.chunks(pieces).for_each(|piece| tally.add(piece));
            let counts = tally.into_counts();
            assert_eq!(counts[1][255], 1001);
            assert_eq!(counts[1][44], 1_000_003 - 1001);
            assert_eq!(counts.as_flattened().iter().sum::<u64>(), 1_000_003);
        }
    }
}

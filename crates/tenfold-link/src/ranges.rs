//! Sets of bytes of a file.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of bytes, as ranges that neither touch nor overlap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RangeSet(BTreeMap<u64, u64>);

impl RangeSet {
    /// Adds bytes.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&s, &e)) = self.0.range(..=end).next_back().filter(|(_, e)| **e >= start) {
            (start, end) = (start.min(s), end.max(e));
            self.0.remove(&s);
        }
        self.0.insert(start, end);
    }

    /// Takes bytes out.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((&s, &e)) = self.0.range(..range.end).next_back().filter(|(_, e)| **e > range.start) {
            self.0.remove(&s);
            if s < range.start {
                self.0.insert(s, range.start);
            }
            if e > range.end {
                self.0.insert(range.end, e);
            }
        }
    }

    /// Whether all of these bytes are in the set.
    pub fn contains(&self, range: &Range<u64>) -> bool {
        range.is_empty() || self.0.range(..=range.start).next_back().is_some_and(|(_, e)| *e >= range.end)
    }

    /// Which of these bytes are not in the set.
    pub fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut out = Vec::new();
        let mut at = range.start;
        let before = self.0.range(..range.start).next_back();
        for (&s, &e) in before.into_iter().chain(self.0.range(range.clone())) {
            if s > at {
                out.push(at..s.min(range.end));
            }
            at = at.max(e);
        }
        if at < range.end {
            out.push(at..range.end);
        }
        out
    }

    /// The ranges, in order.
    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.0.iter().map(|(&s, &e)| s..e)
    }

    /// Number of bytes.
    #[cfg(test)]
    pub fn len(&self) -> u64 {
        self.iter().map(|range| range.end - range.start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a plain array of flags.
    #[test]
    fn it_is_a_set_of_bytes() {
        let (mut set, mut plain) = (RangeSet::default(), [false; 64]);
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for _ in 0..5000 {
            let (a, b) = (random(65), random(65));
            let range = a.min(b)..a.max(b);
            let (all, some) = (range.start as usize..range.end as usize, random(3));
            if some == 0 {
                set.remove(range);
                plain[all].fill(false);
            } else if some == 1 && random(4) == 0 {
                set.insert(range);
                plain[all].fill(true);
            } else {
                assert_eq!(set.contains(&range), plain[all.clone()].iter().all(|&b| b), "{set:?} {range:?}");
                let missing: Vec<u64> = set.missing(range.clone()).into_iter().flatten().collect();
                let expected: Vec<u64> = range.filter(|&i| !plain[i as usize]).collect();
                assert_eq!(missing, expected);
            }
            assert_eq!(set.len(), plain.iter().filter(|&&b| b).count() as u64);
            let ranges: Vec<_> = set.iter().collect();
            assert!(ranges.windows(2).all(|w| w[0].end < w[1].start), "{set:?}");
        }
    }
}

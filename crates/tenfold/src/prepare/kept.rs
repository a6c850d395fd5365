//! Elements that no transform and no quantiser touches: NaN and infinities, put back when all else is done.
//! Normative: docs/format.md, 'Kept elements'.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::view::{Dtype, TensorView, value};

/// A run of the same element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    start: u64,
    len: u32,
    bits: u64,
}

/// Runs of elements, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    runs: Vec<Run>,
    /// Bytes of an element.
    size: usize,
}

impl Kept {
    /// The elements of a tensor that are not finite numbers; nothing if all are.
    pub fn find(view: &TensorView<'_>) -> Option<Self> {
        let (dtype, mut kept) = (view.dtype(), Kept::new(view.dtype()));
        for (at, element) in view.data().chunks_exact(dtype.size()).enumerate() {
            if !value(dtype, element).is_finite() {
                kept.push(at, element);
            }
        }
        (!kept.runs.is_empty()).then_some(kept)
    }

    /// Where each run starts, how long it is, and the bits of its element.
    pub fn runs(&self) -> impl ExactSizeIterator<Item = (u64, u32, u64)> + '_ {
        self.runs.iter().map(|r| (r.start, r.len, r.bits))
    }

    pub(super) fn new(dtype: Dtype) -> Self {
        Kept { runs: Vec::new(), size: dtype.size() }
    }

    /// Values that are kept.
    pub fn values(&self) -> u64 {
        self.runs.iter().map(|r| u64::from(r.len)).sum()
    }

    /// Adds the element at a position behind all added before.
    pub(super) fn push(&mut self, at: usize, element: &[u8]) {
        let bits = element.iter().rev().fold(0u64, |v, &b| v << 8 | u64::from(b));
        match self.runs.last_mut() {
            Some(r) if r.bits == bits && r.start + u64::from(r.len) == at as u64 && r.len < u32::MAX => {
                r.len += 1
            }
            _ => self.runs.push(Run { start: at as u64, len: 1, bits }),
        }
    }

    /// Puts the elements of values `range` where they belong in `out`.
    pub(crate) fn apply(&self, range: Range<usize>, out: &mut [u8]) {
        let (from, to) = (range.start as u64, range.end as u64);
        let first = self.runs.partition_point(|r| r.start + u64::from(r.len) <= from);
        for run in self.runs[first..].iter().take_while(|r| r.start < to) {
            let element = &run.bits.to_le_bytes()[..self.size];
            let (start, end) = (run.start.max(from) - from, (run.start + u64::from(run.len)).min(to) - from);
            let room = &mut out[start as usize * self.size..end as usize * self.size];
            room.chunks_exact_mut(self.size).for_each(|o| o.copy_from_slice(element));
        }
    }

    /// Bytes that an element takes in a run.
    fn stored(size: usize) -> usize {
        size.max(4)
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.runs.len() * (12 + Kept::stored(self.size)));
        for run in &self.runs {
            out.extend_from_slice(&run.start.to_le_bytes());
            out.extend_from_slice(&run.len.to_le_bytes());
            out.extend_from_slice(&run.bits.to_le_bytes()[..Kept::stored(self.size)]);
        }
        out
    }

    /// Reads the runs of a tensor of so many values.
    pub(super) fn read(content: &[u8], dtype: Dtype, values: usize) -> Result<Self> {
        let corrupt = || Error::Corrupt("kept elements");
        let size = dtype.size();
        let entry = 12 + Kept::stored(size);
        if content.is_empty() || !content.len().is_multiple_of(entry) {
            return Err(corrupt());
        }
        let mut kept = Kept::new(dtype);
        let mut end = 0u64;
        for e in content.chunks_exact(entry) {
            let number = |b: &[u8]| b.iter().rev().fold(0u64, |v, &b| v << 8 | u64::from(b));
            let run = Run { start: number(&e[..8]), len: number(&e[8..12]) as u32, bits: number(&e[12..]) };
            let fits = run.start.checked_add(u64::from(run.len)).is_some_and(|e| e <= values as u64);
            if run.len == 0 || run.start < end || !fits || (size < 8 && run.bits >> (8 * size) != 0) {
                return Err(corrupt());
            }
            end = run.start + u64::from(run.len);
            kept.runs.push(run);
        }
        Ok(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_come_back_where_they_were() {
        let mut kept = Kept::new(Dtype::Bf16);
        for at in [3, 4, 5, 9] {
            kept.push(at, &[1, 2]);
        }
        kept.push(10, &[7, 7]);
        assert_eq!((kept.runs.len(), kept.values()), (3, 5));
        let back = Kept::read(&kept.write(), Dtype::Bf16, 11).unwrap();
        assert_eq!(back, kept);
        let mut out = [0u8; 12];
        kept.apply(4..10, &mut out);
        assert_eq!(out, [1, 2, 1, 2, 0, 0, 0, 0, 0, 0, 1, 2]);
    }

    #[test]
    fn what_does_not_fit_is_corrupt() {
        let entry = |start: u64, len: u32, bits: u32| {
            [&start.to_le_bytes()[..], &len.to_le_bytes(), &bits.to_le_bytes()].concat()
        };
        let ok = entry(2, 3, 9);
        assert!(Kept::read(&ok, Dtype::F16, 5).is_ok());
        let twice = [ok.clone(), entry(4, 1, 9)].concat();
        let bad = [
            entry(2, 4, 9),
            entry(2, 0, 9),
            entry(u64::MAX, 2, 9),
            entry(0, 1, 1 << 16),
            twice,
            ok[1..].to_vec(),
            vec![],
        ];
        for content in bad {
            assert_eq!(Kept::read(&content, Dtype::F16, 5), Err(Error::Corrupt("kept elements")));
        }
    }
}

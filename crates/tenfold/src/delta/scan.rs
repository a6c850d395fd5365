//! What differs between two versions of a tensor.

use std::ops::Range;

use super::check;

/// Bytes that are compared at a time: nearly all of them are equal.
const BLOCK: usize = 256;

/// Values that change in a run of values.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Their places, from the start of the run.
    pub(super) at: Vec<u32>,
    pub(super) old: Vec<u64>,
    pub(super) new: Vec<u64>,
}

impl Changes {
    /// How many values lie between each and the one before.
    pub(super) fn gaps(&self) -> impl Iterator<Item = u32> {
        let before = std::iter::once(0).chain(self.at.iter().map(|&at| at + 1));
        self.at.iter().zip(before).map(|(&at, before)| at - before)
    }

    pub(super) fn sums(&self) -> [u64; 2] {
        [&self.old, &self.new].map(|values| check::sum(&self.at, values))
    }
}

/// An element of `size` bytes.
pub(super) fn element(data: &[u8], size: usize, at: usize) -> u64 {
    let bytes = &data[at * size..][..size];
    bytes.iter().rev().fold(0, |value, &b| value << 8 | u64::from(b))
}

/// Puts an element of `size` bytes back.
pub(super) fn put_element(data: &mut [u8], size: usize, at: usize, value: u64) {
    data[at * size..][..size].copy_from_slice(&value.to_le_bytes()[..size]);
}

/// Blocks of bytes that differ, in order, each with where it starts.
fn differing<'a>(old: &'a [u8], new: &'a [u8]) -> impl Iterator<Item = (usize, &'a [u8], &'a [u8])> {
    let blocks = old.chunks(BLOCK).zip(new.chunks(BLOCK)).enumerate();
    blocks.filter(|(_, (old, new))| old != new).map(|(i, (old, new))| (i * BLOCK, old, new))
}

/// How many values differ.
pub(super) fn count(old: &[u8], new: &[u8], size: usize) -> usize {
    let values = |(_, old, new): (usize, &[u8], &[u8])| {
        old.chunks_exact(size).zip(new.chunks_exact(size)).filter(|(old, new)| old != new).count()
    };
    differing(old, new).map(values).sum()
}

/// The values of a run that differ.
pub(super) fn changes(old: &[u8], new: &[u8], size: usize, run: Range<usize>) -> Changes {
    let bytes = run.start * size..run.end * size;
    let mut found = Changes::default();
    for (start, old, new) in differing(&old[bytes.clone()], &new[bytes]) {
        for i in 0..old.len() / size {
            let (before, after) = (element(old, size, i), element(new, size, i));
            if before != after {
                found.at.push((start / size + i) as u32);
                found.old.push(before);
                found.new.push(after);
            }
        }
    }
    found
}

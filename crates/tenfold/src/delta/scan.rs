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

/// Runs code for elements of a size that the compiler knows: a load is then one instruction.
macro_rules! by_size {
    ($size:expr, $f:ident ( $($arg:expr),* $(,)? )) => {
        match $size {
            1 => $f::<1>($($arg),*),
            2 => $f::<2>($($arg),*),
            4 => $f::<4>($($arg),*),
            _ => $f::<8>($($arg),*),
        }
    };
}
pub(super) use by_size;

/// An element of `SIZE` bytes.
#[inline(always)]
pub(super) fn element<const SIZE: usize>(data: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes[..SIZE].copy_from_slice(&data[at * SIZE..][..SIZE]);
    u64::from_le_bytes(bytes)
}

/// Blocks of bytes that differ, in order, each with where it starts.
fn differing<'a>(old: &'a [u8], new: &'a [u8]) -> impl Iterator<Item = (usize, &'a [u8], &'a [u8])> {
    let blocks = old.chunks(BLOCK).zip(new.chunks(BLOCK)).enumerate();
    blocks.filter(|(_, (old, new))| old != new).map(|(i, (old, new))| (i * BLOCK, old, new))
}

/// How many values differ.
pub(super) fn count(old: &[u8], new: &[u8], size: usize) -> usize {
    by_size!(size, count_of(old, new))
}

fn count_of<const SIZE: usize>(old: &[u8], new: &[u8]) -> usize {
    let values = |(_, old, new): (usize, &[u8], &[u8])| {
        (0..old.len() / SIZE).filter(|&i| element::<SIZE>(old, i) != element::<SIZE>(new, i)).count()
    };
    differing(old, new).map(values).sum()
}

/// The values of a run that differ.
pub(super) fn changes(old: &[u8], new: &[u8], size: usize, run: Range<usize>) -> Changes {
    let bytes = run.start * size..run.end * size;
    by_size!(size, changes_of(&old[bytes.clone()], &new[bytes]))
}

fn changes_of<const SIZE: usize>(old: &[u8], new: &[u8]) -> Changes {
    let mut found = Changes::default();
    for (start, old, new) in differing(old, new) {
        for i in 0..old.len() / SIZE {
            let (before, after) = (element::<SIZE>(old, i), element::<SIZE>(new, i));
            if before != after {
                found.at.push((start / SIZE + i) as u32);
                found.old.push(before);
                found.new.push(after);
            }
        }
    }
    found
}

//! Files that are written one after the other: the shards of an output.

use crate::error::{Error, Result};

/// Files in turn. `begin` opens one by its number, `end` completes it before the next is begun; files that nothing is written to are there
/// too.
pub(crate) struct InTurn<T, B, E> {
    count: usize,
    begin: B,
    end: E,
    /// Files that were begun.
    begun: usize,
    /// The last of them.
    open: Option<T>,
}

impl<T, B: FnMut(usize) -> Result<T>, E: FnMut(usize, T) -> Result<()>> InTurn<T, B, E> {
    /// So many files.
    pub fn new(count: usize, begin: B, end: E) -> Self {
        InTurn { count, begin, end, begun: 0, open: None }
    }

    /// A file, which no earlier one may follow.
    pub fn at(&mut self, number: usize) -> Result<&mut T> {
        while self.begun <= number {
            self.next()?;
        }
        self.open
            .as_mut()
            .filter(|_| self.begun == number + 1)
            .ok_or_else(|| Error::InvalidArgument(format!("file {number} of the output is complete already")))
    }

    /// Completes the last file, and those that are left.
    pub fn finish(mut self) -> Result<()> {
        while self.begun < self.count {
            self.next()?;
        }
        self.complete()
    }

    fn next(&mut self) -> Result<()> {
        self.complete()?;
        self.open = Some((self.begin)(self.begun)?);
        self.begun += 1;
        Ok(())
    }

    fn complete(&mut self) -> Result<()> {
        self.open.take().map_or(Ok(()), |open| (self.end)(self.begun - 1, open))
    }
}

//! A workspace, dealt out piece by piece.

use crate::error::{Error, Result};

/// What pieces start at multiples of.
pub(crate) const ALIGN: usize = 256;

/// Where the next piece starts.
#[derive(Default)]
pub(crate) struct Pieces {
    pub at: usize,
}

impl Pieces {
    /// Where a piece of so many bytes is.
    pub(crate) fn take(&mut self, bytes: usize) -> usize {
        let here = self.at;
        self.at = here.saturating_add(bytes).saturating_add(ALIGN - 1) / ALIGN * ALIGN;
        here
    }
}

pub(crate) fn too_large() -> Error {
    Error::InvalidArgument("the size in bytes overflows".into())
}

/// Bytes of rows of so many columns.
pub(crate) fn bytes_of(rows: usize, columns: usize, size: usize) -> Result<usize> {
    rows.checked_mul(columns).and_then(|n| n.checked_mul(size)).ok_or_else(too_large)
}

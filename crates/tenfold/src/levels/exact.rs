//! Values stored exactly inside a lossy tile: NaN, infinities, and what a quantiser cannot hold.
//!
//! They are runs of identical elements: (gap since the last run, length, element). Normative:
//! docs/format.md, 'Exact values'.

use crate::blob::bytes::{Reader, put_varint};
use crate::error::{Error, Result};

/// Runs of exactly stored elements, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Exact {
    /// (position in the tile, length, element bits)
    runs: Vec<(usize, usize, u64)>,
}

impl Exact {
    /// Adds the element at position `at`, after all added before.
    pub(crate) fn push(&mut self, at: usize, element: &[u8]) {
        let bits = element.iter().rev().fold(0u64, |v, &b| v << 8 | b as u64);
        match self.runs.last_mut() {
            Some((start, len, same)) if *same == bits && *start + *len == at => *len += 1,
            _ => self.runs.push((at, 1, bits)),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(crate) fn write(&self, size: usize, out: &mut Vec<u8>) {
        put_varint(out, self.runs.len() as u64);
        let mut end = 0;
        for &(start, len, bits) in &self.runs {
            put_varint(out, (start - end) as u64);
            put_varint(out, len as u64);
            out.extend_from_slice(&bits.to_le_bytes()[..size]);
            end = start + len;
        }
    }

    /// Reads runs of elements that `allowed` accepts, and puts those within `window` (positions in the tile) into
    /// `out`.
    pub(crate) fn apply(
        r: &mut Reader<'_>,
        size: usize,
        tile_len: usize,
        window: std::ops::Range<usize>,
        allowed: impl Fn(&[u8]) -> bool,
        out: &mut [u8],
    ) -> Result<()> {
        let runs = r.varint()?;
        let mut end = 0usize;
        for _ in 0..runs {
            let (gap, len) = (r.varint()?, r.varint()?);
            let element = r.take(size)?;
            let room = (tile_len - end) as u64;
            if len == 0 || gap > room || len > room - gap {
                return Err(Error::Corrupt("an exact value lies outside its tile"));
            }
            if !allowed(element) {
                return Err(Error::Corrupt("an exact value before steps is not finite"));
            }
            let start = end + gap as usize;
            end = start + len as usize;
            for at in start.max(window.start)..end.min(window.end) {
                out[(at - window.start) * size..][..size].copy_from_slice(element);
            }
        }
        Ok(())
    }
}

//! From stored bytes that have arrived to the bytes of the output, a tensor or some tiles of one at a time.

use std::ops::Range;

use tenfold::engine::threads;
use tenfold_archive::{Pick, ReadOptions};

use super::check::Checks;
use crate::error::{Error, Result};

/// Most bytes of a decoded piece: a few are under way at once.
const PIECE: u64 = 32 << 20;

/// A piece of work on a tensor, once its bytes are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unit {
    /// Check a tensor's bytes, then take some of them as they are.
    Stored { index: usize, take: Range<u64>, to: u64 },
    /// Decode a blob at once.
    Whole { index: usize, to: u64 },
    /// Decode rows of a blob, from the tiles that hold them.
    Rows { index: usize, rows: Range<usize>, tiles: Range<u64>, to: u64 },
}

impl Unit {
    /// The tensor.
    pub fn index(&self) -> usize {
        match self {
            Unit::Stored { index, .. } | Unit::Whole { index, .. } | Unit::Rows { index, .. } => *index,
        }
    }
}

/// What a unit makes.
pub(super) enum Made {
    /// Bytes for the output.
    Bytes(u64, Vec<u8>),
    /// Bytes of the spool, for the output.
    Copy(Range<u64>, u64),
    /// Nothing: the spool is the output.
    Nothing,
}

/// The pieces that a compressed tensor is decoded in, its header being there. `to` is where its bytes go. Without `max_memory` it is
/// one piece.
pub(super) fn pieces(
    checks: &Checks<'_>,
    pick: &Pick,
    to: u64,
    max_memory: Option<u64>,
) -> Result<Vec<Unit>> {
    let index = pick.index;
    let tensor = &checks.layout.tensors()[index];
    let stored = tensor.stored.end - tensor.stored.start;
    let is_small = tensor.info.bytes <= PIECE && stored <= PIECE;
    if pick.rows.is_none() && (is_small || max_memory.is_none()) {
        return Ok(vec![Unit::Whole { index, to }]);
    }
    let header = checks.header(index)?;
    let span = |rows: Range<usize>| {
        let span = tenfold::format::rows_span(&header, rows, &checks.limits);
        let source = |source| tenfold_archive::Error::Codec { name: tensor.info.name.clone(), source };
        span.map(|s| tensor.stored.start + s.start as u64..tensor.stored.start + s.end as u64).map_err(source)
    };
    let (cols, outer) = tensor.info.shape.split_last().map_or((1, &[][..]), |(&cols, outer)| (cols, outer));
    let all = outer.iter().fold(1usize, |n, &d| n.saturating_mul(d));
    let rows = pick.rows.clone().unwrap_or(0..all);
    let row_bytes = (tensor.info.bytes / all.max(1) as u64).max(1);
    let step = match max_memory {
        Some(_) => usize::try_from((PIECE / row_bytes).max(1)).unwrap_or(usize::MAX),
        None => usize::MAX,
    };
    let first = rows.start..rows.end.min(rows.start.saturating_add(step));
    let tiles = span(first.clone())?;
    // Of layered, transposed and carried blobs, every row needs all bytes.
    let is_scattered = tiles.end - tiles.start + header.len() as u64 >= stored && first.len() < all;
    let part = (first.len() as u64).saturating_mul(row_bytes);
    let need =
        if is_scattered { stored.saturating_add(tensor.info.bytes) } else { tiles.end - tiles.start + part };
    if let Some(max_memory) = max_memory.filter(|most| need > most / 4 * 3) {
        return Err(Error::Limit(format!(
            "tensor {:?} ({cols} columns) takes {need} bytes of memory at once, and {max_memory} are allowed: pull it without \
             decoding and decompress the file, or allow more",
            tensor.info.name
        )));
    }
    if is_scattered && pick.rows.is_none() {
        return Ok(vec![Unit::Whole { index, to }]);
    }
    let mut units = Vec::new();
    let mut at = rows.start;
    while at < rows.end {
        let end = if is_scattered { rows.end } else { rows.end.min(at.saturating_add(step)) };
        let to = to + (at - rows.start) as u64 * row_bytes;
        units.push(Unit::Rows { index, rows: at..end, tiles: span(at..end)?, to });
        at = end;
    }
    Ok(units)
}

/// Checks and decodes a unit whose bytes are there. `is_output` says whether the spool itself becomes the output.
pub(super) fn make(
    checks: &Checks<'_>,
    unit: &Unit,
    read: &ReadOptions,
    is_output: bool,
) -> Result<(Made, u64)> {
    let tensor = &checks.layout.tensors()[unit.index()];
    let codec =
        |source| Error::from(tenfold_archive::Error::Codec { name: tensor.info.name.clone(), source });
    let options = read.decode.clone().with_threads(0);
    match unit {
        Unit::Stored { index, take, to } => {
            // Rows of a plain tensor have no checksum of their own.
            if *take == tensor.stored {
                checks.tensor(*index)?;
            }
            let made = if is_output { Made::Nothing } else { Made::Copy(take.clone(), *to) };
            Ok((made, take.end - take.start))
        }
        Unit::Whole { index, to } => {
            let mut blob = vec![0; (tensor.stored.end - tensor.stored.start) as usize];
            checks.spool.read(tensor.stored.start, &mut blob)?;
            if let Some(digest) = checks.digest(*index)?
                && blake3::hash(&blob) != digest
            {
                let name = &tensor.info.name;
                return Err(checks.corrupt(format!("tensor {name:?} is not the one of the manifest")));
            }
            checks.layout.check_blob(*index, &blob)?;
            let decode = || read.engine.decode(&blob, &options);
            let tensor = threads::install(read.decode.threads, decode)?.map_err(codec)?;
            let bytes = tensor.data.len() as u64;
            Ok((Made::Bytes(*to, tensor.data), bytes))
        }
        Unit::Rows { index, rows, tiles, to } => {
            let header = checks.header(*index)?;
            // As long as the blob, but only what is filled takes memory: the system gives zeroed pages when they are touched.
            let mut blob = vec![0; (tensor.stored.end - tensor.stored.start) as usize];
            blob[..header.len()].copy_from_slice(&header);
            let place = |at: u64| (at - tensor.stored.start) as usize;
            checks.spool.read(tiles.start, &mut blob[place(tiles.start)..place(tiles.end)])?;
            let decode = || read.engine.decode_rows(&blob, rows.clone(), &options);
            let tensor = threads::install(read.decode.threads, decode)?.map_err(codec)?;
            let bytes = tensor.data.len() as u64;
            Ok((Made::Bytes(*to, tensor.data), bytes))
        }
    }
}

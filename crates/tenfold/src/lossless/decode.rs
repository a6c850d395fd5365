//! Lossless tiles back to elements.

use std::ops::Range;

use super::encode::{CODED, CONSTANT, STORED};
use super::params::{LOG, PlanesParams};
use super::planes::merge;
use crate::blob::TileRange;
use crate::blob::bytes::Reader;
use crate::entropy::rans::{Decoder, Escapes};
use crate::entropy::table::slot_table;
use crate::error::{Error, Result};
use crate::simd::Isa;
use crate::view::Dtype;

/// Slots of each plane's table; shared by all tiles.
pub(crate) struct Scratch {
    isa: Isa,
    slots: Vec<Vec<u32>>,
}

impl Scratch {
    pub(crate) fn new(isa: Isa, params: &PlanesParams) -> Self {
        let slots = params.tables.iter().map(|t| {
            let mut slots = Vec::new();
            slot_table(t.as_slice(), &mut slots);
            slots
        });
        Scratch { isa, slots: slots.collect() }
    }
}

/// Decodes the values `window` (positions in the tile) into `out`; `planes` is memory to reuse.
pub(crate) fn decode_tile(
    scratch: &Scratch,
    params: &PlanesParams,
    dtype: Dtype,
    tile: TileRange,
    bytes: &[u8],
    window: Range<usize>,
    planes: &mut Vec<u8>,
    out: &mut [u8],
) -> Result<()> {
    let size = dtype.size();
    // Planes may be read up to the window's end; what precedes it cannot be skipped.
    let n = window.end;
    planes.resize(n * size, 0);
    let mut r = Reader::new(bytes);
    for (plane, slots) in planes.chunks_exact_mut(n.max(1)).zip(&scratch.slots) {
        let head = r.u32()?;
        let rest = (head >> 8) as usize;
        match head as u8 {
            CONSTANT if rest < 256 => plane.fill(rest as u8),
            STORED if rest == 0 => {
                plane.copy_from_slice(&r.take(tile.len)?[..n]);
                padding(&mut r, tile.len)?;
            }
            CODED if !slots.is_empty() => {
                let len = params.geometry.lanes * 4 + rest * 2;
                let mut decoder = Decoder::new(params.geometry.lanes, r.take(len)?, Escapes::new(&[], 0))?;
                decoder.decode_bytes(scratch.isa, slots, LOG, plane)?;
                if n == tile.len {
                    decoder.finish()?;
                }
                padding(&mut r, len)?;
            }
            _ => return Err(Error::Corrupt("mode of a plane")),
        }
    }
    if !r.rest().is_empty() {
        return Err(Error::Corrupt("a tile has bytes left over"));
    }
    if window.start == 0 {
        merge(scratch.isa, dtype, planes, out);
    } else {
        let mut all = vec![0; n * size];
        merge(scratch.isa, dtype, planes, &mut all);
        out.copy_from_slice(&all[window.start * size..]);
    }
    Ok(())
}

/// Content is padded with zeros to a multiple of four.
fn padding(r: &mut Reader<'_>, len: usize) -> Result<()> {
    if r.take(len.next_multiple_of(4) - len)?.iter().any(|&b| b != 0) {
        return Err(Error::Corrupt("padding that is not zero"));
    }
    Ok(())
}

//! One tile from symbols to bytes.

use super::decode::{CODED, ESCAPES_SHIFT, EXACT};
use super::quantise::Quantised;
use crate::blob::bytes::put_varint;
use crate::entropy::ESCAPE;
use crate::entropy::rans::{self, WordStack};
use crate::entropy::table::EncodeTable;
use crate::simd::Isa;

/// Writes a tile of elements of `size` bytes; `stack` is memory to reuse.
pub(crate) fn pack_tile(
    isa: Isa,
    table: &EncodeTable,
    lanes: usize,
    size: usize,
    tile: &Quantised,
    stack: &mut WordStack,
) -> Vec<u8> {
    let mut out = vec![0u8; 4];
    let mut flags = 0;
    let mut words = 0;
    if !tile.all_zero {
        flags |= CODED;
        rans::encode(isa, table, lanes, &tile.symbols, stack, &mut out);
        words = (out.len() - 4 - lanes * 4) / 2;
        if let Some(low) = &tile.low {
            put_varint(&mut out, low.len() as u64);
            out.extend_from_slice(low);
        }
        let escapes = escaped_levels(isa, table, tile);
        if !escapes.is_empty() {
            let far = escapes.iter().map(|e| e.unsigned_abs()).max().unwrap_or(0);
            let code = if far < 1 << 7 {
                1
            } else if far < 1 << 15 {
                2
            } else {
                3u8
            };
            flags |= code << ESCAPES_SHIFT;
            put_varint(&mut out, escapes.len() as u64);
            escapes.iter().for_each(|e| out.extend_from_slice(&e.to_le_bytes()[..1 << (code - 1)]));
        }
    }
    if !tile.exact.is_empty() {
        flags |= EXACT;
        tile.exact.write(size, &mut out);
    }
    out[..4].copy_from_slice(&(flags as u32 | (words as u32) << 8).to_le_bytes());
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// Levels coded as escapes, in order: those that never had a symbol and those whose symbol has no slot.
fn escaped_levels(isa: Isa, table: &EncodeTable, tile: &Quantised) -> Vec<i32> {
    let mut far = tile.escapes.iter();
    let mut out = Vec::new();
    table.for_each_escape(isa, &tile.symbols, |_, s| {
        // One level was kept for each escape symbol.
        out.push(if s as u8 == ESCAPE { far.next().copied().unwrap_or(0) } else { s as u8 as i8 as i32 });
    });
    out
}

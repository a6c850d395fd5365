//! One tile from symbols to bytes.

use super::decode::{CODED, ESCAPES_SHIFT, EXACT};
use super::pairs::pair_up;
use super::params::LevelsParams;
use super::quantise::Quantised;
use crate::blob::bytes::put_varint;
use crate::entropy::pairs::PairTable;
use crate::entropy::rans::{self, WordStack};
use crate::entropy::table::EncodeTable;
use crate::entropy::{ESCAPE, MAX_LANES};
use crate::quant::machine::Machine;
use crate::simd::Isa;

/// How a blob's tiles are coded.
pub(crate) enum TileTable {
    Single(EncodeTable),
    Paired(Machine, EncodeTable),
}

impl TileTable {
    pub(crate) fn new(params: &LevelsParams) -> TileTable {
        match params.paired {
            true => {
                let tables = PairTable::all(&params.freqs, params.machine);
                TileTable::Paired(params.machine, EncodeTable::of_pairs(&tables))
            }
            false => TileTable::Single(EncodeTable::new(&params.freqs)),
        }
    }
}

/// Writes a tile of elements of `size` bytes; `stack` is memory to reuse.
pub(crate) fn pack_tile(
    isa: Isa,
    table: &TileTable,
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
        flags |= match *table {
            TileTable::Single(ref table) => put_levels(isa, table, lanes, tile, stack, &mut out, &mut words),
            TileTable::Paired(machine, ref table) => {
                put_pairs(isa, machine, table, tile, stack, &mut out, &mut words)
            }
        } << ESCAPES_SHIFT;
    }
    if !tile.exact.is_empty() {
        flags |= EXACT;
        tile.exact.write(size, &mut out);
    }
    out[..4].copy_from_slice(&(flags as u32 | (words as u32) << 8).to_le_bytes());
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// Writes levels one by one; returns the code of the escapes' width.
fn put_levels(
    isa: Isa,
    table: &EncodeTable,
    lanes: usize,
    tile: &Quantised,
    stack: &mut WordStack,
    out: &mut Vec<u8>,
    words: &mut usize,
) -> u8 {
    rans::encode(isa, table, lanes, &tile.symbols, stack, out);
    *words = (out.len() - 4 - lanes * 4) / 2;
    if let Some(low) = &tile.low {
        put_varint(out, low.len() as u64);
        out.extend_from_slice(low);
    }
    let escapes = escaped_levels(isa, table, tile);
    if escapes.is_empty() {
        return 0;
    }
    let code = match escapes.iter().map(|e| e.unsigned_abs()).max() {
        Some(0..0x80) => 1,
        Some(0x80..0x8000) => 2,
        _ => 3,
    };
    put_varint(out, escapes.len() as u64);
    escapes.iter().for_each(|e| out.extend_from_slice(&e.to_le_bytes()[..1 << (code - 1)]));
    code
}

/// Writes levels in pairs; returns the code of the escapes' width.
fn put_pairs(
    isa: Isa,
    machine: Machine,
    table: &EncodeTable,
    tile: &Quantised,
    stack: &mut WordStack,
    out: &mut Vec<u8>,
    words: &mut usize,
) -> u8 {
    let paired = pair_up(isa, machine, table, tile);
    rans::encode_pairs(isa, table, &paired.symbols, stack, out);
    *words = (out.len() - 4 - MAX_LANES * 4) / 2;
    if paired.escapes.is_empty() {
        return 0;
    }
    put_varint(out, paired.escapes.len() as u64);
    match paired.escapes.iter().flatten().max() {
        Some(0..16) => {
            out.extend(paired.escapes.iter().map(|[a, b]| (a | b << 4) as u8));
            1
        }
        Some(16..256) => {
            out.extend(paired.escapes.iter().flatten().map(|&v| v as u8));
            2
        }
        _ => {
            paired.escapes.iter().flatten().for_each(|v| out.extend_from_slice(&v.to_le_bytes()));
            3
        }
    }
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

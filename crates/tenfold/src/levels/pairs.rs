//! Levels of a paired tile: how values are dealt to lanes, and symbols of single levels to symbols of pairs.
//!
//! Two neighbouring values are two ticks of one lane, so that a decoder writes both at once. Normative: docs/format.md, 'Pairs'.

use super::dequant::{CHUNK, Dequant};
use super::quantise::Quantised;
use crate::entropy::pairs::{PAIR_ESCAPE, PairTable, is_escape, next_states, parity_bits, slot_table};
use crate::entropy::rans::{PAIR_RAW, PAIR_VALUES, PairSpec};
use crate::entropy::table::{EncodeTable, Freqs};
use crate::entropy::{ESCAPE, MAX_LANES};
use crate::quant::machine::{Machine, grid};
use crate::simd::{Isa, multiversion};

/// Values of two ticks.
pub(super) const BLOCK: usize = 2 * MAX_LANES;

/// Puts the values of each block into the order of lanes: the first of every pair, then the second.
pub(super) fn part<T: Copy + Default>(values: &mut [T]) {
    for block in values.as_chunks_mut::<BLOCK>().0 {
        let mixed = *block;
        for l in 0..MAX_LANES {
            block[l] = mixed[2 * l];
            block[MAX_LANES + l] = mixed[2 * l + 1];
        }
    }
}

/// The inverse of [`part`].
pub(super) fn join<T: Copy + Default>(values: &mut [T]) {
    for block in values.as_chunks_mut::<BLOCK>().0 {
        let apart = *block;
        for l in 0..MAX_LANES {
            block[2 * l] = apart[l];
            block[2 * l + 1] = apart[MAX_LANES + l];
        }
    }
}

/// What decoders of a blob's pairs look up.
pub(super) struct PairScratch {
    slots: Vec<u32>,
    values: Box<[u32; PAIR_VALUES]>,
    next: [u32; 16],
    machine: Machine,
    /// Whether values are elements of two bytes, two a word; else they are multiples of the step.
    pub elements: bool,
}

impl PairScratch {
    pub(super) fn new(isa: Isa, freqs: &[Freqs], machine: Machine, dequant: &Dequant) -> Self {
        let mut slots = Vec::new();
        slot_table(&PairTable::all(freqs, machine), &mut slots);
        let elements = dequant.dtype.size() == 2;
        let m: Vec<[i32; 2]> = (0..PAIR_VALUES)
            .map(|i| multiples((i >> 10) as u32, (i >> 2) as u8, i as u32 & 3, machine))
            .collect();
        let mut bytes = vec![0u8; PAIR_VALUES * 4];
        for (m, to) in m.as_flattened().chunks(CHUNK).zip(bytes.chunks_mut(CHUNK * 2)) {
            match elements {
                true => dequant.write(isa, m, to),
                false => {
                    m.iter().zip(to.as_chunks_mut().0).for_each(|(&m, to)| *to = (m as i16).to_le_bytes())
                }
            }
        }
        let mut values = Box::new([0u32; PAIR_VALUES]);
        values.iter_mut().zip(bytes.as_chunks().0).for_each(|(v, &b)| *v = u32::from_le_bytes(b));
        PairScratch { slots, values, next: next_states(machine), machine, elements }
    }

    pub(super) fn spec(&self) -> PairSpec<'_> {
        PairSpec { slots: &self.slots, values: &self.values, next: self.next, machine: self.machine }
    }
}

/// Multiples of the step that a symbol stands for in a state with these low bits.
fn multiples(low: u32, symbol: u8, raw: u32, machine: Machine) -> [i32; 2] {
    let (a, b) = (symbol as i32 >> 4, symbol as i32 & 15);
    let signed = |k: i32, negative: u32| if negative & 1 == 1 { -k } else { k };
    // The signs of those that are not zero, in order.
    let (first, second) = (signed(a, raw), signed(b, raw >> (a > 0) as u32));
    let then = machine.next(low, first);
    [grid(first, low & 1), grid(second, then & 1)]
}

/// A tile's symbols as pairs.
#[derive(Default)]
pub(super) struct Paired {
    /// Symbols as [`crate::entropy::rans::encode_pairs`] takes them.
    pub symbols: Vec<u16>,
    /// Halves of the magnitudes of pairs that have no symbol, in order.
    pub escapes: Vec<[u32; 2]>,
}

/// Joins the symbols of a tile in the order of lanes.
pub(super) fn pair_up(isa: Isa, machine: Machine, table: &EncodeTable, tile: &Quantised) -> Paired {
    // Where levels without a symbol are.
    let mut far = Vec::new();
    if !tile.escapes.is_empty() {
        let at = tile.symbols.iter().enumerate().filter(|(_, s)| **s as u8 == ESCAPE).map(|(i, _)| i);
        far.extend(at.zip(&tile.escapes));
    }
    let level = |at: usize| match tile.symbols[at] as u8 {
        ESCAPE => far.binary_search_by_key(&at, |f| f.0).map_or(0, |i| *far[i].1),
        s => s as i8 as i32,
    };
    // Whole blocks first; of the last one, what is there.
    let blocks = tile.symbols.as_chunks::<BLOCK>().0;
    let mut out = Paired { symbols: vec![0; blocks.len() * MAX_LANES], escapes: Vec::new() };
    for (i, (block, to)) in blocks.iter().zip(out.symbols.as_chunks_mut::<MAX_LANES>().0).enumerate() {
        if join_symbols(isa, machine, &table.span, block, to) {
            continue;
        }
        let there = (tile.pairs - i * MAX_LANES).min(MAX_LANES);
        for (l, to) in to[..there].iter_mut().enumerate() {
            let (s, t) = (block[l], block[MAX_LANES + l]);
            let (a, b) = (level(i * BLOCK + l), level(i * BLOCK + MAX_LANES + l));
            let set = table_of(machine, s as u32, t as u32, a as u32) << 8;
            if !has_symbol(table, set, a.unsigned_abs(), b.unsigned_abs()) {
                let odd = parity_bits(a as u8 & 1, b as u8 & 1) as u32;
                let raw = (a < 0) as u32 | ((b < 0) as u32) << 1;
                *to = (set | PAIR_ESCAPE as u32 | odd | raw << PAIR_RAW) as u16;
                out.escapes.push([a.unsigned_abs() / 2, b.unsigned_abs() / 2]);
            }
        }
    }
    out.symbols.truncate(tile.pairs);
    out
}

/// The table of a pair whose levels have the symbols `s` and `t`, and whose first level has this parity.
#[inline(always)]
fn table_of(machine: Machine, s: u32, t: u32, parity: u32) -> u32 {
    let q = s >> 8 & 1;
    // The second quantiser is what the state's second bit makes it.
    let bit = (t >> 8) ^ (q & machine.on_quantiser) ^ (parity & machine.on_parity);
    (s >> 9) << 2 | (bit & 1) << 1 | q
}

/// Whether two magnitudes have a symbol in the table that starts at `set`.
#[inline(always)]
fn has_symbol(table: &EncodeTable, set: u32, a: u32, b: u32) -> bool {
    let symbol = a << 4 & 0xf0 | b & 15;
    (a | b) < 16 && !is_escape(symbol as u8) && table.span[(set | symbol) as usize] & 0xffff != 0
}

multiversion! {
    fn join_symbols / join_symbols_inner(
        machine: Machine, spans: &[u32], block: &[u16; BLOCK], to: &mut [u16; MAX_LANES],
    ) -> bool
}

/// Joins the symbols of a block; whether every pair has a symbol of its own. `spans` are those of the table; the mask that keeps
/// indices within them is the number of them less one.
#[inline(always)]
fn join_symbols_inner(
    machine: Machine,
    spans: &[u32],
    block: &[u16; BLOCK],
    to: &mut [u16; MAX_LANES],
) -> bool {
    let within = spans.len() - 1;
    let mut none = [0u32; MAX_LANES];
    for l in 0..MAX_LANES {
        let (s, t) = (block[l] as u32, block[MAX_LANES + l] as u32);
        let (a, b) = (s as u8 as i8 as i32, t as u8 as i8 as i32);
        let (size_a, size_b) = (a.unsigned_abs(), b.unsigned_abs());
        let symbol = size_a << 4 & 0xf0 | size_b & 15;
        let index = table_of(machine, s, t, s) << 8 | symbol;
        let far = (size_a | size_b) >> 4;
        let escapes = (symbol & PAIR_ESCAPE as u32 == PAIR_ESCAPE as u32) as u32;
        let slots = spans[index as usize & within] & 0xffff;
        none[l] = far | escapes | (slots == 0) as u32;
        let raw = (a < 0) as u32 | ((b < 0) as u32) << (a != 0) as u32;
        to[l] = (index | raw << PAIR_RAW) as u16;
    }
    none.iter().fold(0, |a, n| a | n) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parting_and_joining_are_inverse() {
        let values: Vec<u32> = (0..3 * BLOCK as u32).collect();
        let mut apart = values.clone();
        part(&mut apart);
        assert_eq!(apart[..3], [0, 2, 4]);
        assert_eq!(apart[MAX_LANES..MAX_LANES + 2], [1, 3]);
        join(&mut apart);
        assert_eq!(apart, values);
    }
}

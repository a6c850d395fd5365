//! Symbol frequencies, and the two forms in which coders read them.

use super::ESCAPE;
use super::pairs::{PAIR_LOG, PairTable, raw_bits};
use crate::simd::{Isa, multiversion};

/// Smallest and largest log2 of the sum of a table's frequencies.
pub const LOG_RANGE: std::ops::RangeInclusive<u32> = 8..=12;

/// Frequencies of the 256 symbols; they add up to 2^log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Freqs {
    pub log: u32,
    pub of: [u16; 256],
}

impl Freqs {
    /// Whether the frequencies add up.
    pub(crate) fn is_complete(&self) -> bool {
        self.of.iter().map(|&f| f as u32).sum::<u32>() == 1 << self.log
    }

    /// Cost of a symbol in bits; infinite for one without a slot.
    pub(crate) fn bits(&self, symbol: u8) -> f64 {
        self.log as f64 - log2_of_slots()[self.of[symbol as usize] as usize]
    }
}

/// log2 of numbers of slots.
pub(crate) fn log2_of_slots() -> &'static [f64] {
    static LOG2: std::sync::OnceLock<Vec<f64>> = std::sync::OnceLock::new();
    LOG2.get_or_init(|| (0..=1 << LOG_RANGE.end()).map(|f| (f as f64).log2()).collect())
}

/// Decoding form: one word a slot, holding frequency − 1 (12 bits), the slot's offset within its symbol
/// (12 bits) and the symbol (8 bits).
pub(crate) fn slot_table(tables: &[Freqs], out: &mut Vec<u32>) {
    out.clear();
    out.reserve(tables.iter().map(|table| 1 << table.log).sum());
    for table in tables {
        for (symbol, f) in table.of.iter().enumerate().filter(|(_, f)| **f > 0) {
            let of_symbol = (u32::from(*f) - 1) | (symbol as u32) << 24;
            out.extend((0..u32::from(*f)).map(|offset| of_symbol | offset << 12));
        }
    }
}

/// Encoding form, indexed by `table · 256 + symbol`. Symbols without a slot code as the escape does.
pub(crate) struct EncodeTable {
    pub log: u32,
    /// Frequency in the low half, start of the slots in the high half; of pairs, the number of raw bits in the top two bits.
    pub span: Vec<u32>,
    /// Slightly less than 1/frequency.
    pub reciprocal: Vec<f32>,
    /// Whether a symbol has no slot and becomes an escape.
    missing: Vec<bool>,
    /// Levels in this range have a slot in every table.
    common: std::ops::RangeInclusive<i8>,
}

/// Where the span of a pair keeps the number of raw bits.
pub(crate) const SPAN_RAW: u32 = 30;

/// Shrinks reciprocals so that a quotient computed with them is never too large.
const SHRINK: f32 = 1.0 - 1.0 / (1 << 22) as f32;

impl EncodeTable {
    /// Of pairs; symbols without a slot must not be coded.
    pub(crate) fn of_pairs(tables: &[PairTable]) -> EncodeTable {
        // Vector code masks its indices to a power of two.
        let n = (tables.len() * 256).next_power_of_two();
        let mut t = EncodeTable {
            log: PAIR_LOG,
            span: vec![1; n],
            reciprocal: vec![1.0; n],
            missing: Vec::new(),
            common: 0..=0,
        };
        for (i, table) in tables.iter().enumerate() {
            for symbol in 0..=255u8 {
                let f = table.frequency(symbol);
                let at = i * 256 + symbol as usize;
                let start = table.start[symbol as usize] as u32;
                t.span[at] = f | start << 16 | raw_bits(symbol) << SPAN_RAW;
                t.reciprocal[at] = SHRINK / f.max(1) as f32;
            }
        }
        t
    }

    pub(crate) fn new(tables: &[Freqs]) -> EncodeTable {
        // Vector code masks its indices to a power of two.
        let n = (tables.len() * 256).next_power_of_two();
        let mut t = EncodeTable {
            log: tables.first().map_or(12, |t| t.log),
            span: vec![1; n],
            reciprocal: vec![1.0; n],
            missing: vec![false; n],
            common: 0..=0,
        };
        for (i, table) in tables.iter().enumerate() {
            let mut start = 0u32;
            for (symbol, &f) in table.of.iter().enumerate() {
                t.span[i * 256 + symbol] = f as u32 | start << 16;
                t.reciprocal[i * 256 + symbol] = SHRINK / (f.max(1)) as f32;
                start += f as u32;
            }
            let escape = i * 256 + ESCAPE as usize;
            for symbol in 0..256 {
                if table.of[symbol] == 0 {
                    t.missing[i * 256 + symbol] = true;
                    t.span[i * 256 + symbol] = t.span[escape];
                    t.reciprocal[i * 256 + symbol] = t.reciprocal[escape];
                }
            }
        }
        let everywhere = |k: i8| tables.iter().all(|t| t.of[k as u8 as usize] > 0);
        let high = (0..127).take_while(|&k| everywhere(k)).last();
        let low = (1..=127).map(|k: i8| -k).take_while(|&k| everywhere(k)).last();
        if let Some(high) = high {
            t.common = low.unwrap_or(0)..=high;
        }
        t
    }

    /// Calls `found` with the position and index of every symbol that is coded as an escape.
    pub(crate) fn for_each_escape(&self, isa: Isa, symbols: &[u16], mut found: impl FnMut(usize, u16)) {
        const BLOCK: usize = 128;
        let everywhere = !self.span.is_empty() && self.common != (0..=0);
        for (b, block) in symbols.chunks(BLOCK).enumerate() {
            if everywhere && !any_outside(isa, block, *self.common.start(), *self.common.end()) {
                continue;
            }
            for (i, &s) in block.iter().enumerate().filter(|&(_, &s)| self.escapes(s)) {
                found(b * BLOCK + i, s);
            }
        }
    }

    /// Whether the symbol at this index is coded as an escape.
    pub(crate) fn escapes(&self, index: u16) -> bool {
        index as u8 == ESCAPE || self.missing[index as usize]
    }
}

multiversion! { fn any_outside / any_outside_inner(symbols: &[u16], low: i8, high: i8) -> bool }

#[inline(always)]
fn any_outside_inner(symbols: &[u16], low: i8, high: i8) -> bool {
    let span = (high as i16 - low as i16) as u8;
    let mut any = false;
    for &s in symbols {
        any |= (s as u8).wrapping_sub(low as u8) > span;
    }
    any
}

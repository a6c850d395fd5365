//! Symbol frequencies, and the two forms in which coders read them.

use super::ESCAPE;

/// Smallest and largest log2 of the sum of a table's frequencies.
pub(crate) const LOG_RANGE: std::ops::RangeInclusive<u32> = 8..=12;

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
        self.log as f64 - (self.of[symbol as usize] as f64).log2()
    }
}

/// Decoding form: one word a slot, holding frequency − 1 (12 bits), the slot's offset within its symbol
/// (12 bits) and the symbol (8 bits).
pub(crate) fn slot_table(tables: &[Freqs], out: &mut Vec<u32>) {
    out.clear();
    for table in tables {
        for (symbol, &f) in table.of.iter().enumerate() {
            for offset in 0..f as u32 {
                out.push((f as u32 - 1) | offset << 12 | (symbol as u32) << 24);
            }
        }
    }
}

/// Encoding form, indexed by `table · 256 + symbol`. Symbols without a slot code as the escape does.
pub(crate) struct EncodeTable {
    pub log: u32,
    /// Frequency in the low half, start of the slots in the high half.
    pub span: Vec<u32>,
    /// Slightly less than 1/frequency.
    pub reciprocal: Vec<f32>,
    /// Whether some symbol of some table is missing and becomes an escape.
    pub has_missing: Vec<bool>,
}

/// Shrinks reciprocals so that a quotient computed with them is never too large.
const SHRINK: f32 = 1.0 - 1.0 / (1 << 22) as f32;

impl EncodeTable {
    pub(crate) fn new(tables: &[Freqs]) -> EncodeTable {
        let n = tables.len() * 256;
        let mut t = EncodeTable {
            log: tables.first().map_or(12, |t| t.log),
            span: vec![1; n],
            reciprocal: vec![1.0; n],
            has_missing: vec![false; n],
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
                    t.has_missing[i * 256 + symbol] = true;
                    t.span[i * 256 + symbol] = t.span[escape];
                    t.reciprocal[i * 256 + symbol] = t.reciprocal[escape];
                }
            }
        }
        t
    }

    /// Whether the symbol at this index is coded as an escape.
    pub(crate) fn escapes(&self, index: u16) -> bool {
        index as u8 == ESCAPE || self.has_missing[index as usize]
    }
}

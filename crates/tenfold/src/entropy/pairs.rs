//! Pairs of levels as symbols: their tables follow from those of single levels. Normative: docs/format.md, 'Pairs'.
//!
//! A pair is coded as its two magnitudes, then the signs of those that are not zero as raw bits of the state. So a table has a few
//! dozen symbols where pairs of signed levels would be hundreds, and 2^11 slots tell them apart well.

use super::ESCAPE;
use super::table::Freqs;
use crate::quant::machine::Machine;

/// log2 of the slots of a table of pairs.
pub const PAIR_LOG: u32 = 11;
/// The symbol of two even magnitudes that have no symbol of their own. With [`PAIR_FIRST_ODD`] and [`PAIR_SECOND_ODD`] it stands for
/// the other parities.
pub const PAIR_ESCAPE: u8 = 0xee;
/// Bit of a symbol: the first magnitude is odd.
pub const PAIR_FIRST_ODD: u8 = 0x10;
/// Bit of a symbol: the second magnitude is odd.
pub const PAIR_SECOND_ODD: u8 = 0x01;
/// Raw bits behind an escape.
pub const PAIR_ESCAPE_BITS: u32 = 3;
/// Tables of a class, one for each value of a state's two low bits.
pub const PAIR_TABLES: usize = 4;
/// Largest magnitude that a symbol has room for.
const MOST: usize = 15;

/// Whether a symbol of a pair is one of the four escapes.
#[inline(always)]
pub(crate) fn is_escape(symbol: u8) -> bool {
    symbol & PAIR_ESCAPE == PAIR_ESCAPE
}

/// The bits of a symbol that say which magnitudes are odd.
#[inline(always)]
pub(crate) fn parity_bits(first: u8, second: u8) -> u8 {
    (first * PAIR_FIRST_ODD) | (second * PAIR_SECOND_ODD)
}

/// Raw bits behind a symbol: the signs of magnitudes that are not zero.
#[inline(always)]
pub(crate) fn raw_bits(symbol: u8) -> u32 {
    if is_escape(symbol) {
        return PAIR_ESCAPE_BITS;
    }
    (symbol >> 4 != 0) as u32 + (symbol & 15 != 0) as u32
}

/// What tables of pairs need to know of a table of levels: frequencies by magnitude.
struct Folded {
    log: u32,
    /// Of magnitudes 0, 1, …, escapes left out.
    of: [u32; 128],
    /// Of all even and all odd levels; escapes count as even.
    parity: [u32; 2],
}

impl Folded {
    fn new(freqs: &Freqs) -> Folded {
        let of = std::array::from_fn(|a| match a as u8 {
            0 => freqs.of[0] as u32,
            a => freqs.of[a as usize] as u32 + freqs.of[a.wrapping_neg() as usize] as u32,
        });
        let odd = of.iter().skip(1).step_by(2).sum();
        Folded { log: freqs.log, of, parity: [(1 << freqs.log) - odd, odd] }
    }
}

/// The first slot of every symbol of a table, and the end of the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PairTable {
    pub start: [u16; 257],
}

impl PairTable {
    /// For pairs that begin in a state with the low bits `low`; `of` are the tables of the quantisers of a class.
    fn new(of: &[Folded; 2], machine: Machine, low: u32) -> PairTable {
        let unit = 1u32 << (2 * of[0].log - PAIR_LOG);
        let least = unit + unit / 4;
        let first = &of[low as usize & 1];
        let second = |odd: usize| &of[machine.next(low, odd as i32) as usize & 1];
        let mut weight = [0u32; 256];
        // What is left for escapes, by parities.
        let mut left: [u32; 4] = std::array::from_fn(|p| first.parity[p >> 1] * second(p >> 1).parity[p & 1]);
        for a in 0..=MOST {
            for b in 0..=MOST {
                let symbol = a << 4 | b;
                let w = first.of[a] * second(a & 1).of[b];
                if !is_escape(symbol as u8) && w >= unit / 4 {
                    left[(a & 1) << 1 | b & 1] -= w;
                    weight[symbol] = w.max(least);
                }
            }
        }
        for (p, &left) in left.iter().enumerate() {
            let odd = parity_bits(p as u8 >> 1, p as u8 & 1);
            weight[(PAIR_ESCAPE | odd) as usize] = left.max(least);
        }
        let total = weight.iter().sum::<u32>() as u64;
        let mut start = [1 << PAIR_LOG; 257];
        let mut sum = 0u64;
        for (start, &w) in start.iter_mut().zip(&weight) {
            *start = ((sum << PAIR_LOG) / total) as u16;
            sum += w as u64;
        }
        PairTable { start }
    }

    /// All tables of a blob: [`PAIR_TABLES`] a class. `freqs` has two tables a class.
    pub(crate) fn all(freqs: &[Freqs], machine: Machine) -> Vec<PairTable> {
        let of_class = |two: &[Freqs]| {
            let of = [Folded::new(&two[0]), Folded::new(&two[1])];
            (0..PAIR_TABLES as u32).map(|low| PairTable::new(&of, machine, low)).collect::<Vec<_>>()
        };
        freqs.chunks_exact(2).flat_map(of_class).collect()
    }

    /// Slots of a symbol.
    #[inline(always)]
    pub(crate) fn frequency(&self, symbol: u8) -> u32 {
        (self.start[symbol as usize + 1] - self.start[symbol as usize]) as u32
    }
}

/// Where a slot's word keeps the symbol, and the number of raw bits.
pub(crate) const SLOT_SYMBOL: u32 = 22;
pub(crate) const SLOT_RAW: u32 = 30;

/// Decoding form: a word a slot, holding the frequency (11 bits), the slot's offset within its symbol (11 bits), the symbol
/// (8 bits) and the number of its raw bits (2 bits). Escapes have slots in every table, so that no frequency is 2^11.
pub(crate) fn slot_table(tables: &[PairTable], out: &mut Vec<u32>) {
    out.clear();
    for table in tables {
        for symbol in 0..=255u8 {
            let f = table.frequency(symbol);
            let rest = f | (symbol as u32) << SLOT_SYMBOL | raw_bits(symbol) << SLOT_RAW;
            out.extend((0..f).map(|offset| rest | offset << PAIR_LOG));
        }
    }
}

/// What a state becomes when a pair was coded: `(s >> 2) ^ table[parities << 2 | s & 3]`, where bit 0 of `parities` is set if the
/// first level is odd, and bit 1 if the second is.
pub(crate) fn next_states(machine: Machine) -> [u32; 16] {
    std::array::from_fn(|i| {
        let (low, first, second) = (i as u32 & 3, i as i32 >> 2 & 1, i as i32 >> 3);
        machine.next(machine.next(low, first), second)
    })
}

/// What pairs cost, where levels have the probabilities of two tables.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Price {
    /// Bits a pair beyond what single levels take.
    pub excess: f64,
    /// Share of pairs that have no symbol of their own.
    pub escaped: f64,
}

impl Price {
    /// Of the tables of a class's two quantisers.
    pub(crate) fn new(freqs: &[Freqs], machine: Machine) -> Price {
        let of = [Folded::new(&freqs[0]), Folded::new(&freqs[1])];
        let entropy: Vec<f64> = freqs[..2].iter().map(entropy).collect();
        let all = f64::from(1u32 << of[0].log);
        let mut price = Price::default();
        let lows = if machine == Machine::SCALAR { 1 } else { PAIR_TABLES as u32 };
        for low in 0..lows {
            let table = PairTable::new(&of, machine, low);
            let bits = |symbol: u8| PAIR_LOG as f64 - f64::from(table.frequency(symbol).max(1)).log2();
            let first = &of[low as usize & 1];
            let second = |odd: usize| machine.next(low, odd as i32) as usize & 1;
            let mut paid = -entropy[low as usize & 1];
            // Escapes by parity, of single levels too.
            let mut escaped: [f64; 4] = std::array::from_fn(|p| {
                let share = f64::from(first.parity[p >> 1]) / all;
                if p & 1 == 0 {
                    paid -= share * entropy[second(p >> 1)];
                }
                share * f64::from(of[second(p >> 1)].parity[p & 1]) / all
            });
            for a in 0..=MOST {
                for b in 0..=MOST {
                    let symbol = (a << 4 | b) as u8;
                    if !is_escape(symbol) && table.frequency(symbol) > 0 {
                        let p = f64::from(first.of[a] * of[second(a & 1)].of[b]) / all / all;
                        paid += p * (bits(symbol) + f64::from(raw_bits(symbol)));
                        escaped[(a & 1) << 1 | b & 1] -= p;
                    }
                }
            }
            for (p, share) in escaped.into_iter().enumerate() {
                let odd = parity_bits(p as u8 >> 1, p as u8 & 1);
                // A byte, mostly.
                paid += share * (bits(PAIR_ESCAPE | odd) + f64::from(PAIR_ESCAPE_BITS) + 8.0);
                price.escaped += share / f64::from(lows);
            }
            price.excess += paid / f64::from(lows);
        }
        price
    }
}

/// Bits of a symbol on average; escapes take a byte more.
fn entropy(freqs: &Freqs) -> f64 {
    let share = |symbol: u8| f64::from(freqs.of[symbol as usize]) / f64::from(1u32 << freqs.log);
    let bits = |symbol: u8| freqs.bits(symbol) + if symbol == ESCAPE { 8.0 } else { 0.0 };
    (0..=255u8).filter(|&s| freqs.of[s as usize] > 0).map(|s| share(s) * bits(s)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::fit::normalise;
    use crate::entropy::table_code::Alphabet;

    fn bell(sigma: f64, log: u32) -> Freqs {
        let mut counts = [0u64; 256];
        for k in -127i32..=127 {
            counts[k as u8 as usize] = (1e6 * (-(k * k) as f64 / (2.0 * sigma * sigma)).exp() / sigma) as u64;
        }
        normalise(&counts, Alphabet::levels(log, 0))
    }

    #[test]
    fn every_symbol_with_a_weight_has_slots_and_escapes_always_do() {
        for log in 8..=12 {
            for sigma in [0.05, 0.3, 1.0, 2.0, 5.0, 40.0] {
                let freqs = [bell(sigma, log), bell(sigma * 1.3, log)];
                for nu in [0, 2, 3, 8] {
                    let machine = Machine::new(nu).unwrap();
                    for t in PairTable::all(&freqs, machine) {
                        assert!(t.start.windows(2).all(|w| w[0] <= w[1]) && t.start[0] == 0);
                        for odd in [0, PAIR_SECOND_ODD, PAIR_FIRST_ODD, PAIR_FIRST_ODD | PAIR_SECOND_ODD] {
                            assert!(t.frequency(PAIR_ESCAPE | odd) > 0, "{log} {sigma} {nu}");
                        }
                        assert_eq!(t.start[256], 1 << PAIR_LOG);
                    }
                }
            }
        }
    }

    #[test]
    fn pairs_cost_hardly_more_than_single_levels() {
        for (sigma, most) in [(0.4, 0.012), (1.0, 0.012), (2.0, 0.02), (3.0, 0.03)] {
            let freqs = [bell(sigma, 12), bell(sigma, 12)];
            let Price { excess, escaped } = Price::new(&freqs, Machine::new(3).unwrap());
            assert!((-1e-3..most).contains(&excess) && escaped < 0.003, "{sigma}: {excess}, {escaped}");
        }
    }

    #[test]
    fn levels_far_from_zero_or_of_one_sign_are_no_pairs() {
        let machine = Machine::new(3).unwrap();
        assert!(Price::new(&[bell(9.0, 12), bell(9.0, 12)], machine).escaped > 0.05);
        let mut freqs = bell(2.0, 12);
        for k in 1..128u8 {
            let minus = std::mem::take(&mut freqs.of[k.wrapping_neg() as usize]);
            freqs.of[k as usize] += minus;
        }
        assert!(Price::new(&[freqs.clone(), freqs], machine).excess > 1.0);
    }

    #[test]
    fn two_steps_at_once_are_two_steps() {
        for nu in [0, 2, 3, 5, 8] {
            let machine = Machine::new(nu).unwrap();
            let table = next_states(machine);
            for s in 0..machine.states() {
                for p in 0..4 {
                    let slow = machine.next(machine.next(s, p as i32 & 1), p as i32 >> 1);
                    assert_eq!(s >> 2 ^ table[(p << 2 | s & 3) as usize], slow);
                }
            }
        }
    }
}

//! Levels to symbols of their tables, with what a coder needs beside them.

use super::check::Checked;
use super::exact::Exact;
use super::pairs::BLOCK;
use super::quantise::{Plan, Quantised};
use crate::entropy::bits::BitWriter;
use crate::entropy::count::Tally;
use crate::entropy::fit::Counts;
use crate::entropy::{ESCAPE, MAX_CLASSES, MAX_LANES};
use crate::quant::machine::Machine;
use crate::simd::multiversion;
use crate::simd::wide::WIDTH;

/// A tile's symbols, piece by piece.
pub(super) struct Symbols {
    /// Table · 256 + symbol.
    pub symbols: Vec<u16>,
    /// Levels without a symbol, low bits removed, in order.
    pub escapes: Vec<i32>,
    low: BitWriter,
    /// Symbols there are so far.
    filled: usize,
    state: [u32; MAX_LANES],
    /// All levels or-ed together.
    any: i32,
}

impl Symbols {
    /// `memory` is reused for the symbols.
    pub(super) fn new(plan: &Plan, len: usize, mut memory: Vec<u16>) -> Self {
        memory.resize(if plan.paired { len.next_multiple_of(BLOCK) } else { len }, 0);
        Symbols {
            symbols: memory,
            filled: 0,
            escapes: Vec::new(),
            low: BitWriter::default(),
            state: [0; MAX_LANES],
            any: 0,
        }
    }

    /// Adds blocks of levels in the order of lanes, for pairs of values; all pieces but the last are whole blocks.
    pub(super) fn push_pairs(&mut self, plan: &Plan, k: &[i32], class: &[u8]) {
        let out = &mut self.symbols[self.filled..][..k.len()];
        self.filled += k.len();
        let (any, far) = ticks::<false, MAX_LANES>(
            plan.isa,
            plan.machine,
            k,
            class,
            &[0; MAX_CLASSES],
            &mut self.state,
            out,
        );
        self.any |= any;
        if far >= 128 {
            let escaped = out.iter().zip(k).filter(|(s, _)| **s as u8 == ESCAPE);
            self.escapes.extend(escaped.map(|(_, &k)| k));
        }
    }

    /// Adds levels; all pieces but the last are whole ticks. `class` is empty where there is one class.
    pub(super) fn push(&mut self, plan: &Plan, k: &[i32], class: &[u8]) {
        let lanes = plan.geometry.lanes;
        let first = self.filled;
        self.filled += k.len();
        let (any, mut far, done) = match lanes {
            // All ticks of a scalar quantiser are alike, however many values they have.
            _ if plan.machine == Machine::SCALAR => self.push_ticks::<MAX_LANES>(plan, k, class, first),
            MAX_LANES => self.push_ticks::<MAX_LANES>(plan, k, class, first),
            WIDTH => self.push_ticks::<WIDTH>(plan, k, class, first),
            _ => (0, 0, 0),
        };
        self.any |= any;
        let out = &mut self.symbols[first..][..k.len()];
        let low_bits = |i: usize| plan.low.get(class.get(i).copied().unwrap_or(0));
        for (i, &k) in k.iter().enumerate().skip(done) {
            let s = &mut self.state[i % lanes];
            let set = class.get(i).map_or(0, |&c| c as u32) * 2 + (*s & 1);
            let high = k >> low_bits(i);
            out[i] = (set << 8) as u16 | symbol(high) as u16;
            *s = plan.machine.next(*s, k);
            self.any |= k;
            far |= high.unsigned_abs();
        }
        if !plan.low.none() {
            plan.low.pack(k, class, &mut self.low);
        }
        if far >= 128 {
            let escaped = out.iter().zip(k).enumerate().filter(|(_, (s, _))| **s as u8 == ESCAPE);
            self.escapes.extend(escaped.map(|(i, (_, &k))| k >> low_bits(i)));
        }
    }

    /// Adds whole ticks of N values at the symbols from `first` on; returns all levels and all magnitudes of symbols, or-ed together, and
    /// how many values that were.
    fn push_ticks<const N: usize>(
        &mut self,
        plan: &Plan,
        k: &[i32],
        class: &[u8],
        first: usize,
    ) -> (i32, u32, usize) {
        let out = &mut self.symbols[first..][..k.len()];
        let Some(state) = self.state.first_chunk_mut::<N>() else { return (0, 0, 0) };
        let low = plan.low.shifts();
        let (any, far) = match plan.low.none() {
            true => ticks::<false, N>(plan.isa, plan.machine, k, class, &low, state, out),
            false => ticks::<true, N>(plan.isa, plan.machine, k, class, &low, state, out),
        };
        (any, far, k.len() / N * N)
    }

    /// Occurrences by table. Of the last block of pairs only those lanes count that have a pair.
    fn count(&self, plan: &Plan, len: usize) -> Vec<Counts> {
        let mut tally = Tally::new(plan.class_count() * 2);
        let whole = if plan.paired { len / BLOCK * BLOCK } else { len };
        tally.add(&self.symbols[..whole]);
        for tick in self.symbols[whole..].chunks(MAX_LANES) {
            tally.add(&tick[..(len - whole).div_ceil(2)]);
        }
        tally.into_counts()
    }

    /// The tile of `len` values that these are the symbols of.
    pub(super) fn into_tile(self, plan: &Plan, len: usize, exact: Exact, checked: Checked) -> Quantised {
        let pairs = if plan.paired { len.div_ceil(2) } else { 0 };
        Quantised {
            pairs,
            counts: if plan.count { self.count(plan, len) } else { Vec::new() },
            all_zero: self.any == 0,
            symbols: self.symbols,
            low: (!plan.low.none()).then(|| self.low.finish()),
            escapes: self.escapes,
            exact,
            squared_error: checked.squared_error,
            measured: checked.finite,
        }
    }
}

/// Symbol of a level without its low bits.
#[inline(always)]
fn symbol(high: i32) -> u8 {
    if high.unsigned_abs() < 128 { high as u8 } else { ESCAPE }
}

multiversion! {
    fn ticks / ticks_inner<const LOW: bool, const N: usize>(
        machine: Machine, k: &[i32], class: &[u8], low: &[u32; MAX_CLASSES], state: &mut [u32; N], out: &mut [u16],
    ) -> (i32, u32)
}

/// Whole ticks of N lanes, with low bits or without; returns all levels, and all magnitudes that become symbols, or-ed together.
#[inline(always)]
fn ticks_inner<const LOW: bool, const N: usize>(
    machine: Machine,
    k: &[i32],
    class: &[u8],
    low: &[u32; MAX_CLASSES],
    state: &mut [u32; N],
    out: &mut [u16],
) -> (i32, u32) {
    let (mut any, mut far) = ([0i32; N], [0u32; N]);
    let mut s = *state;
    let none = [0u8; N];
    let classes = class.as_chunks::<N>().0;
    let (ks, outs) = (k.as_chunks::<N>().0, out.as_chunks_mut::<N>().0);
    for (t, (k, o)) in ks.iter().zip(outs).enumerate() {
        let c = classes.get(t).unwrap_or(&none);
        for l in 0..N {
            let set = (c[l] as u32) << 9 | (s[l] & 1) << 8;
            let high = if LOW { k[l] >> low[c[l] as usize % MAX_CLASSES] } else { k[l] };
            let sym = if high.unsigned_abs() < 128 { high as u32 & 0xff } else { ESCAPE as u32 };
            o[l] = (set | sym) as u16;
            s[l] = machine.next(s[l], k[l]);
            any[l] |= k[l];
            far[l] |= high.unsigned_abs();
        }
    }
    *state = s;
    (any.iter().fold(0, |a, b| a | b), far.iter().fold(0, |a, b| a | b))
}

//! Levels to symbols of their tables, with what a coder needs beside them.

use super::check::Checked;
use super::exact::Exact;
use super::pairs::BLOCK;
use super::quantise::{Plan, Quantised};
use crate::entropy::bits::BitWriter;
use crate::entropy::fit::Counts;
use crate::entropy::{ESCAPE, MAX_LANES};
use crate::quant::machine::Machine;
use crate::simd::multiversion;

/// A tile's symbols, piece by piece.
pub(super) struct Symbols {
    /// Table · 256 + symbol.
    pub symbols: Vec<u16>,
    /// Levels without a symbol, low bits removed, in order.
    pub escapes: Vec<i32>,
    pub counts: Vec<Counts>,
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
            counts: vec![[0; 256]; plan.class_count() * 2],
            low: BitWriter::default(),
            state: [0; MAX_LANES],
            any: 0,
        }
    }

    /// Adds blocks of levels in the order of lanes, for pairs of `len` values; all pieces but the last are whole blocks.
    pub(super) fn push_pairs(&mut self, plan: &Plan, len: usize, k: &[i32], class: &[u8]) {
        let out = &mut self.symbols[self.filled..][..k.len()];
        self.filled += k.len();
        let (any, far) = ticks(plan.isa, plan.machine, k, class, &mut self.state, out);
        self.any |= any;
        if far >= 128 {
            let escaped = out.iter().zip(k).filter(|(s, _)| **s as u8 == ESCAPE);
            self.escapes.extend(escaped.map(|(_, &k)| k));
        }
        if plan.count {
            let whole = len / BLOCK * BLOCK;
            count(&out[..whole], &mut self.counts);
            // Of the last block only the lanes that have a pair.
            let pairs = (len - whole).div_ceil(2);
            for tick in out[whole..].chunks(MAX_LANES) {
                count(&tick[..pairs], &mut self.counts);
            }
        }
    }

    /// Adds levels; all pieces but the last are whole ticks. `class` is empty where there is one class.
    pub(super) fn push(&mut self, plan: &Plan, k: &[i32], class: &[u8]) {
        let lanes = plan.geometry.lanes;
        let out = &mut self.symbols[self.filled..][..k.len()];
        self.filled += k.len();
        let mut done = 0;
        let mut far = 0;
        if lanes == MAX_LANES && plan.low.none() {
            let (any, most) = ticks(plan.isa, plan.machine, k, class, &mut self.state, out);
            self.any |= any;
            far = most;
            done = k.len() / lanes * lanes;
        }
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
        if plan.count {
            count(out, &mut self.counts);
        }
    }

    /// The tile of `len` values that these are the symbols of.
    pub(super) fn into_tile(self, plan: &Plan, len: usize, exact: Exact, checked: Checked) -> Quantised {
        Quantised {
            pairs: if plan.paired { len.div_ceil(2) } else { 0 },
            all_zero: self.any == 0,
            symbols: self.symbols,
            low: (!plan.low.none()).then(|| self.low.finish()),
            escapes: self.escapes,
            exact,
            counts: self.counts,
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
    fn ticks / ticks_inner(
        machine: Machine, k: &[i32], class: &[u8], state: &mut [u32; MAX_LANES], out: &mut [u16],
    ) -> (i32, u32)
}

/// Whole ticks of 32 lanes, no low bits; returns all levels and all magnitudes, or-ed together.
#[inline(always)]
fn ticks_inner(
    machine: Machine,
    k: &[i32],
    class: &[u8],
    state: &mut [u32; MAX_LANES],
    out: &mut [u16],
) -> (i32, u32) {
    let (mut any, mut far) = ([0i32; MAX_LANES], [0u32; MAX_LANES]);
    let mut s = *state;
    let none = [0u8; MAX_LANES];
    let classes = class.as_chunks::<MAX_LANES>().0;
    let (ks, outs) = (k.as_chunks::<MAX_LANES>().0, out.as_chunks_mut::<MAX_LANES>().0);
    for (t, (k, o)) in ks.iter().zip(outs).enumerate() {
        let c = classes.get(t).unwrap_or(&none);
        for l in 0..MAX_LANES {
            let set = (c[l] as u32) << 9 | (s[l] & 1) << 8;
            let sym = if k[l].unsigned_abs() < 128 { k[l] as u32 & 0xff } else { ESCAPE as u32 };
            o[l] = (set | sym) as u16;
            s[l] = machine.next(s[l], k[l]);
            any[l] |= k[l];
            far[l] |= k[l].unsigned_abs();
        }
    }
    *state = s;
    (any.iter().fold(0, |a, b| a | b), far.iter().fold(0, |a, b| a | b))
}

/// Counts symbols, four tables at once so that equal neighbours do not wait for each other.
fn count(symbols: &[u16], counts: &mut [Counts]) {
    let n = counts.len() * 256;
    let mut parts = vec![0u32; n * 4];
    let (quads, rest) = symbols.as_chunks::<4>();
    for s in quads {
        for (p, &s) in s.iter().enumerate() {
            parts[p * n + s as usize] += 1;
        }
    }
    rest.iter().for_each(|&s| parts[s as usize] += 1);
    for (i, c) in counts.as_flattened_mut().iter_mut().enumerate() {
        *c += (0..4).map(|p| parts[p * n + i] as u64).sum::<u64>();
    }
}

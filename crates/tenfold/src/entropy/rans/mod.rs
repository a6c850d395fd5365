//! Interleaved rANS: 32-bit states, 16-bit words, up to 32 lanes that share one stream.
//!
//! Symbol i of a tile belongs to lane i mod `lanes`. In each tick the lanes that run low take the next words of the
//! stream in lane order. `plain` is the oracle; `avx2` and `avx512` run full ticks of 32
//! lanes and leave the rest to it.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod plain;
#[cfg(test)]
mod tests;

use super::pairs::{PAIR_FIRST_ODD, PAIR_LOG, PAIR_SECOND_ODD, SLOT_SYMBOL};
use super::table::EncodeTable;
use super::{MAX_LANES, MAX_LEVEL};
use crate::error::{Error, Result};
use crate::quant::machine::{Machine, grid};
use crate::simd::Isa;

/// Where states start (in the encoder) and end (in the decoder): the lower end of their range.
pub const START: u32 = 1 << 16;

/// A symbol of a pair on its way to the encoder: its index into the table, and above it its raw bits.
pub(crate) const PAIR_INDEX: u16 = (1 << PAIR_RAW) - 1;
/// Where the raw bits of such a symbol are. A third one, of an escape, is 0.
pub(crate) const PAIR_RAW: u32 = 14;
const PAIR_MASK: u32 = (1 << PAIR_LOG) - 1;

/// Appends states and words of pairs over 32 lanes to `out`; `words` is memory to reuse.
pub(crate) fn encode_pairs(
    isa: Isa,
    table: &EncodeTable,
    symbols: &[u16],
    words: &mut WordStack,
    out: &mut Vec<u8>,
) {
    words.reset(symbols.len());
    let mut x = [START; MAX_LANES];
    let (full, rest) = symbols.split_at(symbols.len() - symbols.len() % MAX_LANES);
    plain::encode_pairs(table, rest, &mut x, words);
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::encode_pairs(table, full, &mut x, words),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::encode_pairs(table, full, &mut x, words),
        _ => plain::encode_pairs(table, full, &mut x, words),
    }
    put_stream(&x, words, out);
}

/// Appends states and words of `symbols` (indices into the table) to `out`.
///
/// `words` is memory to reuse.
pub(crate) fn encode(
    isa: Isa,
    table: &EncodeTable,
    lanes: usize,
    symbols: &[u16],
    words: &mut WordStack,
    out: &mut Vec<u8>,
) {
    words.reset(symbols.len());
    let mut x = [START; MAX_LANES];
    let tail = symbols.len() % lanes;
    let (full, rest) = symbols.split_at(symbols.len() - tail);
    plain::encode(table, lanes, rest, &mut x, words);
    let wide = lanes == MAX_LANES;
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 if wide => avx512::encode(table, full, &mut x, words),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 if wide => avx2::encode(table, full, &mut x, words),
        _ => plain::encode(table, lanes, full, &mut x, words),
    }
    put_stream(&x[..lanes], words, out);
}

fn put_stream(x: &[u32], words: &WordStack, out: &mut Vec<u8>) {
    x.iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes()));
    out.extend_from_slice(bytemuck::cast_slice(words.filled()));
    if cfg!(target_endian = "big") {
        let n = words.filled().len() * 2;
        let at = out.len() - n;
        out[at..].chunks_exact_mut(2).for_each(|w| w.swap(0, 1));
    }
}

/// The highest class. Unlike `max`, which tells equal elements apart, this runs over whole registers.
#[cfg(target_arch = "x86_64")]
fn highest(classes: &[u8]) -> usize {
    classes.iter().fold(0, |most, &class| most.max(class)).into()
}

/// Bytes of words that a vector coder reads at once.
const AT_ONCE: usize = 64;

/// Words written from the end towards the start, the order in which rANS makes them.
#[derive(Default)]
pub(crate) struct WordStack {
    buffer: Vec<u16>,
    top: usize,
}

/// Words that vector code may write below the top.
const SLACK: usize = 32;

impl WordStack {
    /// Empties the stack and makes room for one word a symbol.
    fn reset(&mut self, symbols: usize) {
        let n = (symbols + SLACK).max(self.buffer.len());
        self.buffer.resize(n, 0);
        self.top = n;
    }

    fn filled(&self) -> &[u16] {
        &self.buffer[self.top..]
    }
}

/// What a decoder needs to know of the statistics.
pub(crate) struct DecodeSpec<'a> {
    /// Slot tables, `(class · 2 + quantiser) · 2^log + slot`.
    pub slots: &'a [u32],
    pub log: u32,
    pub machine: Machine,
}

/// The same for pairs.
pub(crate) struct PairSpec<'a> {
    /// Slot tables, `(class · 4 + low bits of the state) · 2^11 + slot`.
    pub slots: &'a [u32],
    /// What a pair becomes, by the low bits of the state, the symbol and two raw bits.
    pub values: &'a [u32; PAIR_VALUES],
    /// See [`crate::entropy::pairs::next_states`].
    pub next: [u32; 16],
    pub machine: Machine,
}

/// Combinations that [`PairSpec::values`] has an entry for.
pub(crate) const PAIR_VALUES: usize = 4 << 10;

/// A pair without a symbol of its own: which it is, and its levels as multiples of the step.
pub(crate) struct Escaped {
    pub pair: usize,
    pub multiples: [i32; 2],
}

/// Raw low bits of a level as decoders take them: the bits, and how many they are.
#[inline(always)]
pub(crate) fn low_word(bits: u32, count: u32) -> u32 {
    bits | count << LOW_COUNT
}

/// Where [`low_word`] keeps the count.
const LOW_COUNT: u32 = 24;
const LOW_MASK: u32 = 0xffff;

/// Where a decoder stands in a tile.
pub(crate) struct Decoder<'a> {
    lanes: usize,
    x: [u32; MAX_LANES],
    state: [u32; MAX_LANES],
    /// Words not read yet.
    words: &'a [u8],
    /// Escaped levels not read yet.
    escapes: Escapes<'a>,
}

/// Levels that have no symbol of their own, in the order in which they are met.
#[derive(Clone, Copy)]
pub(crate) struct Escapes<'a> {
    bytes: &'a [u8],
    width: usize,
}

impl<'a> Escapes<'a> {
    /// `bytes` holds signed integers of `width` bytes (1, 2 or 4).
    pub(crate) fn new(bytes: &'a [u8], width: usize) -> Self {
        Escapes { bytes, width }
    }

    /// The next one: a level without its low bits, in the range of levels.
    fn next(&mut self, low_bits: u32) -> Result<i32> {
        let taken = self.bytes.split_at_checked(self.width).filter(|_| self.width > 0);
        let (head, rest) = taken.ok_or(Error::Corrupt("more escapes than stored"))?;
        self.bytes = rest;
        let high = match *head {
            [a] => a as i8 as i32,
            [a, b] => i16::from_le_bytes([a, b]) as i32,
            [a, b, c, d] => i32::from_le_bytes([a, b, c, d]),
            _ => return Err(Error::Corrupt("escape width")),
        };
        if high.unsigned_abs() > MAX_LEVEL as u32 >> low_bits {
            return Err(Error::Corrupt("a level is out of range"));
        }
        Ok(high)
    }

    /// The next escaped pair: number `pair`, with this symbol and these raw bits, which starts in a state. `bytes` holds the halves
    /// of magnitudes, `width` bytes a pair: 1, 2 or 8.
    fn next_pair(
        &mut self,
        pair: usize,
        symbol: u8,
        raw: u32,
        state: u32,
        machine: Machine,
    ) -> Result<Escaped> {
        let taken = self.bytes.split_at_checked(self.width).filter(|_| self.width > 0);
        let (head, rest) = taken.ok_or(Error::Corrupt("more escapes than stored"))?;
        self.bytes = rest;
        let (a, b) = match *head {
            [both] => (both as u32 & 15, both as u32 >> 4),
            [a, b] => (a as u32, b as u32),
            [a, b, c, d, e, f, g, h] => (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])),
            _ => return Err(Error::Corrupt("escape width")),
        };
        if a.max(b) > MAX_LEVEL as u32 / 2 {
            return Err(Error::Corrupt("a level is out of range"));
        }
        let level = |half: u32, odd: bool, negative: u32| {
            let k = (2 * half + odd as u32) as i32;
            if negative & 1 == 1 { -k } else { k }
        };
        let first = level(a, symbol & PAIR_FIRST_ODD != 0, raw);
        let second = level(b, symbol & PAIR_SECOND_ODD != 0, raw >> 1);
        let then = machine.next(state, first);
        Ok(Escaped { pair, multiples: [grid(first, state & 1), grid(second, then & 1)] })
    }
}

impl<'a> Decoder<'a> {
    /// Starts at the head of a stream: the states, then the words.
    pub(crate) fn new(lanes: usize, stream: &'a [u8], escapes: Escapes<'a>) -> Result<Self> {
        let (states, words) =
            stream.split_at_checked(lanes * 4).ok_or(Error::Corrupt("a tile is shorter than its states"))?;
        if words.len() % 2 != 0 {
            return Err(Error::Corrupt("half a word in a tile"));
        }
        let mut x = [START; MAX_LANES];
        for (x, s) in x.iter_mut().zip(states.chunks_exact(4)) {
            *x = u32::from_le_bytes([s[0], s[1], s[2], s[3]]);
            if *x < START {
                return Err(Error::Corrupt("a lane's state is out of range"));
            }
        }
        Ok(Decoder { lanes, x, state: [0; MAX_LANES], words, escapes })
    }

    /// Decodes `out.len()` levels as multiples of the step. `class` holds the class of each
    /// value and `low` its [`low_word`], or they are empty. All but the last call of a tile must ask for whole ticks.
    pub(crate) fn decode_levels(
        &mut self,
        isa: Isa,
        spec: &DecodeSpec<'_>,
        class: &[u8],
        low: &[u32],
        out: &mut [i32],
    ) -> Result<()> {
        let done = match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 if self.lanes == MAX_LANES => avx512::decode_levels(self, spec, class, low, out)?,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 if self.lanes == MAX_LANES => avx2::decode_levels(self, spec, class, low, out)?,
            _ => 0,
        };
        let rest = |s: usize| s.min(done);
        plain::decode_levels(
            self,
            spec,
            &class[rest(class.len())..],
            &low[rest(low.len())..],
            &mut out[done..],
        )
    }

    /// Decodes `out.len()` pairs to what `spec` has for them; `class` holds the class of each value, or is empty. Pairs without a
    /// symbol are added to `escaped`, numbered from the start of this call. All but the last call of a tile must ask for whole ticks.
    pub(crate) fn decode_pairs(
        &mut self,
        isa: Isa,
        spec: &PairSpec<'_>,
        class: &[u8],
        out: &mut [u32],
        escaped: &mut Vec<Escaped>,
    ) -> Result<()> {
        let done = match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512::decode_pairs(self, spec, class, out, escaped)?,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2::decode_pairs(self, spec, class, out, escaped)?,
            _ => 0,
        };
        plain::decode_pairs(self, spec, &class[class.len().min(2 * done)..], &mut out[done..], escaped, done)
    }

    /// Adds the escaped pairs of a tick to `escaped`: those of the lanes that `who` names, of which `slot` has each lane's slot, `y` the
    /// number with its raw bits, and `state` the state that it starts in. `before` pairs were decoded before the tick.
    #[cfg(target_arch = "x86_64")]
    fn take_escapes(
        &mut self,
        before: usize,
        who: u32,
        [slot, y, state]: [&[u32; MAX_LANES]; 3],
        machine: Machine,
        escaped: &mut Vec<Escaped>,
    ) -> Result<()> {
        for l in (0..MAX_LANES).filter(|l| who >> l & 1 == 1) {
            let symbol = (slot[l] >> SLOT_SYMBOL) as u8;
            escaped.push(self.escapes.next_pair(before + l, symbol, y[l] & 7, state[l], machine)?);
        }
        Ok(())
    }

    /// Decodes symbols as bytes, for a single table and no trellis.
    pub(crate) fn decode_bytes(&mut self, isa: Isa, slots: &[u32], log: u32, out: &mut [u8]) -> Result<()> {
        self.decode_symbols(isa, slots, log, &[], out)
    }

    /// The same, each with the table of its class; all with the first where no classes are given.
    pub(crate) fn decode_symbols(
        &mut self,
        isa: Isa,
        slots: &[u32],
        log: u32,
        class: &[u8],
        out: &mut [u8],
    ) -> Result<()> {
        let mut done = self.decode_ticks(isa, slots, log, class, out);
        if isa != Isa::Plain && self.lanes == MAX_LANES && out.len() - done >= MAX_LANES {
            // Too few words are left for vectors to read: zeros stand behind them, and taking one of these is an error.
            let (left, mut last) = (self.words.len(), [0; 2 * AT_ONCE]);
            last[..left].copy_from_slice(self.words);
            let words = &last[..left + AT_ONCE];
            let mut short =
                Decoder { lanes: self.lanes, x: self.x, state: self.state, words, escapes: self.escapes };
            done += short.decode_ticks(isa, slots, log, &class[class.len().min(done)..], &mut out[done..]);
            let taken = left + AT_ONCE - short.words.len();
            self.x = short.x;
            self.words = self.words.get(taken..).ok_or(Error::Corrupt("a tile runs out of words"))?;
        }
        plain::decode_bytes(self, slots, log, &class[class.len().min(done)..], &mut out[done..])
    }

    /// The same with vectors, while whole ticks and the words that these read at once are left; returns the symbols done.
    fn decode_ticks(&mut self, isa: Isa, slots: &[u32], log: u32, class: &[u8], out: &mut [u8]) -> usize {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 if self.lanes == MAX_LANES => avx512::decode_bytes(self, slots, log, class, out),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 if self.lanes == MAX_LANES => avx2::decode_bytes(self, slots, log, class, out),
            _ => 0,
        }
    }

    /// Checks that the tile ends where its content does.
    pub(crate) fn finish(&self) -> Result<()> {
        if self.x[..self.lanes].iter().any(|&x| x != START) {
            return Err(Error::Corrupt("a lane does not end where it started"));
        }
        if !self.words.is_empty() || !self.escapes.bytes.is_empty() {
            return Err(Error::Corrupt("a tile has bytes left over"));
        }
        Ok(())
    }
}

//! The portable coder: any number of lanes, partial ticks. The other paths are tested against it.

use super::{
    DecodeSpec, Decoder, Escaped, LOW_COUNT, LOW_MASK, PAIR_INDEX, PAIR_MASK, PAIR_RAW, PairSpec, START,
    WordStack,
};
use crate::entropy::pairs::{PAIR_ESCAPE_BITS, PAIR_LOG, SLOT_RAW, SLOT_SYMBOL};
use crate::entropy::table::{EncodeTable, SPAN_RAW};
use crate::entropy::{ESCAPE, MAX_LANES};
use crate::error::{Error, Result};
use crate::quant::machine::grid;

/// Codes symbols from the last to the first.
pub(super) fn encode(
    table: &EncodeTable,
    lanes: usize,
    symbols: &[u16],
    x: &mut [u32; MAX_LANES],
    words: &mut WordStack,
) {
    let log = table.log;
    for (i, &s) in symbols.iter().enumerate().rev() {
        let x = &mut x[i % lanes];
        let span = table.span[s as usize];
        let (f, start) = (span & 0xffff, span >> 16);
        if *x >> (32 - log) >= f {
            words.top -= 1;
            words.buffer[words.top] = *x as u16;
            *x >>= 16;
        }
        *x = ((*x / f) << log) + *x % f + start;
    }
}

/// The same for pairs.
pub(super) fn encode_pairs(
    table: &EncodeTable,
    symbols: &[u16],
    x: &mut [u32; MAX_LANES],
    words: &mut WordStack,
) {
    for (i, &s) in symbols.iter().enumerate().rev() {
        let x = &mut x[i % MAX_LANES];
        let span = table.span[(s & PAIR_INDEX) as usize];
        let (f, start, raw) = (span & 0xffff, span >> 16 & 0xfff, span >> SPAN_RAW);
        if *x >> (32 - PAIR_LOG - raw) >= f {
            words.top -= 1;
            words.buffer[words.top] = *x as u16;
            *x >>= 16;
        }
        let y = *x << raw | (s >> PAIR_RAW) as u32;
        *x = ((y / f) << PAIR_LOG) + y % f + start;
    }
}

/// Takes one symbol off a state.
#[inline(always)]
fn pop(x: &mut u32, words: &mut &[u8], slot: u32, log: u32) -> Result<u8> {
    *x = ((slot & 0xfff) + 1) * (*x >> log) + ((slot >> 12) & 0xfff);
    if *x < START {
        let (&[a, b], rest) = words.split_first_chunk().ok_or(Error::Corrupt("a tile runs out of words"))?;
        *words = rest;
        *x = *x << 16 | u16::from_le_bytes([a, b]) as u32;
    }
    Ok((slot >> 24) as u8)
}

pub(super) fn decode_levels(
    d: &mut Decoder<'_>,
    spec: &DecodeSpec<'_>,
    class: &[u8],
    low: &[u32],
    out: &mut [i32],
) -> Result<()> {
    let mask = (1u32 << spec.log) - 1;
    for (i, out) in out.iter_mut().enumerate() {
        let lane = i % d.lanes;
        let (x, state) = (&mut d.x[lane], &mut d.state[lane]);
        let q = *state & 1;
        let set = class.get(i).map_or(0, |&c| c as u32) * 2 + q;
        let slot = spec.slots[((set << spec.log) + (*x & mask)) as usize];
        let symbol = pop(x, &mut d.words, slot, spec.log)?;
        let low = low.get(i).copied().unwrap_or(0);
        let count = low >> LOW_COUNT;
        let high = if symbol == ESCAPE { d.escapes.next(count)? } else { symbol as i8 as i32 };
        let k = high << count | (low & LOW_MASK) as i32;
        *out = grid(k, q);
        *state = spec.machine.next(*state, k);
    }
    Ok(())
}

pub(super) fn decode_pairs(
    d: &mut Decoder<'_>,
    spec: &PairSpec<'_>,
    class: &[u8],
    out: &mut [u32],
    escaped: &mut Vec<Escaped>,
    before: usize,
) -> Result<()> {
    for (i, out) in out.iter_mut().enumerate() {
        let (x, state) = (&mut d.x[i % MAX_LANES], &mut d.state[i % MAX_LANES]);
        let low = *state & 3;
        let set = class.get(2 * i).map_or(0, |&c| c as u32) * 4 + low;
        let slot = spec.slots[(set << PAIR_LOG | *x & PAIR_MASK) as usize];
        let y = (slot & PAIR_MASK) * (*x >> PAIR_LOG) + (slot >> PAIR_LOG & PAIR_MASK);
        *x = y >> (slot >> SLOT_RAW);
        if *x < START {
            let (&[a, b], rest) =
                d.words.split_first_chunk().ok_or(Error::Corrupt("a tile runs out of words"))?;
            d.words = rest;
            *x = *x << 16 | u16::from_le_bytes([a, b]) as u32;
        }
        let symbol = slot >> SLOT_SYMBOL & 0xff;
        if slot >> SLOT_RAW == PAIR_ESCAPE_BITS {
            escaped.push(d.escapes.next_pair(before + i, symbol as u8, y & 7, *state, spec.machine)?);
        }
        *out = spec.values[(low << 10 | symbol << 2 | y & 3) as usize];
        let parities = symbol >> 4 & 1 | (symbol & 1) << 1;
        *state = *state >> 2 ^ spec.next[(parities << 2 | low) as usize];
    }
    Ok(())
}

pub(super) fn decode_bytes(
    d: &mut Decoder<'_>,
    slots: &[u32],
    log: u32,
    class: &[u8],
    out: &mut [u8],
) -> Result<()> {
    let mask = (1u32 << log) - 1;
    for (tick, out) in out.chunks_mut(d.lanes).enumerate() {
        let class = class.get(tick * d.lanes..).unwrap_or_default();
        for (i, (x, out)) in d.x.iter_mut().zip(out).enumerate() {
            let set = class.get(i).map_or(0, |&c| u32::from(c));
            let slot = slots[((set << log) + (*x & mask)) as usize];
            *out = pop(x, &mut d.words, slot, log)?;
        }
    }
    Ok(())
}

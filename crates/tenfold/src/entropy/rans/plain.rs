//! The portable coder: any number of lanes, partial ticks. The other paths are tested against it.

use super::{DecodeSpec, Decoder, LOW_COUNT, LOW_MASK, START, WordStack};
use crate::entropy::table::EncodeTable;
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

pub(super) fn decode_bytes(d: &mut Decoder<'_>, slots: &[u32], log: u32, out: &mut [u8]) -> Result<()> {
    let mask = (1u32 << log) - 1;
    for (i, out) in out.iter_mut().enumerate() {
        let x = &mut d.x[i % d.lanes];
        let slot = slots[(*x & mask) as usize];
        *out = pop(x, &mut d.words, slot, log)?;
    }
    Ok(())
}

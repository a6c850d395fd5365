//! The loops over some changes of a tile, compiled for each instruction set: gaps to places, places to old values, old values to new ones.
//! What no vector has an instruction for comes first, into arrays; arithmetic runs over these.

use super::check::{mix, sum};
use super::numbers::{Meaning, Numbers, Way};
use super::raw::Raw;
use super::scan::{element, put_element};
use super::token::GAPS;
use crate::simd::multiversion;

/// Changes that go through all loops together: whole ticks of the streams.
pub(super) const CHUNK: usize = 64;

/// A gap as a symbol tells it: what is known, and how many bits are open.
#[derive(Clone, Copy)]
pub(super) struct Gap {
    high: u32,
    open: u32,
}

/// Of symbols that mean no gap: more than any tile has.
const BEYOND: u32 = 1 << 22;

impl Gap {
    pub(super) fn of_symbol(symbol: usize) -> Gap {
        match GAPS.join(symbol as u32) {
            Some((high, open)) if high < BEYOND.into() => Gap { high: high as u32, open },
            Some((_, open)) => Gap { high: BEYOND, open },
            None => Gap { high: BEYOND, open: 0 },
        }
    }
}

/// Where the class of an old value is looked up.
pub(super) struct Classes<'t> {
    /// The lowest bit of the key, and the bits that count from there.
    pub(super) key: (u32, u8),
    pub(super) of: &'t [u8; 256],
}

/// The new values of a chunk.
pub(super) struct New<'a> {
    pub(super) way: Way,
    pub(super) told: &'a [Meaning; 256],
    pub(super) symbols: &'a [u8],
    pub(super) places: &'a [u32],
    pub(super) old: &'a [u64; CHUNK],
}

multiversion! {
    /// Raw bits of gaps.
    pub(super) fn open_bits / open_bits_inner(symbols: &[u8]) -> usize
}

#[inline(always)]
fn open_bits_inner(symbols: &[u8]) -> usize {
    // A chunk has at most 64 · 30 of them.
    let of_chunk = |chunk: &[u8]| chunk.iter().map(|&symbol| u16::from(GAPS.open(symbol))).sum::<u16>();
    symbols.chunks(CHUNK).map(|chunk| usize::from(of_chunk(chunk))).sum()
}

multiversion! {
    /// Places from gaps, of which the first may be `next`; returns what the next may be.
    pub(super) fn places / places_inner(
        gaps: &[Gap; 256],
        symbols: &[u8],
        raw: &mut Raw<'_>,
        next: u64,
        to: &mut [u32; CHUNK],
    ) -> u64
}

#[inline(always)]
fn places_inner(
    gaps: &[Gap; 256],
    symbols: &[u8],
    raw: &mut Raw<'_>,
    mut next: u64,
    to: &mut [u32; CHUNK],
) -> u64 {
    for (to, &symbol) in to.iter_mut().zip(symbols) {
        let gap = gaps[usize::from(symbol)];
        let place = next + u64::from(gap.high) + raw.take::<4>(gap.open);
        next = place + 1;
        *to = place as u32;
    }
    next
}

multiversion! {
    /// Old values and their classes; returns their sum.
    pub(super) fn old / old_inner<const SIZE: usize>(
        base: &[u8],
        places: &[u32],
        classes: &Classes<'_>,
        old: &mut [u64; CHUNK],
        class: &mut [u8; CHUNK],
    ) -> u64
}

#[inline(always)]
fn old_inner<const SIZE: usize>(
    base: &[u8],
    places: &[u32],
    classes: &Classes<'_>,
    old: &mut [u64; CHUNK],
    class: &mut [u8; CHUNK],
) -> u64 {
    let (low, mask) = classes.key;
    for ((&place, old), class) in places.iter().zip(old.iter_mut()).zip(class) {
        *old = element::<SIZE>(base, place as usize);
        *class = classes.of[usize::from((*old >> low) as u8 & mask)];
    }
    sum(places, old)
}

multiversion! {
    /// New values; returns their sum, and whether there are such values.
    pub(super) fn new / new_inner<const SIZE: usize>(
        numbers: Numbers,
        chunk: &New<'_>,
        raw: &mut Raw<'_>,
        to: &mut [u8],
    ) -> (u64, bool)
}

#[inline(always)]
fn new_inner<const SIZE: usize>(
    numbers: Numbers,
    chunk: &New<'_>,
    raw: &mut Raw<'_>,
    to: &mut [u8],
) -> (u64, bool) {
    let New { way, told, symbols, places, old } = *chunk;
    let mut number = [0; CHUNK];
    let mut exist = true;
    for (number, &symbol) in number.iter_mut().zip(symbols) {
        let meaning = told[usize::from(symbol)];
        *number = meaning.high | raw.take::<SIZE>(meaning.open);
        exist &= meaning.exists;
    }
    let (mut total, mut beyond) = (0u64, 0);
    // A loop for each way.
    macro_rules! join {
        ($way:expr) => {
            for i in 0..symbols.len().min(places.len()).min(to.len() / SIZE).min(CHUNK) {
                let (new, over) = numbers.join($way, old[i], symbols[i], number[i]);
                beyond |= over;
                total = total.wrapping_add(mix(places[i], new));
                put_element::<SIZE>(to, i, new);
            }
        };
    }
    match way {
        Way::Difference => join!(Way::Difference),
        Way::Xor => join!(Way::Xor),
        Way::Overwrite => join!(Way::Overwrite),
    }
    (total, exist && beyond == 0)
}

//! The loops over some changes of a tile, compiled for each instruction set: gaps to places, places to old values, old values to new ones.
//! What no vector has an instruction for comes first, into arrays; arithmetic runs over these.

use super::check::mix;
use super::numbers::{Meaning, Numbers, Way};
use super::raw::Raw;
use super::scan::element;
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

/// Some changes side by side. Beyond `count` there is anything: arithmetic runs over whole arrays, which leaves no rest.
pub(super) struct Chunk {
    pub(super) count: usize,
    pub(super) places: [u32; CHUNK],
    pub(super) old: [u64; CHUNK],
    pub(super) class: [u8; CHUNK],
    pub(super) symbols: [u8; CHUNK],
}

impl Chunk {
    pub(super) fn new() -> Chunk {
        Chunk { count: 0, places: [0; CHUNK], old: [0; CHUNK], class: [0; CHUNK], symbols: [0; CHUNK] }
    }

    pub(super) fn set_places(&mut self, places: &[u32]) {
        self.count = places.len().min(CHUNK);
        self.places[..self.count].copy_from_slice(&places[..self.count]);
    }

    /// All bits for a change that there is, else none.
    #[inline(always)]
    fn mask(&self, i: usize) -> u64 {
        if i < self.count { u64::MAX } else { 0 }
    }
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
    raw.chunk(|raw| {
        for (to, &symbol) in to.iter_mut().zip(symbols) {
            let gap = gaps[usize::from(symbol)];
            let place = next + u64::from(gap.high) + raw.take::<4>(gap.open);
            next = place + 1;
            *to = place as u32;
        }
    });
    next
}

multiversion! {
    /// Old values and their classes; returns their sum.
    pub(super) fn old / old_inner<const SIZE: usize>(base: &[u8], classes: &Classes<'_>, chunk: &mut Chunk) -> u64
}

#[inline(always)]
fn old_inner<const SIZE: usize>(base: &[u8], classes: &Classes<'_>, chunk: &mut Chunk) -> u64 {
    let (low, mask) = classes.key;
    for i in 0..chunk.count.min(CHUNK) {
        chunk.old[i] = element::<SIZE>(base, chunk.places[i] as usize);
        chunk.class[i] = classes.of[usize::from((chunk.old[i] >> low) as u8 & mask)];
    }
    let mixed = |i: usize| mix(chunk.places[i], chunk.old[i]) & chunk.mask(i);
    (0..CHUNK).fold(0, |sum, i| sum.wrapping_add(mixed(i)))
}

multiversion! {
    /// New values, from old ones and the symbols that tell them; returns their sum, and whether there are such values.
    pub(super) fn new / new_inner<const SIZE: usize>(
        numbers: Numbers,
        way: Way,
        told: &[Meaning; 256],
        chunk: &Chunk,
        raw: &mut Raw<'_>,
        to: &mut [u8],
    ) -> (u64, bool)
}

#[inline(always)]
fn new_inner<const SIZE: usize>(
    numbers: Numbers,
    way: Way,
    told: &[Meaning; 256],
    chunk: &Chunk,
    raw: &mut Raw<'_>,
    to: &mut [u8],
) -> (u64, bool) {
    let (mut number, mut exist) = ([0; CHUNK], true);
    raw.chunk(|raw| {
        for (number, &symbol) in number.iter_mut().zip(&chunk.symbols[..chunk.count]) {
            let meaning = told[usize::from(symbol)];
            *number = meaning.high | raw.take::<SIZE>(meaning.open);
            exist &= meaning.exists;
        }
    });
    let (mut total, mut beyond, mut new) = (0u64, 0, [[0; SIZE]; CHUNK]);
    // A loop for each way.
    macro_rules! join {
        ($way:expr) => {
            for i in 0..CHUNK {
                let (value, over) = numbers.join($way, chunk.old[i], chunk.symbols[i], number[i]);
                beyond |= over & chunk.mask(i);
                total = total.wrapping_add(mix(chunk.places[i], value) & chunk.mask(i));
                new[i].copy_from_slice(&value.to_le_bytes()[..SIZE]);
            }
        };
    }
    match way {
        Way::Difference => join!(Way::Difference),
        Way::Xor => join!(Way::Xor),
        Way::Overwrite => join!(Way::Overwrite),
    }
    to.copy_from_slice(&new.as_flattened()[..to.len()]);
    (total, exist && beyond == 0)
}

//! A tile's changes: places, old values and new ones. Applying a delta spends its time here, so loops have the size of an element and the way of
//! telling values as constants, and what a symbol means is looked up.

use super::check::{mix, sum};
use super::numbers::{Meaning, Numbers, Way};
use super::params::{Change, LOG};
use super::read::{Delta, Tile};
use super::scan::{element, put_element};
use super::token::GAPS;
use crate::entropy::rans::{Decoder, Escapes};
use crate::entropy::table::slot_table;
use crate::error::{Error, Result};
use crate::simd::Isa;

const OUTSIDE: Error = Error::Corrupt("a delta changes a value outside of its tile");
const NO_VALUE: Error = Error::Corrupt("a delta makes a value that does not exist");
const EARLY: Error = Error::Corrupt("a tile of a delta ends early");

/// What decoding any tile of a delta needs: slots of each table, and what symbols mean.
pub(super) struct Tables {
    isa: Isa,
    lanes: usize,
    gaps: Vec<u32>,
    ways: [Vec<u32>; 3],
    gap_of: [Gap; 256],
    told: [[Meaning; 256]; 3],
}

/// A gap as a symbol tells it: what is known, and how many bits are open.
#[derive(Clone, Copy)]
struct Gap {
    high: u32,
    open: u32,
}

/// Of symbols that mean no gap: more than any tile has.
const BEYOND: u32 = 1 << 22;

impl Tables {
    pub(super) fn new(change: &Change, numbers: Numbers) -> Tables {
        let (mut gaps, mut ways) = (Vec::new(), <[Vec<u32>; 3]>::default());
        slot_table(&change.gaps, &mut gaps);
        ways.iter_mut().zip(&change.ways).for_each(|(slots, tables)| slot_table(tables, slots));
        let gap = |symbol: usize| match GAPS.join(symbol as u32) {
            Some((high, open)) if high < BEYOND.into() => Gap { high: high as u32, open },
            Some((_, open)) => Gap { high: BEYOND, open },
            None => Gap { high: BEYOND, open: 0 },
        };
        let gap_of = std::array::from_fn(gap);
        let told = Way::ALL.map(|way| std::array::from_fn(|symbol| numbers.meaning(way, symbol as u8)));
        Tables { isa: Isa::detect(), lanes: change.geometry.lanes, gaps, ways, gap_of, told }
    }

    fn symbols(
        &self,
        stream: &[u8],
        slots: &[u32],
        classes: &[u8],
        out: &mut Vec<u8>,
        count: usize,
    ) -> Result<()> {
        out.clear();
        out.resize(count, 0);
        let mut decoder = Decoder::new(self.lanes, stream, Escapes::new(&[], 0))?;
        decoder.decode_symbols(self.isa, slots, LOG, classes, out)?;
        decoder.finish()
    }
}

/// Memory for one tile after the other.
#[derive(Default)]
pub(super) struct Scratch {
    symbols: Vec<u8>,
    classes: Vec<u8>,
    old: Vec<u64>,
}

/// What a tile changes.
pub(super) struct Decoded {
    /// Places, from the start of the tile.
    pub(super) places: Vec<u32>,
    /// Values side by side: what the tensor will have there.
    pub(super) values: Vec<u8>,
    /// Whether the base has them already.
    pub(super) is_new: bool,
}

impl Scratch {
    /// Decodes a tile of a delta for the tile's values of a base; nothing if that is neither old nor new.
    pub(super) fn decode<const SIZE: usize>(
        &mut self,
        delta: &Delta<'_>,
        tables: &Tables,
        tile: &Tile<'_>,
        base: &[u8],
    ) -> Result<Option<Decoded>> {
        let (places, raw) = self.places(tables, tile, base.len() / SIZE)?;
        self.old.clear();
        self.old.extend(places.iter().map(|&place| element::<SIZE>(base, place as usize)));
        let found = sum(&places, &self.old);
        let mut values = vec![0; places.len() * SIZE];
        if found == tile.head.before {
            let after = self.values::<SIZE>(delta, tables, tile, raw, &places, &mut values)?;
            if after != tile.head.after {
                return Err(Error::Corrupt("a tile of a delta does not make what it says"));
            }
            return Ok(Some(Decoded { places, values, is_new: false }));
        }
        if found != tile.head.after {
            return Ok(None);
        }
        self.old.iter().enumerate().for_each(|(i, &old)| put_element::<SIZE>(&mut values, i, old));
        Ok(Some(Decoded { places, values, is_new: true }))
    }

    /// Places of a tile of so many values, and how many raw bits told them.
    fn places(&mut self, tables: &Tables, tile: &Tile<'_>, len: usize) -> Result<(Vec<u32>, usize)> {
        let slots = &tables.gaps[tile.head.gap << LOG..(tile.head.gap + 1) << LOG];
        tables.symbols(tile.gaps, slots, &[], &mut self.symbols, tile.head.changes)?;
        let mut raw = Raw { bytes: tile.raw, at: 0 };
        raw.has(self.symbols.iter().map(|&symbol| tables.gap_of[usize::from(symbol)].open))?;
        // At most 2^22 gaps of less than 2^23.
        let mut next = 0u64;
        let place = |&symbol: &u8| {
            let gap = tables.gap_of[usize::from(symbol)];
            let place = next + u64::from(gap.high) + raw.take::<4>(gap.open);
            next = place + 1;
            place as u32
        };
        let places: Vec<u32> = self.symbols.iter().map(place).collect();
        // Places increase: if the last is inside, all are.
        if next > len as u64 { Err(OUTSIDE) } else { Ok((places, raw.at)) }
    }

    /// New values of a tile, from the old ones; `raw` is where their raw bits start. Returns their sum.
    fn values<const SIZE: usize>(
        &mut self,
        delta: &Delta<'_>,
        tables: &Tables,
        tile: &Tile<'_>,
        raw: usize,
        places: &[u32],
        to: &mut [u8],
    ) -> Result<u64> {
        let numbers = delta.numbers;
        let (low, mask) = numbers.key_bits();
        self.classes.clear();
        self.classes
            .extend(self.old.iter().map(|&old| delta.class_of[usize::from((old >> low) as u8 & mask)]));
        let way = tile.head.way;
        let slots = &tables.ways[way as usize];
        tables.symbols(tile.values, slots, &self.classes, &mut self.symbols, tile.head.changes)?;
        let mut raw = Raw { bytes: tile.raw, at: raw };
        let told = &tables.told[way as usize];
        raw.has(self.symbols.iter().map(|&symbol| told[usize::from(symbol)].open))?;
        let (mut total, mut good) = (0u64, true);
        let symbols = self.symbols.iter().zip(&self.old).zip(places.iter().zip(to.chunks_exact_mut(SIZE)));
        // A loop for each way.
        macro_rules! tell {
            ($way:expr) => {
                for ((&symbol, &old), (&place, to)) in symbols {
                    let meaning = told[usize::from(symbol)];
                    let number = meaning.high | raw.take::<SIZE>(meaning.open);
                    let (new, exists) = numbers.join($way, old, number, meaning.flips);
                    good &= exists & meaning.exists;
                    total = total.wrapping_add(mix(place, new));
                    put_element::<SIZE>(to, 0, new);
                }
            };
        }
        match way {
            Way::Difference => tell!(Way::Difference),
            Way::Xor => tell!(Way::Xor),
            Way::Overwrite => tell!(Way::Overwrite),
        }
        if !good {
            return Err(NO_VALUE);
        }
        raw.rest()?;
        Ok(total)
    }
}

/// Raw bits, and how many were taken.
struct Raw<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl Raw<'_> {
    /// Whether there are as many as are open.
    fn has(&self, open: impl Iterator<Item = u32>) -> Result<()> {
        let all: usize = open.map(|open| open as usize).sum();
        if all > 8 * self.bytes.len() - self.at { Err(EARLY) } else { Ok(()) }
    }

    /// The next `count` bits, of a string that has as many: at most 8 · `SIZE` − 1.
    #[inline(always)]
    fn take<const SIZE: usize>(&mut self, count: u32) -> u64 {
        let (first, shift) = (self.at / 8, (self.at % 8) as u32);
        self.at += count as usize;
        let word = match self.bytes.get(first..).and_then(|some| some.first_chunk()) {
            Some(&eight) => u64::from_le_bytes(eight),
            None => last_word(self.bytes, first),
        };
        let mut bits = word >> shift;
        if SIZE == 8 && count + shift > 64 {
            bits |= u64::from(self.bytes.get(first + 8).copied().unwrap_or_default()) << (64 - shift);
        }
        bits & !(u64::MAX << count)
    }

    /// Up to three bytes of zeros stand behind the last bit.
    fn rest(&self) -> Result<()> {
        let spare = self.bytes.get(self.at.div_ceil(8)..).ok_or(EARLY)?;
        if spare.len() > 3 || spare.iter().any(|&b| b != 0) {
            return Err(Error::Corrupt("a tile has bytes left over"));
        }
        Ok(())
    }
}

/// The bytes from `first` on, fewer than eight.
#[cold]
fn last_word(bytes: &[u8], first: usize) -> u64 {
    bytes.get(first..).unwrap_or_default().iter().rev().fold(0, |word, &b| word << 8 | u64::from(b))
}

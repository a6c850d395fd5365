//! A tile's changes: places, old values and new ones. Applying a delta spends its time here and on the way to the base's values, so places run
//! ahead and ask for these. The loops are in `chunk`.

use super::chunk::{self, CHUNK, Chunk, Classes, Gap};
use super::numbers::{Meaning, Numbers, Way};
use super::params::{Change, LOG};
use super::raw::Raw;
use super::read::{Delta, Tile};
use crate::entropy::rans::{Decoder, Escapes};
use crate::entropy::table::slot_table;
use crate::error::{Error, Result};
use crate::simd::{Isa, prefetch};

const OUTSIDE: Error = Error::Corrupt("a delta changes a value outside of its tile");
const NO_VALUE: Error = Error::Corrupt("a delta makes a value that does not exist");

/// Changes whose old values are on their way from memory.
const AHEAD: usize = 2 * CHUNK;
/// Old values that are asked for at once: a processor waits where too many are under way.
const SHARE: usize = CHUNK / 4;
/// Bytes between changes from which on the base's values are asked for: a processor finds nearer ones by itself.
const FAR: usize = 16;

/// What decoding any tile of a delta needs: slots of each table, and what symbols mean.
pub(super) struct Tables {
    isa: Isa,
    lanes: usize,
    gaps: Vec<u32>,
    ways: [Vec<u32>; 3],
    gap_of: [Gap; 256],
    told: [[Meaning; 256]; 3],
}

impl Tables {
    pub(super) fn new(isa: Isa, change: &Change, numbers: Numbers) -> Tables {
        let (mut gaps, mut ways) = (Vec::new(), <[Vec<u32>; 3]>::default());
        slot_table(&change.gaps, &mut gaps);
        ways.iter_mut().zip(&change.ways).for_each(|(slots, tables)| slot_table(tables, slots));
        let gap_of = std::array::from_fn(Gap::of_symbol);
        let told = Way::ALL.map(|way| std::array::from_fn(|symbol| numbers.meaning(way, symbol as u8)));
        Tables { isa, lanes: change.geometry.lanes, gaps, ways, gap_of, told }
    }

    fn decoder<'b>(&self, stream: &'b [u8]) -> Result<Decoder<'b>> {
        Decoder::new(self.lanes, stream, Escapes::new(&[], 0))
    }
}

/// Memory for one tile after the other.
#[derive(Default)]
pub(super) struct Scratch {
    gaps: Vec<u8>,
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
        // 1. All gaps, since the raw bits of values stand behind theirs.
        let count = tile.head.changes;
        self.gaps.clear();
        self.gaps.resize(count, 0);
        let mut gaps = Places::new(tables, tile, &mut self.gaps)?;
        // 2. Places, old values and new ones, some at a time. Errors of new values wait: they are none if these are what the base has.
        let classes = Classes { key: delta.numbers.key_bits(), of: &delta.class_of };
        let mut values = Values::new(delta, tables, tile, gaps.open);
        let (mut places, mut new) = (Vec::with_capacity(count), vec![0; count * SIZE]);
        let (mut chunk, mut found) = (Chunk::new(), 0u64);
        let mut ask = Ask { base, far: base.len() / count >= FAR, next: 0 };
        for (number, to) in new.chunks_mut(CHUNK * SIZE).enumerate() {
            let start = number * CHUNK;
            while places.len() < count.min(start + CHUNK + AHEAD) {
                gaps.next(base.len() / SIZE, &mut places)?;
            }
            chunk.set_places(&places[start..count.min(start + CHUNK)]);
            ask.until::<SIZE>(&places, start + AHEAD + SHARE);
            found = found.wrapping_add(chunk::old::<SIZE>(tables.isa, base, &classes, &mut chunk));
            ask.until::<SIZE>(&places, start + AHEAD + 2 * SHARE);
            if let Ok(some) = &mut values
                && let Err(error) = some.symbols(&mut chunk)
            {
                values = Err(error);
            }
            ask.until::<SIZE>(&places, start + AHEAD + 3 * SHARE);
            if let Ok(some) = &mut values {
                some.make::<SIZE>(&chunk, to);
            }
            ask.until::<SIZE>(&places, start + AHEAD + CHUNK);
        }
        // 3. Which of both versions the base has.
        if found == tile.head.before {
            values?.finish()?;
            return Ok(Some(Decoded { places, values: new, is_new: false }));
        }
        if found != tile.head.after {
            return Ok(None);
        }
        for (&place, to) in places.iter().zip(new.chunks_exact_mut(SIZE)) {
            to.copy_from_slice(&base[place as usize * SIZE..][..SIZE]);
        }
        Ok(Some(Decoded { places, values: new, is_new: true }))
    }
}

/// Old values that are asked for before they are needed.
struct Ask<'t> {
    base: &'t [u8],
    /// Whether changes are far from each other.
    far: bool,
    /// Changes whose values were asked for.
    next: usize,
}

impl Ask<'_> {
    /// Asks for the values of changes before `end`, if they have places.
    fn until<const SIZE: usize>(&mut self, places: &[u32], end: usize) {
        if self.far {
            let end = places.len().min(end);
            places[self.next..end].iter().for_each(|&place| prefetch(self.base, place as usize * SIZE));
            self.next = end;
        }
    }
}

/// The places of a tile, in order.
struct Places<'t> {
    tables: &'t Tables,
    /// Gaps that are not places yet, as symbols.
    symbols: &'t [u8],
    raw: Raw<'t>,
    /// Raw bits of all gaps.
    open: usize,
    next: u64,
}

impl<'t> Places<'t> {
    fn new(tables: &'t Tables, tile: &Tile<'t>, symbols: &'t mut [u8]) -> Result<Places<'t>> {
        let slots = &tables.gaps[tile.head.gap << LOG..(tile.head.gap + 1) << LOG];
        let mut decoder = tables.decoder(tile.gaps)?;
        decoder.decode_symbols(tables.isa, slots, LOG, &[], symbols)?;
        decoder.finish()?;
        let open = chunk::open_bits(tables.isa, symbols);
        Raw::new(tile.raw, open).check()?;
        Ok(Places { tables, symbols, raw: Raw::new(tile.raw, 0), open, next: 0 })
    }

    /// Adds some more places, all of them below `len`.
    fn next(&mut self, len: usize, places: &mut Vec<u32>) -> Result<()> {
        let (now, later) = self.symbols.split_at(self.symbols.len().min(CHUNK));
        let mut some = [0; CHUNK];
        self.next =
            chunk::places(self.tables.isa, &self.tables.gap_of, now, &mut self.raw, self.next, &mut some);
        self.symbols = later;
        // Places increase: if the last is inside, all are. There are at most 2^22 gaps of less than 2^23.
        if self.next > len as u64 {
            return Err(OUTSIDE);
        }
        places.extend_from_slice(&some[..now.len()]);
        Ok(())
    }
}

/// The new values of a tile, in order.
struct Values<'t> {
    delta: &'t Delta<'t>,
    tables: &'t Tables,
    slots: &'t [u32],
    way: Way,
    after: u64,
    decoder: Decoder<'t>,
    raw: Raw<'t>,
    /// Their sum, and whether there are such values.
    sum: u64,
    exist: bool,
}

impl<'t> Values<'t> {
    /// Raw bits start at `raw`.
    fn new(delta: &'t Delta<'_>, tables: &'t Tables, tile: &Tile<'t>, raw: usize) -> Result<Values<'t>> {
        let way = tile.head.way;
        Ok(Values {
            delta,
            tables,
            slots: &tables.ways[way as usize],
            way,
            after: tile.head.after,
            decoder: tables.decoder(tile.values)?,
            raw: Raw::new(tile.raw, raw),
            sum: 0,
            exist: true,
        })
    }

    /// Reads what is told of some more values.
    fn symbols(&mut self, chunk: &mut Chunk) -> Result<()> {
        let (class, to) = (&chunk.class[..chunk.count], &mut chunk.symbols[..chunk.count]);
        self.decoder.decode_symbols(self.tables.isa, self.slots, LOG, class, to)
    }

    /// Makes them.
    fn make<const SIZE: usize>(&mut self, chunk: &Chunk, to: &mut [u8]) {
        let (isa, told) = (self.tables.isa, &self.tables.told[self.way as usize]);
        let (sum, exist) =
            chunk::new::<SIZE>(isa, self.delta.numbers, self.way, told, chunk, &mut self.raw, to);
        self.sum = self.sum.wrapping_add(sum);
        self.exist &= exist;
    }

    /// Judges all of them.
    fn finish(self) -> Result<()> {
        self.decoder.finish()?;
        self.raw.check()?;
        if !self.exist {
            return Err(NO_VALUE);
        }
        self.raw.finish()?;
        if self.sum != self.after {
            return Err(Error::Corrupt("a tile of a delta does not make what it says"));
        }
        Ok(())
    }
}

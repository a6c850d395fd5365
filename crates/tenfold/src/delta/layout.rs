//! A delta as engines with code of their own need it: its tables and where the parts of its tiles lie, after everything that a header and
//! the heads of tiles can say has been checked. What a tile holds, and its checksum, is left to the engine.

use std::ops::Range;

use super::apply::{Held, hold, wrong_base};
use super::check::{self, Fingerprint, of_bytes};
use super::numbers::Way;
use super::read::Delta;
use super::tile::{Decoded, Scratch};
use super::{Applied, DeltaOptions};
use crate::error::{Error, Result};
use crate::options::Limits;
use crate::view::Dtype;
use crate::workers::Workers;

/// Bytes of a tile at most, far more than 2^22 changes can take: what counts the bits of a tile has 32 of its own.
const MAX_BYTES: usize = 1 << 28;

/// A delta whose header and heads of tiles are in order.
pub struct DeltaLayout<'b> {
    delta: Delta<'b>,
    tiles: Vec<TileLayout>,
}

/// A tile that changes something.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TileLayout {
    /// Its number among all tiles.
    pub number: usize,
    /// Where its bytes are in the blob, and their checksum.
    pub bytes: Range<usize>,
    /// Checksum of these bytes.
    pub crc: u32,
    /// Its first value in the tensor, and how many it has.
    pub start: usize,
    /// Values of the tile.
    pub values: usize,
    /// How many of them change.
    pub changes: usize,
    /// The table of its gaps, and the first of those of its values' classes; see [`DeltaLayout::tables`].
    pub gap_table: usize,
    /// First table of its values.
    pub value_table: usize,
    /// How values are told: 0 by difference, 1 by bits that change, 2 by themselves.
    pub way: u32,
    /// Sum over old values.
    pub before: u64,
    /// Sum over new values.
    pub after: u64,
    /// Words of the stream of gaps, and of that of values.
    pub words: [u32; 2],
}

/// Where a tile's changes go: four bytes a place, counted from the tile's start, and an element a value.
#[derive(Debug)]
pub struct TileRoom<'a> {
    /// Which of [`DeltaLayout::tiles`].
    pub tile: usize,
    /// For the places.
    pub places: &'a mut [u8],
    /// For the new values.
    pub values: &'a mut [u8],
}

/// What a value at a place of a tile adds to a sum over the tile.
pub fn mix(place: u32, value: u64) -> u64 {
    check::mix(place, value)
}

impl<'b> DeltaLayout<'b> {
    /// Reads a delta's header and the heads of its tiles.
    pub fn read(blob: &'b [u8], limits: &Limits) -> Result<DeltaLayout<'b>> {
        let delta = Delta::open(blob, limits)?;
        let mut tiles = Vec::new();
        if let Some(change) = delta.change() {
            // Tables of a way stand behind those of the ways before it.
            let first = |way: Way| {
                let before = change.ways[..way as usize].iter().map(Vec::len).sum::<usize>();
                change.gaps.len() + before
            };
            for (number, (bytes, crc)) in delta.frame.parts().enumerate() {
                let content = blob.get(bytes.clone()).unwrap_or_default();
                if content.len() > MAX_BYTES {
                    return Err(Error::Corrupt("a tile has bytes left over"));
                }
                let Some(tile) = delta.part(number, content)? else { continue };
                let range = delta.range(number);
                let head = tile.head;
                tiles.push(TileLayout {
                    number,
                    bytes,
                    crc,
                    start: range.start,
                    values: range.len,
                    changes: head.changes,
                    gap_table: head.gap,
                    value_table: first(head.way),
                    way: head.way as u32,
                    before: head.before,
                    after: head.after,
                    words: head.words,
                });
            }
        }
        Ok(DeltaLayout { delta, tiles })
    }

    /// Element type of both tensors.
    pub fn dtype(&self) -> Dtype {
        self.delta.frame.head.dtype
    }

    /// Shape of both tensors.
    pub fn shape(&self) -> &[usize] {
        &self.delta.frame.head.shape
    }

    /// Values of the tensor.
    pub fn values(&self) -> usize {
        self.delta.frame.values
    }

    /// Fingerprint of the tensor that the delta belongs to.
    pub fn base(&self) -> Fingerprint {
        self.delta.params.base
    }

    /// log2 of the lanes of every stream.
    pub fn lanes_log(&self) -> u32 {
        self.delta.change().map_or(0, |change| change.geometry.lanes.ilog2())
    }

    /// The class of each key of an old value.
    pub fn class_of(&self) -> [u8; 256] {
        self.delta.change().map_or([0; 256], |change| change.class_of())
    }

    /// Frequencies of all tables: of gaps, then of each way's classes. They add up to 2^12.
    pub fn tables(&self) -> impl Iterator<Item = &[u16; 256]> {
        let tables = self.delta.change().map(|change| change.gaps.iter().chain(change.ways.iter().flatten()));
        tables.into_iter().flatten().map(|table| &table.of)
    }

    /// Where the key of an old value is, in bits from its lowest, and which of its bits count.
    pub fn key(&self) -> (u32, u8) {
        self.delta.numbers.key_bits()
    }

    /// Tiles that change something, in order.
    pub fn tiles(&self) -> &[TileLayout] {
        &self.tiles
    }

    /// Decodes tiles with a host's copy of the base, or of the result, and says of each when it is done, on the thread that did it. The
    /// copy stays as it is.
    pub fn decode(
        &self,
        rooms: Vec<TileRoom<'_>>,
        copy: &[u8],
        options: &DeltaOptions,
        done: &(dyn Fn(usize) + Sync),
    ) -> Result<()> {
        let size = self.dtype().size();
        if copy.len() != self.values() * size {
            return Err(Error::InvalidArgument(format!(
                "the copy of the tensor has {} bytes instead of {}",
                copy.len(),
                self.values() * size
            )));
        }
        let workers = Workers::new(options.threads, &options.stop)?;
        workers.for_pieces(rooms, Scratch::default, |scratch, _, room| {
            let tile = self.tiles.get(room.tile).filter(|tile| {
                (room.places.len(), room.values.len()) == (4 * tile.changes, size * tile.changes)
            });
            let tile = tile.ok_or_else(|| Error::InvalidArgument("no room for a tile's changes".into()))?;
            match hold(&self.delta, tile.number, copy, scratch)? {
                Held::Tile(Decoded { places, values, .. }) => {
                    room.values.copy_from_slice(&values);
                    let to = room.places.chunks_exact_mut(4);
                    to.zip(places).for_each(|(to, place)| to.copy_from_slice(&place.to_le_bytes()));
                }
                Held::Same => {}
                Held::Other => {
                    let found = of_bytes(self.dtype(), self.shape(), copy, 1);
                    return Err(wrong_base(&self.delta, found));
                }
            }
            done(room.tile);
            Ok(())
        })
    }

    /// What was done to a tensor: so many values were written, and all others that change were new already.
    pub fn applied(changed: u64, written: u64) -> Applied {
        Applied { written, before: changed.saturating_sub(written) }
    }
}

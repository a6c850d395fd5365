//! Deltas taken apart: headers, tiles, positions and new values.

use std::sync::OnceLock;

use super::check::Fingerprint;
use super::numbers::{Numbers, Told, Way};
use super::params::{Change, DeltaParams, LOG};
use super::token::GAPS;
use crate::blob::bytes::Reader;
use crate::blob::{CodecParams, Frame, TileRange};
use crate::entropy::rans::{Decoder, Escapes};
use crate::entropy::table::slot_table;
use crate::error::{Error, Result};
use crate::options::Limits;
use crate::view::Dtype;

/// What a delta's header says, and how much it changes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct DeltaInfo {
    /// Element type of both tensors.
    pub dtype: Dtype,
    /// Shape of both tensors.
    pub shape: Vec<usize>,
    /// Fingerprint of the tensor that the delta belongs to.
    pub base: Fingerprint,
    /// Fingerprint of what that becomes; the same if nothing changes.
    pub result: Fingerprint,
    /// Values of the tensor.
    pub values: u64,
    /// Values that change.
    pub changed: u64,
    /// Tiles, which are applied independently.
    pub tiles: u64,
    /// Values of a full tile.
    pub tile_values: u64,
    /// Bytes of the whole blob.
    pub blob_bytes: u64,
}

/// Reads a delta's header and the heads of its tiles; applies nothing.
///
/// ```
/// use tenfold::{TensorView, delta};
/// let base = TensorView::from_slice(&[1u8, 2, 3], &[3])?;
/// let blob = delta::make(&base, &TensorView::from_slice(&[1u8, 7, 3], &[3])?, &Default::default())?;
/// let info = delta::inspect(&blob)?;
/// assert_eq!((info.values, info.changed, info.base), (3, 1, delta::fingerprint(&base)));
/// # Ok::<(), tenfold::Error>(())
/// ```
pub fn inspect(blob: &[u8]) -> Result<DeltaInfo> {
    let delta = Delta::open(blob, &Limits::default().with_max_bytes(u64::MAX))?;
    let mut changed = 0;
    for tile in 0..delta.frame.tiles() {
        changed += delta.tile(tile)?.map_or(0, |tile| tile.head.changes as u64);
    }
    Ok(DeltaInfo {
        dtype: delta.frame.head.dtype,
        shape: delta.frame.head.shape.clone(),
        base: delta.params.base,
        result: delta.result(),
        values: delta.frame.values as u64,
        changed,
        tiles: delta.frame.tiles() as u64,
        tile_values: delta.params.geometry().map_or(0, |g| g.tile_values() as u64),
        blob_bytes: delta.frame.blob_len() as u64,
    })
}

/// A delta whose header was read.
pub(super) struct Delta<'b> {
    pub(super) frame: Frame,
    pub(super) params: DeltaParams,
    pub(super) blob: &'b [u8],
    pub(super) numbers: Numbers,
    class_of: [u8; 256],
    slots: OnceLock<Slots>,
}

/// Slots of each table of gaps, and of each way's classes. Who only looks at a delta does without.
struct Slots {
    gaps: Vec<u32>,
    ways: [Vec<u32>; 3],
}

/// What a tile starts with.
pub(super) struct TileHead {
    pub(super) changes: usize,
    pub(super) way: Way,
    pub(super) gap: usize,
    /// Sums over old and new values.
    pub(super) before: u64,
    pub(super) after: u64,
    /// Words of the gaps and of the values.
    pub(super) words: [u32; 2],
}

/// A tile in parts.
pub(super) struct Tile<'b> {
    pub(super) head: TileHead,
    gaps: &'b [u8],
    values: &'b [u8],
    raw: &'b [u8],
}

impl<'b> Delta<'b> {
    pub(super) fn open(blob: &'b [u8], limits: &Limits) -> Result<Delta<'b>> {
        let frame = Frame::parse_delta(blob, limits)?;
        frame.check_len(blob.len())?;
        let CodecParams::Delta(params) = &frame.head.params else {
            return Err(Error::Corrupt("parameters of a delta"));
        };
        let (params, numbers) = (DeltaParams::clone(params), Numbers::new(frame.head.dtype));
        let class_of = params.change.as_ref().map_or([0; 256], Change::class_of);
        Ok(Delta { frame, params, blob, numbers, class_of, slots: OnceLock::new() })
    }

    fn slots(&self) -> &Slots {
        self.slots.get_or_init(|| {
            let (mut gaps, mut ways) = (Vec::new(), <[Vec<u32>; 3]>::default());
            if let Some(change) = self.change() {
                slot_table(&change.gaps, &mut gaps);
                ways.iter_mut().zip(&change.ways).for_each(|(slots, tables)| slot_table(tables, slots));
            }
            Slots { gaps, ways }
        })
    }

    pub(super) fn change(&self) -> Option<&Change> {
        self.params.change.as_ref()
    }

    pub(super) fn result(&self) -> Fingerprint {
        self.change().map_or(self.params.base, |change| change.result)
    }

    /// The values of a tile.
    pub(super) fn range(&self, tile: usize) -> TileRange {
        match self.change() {
            Some(change) => change.geometry.tile(tile, self.frame.values),
            None => TileRange { start: 0, len: 0 },
        }
    }

    /// A tile, its checksum verified; `None` for one that changes nothing.
    pub(super) fn tile(&self, number: usize) -> Result<Option<Tile<'b>>> {
        self.part(number, self.frame.tile(self.blob, number)?)
    }

    /// The same from bytes whose checksum someone else verifies.
    pub(super) fn part(&self, number: usize, bytes: &'b [u8]) -> Result<Option<Tile<'b>>> {
        let Some(change) = self.change().filter(|_| !bytes.is_empty()) else { return Ok(None) };
        let mut r = Reader::new(bytes);
        let head = r.u32()?;
        let (changes, gap) = ((head & 0xff_ffff) as usize, (head >> 24 & 15) as usize);
        let way = Way::from_id(head >> 28).filter(|way| !change.ways[*way as usize].is_empty());
        let Some(way) = way.filter(|_| gap < change.gaps.len()) else {
            return Err(Error::Corrupt("a tile of a delta names a table that is not there"));
        };
        if changes == 0 || changes > self.range(number).len {
            return Err(Error::Corrupt("a tile changes no values, or more than it has"));
        }
        let [before, after] = [r.array()?, r.array()?].map(u64::from_le_bytes);
        let words = [r.u32()?, r.u32()?];
        let lengths = words.map(|words| 4 * change.geometry.lanes + 2 * words as usize);
        let (gaps, values) = (r.take(lengths[0])?, r.take(lengths[1])?);
        let head = TileHead { changes, way, gap, before, after, words };
        Ok(Some(Tile { head, gaps, values, raw: r.rest() }))
    }

    /// The places of a tile's changes, from the start of the tile; and how many raw bits told them.
    pub(super) fn positions(&self, number: usize, tile: &Tile<'_>, at: &mut Vec<u32>) -> Result<usize> {
        let mut symbols = vec![0; tile.head.changes];
        let slots = &self.slots().gaps[tile.head.gap << LOG..(tile.head.gap + 1) << LOG];
        self.symbols(tile.gaps, slots, &[], &mut symbols)?;
        let (mut raw, len) = (0, self.range(number).len as u64);
        at.clear();
        let mut next = 0u64;
        for symbol in symbols {
            let (high, open) = GAPS.join(symbol.into()).ok_or(OUTSIDE)?;
            let gap = high | take(tile.raw, raw, open)?;
            raw += open as usize;
            let place = next.checked_add(gap).filter(|&place| place < len).ok_or(OUTSIDE)?;
            at.push(place as u32);
            next = place + 1;
        }
        Ok(raw)
    }

    /// The new values of a tile, from the old ones; `raw` is where their raw bits start.
    pub(super) fn values(&self, tile: &Tile<'_>, raw: usize, old: &[u64], new: &mut Vec<u64>) -> Result<()> {
        let classes: Vec<u8> =
            old.iter().map(|&old| self.class_of[usize::from(self.numbers.key(old))]).collect();
        let mut symbols = vec![0; tile.head.changes];
        self.symbols(tile.values, &self.slots().ways[tile.head.way as usize], &classes, &mut symbols)?;
        let mut raw = raw;
        new.clear();
        for (symbol, &old) in symbols.into_iter().zip(old) {
            let open = self.numbers.open(tile.head.way, symbol).ok_or(NO_VALUE)?;
            let told = Told { symbol, open, raw: take(tile.raw, raw, open)? };
            raw += open as usize;
            new.push(self.numbers.join(tile.head.way, old, told).ok_or(NO_VALUE)?);
        }
        let used = raw.div_ceil(8);
        let spare = tile.raw.get(used..).ok_or(Error::Corrupt("a tile of a delta ends early"))?;
        if spare.len() > 3 || spare.iter().any(|&b| b != 0) {
            return Err(Error::Corrupt("a tile has bytes left over"));
        }
        Ok(())
    }

    fn symbols(&self, stream: &[u8], slots: &[u32], classes: &[u8], out: &mut [u8]) -> Result<()> {
        let lanes = self.change().map_or(1, |change| change.geometry.lanes);
        let mut decoder = Decoder::new(lanes, stream, Escapes::new(&[], 0))?;
        decoder.decode_symbols(slots, LOG, classes, out)?;
        decoder.finish()
    }
}

const OUTSIDE: Error = Error::Corrupt("a delta changes a value outside of its tile");
const NO_VALUE: Error = Error::Corrupt("a delta makes a value that does not exist");

/// `count` bits from bit `at` on, 64 at most.
fn take(bytes: &[u8], at: usize, count: u32) -> Result<u64> {
    if count == 0 {
        return Ok(0);
    }
    if at + count as usize > 8 * bytes.len() {
        return Err(Error::Corrupt("a tile of a delta ends early"));
    }
    let (first, shift) = (at / 8, (at % 8) as u32);
    let mut nine = [0; 9];
    let some = &bytes[first..bytes.len().min(first + 9)];
    nine[..some.len()].copy_from_slice(some);
    let [a, b, c, d, e, f, g, h, last] = nine;
    let low = u64::from_le_bytes([a, b, c, d, e, f, g, h]) >> shift;
    let high = u64::from(last).checked_shl(64 - shift).unwrap_or(0);
    Ok((low | high) & u64::MAX >> (64 - count))
}

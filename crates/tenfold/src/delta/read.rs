//! Deltas taken apart: headers, and the parts of tiles.

use std::sync::OnceLock;

use super::check::Fingerprint;
use super::numbers::{Numbers, Way};
use super::params::{Change, DeltaParams};
use super::tile::Tables;
use crate::blob::bytes::Reader;
use crate::blob::{CodecParams, Frame, TileRange};
use crate::error::{Error, Result};
use crate::options::Limits;
use crate::simd::Isa;
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
    pub(super) class_of: [u8; 256],
    tables: OnceLock<Tables>,
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
    pub(super) gaps: &'b [u8],
    pub(super) values: &'b [u8],
    pub(super) raw: &'b [u8],
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
        Ok(Delta { frame, params, blob, numbers, class_of, tables: OnceLock::new() })
    }

    /// What decoding tiles needs; nothing if nothing changes. Who only looks at a delta does without.
    pub(super) fn tables(&self) -> Option<&Tables> {
        let change = self.change()?;
        Some(self.tables.get_or_init(|| Tables::new(Isa::detect(), change, self.numbers)))
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
}

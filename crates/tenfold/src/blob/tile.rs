//! How values are dealt to tiles and lanes.

use super::bytes::{Reader, put_varint};
use crate::entropy::MAX_LANES;
use crate::error::{Error, Result};

/// Most values of a tile.
pub const MAX_TILE: usize = 1 << 22;

/// Tiles are runs of `lanes · steps` consecutive values; the last may be shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Coders of a tile, a power of two.
    pub lanes: usize,
    /// Values of a lane in a full tile.
    pub steps: usize,
}

/// The values of one tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TileRange {
    pub start: usize,
    pub len: usize,
}

impl Geometry {
    pub(crate) fn tile_values(self) -> usize {
        self.lanes * self.steps
    }

    /// Number of tiles of a tensor.
    pub(crate) fn tiles(self, values: usize) -> usize {
        values.div_ceil(self.tile_values())
    }

    /// Values of tile `i`.
    pub(crate) fn tile(self, i: usize, values: usize) -> TileRange {
        let start = i * self.tile_values();
        TileRange { start, len: self.tile_values().min(values - start) }
    }

    pub(crate) fn write(self, out: &mut Vec<u8>) {
        out.push(self.lanes.trailing_zeros() as u8);
        put_varint(out, self.steps as u64);
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Geometry> {
        let log = r.u8()?;
        let steps = r.varint()?;
        if log as u32 > MAX_LANES.trailing_zeros() || steps == 0 || steps > (MAX_TILE >> log) as u64 {
            return Err(Error::Corrupt("tile geometry"));
        }
        Ok(Geometry { lanes: 1 << log, steps: steps as usize })
    }
}

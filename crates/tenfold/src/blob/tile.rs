//! How values are dealt to tiles and lanes.

use super::bytes::{Reader, put_varint};
use crate::entropy::MAX_LANES;
use crate::error::{Error, Result};

/// Most values of a tile.
pub const MAX_TILE: usize = 1 << 22;

/// Default values of a lane.
const LANE: usize = 2048;

/// Tiles are runs of `lanes · ticks` consecutive values; the last may be shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Coders of a tile, a power of two.
    pub lanes: usize,
    /// Values of a lane in a full tile.
    pub ticks: usize,
}

/// The values of one tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TileRange {
    pub start: usize,
    pub len: usize,
}

impl Geometry {
    /// For levels: as many lanes as cost little. With `lane_values` of 0 the encoder chooses their length, twice as
    /// long from `many` values on.
    pub fn for_levels(values: usize, lane_values: u32, many: usize) -> Geometry {
        let lanes = (values / 512).next_power_of_two().clamp(2, 2 * MAX_LANES) / 2;
        let own = if values >= many { 2 * LANE } else { LANE };
        let g = Geometry::even(values, lanes, if lane_values == 0 { own } else { lane_values as usize });
        // Pairs come in twos, and decoders on a device take four of them at a time.
        Geometry { ticks: if lanes == MAX_LANES { g.ticks.next_multiple_of(8) } else { g.ticks }, ..g }
    }

    /// The same for planes of bytes.
    pub fn for_planes(values: usize, lane_values: u32) -> Geometry {
        let lanes = (values / 256).next_power_of_two().clamp(1, MAX_LANES);
        Geometry::even(values, lanes, if lane_values == 0 { LANE } else { lane_values as usize })
    }

    /// Tiles of about the same length, with at most `most` values a lane.
    fn even(values: usize, lanes: usize, most: usize) -> Geometry {
        let tiles = values.div_ceil(lanes * most).max(1);
        Geometry { lanes, ticks: values.div_ceil(tiles).div_ceil(lanes).max(1) }
    }

    /// Values of a full tile.
    pub fn tile_values(self) -> usize {
        self.lanes * self.ticks
    }

    /// Number of tiles of a tensor.
    pub fn tiles(self, values: usize) -> usize {
        values.div_ceil(self.tile_values())
    }

    /// Values of tile `i`.
    pub(crate) fn tile(self, i: usize, values: usize) -> TileRange {
        let start = i * self.tile_values();
        TileRange { start, len: self.tile_values().min(values - start) }
    }

    pub(crate) fn write(self, out: &mut Vec<u8>) {
        out.push(self.lanes.trailing_zeros() as u8);
        put_varint(out, self.ticks as u64);
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Geometry> {
        let log = r.u8()?;
        let ticks = r.varint()?;
        if log as u32 > MAX_LANES.trailing_zeros() || ticks == 0 || ticks > (MAX_TILE >> log) as u64 {
            return Err(Error::Corrupt("tile geometry"));
        }
        Ok(Geometry { lanes: 1 << log, ticks: ticks as usize })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_hold_all_values_and_little_more() {
        for values in [1, 31, 300, 511, 512, 4097, 65_536, 1 << 20, (1 << 20) + 1, (32 << 20) - 1, 300 << 20]
        {
            for lane_values in [0, 32, 65_536] {
                let levels = Geometry::for_levels(values, lane_values, 256 << 20);
                for g in [levels, Geometry::for_planes(values, lane_values)] {
                    let tiles = g.tiles(values);
                    assert!(g.lanes.is_power_of_two() && g.lanes <= MAX_LANES);
                    assert!(g.tile_values() * tiles >= values, "{values}: {g:?}");
                    assert!(g.tile_values() * (tiles - 1) < values, "{values}: {g:?}");
                }
            }
        }
    }
}

//! How the values of a lossy blob are dealt to tiles.

use tenfold::format::MAX_LANES;

/// Tiles of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geometry {
    pub lanes: usize,
    /// Values of a lane in a full tile.
    pub steps: usize,
    pub tiles: usize,
}

impl Geometry {
    /// Lanes as the CPU has them. Tiles are as large where they can be: a warp takes one, and it takes thousands of
    /// them to keep a device busy. `lane_values` of 0 leaves the choice to this, at a price of at most 0.006 bits a
    /// value against the CPU's choice; shorter lanes are the caller's to ask for.
    pub(super) fn new(values: usize, lane_values: u32) -> Geometry {
        let lanes = ((values / 512).next_power_of_two().clamp(2, 2 * MAX_LANES) / 2).clamp(1, MAX_LANES);
        let most = match lane_values {
            0 if values >= 256 << 20 => 4096,
            0 => 2048,
            n => n as usize,
        };
        let parts = values.div_ceil(lanes * most).max(1);
        let steps = values.div_ceil(parts).div_ceil(lanes).max(1);
        Geometry { lanes, steps, tiles: values.div_ceil(lanes * steps) }
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
                let g = Geometry::new(values, lane_values);
                assert!(g.lanes.is_power_of_two() && g.lanes <= MAX_LANES);
                assert!(g.lanes * g.steps * g.tiles >= values, "{values}: {g:?}");
                assert!(g.lanes * g.steps * (g.tiles - 1) < values, "{values}: {g:?}");
            }
        }
    }
}

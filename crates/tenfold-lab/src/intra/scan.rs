//! The order of levels in a block, and which model a level gets from those already coded.
//!
//! From the last position to the first along diagonals, in groups of 4 by 4: the levels to the right and
//! below are known, and their size is the best guess of the next one's.

use std::sync::LazyLock;

/// What the neighbours say: ten sizes, and no neighbours at all.
pub(super) const CLASSES: usize = 11;
/// Where in the block: the mean, the lowest frequencies, the rest.
pub(super) const ZONES: usize = 3;
/// Side of the padded array of magnitudes: two more than the largest block.
const STRIDE: usize = 34;

/// Positions of a block in coding order, group after group; 16 positions are a group.
static ORDERS: LazyLock<[Vec<Position>; 4]> = LazyLock::new(|| [2, 3, 4, 5].map(order));

/// A position of a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Position {
    pub x: u8,
    pub y: u8,
    /// Number of neighbours to the right and below that exist.
    neighbours: u8,
}

fn order(log2: u32) -> Vec<Position> {
    let n = 1usize << log2;
    let diagonal = |side: usize| {
        let mut all: Vec<(usize, usize)> = (0..side * side).map(|i| (i % side, i / side)).collect();
        all.sort_by_key(|&(x, y)| std::cmp::Reverse((x + y, y)));
        all
    };
    let position = |x: usize, y: usize| {
        let (right, below) = ((n - 1 - x).min(2), (n - 1 - y).min(2));
        let neighbours = (right + below + usize::from(right > 0 && below > 0)) as u8;
        Position { x: x as u8, y: y as u8, neighbours }
    };
    let inner = diagonal(4);
    let groups = diagonal(n / 4);
    groups
        .iter()
        .flat_map(|&(gx, gy)| inner.iter().map(move |&(x, y)| position(4 * gx + x, 4 * gy + y)))
        .collect()
}

/// Positions of a block of this size in coding order.
pub(super) fn positions(log2: u32) -> &'static [Position] {
    &ORDERS[log2 as usize - 2]
}

/// Side and meaning of a block of levels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    pub log2: u32,
    pub transform: bool,
}

/// Magnitudes coded so far, with a border of zeros.
pub(super) struct Known {
    sizes: [u16; STRIDE * STRIDE],
    /// Which groups have a level, with a border.
    groups: [bool; 81],
}

impl Known {
    pub fn new() -> Self {
        Known { sizes: [0; STRIDE * STRIDE], groups: [false; 81] }
    }

    pub fn set(&mut self, p: Position, size: u32) {
        self.sizes[usize::from(p.y) * STRIDE + usize::from(p.x)] = size as u16;
    }

    /// Model for the group that starts at a position, by the groups to the right and below.
    pub fn group_class(&self, p: Position) -> usize {
        let at = usize::from(p.y / 4) * 9 + usize::from(p.x / 4);
        usize::from(self.groups[at + 1]) + usize::from(self.groups[at + 9])
    }

    pub fn set_group(&mut self, p: Position, any: bool) {
        self.groups[usize::from(p.y / 4) * 9 + usize::from(p.x / 4)] = any;
    }

    /// Zone, class and order of the Golomb code at a position.
    pub fn model(&self, p: Position, form: Form) -> Model {
        let at = usize::from(p.y) * STRIDE + usize::from(p.x);
        let size = |i: usize| u32::from(self.sizes[at + i]);
        let sum = size(1) + size(2) + size(STRIDE) + size(2 * STRIDE) + size(STRIDE + 1);
        let (class, order) = match p.neighbours {
            0 => (CLASSES - 1, 0),
            // As if there were five of them.
            n => {
                let sum = 5 * sum / u32::from(n);
                (class_of(sum), (sum / 20 + 1).ilog2())
            }
        };
        let zone = match p.x + p.y {
            _ if !form.transform => 2,
            0 => 0,
            1..=3 => 1,
            _ => 2,
        };
        Model { zone, class, order }
    }
}

fn class_of(sum: u32) -> usize {
    match sum {
        0..=2 => sum as usize,
        3..=4 => 3,
        5..=6 => 4,
        7..=9 => 5,
        10..=14 => 6,
        15..=22 => 7,
        23..=36 => 8,
        _ => 9,
    }
}

/// How one level is coded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Model {
    pub zone: usize,
    pub class: usize,
    /// Of the Golomb code for what the models do not reach.
    pub order: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_position_comes_once_and_after_its_neighbours() {
        for log2 in 2..=5 {
            let n = 1usize << log2;
            let mut turn = vec![usize::MAX; n * n];
            for (i, p) in positions(log2).iter().enumerate() {
                turn[usize::from(p.y) * n + usize::from(p.x)] = i;
            }
            assert!(turn.iter().all(|&t| t < n * n));
            for (i, p) in positions(log2).iter().enumerate() {
                for (dx, dy) in [(1, 0), (2, 0), (0, 1), (0, 2), (1, 1)] {
                    let (x, y) = (usize::from(p.x) + dx, usize::from(p.y) + dy);
                    assert!(x >= n || y >= n || turn[y * n + x] < i);
                }
            }
        }
    }
}

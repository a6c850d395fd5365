//! How tiles are dealt to blocks: as many blocks as the device runs at once, shared among the blobs by size.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::DecodeRequest;
use crate::abi::DECODE_THREADS;
use crate::device::Device;
use crate::driver::Shape;

/// The fewest values of a warp's tile that a grid is laid out for.
const TILE: u64 = 32 * 1024;
/// Shared memory that a block needs to keep the two tables of a blob without classes beside its rings.
const LEAST_SHARED: u32 = 56 << 10;
/// Blobs a multiprocessor from which on there are many; shared memory that holds all tables that a blob may have.
const MANY: u64 = 4;
const MANY_SHARED: u32 = 140 << 10;
/// Tiles of blobs that are small, and how many there must be for a warp each to be enough.
const SMALL_TILES: u64 = 4;
const SMALL_LEAST: usize = 32;
/// Warps of a block that takes a whole multiprocessor.
const WARPS: u32 = DECODE_THREADS / 32;

/// The launch of kernels that decode tiles.
pub(super) struct Grid {
    pub(super) shape: Shape,
    /// Where there are many blobs: shared memory of blocks that do those with few tables.
    pub(super) narrow: Option<u32>,
    /// Where blobs are small: blocks of a warp that each gets.
    pub(super) small: Option<u32>,
    pub(super) blocks: u32,
    pub(super) first_block: Vec<u32>,
}

impl Grid {
    /// For blocks on so many multiprocessors at most, each of which one takes whole; `None` for all, which small blobs share.
    pub(super) fn new(device: &Device, requests: &[DecodeRequest], multiprocessors: Option<u32>) -> Grid {
        let properties = device.properties();
        let tiles = |r: &DecodeRequest| (r.out.len as u64 / r.dtype.size() as u64).div_ceil(TILE).max(1);
        let tiles: Vec<u64> = requests.iter().map(tiles).collect();
        let total: u64 = tiles.iter().sum();
        // Blocks as wide as the blobs are large on average, and as many of them as fill a multiprocessor.
        let mean = (total / requests.len() as u64).max(1).next_power_of_two().min(WARPS.into()) as u32;
        let most = properties.shared_per_block.saturating_sub(1 << 10);
        let all = properties.multiprocessors.max(1);
        let limit = multiprocessors.filter(|&n| n < all).map(|n| n.max(1));
        // Many small blobs: whatever a warp has to wait for, other blobs' warps do not. Most have few tables.
        let many = requests.len() as u64 >= MANY * u64::from(all) && mean < WARPS && limit.is_none();
        let mean = if many { mean.max(8) } else { mean };
        let least = if many { MANY_SHARED } else { LEAST_SHARED };
        let per_multiprocessor =
            if limit.is_some() { 1 } else { (WARPS / mean).clamp(1, (most / least).max(1)) };
        let shared = (most / per_multiprocessor) & !15;
        let small =
            limit.is_none() && requests.len() >= SMALL_LEAST && total <= SMALL_TILES * requests.len() as u64;
        let small = small.then_some(total.div_ceil(requests.len() as u64) as u32);
        let narrow = many.then_some(((most / (3 * per_multiprocessor)) & !15).saturating_sub(1 << 10));
        let at_once = u64::from(limit.unwrap_or(all) * per_multiprocessor);
        let mut first_block = Vec::with_capacity(requests.len());
        let mut blocks = 0u32;
        for share in apportion(&tiles, at_once) {
            first_block.push(blocks);
            blocks += u32::try_from(share).unwrap_or(1);
        }
        Grid { shape: Shape::new(blocks, 32 * mean, shared), narrow, small, blocks, first_block }
    }
}

/// Shares blocks among blobs, so that the fullest block has as few tiles as can be. Each blob has a block, even where there are
/// more blobs than blocks, and none has more blocks than tiles.
fn apportion(tiles: &[u64], blocks: u64) -> Vec<u64> {
    let total: u64 = tiles.iter().sum();
    let more = blocks.saturating_sub(tiles.len() as u64);
    let mut shares: Vec<u64> = tiles.iter().map(|&t| (1 + more * t / total).min(t)).collect();
    let left = blocks.saturating_sub(shares.iter().sum());
    // A block more for whoever has the most tiles a block; the first of those that have as many.
    let mut fullest: BinaryHeap<_> =
        tiles.iter().zip(&shares).enumerate().map(|(i, (&t, &s))| (t.div_ceil(s), Reverse(i))).collect();
    for _ in 0..left {
        let Some((tiles_a_block, Reverse(i))) = fullest.pop() else { break };
        if tiles_a_block <= 1 {
            break;
        }
        shares[i] += 1;
        fullest.push((tiles[i].div_ceil(shares[i]), Reverse(i)));
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fullest(tiles: &[u64], shares: &[u64]) -> u64 {
        tiles.iter().zip(shares).map(|(t, s)| t.div_ceil(*s)).max().unwrap()
    }

    #[test]
    fn blocks_of_a_layer_are_filled_alike() {
        // A layer of a Llama of 8 B: q, k, v, o, gate, up, down; k and v used to get two blocks of 64 tiles.
        let tiles = [512, 128, 128, 512, 1792, 1792, 1792];
        let shares = apportion(&tiles, 132);
        assert_eq!(shares.iter().sum::<u64>(), 132);
        assert!(fullest(&tiles, &shares) <= 53, "{shares:?}");
    }

    #[test]
    fn everyone_has_a_block_and_no_more_than_tiles() {
        assert_eq!(apportion(&[1, 1, 1], 132), [1, 1, 1]);
        assert_eq!(apportion(&[1; 500], 132), [1; 500]);
        assert_eq!(apportion(&[1 << 30], 132), [132]);
        assert_eq!(apportion(&[1, 1000], 132), [1, 131]);
        let shares = apportion(&[3, 200, 7, 7], 20);
        assert_eq!(shares.iter().sum::<u64>(), 20);
        assert!(fullest(&[3, 200, 7, 7], &shares) <= 13, "{shares:?}");
    }
}

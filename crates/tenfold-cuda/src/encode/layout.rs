//! How the kernels of a lossy encoder are launched, and where in the workspace each finds what it needs.

use tenfold::format::{MAX_LANES, MAX_SCALE_BITS};

use super::Batch;
use super::assemble::{Pieces, slot_words};
use super::rate;
use crate::abi::{
    Each, Encoding, LEVELS_BLOCKS, LEVELS_SETS, LEVELS_THREADS, LevelsPass, LevelsTile, PACK_CLASS,
    PACK_FIXED, PACK_RING, PACK_SHARED, PART_LEAST, PASS_THREADS, SEARCH_SHARED, TABLES_THREADS,
    WIDE_WARP_SHARED, WRITE_SHARED, WRITE_WARP_SHARED,
};
use crate::device::Device;
use crate::driver::Shape;
use crate::error::{Error, Result};

/// Bytes for a header without its lists of scales: 10 a dimension, 400 a table, and some numbers.
const STAGED: usize = 16 << 10;
/// The fewest values of a row of the class map, and those where rows are runs.
const LEAST_WIDTH: u64 = 16;
const RUN: u64 = 256;
/// Warps of a block, at most.
const WARPS: u32 = LEVELS_THREADS / 32;
/// Values that a warp counts, at least.
const COUNT_VALUES: u64 = 4096;
/// Escapes of a tile that are kept, at most.
const ESCAPES: usize = 512;
/// Blocks that make tables and pack lists of scales.
const TABLE_BLOCKS: u32 = 16;
/// Bytes that a block clears before a pass.
const CLEAR_BYTES: usize = 32 << 10;
/// Multiprocessors of a large device. What decides which blob is made goes by these, and not by those that there are: all devices
/// make the same.
pub(super) const MULTIPROCESSORS: u32 = 132;
/// Warps of a multiprocessor that are enough to search: with fewer, several share a tile.
const SEARCHERS: u32 = 16;
/// Values from which on they may: small tensors are the same blobs alone and in a batch.
const SHARED_FROM: u64 = 128 << 10;
/// Shared memory that kernels take beside what they are given.
const STATIC: u32 = 1 << 10;

/// How the kernels are launched: no more blocks than run at once, no wider than there are tiles for.
pub(super) struct Shapes {
    /// For what one block clears, and for tables and lists of scales.
    pub clear: Shape,
    pub tables: Shape,
    pub search: Shape,
    /// Warps that share a tile in a search through few states.
    pub parts: u32,
    pub pack: Shape,
    pub write: Shape,
}

impl Shapes {
    /// For a batch, whose tensors share the device, and whose plans are ready and have so many classes at most, or are still to be made.
    pub(super) fn new(
        device: &Device,
        encoding: &Encoding,
        batch: Batch,
        ready: Option<u32>,
    ) -> Result<Shapes> {
        let (batch, full) = (batch.count, batch.full);
        let properties = device.properties();
        let at_once = (properties.multiprocessors.max(1) * LEVELS_BLOCKS).div_ceil(full);
        let most = properties.shared_per_block.saturating_sub(STATIC);
        let shape = |work: usize, fixed: usize, each: usize| {
            let (fixed, each) = (fixed as u32, each as u32);
            let work = u32::try_from(work).unwrap_or(u32::MAX).max(1);
            let room = most.saturating_sub(fixed).checked_div(each).unwrap_or(WARPS);
            if room == 0 {
                return Err(Error::NoDevice("this device has too little shared memory to encode".into()));
            }
            let warps = work.div_ceil(at_once).min(WARPS).min(room);
            let grid = work.div_ceil(warps).min(at_once * (WARPS / warps).max(1));
            Ok(Shape { grid, block: 32 * warps, shared: fixed + warps * each, batch })
        };
        let tiles = encoding.tiles as usize;
        // A scalar quantiser may take values in any order; a wide trellis takes a warp a lane, and keeps its metrics in
        // shared memory.
        let (work, metrics) = match encoding.nu {
            0 => ((encoding.values / COUNT_VALUES) as usize, 0),
            1..=3 => (tiles, 0),
            _ => (tiles * encoding.lanes as usize, WIDE_WARP_SHARED),
        };
        let mut search = shape(work, SEARCH_SHARED, metrics)?;
        let mut parts = 1;
        if encoding.nu == 3 && encoding.values >= SHARED_FROM {
            let room = (MULTIPROCESSORS * SEARCHERS) as usize / tiles.max(1);
            parts = 1 << (room as u32).min(encoding.ticks / PART_LEAST).clamp(1, WARPS).ilog2();
        }
        if parts > 1 {
            // Few tiles: the product is no larger than the warps that run at once.
            let work = tiles as u32 * parts;
            let warps = work.div_ceil(at_once).next_multiple_of(parts).min(WARPS);
            (search.grid, search.block) = (work.div_ceil(warps), 32 * warps);
        }
        let tables = ready.map_or(PACK_SHARED, |classes| PACK_FIXED + classes as usize * PACK_CLASS);
        let pack = shape(tiles, tables, PACK_RING * 2)?;
        let write = shape(tiles, WRITE_SHARED, WRITE_WARP_SHARED)?;
        // A thread packs 32 bits of a list of scales at a time; a block more makes the tables.
        let (rows, width) = lists(encoding);
        let words = ((rows + width) * MAX_SCALE_BITS as usize + encoding.transforms_len as usize * 8) / 32;
        let blocks =
            |each: usize, most: u32| u32::try_from(words.div_ceil(each)).unwrap_or(most).clamp(1, most);
        let tables = Shape {
            grid: 1 + blocks(TABLES_THREADS as usize, TABLE_BLOCKS - 1),
            block: TABLES_THREADS,
            shared: 0,
            batch,
        };
        let header = STAGED + encoding.transforms_len as usize + words * 4;
        let cleared = LEVELS_SETS * 256 * 8 + header + tiles * size_of::<LevelsTile>();
        let clear = u32::try_from(cleared / CLEAR_BYTES).unwrap_or(u32::MAX).clamp(1, at_once);
        let clear = Shape { grid: clear, block: PASS_THREADS, shared: 0, batch };
        Ok(Shapes { clear, tables, search, parts, pack, write })
    }

    /// Warps that search at once.
    fn searchers(&self) -> usize {
        (self.search.grid * (self.search.block / 32)) as usize
    }
}

/// Rows of the class map, at most, and the values of one: rows are those of the tensor, or runs.
fn lists(encoding: &Encoding) -> (usize, usize) {
    let least = if encoding.cols >= LEAST_WIDTH { encoding.cols.min(RUN) } else { RUN };
    (encoding.values.div_ceil(least) as usize, encoding.cols.max(RUN) as usize)
}

/// Where a pass finds what it needs in the workspace.
pub(super) struct Layout {
    pub pass: LevelsPass,
    /// The workspace of a search.
    pub rate: Each<u8>,
    pub pieces: Pieces,
}

impl Layout {
    /// For workspaces that start at `base`, with so many bytes for a search.
    pub(super) fn new(encoding: &Encoding, shapes: &Shapes, rate_len: usize, base: Each<u8>) -> Layout {
        let (tiles, ticks, values) =
            (encoding.tiles as usize, encoding.ticks as usize, encoding.tile_values as usize);
        let (rows, width) = lists(encoding);
        let header_front = STAGED + encoding.transforms_len as usize;
        let header_room =
            (header_front + (rows + width).div_ceil(8) * MAX_SCALE_BITS as usize).next_multiple_of(16);
        let slot_words = slot_words(values);
        let escape_room = (values / 64).clamp(32, ESCAPES);
        let groups = ticks.div_ceil(4);
        let part_groups = groups.div_ceil(shapes.parts as usize);
        // Four decisions of eight states a lane in a word, or all decisions of one lane.
        let warp_decisions = match encoding.nu {
            0 => 0,
            1..=3 => part_groups * MAX_LANES * 4,
            nu => ticks * ((1usize << nu) / 8).max(4),
        };
        // Four codes a group.
        let codes = if encoding.nu > 0 { tiles * groups * encoding.lanes as usize } else { 0 };
        let mut pieces = Pieces::new(base);
        let pass = LevelsPass {
            encoding: *encoding,
            plan: pieces.take(1, 1),
            pass: pieces.take(1, 1),
            header_len: pieces.take(1, 1),
            counts: pieces.take(LEVELS_SETS, 256),
            freq: pieces.take(LEVELS_SETS, 256),
            pairs: pieces.take(2 * LEVELS_SETS, 256),
            sums: pieces.take(shapes.searchers(), 1),
            sum_count: shapes.searchers() as u32,
            header: pieces.take(header_room / 4, 1),
            header_front: header_front as u64,
            header_room: header_room as u64,
            tiles: pieces.take(tiles, 1),
            lengths: pieces.take(tiles, 1),
            starts: pieces.take(tiles, 1),
            states: pieces.take(tiles, MAX_LANES),
            escapes: pieces.take(tiles, escape_room),
            escape_room: escape_room as u32,
            words: pieces.take(tiles, slot_words),
            slot_words: slot_words as u32,
            codes: pieces.take(codes, 4),
            decisions: pieces.take(shapes.searchers(), warp_decisions),
            warp_decisions: warp_decisions as u64,
            parts: shapes.parts,
            part_ticks: 4 * part_groups as u32,
            measure: rate::needs_error(encoding.goal) as u32,
        };
        Layout { pass, rate: pieces.take(rate_len, 1), pieces }
    }
}

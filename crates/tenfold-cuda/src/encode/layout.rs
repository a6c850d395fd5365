//! How the kernels of a lossy encoder are launched, and where in the workspace each finds what it needs.

use tenfold::format::{MAX_CLASSES, MAX_LANES, MAX_SCALE_BITS};

use super::Batch;
use super::assemble::{Each, Pieces, slot_words};
use super::rate::{self, Job};
use crate::constants::{
    LEVELS_TILE_BYTES, PACK_RING, PACK_SHARED, PLAN_BYTES, SEARCH_SHARED, WIDE_WARP_SHARED, WRITE_SHARED,
    WRITE_WARP_SHARED,
};
use crate::device::Device;
use crate::driver::Shape;
use crate::error::{Error, Result};
use crate::status::Status;

/// Tables of a blob: two a class.
pub(super) const SETS: usize = 2 * MAX_CLASSES;
/// Bytes for a header without its lists of scales: 10 a dimension, 400 a table, and some numbers.
const STAGED: usize = 16 << 10;
/// The fewest values of a row of the class map, and those where rows are runs.
const LEAST_WIDTH: u64 = 16;
const RUN: u64 = 256;
/// Threads of a block; two blocks fill a multiprocessor.
const WARPS: u32 = 16;
const BLOCKS: u32 = 2;
/// Values that a warp counts, at least.
const COUNT_VALUES: u64 = 4096;
/// Escapes of a tile that are kept, at most.
const ESCAPES: usize = 512;
/// Blocks that make tables and pack lists of scales.
const TABLE_BLOCKS: u32 = 16;
/// Bytes that a block clears before a pass.
const CLEAR_BYTES: usize = 32 << 10;
/// Shared memory that kernels take beside what they are given.
const STATIC: u32 = 1 << 10;

/// Arguments of a pass, as the kernels have them.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Pass {
    pub job: Job,
    pub plan: Each,
    pub pass: Each,
    pub codes: Each,
    pub decisions: Each,
    pub warp_decisions: u64,
    pub words: Each,
    pub slot_words: u32,
    pub escape_room: u32,
    pub states: Each,
    pub escapes: Each,
    pub tiles: Each,
    pub lengths: Each,
    pub starts: Each,
    pub counts: Each,
    pub freq: Each,
    pub sums: Each,
    pub sum_count: u32,
    pub measure: u32,
    pub header: Each,
    pub header_room: u64,
    pub header_front: u64,
    pub header_len: Each,
}

/// How the kernels are launched: no more blocks than run at once, no wider than there are tiles for.
pub(super) struct Shapes {
    /// For what one block clears, and for tables and lists of scales.
    pub clear: Shape,
    pub tables: Shape,
    pub search: Shape,
    pub pack: Shape,
    pub write: Shape,
}

impl Shapes {
    /// For a batch, whose tensors share the device.
    pub(super) fn new(device: &Device, job: &Job, batch: Batch) -> Result<Shapes> {
        let (batch, full) = (batch.count, batch.full);
        let properties = device.properties();
        let at_once = (properties.multiprocessors.max(1) * BLOCKS).div_ceil(full);
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
        let tiles = job.tiles as usize;
        // A scalar quantiser may take values in any order; a wide trellis takes a warp a lane, and keeps its metrics in
        // shared memory.
        let (work, metrics) = match job.nu {
            0 => ((job.values / COUNT_VALUES) as usize, 0),
            1..=3 => (tiles, 0),
            _ => (tiles * job.lanes as usize, WIDE_WARP_SHARED),
        };
        let search = shape(work, SEARCH_SHARED, metrics)?;
        let pack = shape(tiles, PACK_SHARED, PACK_RING * 2)?;
        let write = shape(tiles, WRITE_SHARED, WRITE_WARP_SHARED)?;
        // A thread packs 32 bits of a list of scales at a time; a block more makes the tables.
        let (rows, width) = lists(job);
        let words = ((rows + width) * MAX_SCALE_BITS as usize + job.transforms_len as usize * 8) / 32;
        let blocks =
            |each: usize, most: u32| u32::try_from(words.div_ceil(each)).unwrap_or(most).clamp(1, most);
        let tables = Shape { grid: 1 + blocks(1024, TABLE_BLOCKS - 1), block: 1024, shared: 0, batch };
        let cleared =
            SETS * 256 * 8 + STAGED + job.transforms_len as usize + words * 4 + tiles * LEVELS_TILE_BYTES;
        let clear = u32::try_from(cleared / CLEAR_BYTES).unwrap_or(u32::MAX).clamp(1, at_once);
        let clear = Shape { grid: clear, block: 256, shared: 0, batch };
        Ok(Shapes { clear, tables, search, pack, write })
    }

    /// Warps that search at once.
    fn searchers(&self) -> usize {
        (self.search.grid * (self.search.block / 32)) as usize
    }
}

/// Rows of the class map, at most, and the values of one: rows are those of the tensor, or runs.
fn lists(job: &Job) -> (usize, usize) {
    let least = if job.cols >= LEAST_WIDTH { job.cols.min(RUN) } else { RUN };
    (job.values.div_ceil(least) as usize, job.cols.max(RUN) as usize)
}

/// Where things are in the workspace, in bytes from its start.
pub(super) struct Layout {
    pub pieces: Pieces,
    pub plan: usize,
    /// What a pass says, then the length of its header.
    said: usize,
    counts: usize,
    freq: usize,
    sums: usize,
    header: usize,
    header_front: usize,
    header_room: usize,
    tiles: usize,
    lengths: usize,
    starts: usize,
    states: usize,
    escapes: usize,
    escape_room: usize,
    words: usize,
    slot_words: usize,
    codes: usize,
    decisions: usize,
    warp_decisions: usize,
    pub rate: usize,
}

impl Layout {
    pub(super) fn new(job: &Job, shapes: &Shapes, rate_len: usize) -> Layout {
        let (tiles, ticks, values) = (job.tiles as usize, job.ticks as usize, job.tile_values as usize);
        let (rows, width) = lists(job);
        let header_front = STAGED + job.transforms_len as usize;
        let header_room =
            (header_front + (rows + width).div_ceil(8) * MAX_SCALE_BITS as usize).next_multiple_of(16);
        let slot_words = slot_words(values);
        let escape_room = (values / 64).clamp(32, ESCAPES);
        let groups = ticks.div_ceil(4);
        // Four decisions of eight states a lane in a word, or all decisions of one lane.
        let warp_decisions = match job.nu {
            0 => 0,
            1..=3 => groups * MAX_LANES * 4,
            nu => ticks * ((1usize << nu) / 8).max(4),
        };
        let codes = if job.nu > 0 { tiles * groups * job.lanes as usize } else { 0 };
        let mut pieces = Pieces::default();
        Layout {
            plan: pieces.take(PLAN_BYTES, 1),
            said: pieces.take(size_of::<Status>() + 8, 1),
            counts: pieces.take(SETS * 256, 8),
            freq: pieces.take(SETS * 256, 4),
            sums: pieces.take(shapes.searchers(), 16),
            header: pieces.take(header_room, 1),
            header_front,
            header_room,
            tiles: pieces.take(tiles, LEVELS_TILE_BYTES),
            lengths: pieces.take(tiles, 4),
            starts: pieces.take(tiles, 8),
            states: pieces.take(tiles, MAX_LANES * 4),
            escapes: pieces.take(tiles, escape_room * 4),
            escape_room,
            words: pieces.take(tiles, slot_words * 2),
            slot_words,
            codes: pieces.take(codes, 8),
            decisions: pieces.take(shapes.searchers(), warp_decisions),
            warp_decisions,
            rate: pieces.take(rate_len, 1),
            pieces,
        }
    }

    pub(super) fn pass(&self, job: &Job, shapes: &Shapes, base: Each) -> Pass {
        let at = |offset: usize| base.plus(offset);
        Pass {
            job: *job,
            plan: at(self.plan),
            pass: at(self.said),
            codes: at(self.codes),
            decisions: at(self.decisions),
            warp_decisions: self.warp_decisions as u64,
            words: at(self.words),
            slot_words: self.slot_words as u32,
            escape_room: self.escape_room as u32,
            states: at(self.states),
            escapes: at(self.escapes),
            tiles: at(self.tiles),
            lengths: at(self.lengths),
            starts: at(self.starts),
            counts: at(self.counts),
            freq: at(self.freq),
            sums: at(self.sums),
            sum_count: shapes.searchers() as u32,
            measure: rate::measures(job.goal) as u32,
            header: at(self.header),
            header_room: self.header_room as u64,
            header_front: self.header_front as u64,
            header_len: at(self.said + size_of::<Status>()),
        }
    }
}

//! Lossless blobs: statistics, tables, tiles, and tiles at their place; the kernels of `lossless_count.cu`,
//! `lossless_encode.cu` and `lossless_write.cu` in order.

use tenfold::format::{Geometry, MAX_LANES};

use super::assemble::{self, Assembly, Each, Pieces, slot_words};
use super::{Call, EncodeRequest, dims};
use crate::constants::{COUNT_BYTES, MAX_DIMS, PACK_RING};
use crate::device::{Device, DeviceSlice};
use crate::driver::Shape;
use crate::error::Result;

/// Bytes for the header before its directory: 10 a dimension, 300 a table, and some numbers.
const STAGED: usize = 4096;
/// Bytes of a tensor from which on tables are made of a sample.
const SAMPLE_FROM: usize = 64 << 20;
/// Warps of a multiprocessor that tiles are laid out for, and of a block.
const WARPS: u32 = 32;
const BLOCK_WARPS: u32 = 8;

/// As the kernels have it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    assembly: Assembly,
    data: u64,
    values: u64,
    tile_values: u64,
    counts: u64,
    sampled: u64,
    entries: u64,
    tabled: u64,
    heads: u64,
    slots: u64,
    slot_bytes: u64,
    slot_words: u32,
    staged_room: u32,
    lanes: u32,
    ticks: u32,
    dtype: u32,
    dims: u32,
    again: u32,
    shape: [u64; MAX_DIMS],
}

/// How values are dealt to tiles, and where things are in the workspace, in bytes from its start.
struct Layout {
    geometry: Geometry,
    tiles: usize,
    slot_words: usize,
    pieces: Pieces,
    counts: usize,
    sampled: usize,
    entries: usize,
    /// Length of the staged header, then what is known of the planes: 16 bytes.
    said: usize,
    staged: usize,
    lengths: usize,
    offsets: usize,
    heads: usize,
    slots: usize,
}

impl Layout {
    fn new(request: &EncodeRequest, values: usize) -> Result<Layout> {
        let planes = request.dtype.size();
        let geometry = Geometry::of_planes(values, request.options.lane_values);
        let tiles = geometry.tiles(values);
        assemble::check_tiles(tiles, STAGED)?;
        // A plane that takes more words than this is stored.
        let slot_words = slot_words(geometry.tile_values() / 2);
        let mut pieces = Pieces::default();
        Ok(Layout {
            geometry,
            tiles,
            slot_words,
            counts: pieces.take(planes * 256, 8),
            sampled: pieces.take(planes * 256, 8),
            entries: pieces.take(planes * 256, 8),
            said: pieces.take(3, 8),
            staged: pieces.take(STAGED, 1),
            lengths: pieces.take(tiles, 4),
            offsets: pieces.take(tiles, 8),
            heads: pieces.take(tiles * planes, 4),
            slots: pieces.take(tiles * planes, slot_bytes(slot_words)),
            pieces,
        })
    }

    fn args(&self, request: &EncodeRequest, values: usize, status: DeviceSlice, base: u64) -> Args {
        let at = |offset: usize| base + offset as u64;
        Args {
            assembly: Assembly {
                status: Each::one(status.address),
                staged: Each::one(at(self.staged)),
                staged_len: Each::one(at(self.said)),
                lengths: Each::one(at(self.lengths)),
                offsets: Each::one(at(self.offsets)),
                tiles: self.tiles as u64,
                out: Each::one(request.out.address),
                out_len: request.out.len as u64,
            },
            data: request.tensor.address,
            values: values as u64,
            tile_values: self.geometry.tile_values() as u64,
            counts: at(self.counts),
            sampled: if request.tensor.len >= SAMPLE_FROM { at(self.sampled) } else { 0 },
            entries: at(self.entries),
            tabled: at(self.said + 8),
            heads: at(self.heads),
            slots: at(self.slots),
            slot_bytes: slot_bytes(self.slot_words) as u64,
            slot_words: self.slot_words as u32,
            staged_room: STAGED as u32,
            lanes: self.geometry.lanes as u32,
            ticks: self.geometry.ticks as u32,
            dtype: request.dtype.id() as u32,
            dims: request.shape.len() as u32,
            again: 0,
            shape: dims(&request.shape),
        }
    }
}

/// A slot holds the states of all lanes, then words.
fn slot_bytes(words: usize) -> usize {
    MAX_LANES * 4 + words * 2
}

/// Bytes of workspace.
pub(super) fn workspace_len(request: &EncodeRequest, values: usize) -> Result<usize> {
    Layout::new(request, values)?.pieces.len()
}

/// Queues the encoding of a tensor.
///
/// # Safety
/// As for [`super::encode`].
pub(super) unsafe fn encode(call: &Call) -> Result<()> {
    let Call { device, request, values, status, workspace, stream, .. } = *call;
    let layout = Layout::new(request, values)?;
    let workspace = layout.pieces.within(workspace)?;
    let args = layout.args(request, values, status, workspace.address);
    let size = request.dtype.size();
    let [sample, count, tiles, write] = kernels(size);
    let grid = Grids::new(device, size as u32, layout.tiles);
    let launch = |name, shape, again: bool| {
        let mut args = args;
        args.again = again as u32;
        // SAFETY: the caller vouches for the memory, whose sizes were checked above.
        unsafe { device.launch(name, shape, &args, stream) }
    };
    let one = Shape::new(1, 256, 0);

    launch("lossless_count_begin", one, false)?;
    let sampled = args.sampled != 0;
    if values > 0 {
        launch(if sampled { sample } else { count }, grid.count, false)?;
    }
    launch("lossless_encode_tables", one, false)?;
    if values > 0 {
        launch(tiles, grid.tiles, false)?;
    }
    if sampled {
        // Nothing to do for these where the sample had all bytes that there are.
        launch(count, grid.count, true)?;
        launch("lossless_encode_tables", one, true)?;
        launch(tiles, grid.tiles, true)?;
    }
    // SAFETY: as above.
    unsafe { assemble::layout(device, &args.assembly, 1, stream)? };
    if values > 0 {
        launch(write, grid.write, false)?;
    }
    // SAFETY: as above.
    unsafe { assemble::seal(device, &args.assembly, 1, stream) }
}

/// Kernels for elements of a size.
fn kernels(size: usize) -> [&'static str; 4] {
    match size {
        1 => ["lossless_count_sample_1", "lossless_count_1", "lossless_encode_tiles_1", "lossless_write_1"],
        2 => ["lossless_count_sample_2", "lossless_count_2", "lossless_encode_tiles_2", "lossless_write_2"],
        4 => ["lossless_count_sample_4", "lossless_count_4", "lossless_encode_tiles_4", "lossless_write_4"],
        _ => ["lossless_count_sample_8", "lossless_count_8", "lossless_encode_tiles_8", "lossless_write_8"],
    }
}

/// How the kernels are launched: as many blocks as a device runs at once, or fewer where there is less to do.
struct Grids {
    count: Shape,
    tiles: Shape,
    write: Shape,
}

impl Grids {
    fn new(device: &Device, planes: u32, tiles: usize) -> Grids {
        let properties = device.properties();
        let blocks = |each: u32| {
            let most = properties.multiprocessors * each;
            u32::try_from(tiles).map_or(most, |tiles| tiles.clamp(1, most))
        };
        // A histogram is 256 counts of four bytes; there is one for each plane and lane, if there is room.
        let histograms = (COUNT_BYTES as u32).min(planes * MAX_LANES as u32 * 1024);
        // Tables of all planes, and a ring a plane and warp.
        let (tables, rings) = (planes * 256 * 8, planes * PACK_RING as u32 * 2);
        let warps = (properties.shared_per_block.saturating_sub(tables) / rings).clamp(1, BLOCK_WARPS);
        let shape = |warps: u32, shared: u32| {
            let room = properties.shared_per_block / shared.max(1);
            Shape::new(blocks((WARPS / warps).min(room).max(1)), 32 * warps, shared)
        };
        Grids {
            count: Shape::new(blocks(1), 1024, histograms),
            tiles: shape(warps, tables + warps * rings),
            write: shape(BLOCK_WARPS, 0),
        }
    }
}

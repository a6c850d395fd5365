//! Lossless blobs: statistics, tables, tiles, and tiles at their place; the kernels of `lossless_count.cu`,
//! `lossless_encode.cu` and `lossless_write.cu` in order. `lossless_whole.cu` does the last two in one for 16-bit floats of
//! which the high bytes alone are worth coding, which only the device finds out; either it or they have nothing to do.

use tenfold::format::{Geometry, MAX_LANES};

use super::assemble::{self, Pieces, slot_words};
use super::{Call, EncodeRequest, dims};
use crate::abi::{
    self, ASSEMBLE_THREADS, Address, Assembly, COUNT_BYTES, COUNT_THREADS, Each, LOSSLESS_THREADS,
    LosslessArgs, PACK_RING, WHOLE_SHARED, WHOLE_THREADS, WHOLE_WARP,
};
use crate::device::{Device, DeviceSlice};
use crate::driver::Shape;
use crate::error::Result;

/// Bytes for the header before its directory: 10 a dimension, 300 a table, and some numbers.
const STAGED: usize = 4096;
/// Bytes of a tensor from which on tables are made of a sample; bytes of the sample, at least, and of how many it looks at
/// one at most.
const SAMPLE_FROM: usize = 4 << 20;
const SAMPLE_BYTES: usize = 1 << 20;
const SAMPLE_EVERY: usize = 64;
/// Warps of a multiprocessor that make whole tiles, at least: with fewer of them one pass is slower than three.
const LEAST_WHOLE: u32 = 7;
/// Shared memory that a kernel takes beside what it is given.
const STATIC: u32 = 1 << 10;
/// Warps of a multiprocessor that tiles are laid out for, and of a block.
const WARPS: u32 = 32;
const BLOCK_WARPS: u32 = LOSSLESS_THREADS / 32;

/// The arguments, for a workspace at an address, and how much of it they take.
fn layout(
    request: &EncodeRequest,
    values: usize,
    status: DeviceSlice,
    base: u64,
) -> Result<(LosslessArgs, usize)> {
    let planes = request.dtype.size();
    let geometry = Geometry::for_planes(values, request.options.lane_values);
    let tiles = geometry.tiles(values);
    assemble::check_tiles(tiles, STAGED)?;
    // A plane that takes more words than this is stored.
    let slot_words = slot_words(geometry.tile_values() / 2);
    let mut pieces = Pieces::new(Each::one(base));
    let args = LosslessArgs {
        counts: pieces.take(planes, 256).first,
        sampled: pieces.take(planes, 256).first,
        entries: pieces.take(planes, 256).first,
        tabled: pieces.take(1, 1).first,
        assembly: Assembly {
            status: Each::one(status),
            staged_len: pieces.take(1, 1),
            staged: pieces.take(STAGED / 4, 1),
            lengths: pieces.take(tiles, 1),
            offsets: pieces.take(tiles, 1),
            tiles: tiles as u64,
            out: Each::one(request.out),
            out_len: request.out.len as u64,
        },
        heads: pieces.take(tiles, planes).first,
        slots: pieces.take(tiles * planes, slot_bytes(slot_words)).first,
        ends: pieces.take(2 * tiles, 1).first,
        data: request.tensor.into(),
        values: values as u64,
        tile_values: geometry.tile_values() as u64,
        slot_bytes: slot_bytes(slot_words) as u64,
        slot_words: slot_words as u32,
        staged_room: STAGED as u32,
        lanes: geometry.lanes as u32,
        ticks: geometry.ticks as u32,
        dtype: request.dtype.id() as u32,
        dims: request.shape.len() as u32,
        again: 0,
        whole: 0,
        every: (request.tensor.len / SAMPLE_BYTES).clamp(1, SAMPLE_EVERY) as u64,
        shape: dims(&request.shape),
    };
    Ok((args, pieces.len()?))
}

/// A slot holds the states of all lanes, then words.
fn slot_bytes(words: usize) -> usize {
    MAX_LANES * 4 + words * 2
}

/// Bytes of workspace.
pub(super) fn workspace_len(request: &EncodeRequest, values: usize) -> Result<usize> {
    Ok(layout(request, values, DeviceSlice::new(0, 0), 0)?.1)
}

/// Queues the encoding of a tensor.
///
/// # Safety
/// As for [`super::encode`].
pub(super) unsafe fn encode(call: &Call) -> Result<()> {
    let Call { device, request, values, status, workspace, stream, .. } = *call;
    let (mut args, len) = layout(request, values, status, workspace.address)?;
    workspace.part(0, len)?;
    // Small tensors are counted as a whole.
    let sampled = request.tensor.len >= SAMPLE_FROM;
    if !sampled {
        args.sampled = Address::NONE;
    }
    let size = request.dtype.size();
    let [sample, count, tiles, write] =
        [abi::lossless_count_sample, abi::lossless_count, abi::lossless_encode_tiles, abi::lossless_write]
            .map(|family| family.select(size));
    let grid = Grids::new(device, size as u32, &args);
    let whole =
        grid.whole.filter(|_| size == 2 && request.dtype.is_float() && args.lanes == MAX_LANES as u32);
    args.whole = whole.is_some() as u32;
    let launch = |kernel, shape, again: bool| {
        let mut args = args;
        args.again = again as u32;
        // SAFETY: the caller vouches for the memory, whose sizes were checked above.
        unsafe { device.launch(kernel, shape, &args, stream) }
    };
    let one = Shape::new(1, LOSSLESS_THREADS, 0);
    let make_tiles = |again| {
        if let Some(shape) = whole {
            launch(abi::lossless_whole_tiles, shape, again)?;
        }
        launch(tiles, grid.tiles, again)
    };

    launch(abi::lossless_count_begin, grid.begin, false)?;
    if values > 0 {
        launch(if sampled { sample } else { count }, grid.count, false)?;
    }
    launch(abi::lossless_encode_tables, one, false)?;
    if values > 0 {
        make_tiles(false)?;
    }
    if sampled {
        // Nothing to do for these where the sample had all bytes that there are.
        launch(count, grid.count, true)?;
        launch(abi::lossless_encode_tables, one, true)?;
        make_tiles(true)?;
    }
    launch(abi::lossless_layout, Shape::new(1, ASSEMBLE_THREADS, 0), false)?;
    if values > 0 {
        launch(write, grid.write, false)?;
    }
    // SAFETY: as above.
    unsafe { assemble::queue_seal(device, &args.assembly, 1, stream) }
}

/// How the kernels are launched: as many blocks as a device runs at once, or fewer where there is less to do.
struct Grids {
    begin: Shape,
    count: Shape,
    /// For whole tiles, where a multiprocessor has room for enough of them.
    whole: Option<Shape>,
    tiles: Shape,
    write: Shape,
}

impl Grids {
    fn new(device: &Device, planes: u32, args: &LosslessArgs) -> Grids {
        let tiles = args.assembly.tiles;
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
        // One block a multiprocessor, no wider than there are tiles for.
        let room =
            u64::from(properties.shared_per_block.saturating_sub(STATIC)).saturating_sub(WHOLE_SHARED as u64);
        let each = WHOLE_WARP as u64 + args.tile_values;
        let most = (room / each).min(u64::from(WHOLE_THREADS / 32)) as u32;
        let wide =
            u32::try_from(tiles.div_ceil(u64::from(properties.multiprocessors.max(1)))).unwrap_or(most);
        let wide = wide.clamp(1, most.max(1));
        let whole = (most >= LEAST_WHOLE)
            .then(|| Shape::new(blocks(1), 32 * wide, (WHOLE_SHARED as u64 + u64::from(wide) * each) as u32));
        Grids {
            begin: Shape::new(blocks(1), LOSSLESS_THREADS, 0),
            whole,
            count: Shape::new(blocks(1), COUNT_THREADS, histograms),
            tiles: shape(warps, tables + warps * rings),
            write: shape(BLOCK_WARPS, 0),
        }
    }
}

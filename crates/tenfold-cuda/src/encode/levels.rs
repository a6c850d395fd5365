//! Lossy blobs: a plan, then passes over the whole tensor until one meets the goal.
//!
//! The queue is fixed: the device decides how many passes it needs, and kernels of an unneeded pass end at once. A pass
//! finds levels and counts their symbols, makes tables and header, packs every tile into a slot of its
//! own, and writes the tiles to their places.

use tenfold::engine::TINY;
use tenfold::format::{FIXED, Geometry, MAX_LANES};
use tenfold::{Dtype, Goal};

use super::assemble;
use super::layout::{Layout, MULTIPROCESSORS, Shapes};
use super::rate::{self, Passes, Places};
use super::{Batch, Call, EncodeRequest, Planning, dims, lossless, ready, together};
use crate::abi::{self, Assembly, CType, Each, Encoding, Kernel, LevelsPass, LevelsTurn, LevelsWrite};
use crate::device::{Device, DeviceSlice};
use crate::driver::{Shape, Stream};
use crate::error::{Error, Result};
use crate::status::Status;

/// Values from which on there are tiles enough for longer lanes: a warp takes one, and it takes thousands to keep a
/// device busy. Against the CPU's choice this costs at most 0.006 bits a value.
const MANY: usize = 256 << 20;
/// Tiles of a tensor alone for each multiprocessor of a large device, at least: lanes are shorter where there would be fewer, but no
/// shorter than `SHORTEST`. A lane takes about 24 bits: 1024 values a lane, as 16 Mi values have, cost 0.012
/// bits a value more than the usual 2048, and halve the time of everything that takes a lane's values one after the other,
/// in decoders too. Batches keep a device busy by themselves, and small tensors are the same blobs alone and in a batch.
const TILES: usize = 4;
const SHORTEST: usize = 768;
const ALONE_FROM: usize = 256 << 10;
/// Bytes of a header that lists of scales may take, at the most.
const LISTS: usize = 1 << 31;

/// A batch of tensors on their way to blobs.
pub(super) struct Encoder<'a> {
    pub(super) device: &'a Device,
    pub(super) stream: Stream,
    dtype: Dtype,
    shapes: Shapes,
    pub(super) pass: LevelsPass,
    assembly: Assembly,
    pub(super) places: Places,
}

impl Encoding {
    /// What the host knows of a tensor.
    pub(super) fn new(request: &EncodeRequest, values: usize, batch: Batch, nu: u32) -> Result<Encoding> {
        let mut shape = request.shape.clone();
        let mut dtype = request.dtype;
        if let Some(behind) = &request.behind {
            dtype = behind.dtype;
            match (&behind.shape, shape.last_mut()) {
                (Some(own), _) => shape = own.clone(),
                (None, Some(last)) => *last = behind.columns,
                (None, None) => {}
            }
        }
        let transforms = request.behind.as_ref().map_or(DeviceSlice::new(0, 0), |b| b.transforms);
        let transforms_len = u32::try_from(transforms.len)
            .map_err(|_| Error::InvalidArgument("the transforms do not fit into a header".into()))?;
        let positions = request.behind.as_ref().and_then(|b| b.positions);
        // Where transforms start in a header.
        let start = FIXED + shape.iter().map(|&d| varint_len(d as u64)).sum::<usize>();
        // Goals refer to the tensor of the header.
        let (goal, target) =
            rate::translate_goal(request.options.goal, shape.iter().map(|&d| d as u64).product(), dtype)
                .ok_or_else(|| Error::InvalidArgument("the goal must be a lossy one".into()))?;
        if !request.dtype.is_float() {
            let why = format!("{} tensors need lossless coding: ask for the goal lossless", request.dtype);
            return Err(Error::InvalidArgument(why));
        }
        let lane_values = match request.options.lane_values {
            0 if batch.full == 1 => own_lane_values(values),
            asked => asked,
        };
        let geometry = Geometry::for_levels(values, lane_values, MANY);
        let tiles = geometry.tiles(values);
        assemble::check_tiles(tiles, LISTS)?;
        Ok(Encoding {
            data: Each::new(request.tensor.address, batch.tensor),
            values: values as u64,
            cols: request.shape.last().map_or(1, |&c| c as u64),
            dtype: request.dtype.id() as u32,
            goal,
            target,
            nu,
            lanes: geometry.lanes as u32,
            ticks: geometry.ticks as u32,
            tile_values: geometry.tile_values() as u64,
            tiles: tiles as u64,
            out: Each::new(request.out.address, batch.out),
            dims: shape.len() as u32,
            shape: dims(&shape),
            header_dtype: dtype.id() as u32,
            transforms_len,
            header_transforms: transforms.into(),
            scales: request.behind.as_ref().map_or(0, |b| b.scales).into(),
            positions: Each::new(positions.map_or(0, |p| p.address), size_of::<u64>()),
            position_at: positions.map_or(0, |p| start + p.at) as u32,
            length_at: positions.map_or(0, |p| start + p.length_at) as u32,
            // Tiles are of whole blocks of pairs, but for the last.
            may_pair: (request.options.minor >= 1 && geometry.lanes == MAX_LANES && values.is_multiple_of(2))
                as u32,
            unused: 0,
        })
    }
}

/// Values a lane of a tensor alone where the caller leaves them to the encoder: 0 for the usual number.
fn own_lane_values(values: usize) -> u32 {
    let tiles = TILES * MULTIPROCESSORS as usize;
    let lane = (values / (tiles * MAX_LANES)).next_multiple_of(128).max(SHORTEST);
    if values < ALONE_FROM || lane >= 2048 { 0 } else { lane as u32 }
}

/// Bytes of a number as headers have it.
fn varint_len(v: u64) -> usize {
    (64 - v.leading_zeros()).div_ceil(7).max(1) as usize
}

/// What is decided before a workspace is there: the encoding, the launches, and the bytes that a search takes.
fn prepare(
    device: &Device,
    request: &EncodeRequest,
    values: usize,
    batch: Batch,
    nu: u32,
    planning: Planning,
) -> Result<(Encoding, Shapes, usize)> {
    let mut encoding = Encoding::new(request, values, batch, nu)?;
    if let Planning::Ready { classes, .. } = planning {
        // Pages have the classes of a basis's columns, which differ from one to the next.
        encoding.may_pair = 0;
        let mut shapes = Shapes::new(device, &encoding, batch, Some(classes))?;
        shapes.tables = ready::tables(batch);
        return Ok((encoding, shapes, ready::workspace_len(&encoding)));
    }
    let shapes = Shapes::new(device, &encoding, batch, None)?;
    let rate_len = rate::workspace_len(device, &encoding)?;
    Ok((encoding, shapes, rate_len))
}

impl<'a> Encoder<'a> {
    pub(super) fn new(call: &Call<'a>, nu: u32) -> Result<Encoder<'a>> {
        let Call { device, request, values, batch, planning, .. } = *call;
        let (encoding, shapes, rate_len) = prepare(device, request, values, batch, nu, planning)?;
        let status = Each::new(call.status.address, size_of::<Status>());
        Encoder::in_workspace(call, encoding, shapes, rate_len, call.workspace, batch.count, Some(status))
    }

    /// For what the tensors of a batch have in common: an encoding of its own, with a search that needs so many bytes. Nobody
    /// is told of it but the kernels.
    pub(super) fn for_tables(
        call: &Call<'a>,
        encoding: &Encoding,
        rate_len: usize,
        workspace: DeviceSlice,
    ) -> Result<Encoder<'a>> {
        let shapes = Shapes::new(call.device, encoding, Batch::ONE, None)?;
        Encoder::in_workspace(call, *encoding, shapes, rate_len, workspace, 1, None)
    }

    fn in_workspace(
        call: &Call<'a>,
        encoding: Encoding,
        shapes: Shapes,
        rate_len: usize,
        workspace: DeviceSlice,
        count: u32,
        status: Option<Each<Status>>,
    ) -> Result<Encoder<'a>> {
        let Call { device, request, stream, .. } = *call;
        let (len, apart) = lengths(&encoding, &shapes, rate_len)?;
        let all = (count as usize - 1).checked_mul(apart).and_then(|n| n.checked_add(len));
        let workspace = workspace.part(0, all.unwrap_or(usize::MAX))?;
        let base = Each::new(workspace.address, apart);
        let Layout { pass, rate, .. } = Layout::new(&encoding, &shapes, rate_len, base);
        let assembly = Assembly {
            status: pass.pass,
            staged: pass.header,
            staged_len: pass.header_len,
            lengths: pass.lengths,
            offsets: pass.starts,
            tiles: encoding.tiles,
            out: encoding.out,
            out_len: request.out.len as u64,
        };
        let status = status.unwrap_or(pass.pass);
        let places = Places { plan: pass.plan, status, workspace: rate, batch: count };
        Ok(Encoder { device, stream, dtype: request.dtype, shapes, pass, assembly, places })
    }

    /// Bytes of workspace for one tensor of a batch, and how many lie between it and the next one's.
    pub(super) fn len(
        device: &Device,
        request: &EncodeRequest,
        values: usize,
        batch: Batch,
        nu: u32,
        planning: Planning,
    ) -> Result<(usize, usize)> {
        let (encoding, shapes, rate_len) = prepare(device, request, values, batch, nu, planning)?;
        lengths(&encoding, &shapes, rate_len)
    }

    /// The same with tables that lie elsewhere.
    pub(super) fn with_tables(mut self, freq: Each<u32>) -> Self {
        self.pass.freq = freq;
        self
    }

    unsafe fn turn(&self, kernel: Kernel<LevelsTurn>, shape: Shape, more: bool) -> Result<()> {
        let args = LevelsTurn { levels: self.pass, status: self.places.status, more: more as u32, unused: 0 };
        // SAFETY: the caller's.
        unsafe { self.device.launch(kernel, shape, &args, self.stream) }
    }

    /// For kernels that are a thread a tensor.
    fn one_thread(&self) -> Shape {
        Shape { grid: 1, block: 32, shared: 0, batch: self.places.batch }
    }

    /// Queues what comes before a plan.
    ///
    /// # Safety
    /// As for [`super::encode`]; the same holds for all that follow.
    pub(super) unsafe fn open(&self) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.turn(abi::levels_pass_open, self.one_thread(), false) }
    }

    /// Queues a pass over the tensor with the plan as it then is.
    pub(super) unsafe fn pass(&self) -> Result<()> {
        // SAFETY: the caller's.
        unsafe {
            self.pass_by(|| match self.pass.encoding.nu {
                0 => Ok(()),
                1..=3 => self.launch(abi::levels_trellis.select(self.dtype), self.shapes.search),
                _ => self.launch(abi::levels_wide.select(self.dtype), self.shapes.search),
            })
        }
    }

    /// The same with levels of a trellis that `find` queues the search for, or what a scalar quantiser is to take.
    pub(super) unsafe fn pass_by(&self, find: impl FnOnce() -> Result<()>) -> Result<()> {
        // SAFETY: the caller's.
        unsafe {
            self.begin()?;
            // 1. Levels. Which machine is in use only the device knows: a plan may fall back to a scalar quantiser.
            find()?;
            self.launch(abi::levels_count.select(self.dtype), self.shapes.search)?;
            // 2. Tables and header.
            self.queue_tables()?;
            self.finish()
        }
    }

    unsafe fn launch(&self, kernel: Kernel<LevelsPass>, shape: Shape) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.device.launch(kernel, shape, &self.pass, self.stream) }
    }

    /// Queues what a pass starts with.
    pub(super) unsafe fn begin(&self) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.turn(abi::levels_pass_begin, self.shapes.clear, false) }
    }

    /// Queues tables and header of what was counted.
    pub(super) unsafe fn queue_tables(&self) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.launch(abi::levels_tables, self.shapes.tables) }
    }

    /// Queues the rest of a pass: every tile's stream and length, then everything at its place.
    pub(super) unsafe fn finish(&self) -> Result<()> {
        let (pass, stream) = (&self.pass, self.stream);
        let args = LevelsWrite { pass: *pass, assembly: self.assembly };
        // SAFETY: the caller's.
        unsafe {
            self.launch(abi::levels_pack.select(self.dtype), self.shapes.pack)?;
            assemble::queue_layout(self.device, &self.assembly, self.places.batch, stream)?;
            self.device.launch(abi::levels_write.select(self.dtype), self.shapes.write, &args, stream)?;
            assemble::queue_seal(self.device, &self.assembly, self.places.batch, stream)?;
            self.turn(abi::levels_pass_end, self.one_thread(), false)
        }
    }

    /// Queues what the caller is told, or with `more` that another pass is wanted.
    pub(super) unsafe fn close(&self, more: bool) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.turn(abi::levels_pass_close, self.one_thread(), more) }
    }
}

/// Whether a tensor is coded losslessly: as it was asked for, or since it is so small that its goal is met so.
pub(super) fn is_lossless(request: &EncodeRequest, values: usize) -> bool {
    values == 0
        || request.options.goal == Goal::Lossless
        || (request.behind.is_none() && values < TINY && !matches!(request.options.goal, Goal::MaxBytes(_)))
}

/// Bytes of a tensor's workspace, and from one to the next.
fn lengths(encoding: &Encoding, shapes: &Shapes, rate_len: usize) -> Result<(usize, usize)> {
    let len = Layout::new(encoding, shapes, rate_len, Each::ZERO).pieces.len()?;
    Ok((len, len.next_multiple_of(256)))
}

/// Bytes of workspace for one tensor of a batch, and from one to the next.
pub(super) fn workspace_len(
    device: &Device,
    request: &EncodeRequest,
    values: usize,
    batch: Batch,
    planning: Planning,
) -> Result<(usize, usize)> {
    if is_lossless(request, values) {
        let len = lossless::workspace_len(request, values)?;
        return Ok((len, len));
    }
    Encoder::len(device, request, values, batch, request.options.effort.log2_states() as u32, planning)
}

/// Queues the encoding of a batch of tensors; of one tensor alone where they are lossless.
///
/// # Safety
/// As for [`super::encode`].
pub(super) unsafe fn encode(call: &Call) -> Result<()> {
    let Call { device, request, stream, .. } = *call;
    if is_lossless(request, call.values) {
        // SAFETY: the caller's.
        return unsafe { lossless::encode(call) };
    }
    let encoder = Encoder::new(call, request.options.effort.log2_states() as u32)?;
    let (encoding, places) = (&encoder.pass.encoding, encoder.places);
    match call.planning {
        Planning::Each => {}
        // SAFETY: the caller's.
        Planning::Together => return unsafe { together::encode(call, encoder) },
        // SAFETY: the caller's.
        Planning::Ready { plans, steps, .. } => return unsafe { ready::encode(encoder, plans, steps) },
    }
    // SAFETY: the caller's; the pieces of the workspace do not overlap.
    unsafe {
        encoder.open()?;
        rate::queue_plan(device, encoding, places, stream)?;
        let passes = Passes::for_goal(encoding.goal).all;
        for pass in 0..passes {
            encoder.pass()?;
            rate::queue_judge(device, encoding, places, pass, stream)?;
            // Most tensors take one pass: who waits anyway need not queue what will do nothing.
            if let (Some(wants_more), true) = (call.wants_more, pass + 1 < passes) {
                encoder.close(true)?;
                if !wants_more()? {
                    return Ok(());
                }
            }
        }
        encoder.close(false)
    }
}

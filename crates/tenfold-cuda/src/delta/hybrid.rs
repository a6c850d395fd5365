//! Deltas that the host decodes while the device takes what is done: lists of places and new values go to two pinned buffers in turn, from where
//! `delta_check` fetches them; it holds them against the tensor, and they are written when all have come and nothing was wrong. Kernels fetch
//! because a copy for each tile would cost the host more time than the tile.
//!
//! How a value is told depends on the old one, which the host has only in a copy of the tensor. So a copy is what it needs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use tenfold::Dtype;
use tenfold::delta::{Applied, DeltaLayout, DeltaOptions, TileRoom};

use super::applier::{DeltaApplier, STAGES};
use super::{Call, DeltaPlan, DeltaRequest, delta_workspace_len};
use crate::abi::{self, CType, DELTA_ALIGN, DELTA_THREADS, DeltaCheckArgs, DeltaItem};
use crate::device::{Device, DeviceSlice};
use crate::driver::{Shape, Stream};
use crate::error::{Error, Result};
use crate::memory::{lock, reserve};
use crate::status::Status;

/// Bytes of lists that a pinned buffer holds, about.
const WINDOW: usize = 32 << 20;

impl DeltaApplier {
    /// Applies a delta that the host decodes, with a copy of the tensor as it was, or as it will be; the copy stays as it is. The call returns
    /// when all is decoded; [`DeltaApplier::check`] says what came of it on the device. Of both the values that change are compared, whatever
    /// [`DeltaOptions::verify`] says.
    ///
    /// # Safety
    /// `tensor` is memory of this device, and is neither freed nor used otherwise until the stream has passed this call.
    pub unsafe fn queue_decoded(
        &mut self,
        blob: &[u8],
        copy: &[u8],
        (tensor, dtype, shape): (DeviceSlice, Dtype, &[usize]),
        options: &DeltaOptions,
        stream: Stream,
    ) -> Result<()> {
        self.last = None;
        let layout = DeltaLayout::read(blob, &options.limits)?;
        let plan = DeltaPlan::of(&layout, blob.len(), false);
        plan.check_tensor(dtype, shape)?;
        let setup = reserve(&self.device, &mut self.setup, plan.setup().len())?;
        // Kernels of this call do not look at the blob.
        let request = DeltaRequest::new(&plan, DeviceSlice::new(0, blob.len()), setup, tensor);
        request.check()?;
        let workspace = reserve(&self.device, &mut self.workspace, delta_workspace_len(&[request]))?;
        let status = reserve(&self.device, &mut self.status, size_of::<Status>())?;
        let item = request.item(status, workspace)?;
        // What the last call left is perhaps still being applied.
        self.done.hold(stream)?;
        let mut queue = || {
            // SAFETY: memory is ours or the caller's promise, and in the order of the stream.
            unsafe {
                self.stage(plan.setup(), setup, stream)?;
                Call::new(&self.device, dtype.size(), &[item], stream).start()?;
                for (turn, window) in windows(&plan).into_iter().enumerate() {
                    let turn = STAGES + turn % STAGES;
                    self.window(&layout, &plan, &item, window, copy, options, turn, stream)?;
                }
                Call::new(&self.device, dtype.size(), &[item], stream).write()
            }
        };
        let queued = queue();
        // Whatever came of it: some of it may be under way.
        self.done.record(stream)?;
        queued?;
        self.last = Some(plan);
        Ok(())
    }

    /// The same, and waits for what came of it.
    ///
    /// # Safety
    /// `tensor` is memory of this device that nothing else uses meanwhile.
    pub unsafe fn apply_decoded(
        &mut self,
        blob: &[u8],
        copy: &[u8],
        tensor: (DeviceSlice, Dtype, &[usize]),
        options: &DeltaOptions,
        stream: Stream,
    ) -> Result<Applied> {
        // SAFETY: the caller's promise.
        unsafe { self.queue_decoded(blob, copy, tensor, options, stream)? };
        self.check(stream)
    }

    /// Decodes some tiles and has each fetched as it is done.
    #[allow(clippy::too_many_arguments)] // a delta in two forms, its tensor, and where this part goes
    unsafe fn window(
        &mut self,
        layout: &DeltaLayout<'_>,
        plan: &DeltaPlan,
        item: &DeltaItem,
        tiles: std::ops::Range<usize>,
        copy: &[u8],
        options: &DeltaOptions,
        turn: usize,
        stream: Stream,
    ) -> Result<()> {
        let (size, listed) = (plan.dtype().size(), &plan.tiles()[tiles.clone()]);
        let slots: usize = listed.iter().map(|tile| room(tile.changes)).sum();
        self.stage_of(turn, slots * (4 + size))?;
        let mut stage = self.stages.remove(turn);
        // As in the workspace: all places, then all values.
        let (mut places, mut values) = stage.memory[..slots * (4 + size)].split_at_mut(4 * slots);
        let args = DeltaCheckArgs {
            item: *item,
            places: places.as_ptr() as u64,
            values: values.as_ptr() as u64,
            first: listed.first().map_or(0, |tile| tile.first),
            ..DeltaCheckArgs::ZERO
        };
        let mut rooms = Vec::with_capacity(tiles.len());
        for (tile, of) in tiles.zip(listed) {
            let changes = of.changes as usize;
            let (mine, behind) = places.split_at_mut(4 * room(of.changes));
            let (new, after) = values.split_at_mut(size * room(of.changes));
            (places, values) = (behind, after);
            rooms.push(TileRoom {
                tile,
                places: &mut mine[..4 * changes],
                values: &mut new[..size * changes],
            });
        }
        let fetch = Fetch {
            device: &self.device,
            size,
            stream,
            told: Mutex::default(),
            queue: Mutex::new((args, Ok(()))),
        };
        // SAFETY: a tile is fetched once it was decoded, and its part of the stage is not written again before `sent` has happened.
        let decode = || layout.decode(rooms, copy, options, &|tile| unsafe { fetch.decoded(tile) });
        // The device may be reading the stage: nothing unwinds past it.
        let decoded = catch_unwind(AssertUnwindSafe(decode));
        // SAFETY: as above.
        let fetched = unsafe { fetch.finish() };
        let recorded = stage.sent.record(stream);
        self.stages.insert(turn, stage);
        recorded?;
        let failed = |_| Error::Driver { what: "decoding a delta", reason: "a worker failed".into() };
        decoded.map_err(failed)??;
        fetched
    }
}

/// Has the device fetch and check tiles as they are decoded. Whoever has decoded one launches for all that are done, unless somebody launches
/// already, so no thread has to be started for that.
struct Fetch<'a> {
    device: &'a Device,
    size: usize,
    stream: Stream,
    /// Tiles that nobody has launched for yet.
    told: Mutex<Vec<usize>>,
    /// Held while kernels are queued, and what came of that.
    queue: Mutex<(DeltaCheckArgs, Result<()>)>,
}

impl Fetch<'_> {
    /// # Safety
    /// What the tile changes is in the stage and stays there until the stream has passed what this queues; the workspace has room for it.
    unsafe fn decoded(&self, tile: usize) {
        lock(&self.told).push(tile);
        // Where another thread launches, it or `finish` takes this tile too.
        if let Ok(mut queue) = self.queue.try_lock() {
            // SAFETY: the caller's promise, of every tile that was told.
            unsafe { self.launch(&mut queue) };
        }
    }

    /// Launches for what is left, and says what came of it all.
    ///
    /// # Safety
    /// As for [`Fetch::decoded`].
    unsafe fn finish(self) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.launch(&mut lock(&self.queue)) };
        self.queue.into_inner().unwrap_or_else(PoisonError::into_inner).1
    }

    /// Launches until all that was told is queued, or something fails.
    unsafe fn launch(&self, (args, came): &mut (DeltaCheckArgs, Result<()>)) {
        while came.is_ok() {
            let mut count = 0;
            let mut told = lock(&self.told);
            for to in &mut args.tiles {
                let Some(tile) = told.pop() else { break };
                *to = tile as u32;
                count += 1;
            }
            drop(told);
            if count == 0 {
                return;
            }
            let shape = Shape::new(count, DELTA_THREADS, 0);
            // SAFETY: the caller's promise.
            *came =
                unsafe { self.device.launch(abi::delta_check.select(self.size), shape, args, self.stream) };
        }
    }
}

/// Room for a tile's changes.
fn room(changes: u32) -> usize {
    (changes as usize).next_multiple_of(DELTA_ALIGN)
}

/// Tiles that go through a pinned buffer together.
fn windows(plan: &DeltaPlan) -> Vec<std::ops::Range<usize>> {
    let each = 4 + plan.dtype().size();
    let (mut windows, mut from, mut bytes) = (Vec::new(), 0, 0);
    for (i, tile) in plan.tiles().iter().enumerate() {
        let more = room(tile.changes) * each;
        if bytes > 0 && bytes + more > WINDOW {
            windows.push(from..i);
            (from, bytes) = (i, 0);
        }
        bytes += more;
    }
    if bytes > 0 {
        windows.push(from..plan.tiles().len());
    }
    windows
}

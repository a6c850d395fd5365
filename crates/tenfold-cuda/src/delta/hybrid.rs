//! Deltas that the host decodes while the device takes what is done: lists of places and new values come through two pinned buffers, are held
//! against the tensor by `delta_check`, and are written when all have come and nothing was wrong.
//!
//! How a value is told depends on the old one, which the host has only in a copy of the tensor. So a copy is what it needs.

use std::sync::mpsc::{Receiver, channel};
use std::thread;

use tenfold::Dtype;
use tenfold::delta::{Applied, DeltaLayout, DeltaOptions, TileRoom};

use super::applier::DeltaApplier;
use super::{Call, DeltaPlan, DeltaRequest, delta_workspace_len};
use crate::abi::{self, CType, DELTA_ALIGN, DELTA_CHECKED, DELTA_THREADS, DeltaCheckArgs, DeltaItem};
use crate::device::DeviceSlice;
use crate::driver::{Shape, Stream};
use crate::error::{Error, Result};
use crate::memory::reserve;
use crate::status::Status;

/// Bytes of lists that a pinned buffer holds, about.
const WINDOW: usize = 32 << 20;

/// Where a tile's lists lie in pinned memory.
struct Listed {
    places: *const u8,
    values: *const u8,
}

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
        let plan = DeltaPlan::of(&layout, blob.len());
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
        self.done.hold(self.copies.stream())?;
        let mut queue = || {
            // SAFETY: memory is ours or the caller's promise, and in the order of the stream.
            unsafe {
                self.stage(plan.setup(), setup, stream)?;
                Call::new(&self.device, dtype.size(), &[item], stream).start()?;
                for (turn, window) in windows(&plan).into_iter().enumerate() {
                    self.window(&layout, &plan, &item, window, copy, options, turn % 2, stream)?;
                }
                Call::new(&self.device, dtype.size(), &[item], stream).write()
            }
        };
        let queued = queue();
        // Whatever came of it: some of it may be under way.
        self.arrived.record(self.copies.stream())?;
        self.arrived.hold(stream)?;
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

    /// Decodes some tiles and sends each as it is done.
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
        let size = plan.dtype().size();
        let len = plan.tiles()[tiles.clone()].iter().map(|tile| room(tile.changes) * (4 + size)).sum();
        self.stage_of(turn, len)?;
        let mut stage = self.stages.remove(turn);
        let (mut rooms, mut listed) = (Vec::with_capacity(tiles.len()), Vec::with_capacity(tiles.len()));
        let mut rest = &mut stage.memory[..len];
        for tile in tiles.clone() {
            let changes = plan.tiles()[tile].changes;
            let (places, behind) = rest.split_at_mut(4 * room(changes));
            let (values, behind) = behind.split_at_mut(size * room(changes));
            rest = behind;
            let (places, values) =
                (&mut places[..4 * changes as usize], &mut values[..size * changes as usize]);
            listed.push(Listed { places: places.as_ptr(), values: values.as_ptr() });
            rooms.push(TileRoom { tile, places, values });
        }
        let (tell, told) = channel();
        let (decoded, sent) = thread::scope(|scope| {
            let worker = scope.spawn(move || {
                layout.decode(rooms, copy, options, &|tile| {
                    // Nobody listens any more where sending has failed.
                    let _ = tell.send(tile);
                })
            });
            // SAFETY: a tile is sent once it was decoded, and its part of the stage is not written again before `sent` has happened.
            let sent = unsafe { self.follow(&told, plan, item, tiles.start, &listed, stream) };
            (worker.join(), sent)
        });
        let recorded = stage.sent.record(self.copies.stream());
        self.stages.insert(turn, stage);
        recorded?;
        match decoded {
            Ok(decoded) => decoded?,
            Err(_) => {
                return Err(Error::Driver { what: "decoding a delta", reason: "a worker failed".into() });
            }
        }
        sent
    }

    /// Sends tiles as they are done, all that are at a time, and has them checked.
    unsafe fn follow(
        &self,
        told: &Receiver<usize>,
        plan: &DeltaPlan,
        item: &DeltaItem,
        first: usize,
        listed: &[Listed],
        stream: Stream,
    ) -> Result<()> {
        let (driver, copies, size) = (&self.device.driver, self.copies.stream(), plan.dtype().size());
        while let Ok(one) = told.recv() {
            let mut args = DeltaCheckArgs { item: *item, ..DeltaCheckArgs::ZERO };
            let mut count = 0;
            for tile in std::iter::once(one).chain(told.try_iter()).take(DELTA_CHECKED) {
                let (from, of) = (&listed[tile - first], &plan.tiles()[tile]);
                let (places, values) =
                    (item.places.get() + 4 * of.first, item.values.get() + size as u64 * of.first);
                let changes = of.changes as usize;
                // SAFETY: the workspace has room for the tile's changes.
                unsafe {
                    driver.copy_in(places, from.places, 4 * changes, copies)?;
                    driver.copy_in(values, from.values, size * changes, copies)?;
                }
                args.tiles[count] = tile as u32;
                count += 1;
            }
            self.arrived.record(copies)?;
            self.arrived.hold(stream)?;
            let shape = Shape::new(count as u32, DELTA_THREADS, 0);
            // SAFETY: what these tiles change has come.
            unsafe { self.device.launch(abi::delta_check.select(size), shape, &args, stream)? };
        }
        Ok(())
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

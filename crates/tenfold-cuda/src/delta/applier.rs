//! Deltas in memory of the host, applied to tensors on a device. Memory is kept from one call to the next.

use tenfold::Dtype;
use tenfold::delta::Applied;
use tenfold::engine::Limits;

use super::{DeltaPlan, DeltaRequest, delta_workspace_len, queue};
use crate::device::{Device, DeviceSlice};
use crate::driver::Stream;
use crate::error::{Error, Result};
use crate::event::OwnedEvent;
use crate::memory::{Buffer, Pinned, reserve};
use crate::status::Status;

/// Bytes that go through pinned memory at a time: one piece is filled while the other is on its way.
const PIECE: usize = 256 << 10;
/// Pinned buffers for pieces; the hybrid has as many of its own behind them, so that nobody waits for the other.
pub(super) const STAGES: usize = 2;

/// Applies deltas that lie in host memory. Holds device memory for one delta and its workspace, and pinned memory; all of it grows as
/// needed and is kept.
pub struct DeltaApplier {
    pub(super) device: Device,
    blob: Option<Buffer>,
    pub(super) setup: Option<Buffer>,
    pub(super) workspace: Option<Buffer>,
    pub(super) status: Option<Buffer>,
    pub(super) stages: Vec<Stage>,
    /// The last delta was applied: its memory may be written again.
    pub(super) done: OwnedEvent,
    /// What was queued last.
    pub(super) last: Option<DeltaPlan>,
}

/// Pinned memory that grows, and whether its content has left.
pub(super) struct Stage {
    pub(super) memory: Pinned,
    pub(super) sent: OwnedEvent,
}

impl DeltaApplier {
    /// For one delta after the other to a device.
    pub fn new(device: &Device) -> Result<DeltaApplier> {
        Ok(DeltaApplier {
            device: device.clone(),
            blob: None,
            setup: None,
            workspace: None,
            status: None,
            stages: Vec::new(),
            done: OwnedEvent::new(device, false)?,
            last: None,
        })
    }

    /// Queues copy and application of a delta in pinned memory, `len` bytes of it. Nobody waits, except for memory where this delta is larger
    /// than any before; [`DeltaApplier::check`] says what came of it.
    ///
    /// # Safety
    /// `tensor` is memory of this device, and neither it nor the blob is freed or used otherwise until the stream has passed this call.
    pub unsafe fn queue(
        &mut self,
        blob: &Pinned,
        len: usize,
        tensor: (DeviceSlice, Dtype, &[usize]),
        limits: &Limits,
        stream: Stream,
    ) -> Result<()> {
        let bytes = blob.get(..len).ok_or_else(|| {
            Error::InvalidArgument(format!(
                "a delta of {len} bytes does not fit into {} bytes of pinned memory",
                blob.len()
            ))
        })?;
        // SAFETY: the caller's promise.
        unsafe { self.send((bytes, true), tensor, limits, stream, true) }
    }

    /// Applies a delta of ordinary memory and waits for it.
    ///
    /// # Safety
    /// `tensor` is memory of this device that nothing else uses meanwhile.
    pub unsafe fn apply(
        &mut self,
        blob: &[u8],
        tensor: (DeviceSlice, Dtype, &[usize]),
        limits: &Limits,
        stream: Stream,
    ) -> Result<Applied> {
        // SAFETY: the caller's promise.
        unsafe { self.send((blob, false), tensor, limits, stream, true)? };
        self.check(stream)
    }

    /// Holds a delta of ordinary memory against a tensor, of which only the values count that change, and waits: what [`DeltaApplier::apply`]
    /// would do, or why it would refuse. Nothing is written.
    ///
    /// # Safety
    /// As for [`DeltaApplier::apply`].
    pub unsafe fn compare(
        &mut self,
        blob: &[u8],
        tensor: (DeviceSlice, Dtype, &[usize]),
        limits: &Limits,
        stream: Stream,
    ) -> Result<Applied> {
        // SAFETY: the caller's promise.
        unsafe { self.send((blob, false), tensor, limits, stream, false)? };
        self.check(stream)
    }

    /// Waits for the stream and says what came of the last delta. An error leaves the tensor as it was.
    pub fn check(&self, stream: Stream) -> Result<Applied> {
        let (Some(status), Some(plan)) = (&self.status, &self.last) else { return Ok(Applied::default()) };
        let mut said = [0; size_of::<Status>()];
        status.read(&mut said, stream)?;
        Ok(plan.check(Status::from_bytes(said))?)
    }

    /// The blob says whether it is in pinned memory.
    unsafe fn send(
        &mut self,
        blob: (&[u8], bool),
        tensor: (DeviceSlice, Dtype, &[usize]),
        limits: &Limits,
        stream: Stream,
        writes: bool,
    ) -> Result<()> {
        self.last = None;
        // What the last call left is perhaps still being applied, on another stream.
        self.done.hold(stream)?;
        // SAFETY: the caller's promise.
        let sent = unsafe { self.send_now(blob, tensor, limits, stream, writes) };
        // Whatever came of it: some of it may be under way.
        self.done.record(stream)?;
        self.last = Some(sent?);
        Ok(())
    }

    unsafe fn send_now(
        &mut self,
        (blob, pinned): (&[u8], bool),
        (tensor, dtype, shape): (DeviceSlice, Dtype, &[usize]),
        limits: &Limits,
        stream: Stream,
        writes: bool,
    ) -> Result<DeltaPlan> {
        let on_device = reserve(&self.device, &mut self.blob, blob.len())?;
        // The delta is under way while its header is read. One that is refused has cost a copy.
        if pinned {
            // SAFETY: the caller's; lengths agree.
            unsafe { self.device.driver.copy_in(on_device.address, blob.as_ptr(), blob.len(), stream)? };
        }
        let plan = DeltaPlan::new(blob, limits)?;
        plan.check_tensor(dtype, shape)?;
        if !pinned {
            // SAFETY: as above.
            unsafe { self.stage(blob, on_device, stream)? };
        }
        let setup = reserve(&self.device, &mut self.setup, plan.setup().len())?;
        // SAFETY: as above.
        unsafe { self.stage(plan.setup(), setup, stream)? };
        let request = [DeltaRequest::new(&plan, on_device, setup, tensor)];
        let workspace = reserve(&self.device, &mut self.workspace, delta_workspace_len(&request))?;
        let status = reserve(&self.device, &mut self.status, size_of::<Status>())?;
        // SAFETY: the delta and its setup come before on this stream; the rest is the caller's promise.
        unsafe { queue(&self.device, &request, status, workspace, stream, writes)? };
        Ok(plan)
    }

    /// Queues a copy through pinned memory.
    ///
    /// # Safety
    /// `to` is ours, and no earlier work still uses it.
    pub(super) unsafe fn stage(&mut self, from: &[u8], to: DeviceSlice, stream: Stream) -> Result<()> {
        for (i, piece) in from.chunks(PIECE).enumerate() {
            let to = to.part(i * PIECE, piece.len())?;
            let stage = self.stage_of(i % STAGES, PIECE)?;
            stage.memory[..piece.len()].copy_from_slice(piece);
            let from = stage.memory.as_ptr();
            // SAFETY: the stage is not written again before `sent` has happened.
            unsafe { self.device.driver.copy_in(to.address, from, piece.len(), stream)? };
            self.stages[i % STAGES].sent.record(stream)?;
        }
        Ok(())
    }

    /// A pinned buffer of so many bytes at least, whose content has left.
    pub(super) fn stage_of(&mut self, turn: usize, len: usize) -> Result<&mut Stage> {
        while self.stages.len() <= turn {
            let (memory, sent) = (Pinned::new(&self.device, PIECE)?, OwnedEvent::new(&self.device, false)?);
            self.stages.push(Stage { memory, sent });
        }
        let stage = &mut self.stages[turn];
        stage.sent.wait()?;
        if stage.memory.len() < len {
            stage.memory = Pinned::new(&self.device, len)?;
        }
        Ok(stage)
    }
}

impl Drop for DeltaApplier {
    fn drop(&mut self) {
        // Work that reads our pinned memory and kernels on our device memory must end first. Errors have nowhere to go.
        self.stages.iter().for_each(|stage| {
            let _ = stage.sent.wait();
        });
        let _ = self.done.wait();
    }
}

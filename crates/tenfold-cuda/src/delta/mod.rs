//! Deltas applied in place: a tensor on a device is brought up to date without a copy of it anywhere.
//!
//! [`DeltaPlan`] is a delta's header, read on the host. [`apply_delta`] queues two passes on the caller's stream: `delta_decode` decodes tiles
//! and holds them against the tensor, `delta_write` writes what has changed, and nothing if the first pass found anything wrong.
//! [`DeltaApplier`] brings blobs of the host along. Kernels: `kernels/delta*`.

mod applier;
mod hybrid;
mod plan;

use crate::abi::{
    self, CType, DELTA_CLASSES, DELTA_TABLE, DELTA_THREADS, DELTA_WARP, DELTAS_PER_LAUNCH, DeltaArgs,
    DeltaItem,
};
use crate::device::{Device, DeviceSlice};
use crate::driver::{Shape, Stream};
use crate::error::{Error, Result};
use crate::pieces::{Pieces, too_large};
use crate::status::Status;

pub use applier::DeltaApplier;
pub use plan::DeltaPlan;

/// One tensor to bring up to date.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct DeltaRequest<'a> {
    /// The delta's header.
    pub plan: &'a DeltaPlan,
    /// The delta, at an address that is a multiple of 16.
    pub blob: DeviceSlice,
    /// A copy of [`DeltaPlan::setup`], likewise.
    pub setup: DeviceSlice,
    /// The tensor: exactly its bytes, at a multiple of the size of an element.
    pub tensor: DeviceSlice,
}

impl<'a> DeltaRequest<'a> {
    /// A delta and its tensor.
    pub fn new(plan: &'a DeltaPlan, blob: DeviceSlice, setup: DeviceSlice, tensor: DeviceSlice) -> Self {
        DeltaRequest { plan, blob, setup, tensor }
    }

    fn check(&self) -> Result<()> {
        let DeltaRequest { plan, blob, setup, tensor } = *self;
        for (what, have, need) in [
            ("delta", blob.len, plan.blob_len()),
            ("delta's setup", setup.len, plan.setup().len()),
            ("delta's tensor", tensor.len, plan.tensor_len()),
        ] {
            if have != need {
                return Err(Error::InvalidArgument(format!("a {what} has {need} bytes, not {have}")));
            }
        }
        let whole = |slice: DeviceSlice, by: u64| slice.address.is_multiple_of(by);
        if !whole(blob, 16) || !whole(setup, 16) || !whole(tensor, plan.dtype().size() as u64) {
            return Err(Error::InvalidArgument(
                "deltas on a device must be aligned to 16 bytes, and tensors to their elements".into(),
            ));
        }
        Ok(())
    }

    /// What kernels take; the workspace is this request's own.
    fn item(&self, status: DeviceSlice, workspace: DeviceSlice) -> Result<DeltaItem> {
        let plan = self.plan;
        let room = Room::new(plan);
        let (key_low, key_mask) = plan.key();
        Ok(DeltaItem {
            blob: self.blob.address,
            blob_len: self.blob.len as u64,
            to: self.tensor.into(),
            tables: self.setup.into(),
            tiles: self.setup.part(plan.tiles_at(), self.setup.len - plan.tiles_at())?.into(),
            places: workspace.part(room.places, 0)?.into(),
            values: workspace.part(room.values, 0)?.into(),
            states: workspace.part(room.states, 0)?.into(),
            status: status.into(),
            tile_count: u32::try_from(plan.tiles().len()).map_err(|_| too_large())?,
            table_count: plan.table_count() as u32,
            decode0: 0,
            write0: 0,
            writers: plan.writers(),
            unused: 0,
            lanes_log: plan.lanes_log(),
            key_low,
            key_mask: key_mask.into(),
            floats: plan.dtype().is_float().into(),
        })
    }
}

/// Where the parts of a request's workspace are.
struct Room {
    places: usize,
    values: usize,
    states: usize,
    len: usize,
}

impl Room {
    fn new(plan: &DeltaPlan) -> Room {
        let mut pieces = Pieces::default();
        // A plan has no more changes than its tensor has values.
        let slots = usize::try_from(plan.slots()).unwrap_or(usize::MAX);
        let places = pieces.take(slots.saturating_mul(4));
        let values = pieces.take(slots.saturating_mul(plan.dtype().size()));
        let states = pieces.take(4 * plan.tiles().len());
        Room { places, values, states, len: pieces.at }
    }
}

/// Bytes of workspace that [`apply_delta`] needs: for each change four and those of an element, and a few more.
pub fn delta_workspace_len(requests: &[DeltaRequest<'_>]) -> usize {
    requests.iter().map(|r| Room::new(r.plan).len).fold(0, usize::saturating_add)
}

/// Queues the application of deltas to tensors on the device, in place. It neither allocates nor waits.
///
/// `status` has room for one [`Status`] a delta; [`DeltaPlan::check`] says what it means. A delta that does not belong to its tensor, or is
/// damaged, leaves it as it is, to the last byte; other tensors of the call are not concerned. What is new already stays so: an application
/// that did not come to its end is completed by the same call.
///
/// # Safety
/// All memory is memory of this device, is as long as it says, does not overlap, and is neither freed nor used
/// otherwise until the stream has passed this call.
pub unsafe fn apply_delta(
    device: &Device,
    requests: &[DeltaRequest<'_>],
    status: DeviceSlice,
    workspace: DeviceSlice,
    stream: Stream,
) -> Result<()> {
    // SAFETY: the caller's.
    unsafe { queue(device, requests, status, workspace, stream, true) }
}

/// Queues both passes, or the first alone, which holds deltas against their tensors and writes nothing.
unsafe fn queue(
    device: &Device,
    requests: &[DeltaRequest<'_>],
    status: DeviceSlice,
    workspace: DeviceSlice,
    stream: Stream,
    writes: bool,
) -> Result<()> {
    requests.iter().try_for_each(DeltaRequest::check)?;
    let status = status.part(0, requests.len() * size_of::<Status>())?;
    let workspace = workspace.part(0, delta_workspace_len(requests))?;
    if !workspace.address.is_multiple_of(16) || !status.address.is_multiple_of(8) {
        return Err(Error::InvalidArgument("a workspace must be aligned to 16 bytes, a status to 8".into()));
    }
    let mut at = 0;
    let mut items = Vec::with_capacity(requests.len());
    for (i, request) in requests.iter().enumerate() {
        let len = Room::new(request.plan).len;
        let status = status.part(i * size_of::<Status>(), size_of::<Status>())?;
        items.push((request.plan.dtype().size(), request.item(status, workspace.part(at, len)?)?));
        at += len;
    }
    // Elements of one size at a time.
    for size in [1, 2, 4, 8] {
        let some: Vec<DeltaItem> = items.iter().filter(|(s, _)| *s == size).map(|(_, item)| *item).collect();
        for items in some.chunks(DELTAS_PER_LAUNCH) {
            let call = Call::new(device, size, items, stream);
            // SAFETY: the caller's.
            unsafe {
                call.start()?;
                call.decode()?;
                if writes {
                    call.write()?;
                }
            }
        }
    }
    Ok(())
}

/// The launches for some tensors.
struct Call<'a> {
    device: &'a Device,
    size: usize,
    args: DeltaArgs,
    stream: Stream,
    shared: u32,
    decoders: u64,
    writers: u64,
}

impl<'a> Call<'a> {
    fn new(device: &'a Device, size: usize, items: &[DeltaItem], stream: Stream) -> Call<'a> {
        let mut args = DeltaArgs::ZERO;
        let own = DELTA_THREADS as usize / 32 * DELTA_WARP + DELTA_CLASSES;
        let most = (device.properties().shared_per_block as usize).saturating_sub(own) / DELTA_TABLE;
        // Tables that have no room stay in the device's memory.
        let room =
            items.iter().map(|item| item.table_count as usize).filter(|&n| n <= most).max().unwrap_or(0);
        let shared = (own + room * DELTA_TABLE) as u32;
        // Two blocks a multiprocessor where they fit, each with some of the tiles.
        let blocks = u64::from(device.properties().multiprocessors) * 2;
        let all: u64 = items.iter().map(|item| u64::from(item.tile_count)).sum();
        let (mut decoders, mut writers) = (0, 0);
        for (to, item) in args.items.iter_mut().zip(items) {
            let tiles = u64::from(item.tile_count);
            *to = *item;
            (to.decode0, to.write0) = (decoders as u32, writers as u32);
            decoders += (tiles * blocks).div_ceil(all.max(1)).min(tiles);
            writers += tiles * u64::from(item.writers);
        }
        args.count = items.len() as u32;
        args.room = room as u32;
        Call { device, size, args, stream, shared, decoders, writers }
    }

    fn blocks(&self, count: u64) -> Result<u32> {
        // The most that a grid takes.
        u32::try_from(count).ok().filter(|&n| n < 1 << 31).ok_or_else(|| {
            Error::InvalidArgument("more changes than one launch takes; apply fewer deltas at a time".into())
        })
    }

    unsafe fn start(&self) -> Result<()> {
        self.blocks(self.writers)?;
        // SAFETY: the caller's.
        unsafe {
            self.device.launch(abi::delta_start, Shape::new(1, DELTA_THREADS, 0), &self.args, self.stream)
        }
    }

    unsafe fn decode(&self) -> Result<()> {
        let blocks = self.blocks(self.decoders)?;
        if blocks == 0 {
            return Ok(());
        }
        let (shape, args) =
            (Shape::new(blocks, DELTA_THREADS, self.shared), DeltaArgs { blocks, ..self.args });
        // SAFETY: the caller's; the plan's tiles lie within the blob and the workspace has room for their changes.
        unsafe { self.device.launch(abi::delta_decode.select(self.size), shape, &args, self.stream) }
    }

    unsafe fn write(&self) -> Result<()> {
        let blocks = self.blocks(self.writers)?;
        if blocks == 0 {
            return Ok(());
        }
        let (shape, args) = (Shape::new(blocks, DELTA_THREADS, 0), DeltaArgs { blocks, ..self.args });
        // SAFETY: as above.
        unsafe { self.device.launch(abi::delta_write.select(self.size), shape, &args, self.stream) }
    }
}

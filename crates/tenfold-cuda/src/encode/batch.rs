//! Many tensors of one shape in one queue of kernels: pages of a cache are small, and thousands of them at once keep a
//! device as busy as one large tensor does.

use tenfold::{Dtype, EncodeOptions};

use super::{Batch, Behind, Call, EncodeRequest, Planning, levels, ready, together};
use crate::device::{Device, DeviceSlice};
use crate::driver::{MAX_BATCH, Stream};
use crate::error::{Error, Result};
use crate::status::Status;

/// Tensors of one shape, dtype and goal, at constant distances in memory, each to a blob in a slot of its own.
///
/// Every blob is the one that [`encode`](super::encode) makes of that tensor alone, but for large ones: from 2^17 values on a
/// tensor alone is cut finer, to keep a device busy.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct EncodeBatch {
    /// Tensors.
    pub count: usize,
    /// Memory from the first tensor on, at a multiple of 16; elements in row-major order.
    pub tensors: DeviceSlice,
    /// Bytes from one tensor to the next, a multiple of 16. Default: those of a tensor.
    pub tensor_stride: usize,
    /// Dtype of the elements.
    pub dtype: Dtype,
    /// Shape of each tensor, outermost dimension first; 16 dimensions at most.
    pub shape: Vec<usize>,
    /// Memory from the first blob on, at a multiple of 16.
    pub blobs: DeviceSlice,
    /// Bytes of a slot, a multiple of 16: the room for a blob, and from one to the next. Default: what `blobs` has
    /// for each.
    pub slot: usize,
    /// What to reach for each tensor.
    pub options: EncodeOptions,
    /// What the headers say where tensors are what transforms made of others.
    pub(crate) behind: Option<Behind>,
    pub(crate) planning: Planning,
}

impl EncodeBatch {
    /// Tensors one after the other, and memory that their blobs have equal parts of.
    pub fn new(
        count: usize,
        tensors: DeviceSlice,
        dtype: Dtype,
        shape: &[usize],
        blobs: DeviceSlice,
        options: EncodeOptions,
    ) -> Self {
        let bytes = shape.iter().fold(dtype.size(), |n, &d| n.saturating_mul(d));
        let slot = blobs.len.checked_div(count).unwrap_or(0) / 16 * 16;
        EncodeBatch {
            count,
            tensors,
            tensor_stride: bytes,
            dtype,
            shape: shape.to_vec(),
            blobs,
            slot,
            options,
            behind: None,
            planning: Planning::Each,
        }
    }

    /// The same with so many bytes from one tensor to the next.
    pub fn with_tensor_stride(mut self, bytes: usize) -> Self {
        self.tensor_stride = bytes;
        self
    }

    /// The same with slots of so many bytes.
    pub fn with_slot(mut self, bytes: usize) -> Self {
        self.slot = bytes;
        self
    }

    /// One of the tensors as a request of its own; everything that the host can know has been checked.
    fn request(&self, index: usize) -> Result<(EncodeRequest, usize)> {
        let bytes = self.shape.iter().try_fold(self.dtype.size(), |n, &d| n.checked_mul(d));
        let Some(bytes) = bytes else {
            return Err(Error::InvalidArgument("the size in bytes overflows".into()));
        };
        let aligned = self.tensor_stride.is_multiple_of(16) && self.slot.is_multiple_of(16);
        if self.count > 1 && (!aligned || self.tensor_stride < bytes) {
            let why = "strides of a batch must be multiples of 16 bytes, and tensors must not overlap";
            return Err(Error::InvalidArgument(why.into()));
        }
        let at = |stride: usize| index.saturating_mul(stride);
        let tensor = self.tensors.part(at(self.tensor_stride), bytes)?;
        let out = self.blobs.part(at(self.slot), self.slot)?;
        let mut request = EncodeRequest::new(tensor, self.dtype, &self.shape, out, self.options.clone());
        request.behind = self.behind.clone();
        if let Some(positions) = request.behind.as_mut().and_then(|b| b.positions.as_mut()) {
            positions.address += at(size_of::<u64>()) as u64;
        }
        let values = request.check()?;
        match self.planning {
            Planning::Each => {}
            Planning::Together => together::check(&request, values, self.tensor_stride == bytes)?,
            Planning::Ready { .. } => ready::check(&request)?,
        }
        Ok((request, values))
    }

    /// Bytes of workspace for what so many tensors have in common.
    fn common_len(
        &self,
        device: &Device,
        first: &EncodeRequest,
        values: usize,
        count: usize,
    ) -> Result<usize> {
        match self.planning {
            Planning::Together => together::workspace_len(device, first, values, count),
            _ => Ok(0),
        }
    }

    /// Bytes of workspace for so many at once.
    fn workspace_len(
        &self,
        device: &Device,
        first: &EncodeRequest,
        values: usize,
        count: usize,
    ) -> Result<usize> {
        let (len, stride) =
            levels::workspace_len(device, first, values, self.batch(count, count), self.planning)?;
        if levels::is_lossless(first, values) {
            return Ok(len);
        }
        let shared = self.common_len(device, first, values, count)?;
        let all = stride.checked_mul(count).and_then(|n| n.checked_add(shared));
        all.ok_or_else(|| Error::InvalidArgument("the size in bytes overflows".into()))
    }

    fn batch(&self, count: usize, full: usize) -> Batch {
        let [count, full] = [count, full].map(|n| n.min(MAX_BATCH as usize) as u32);
        Batch { count, full, tensor: self.tensor_stride, out: self.slot }
    }
}

/// Bytes of workspace with which [`encode_batch`] does everything at once. With fewer, down to those of one tensor
/// ([`encode_workspace_len`](super::encode_workspace_len)), it does one part after the other.
pub fn encode_batch_workspace_len(device: &Device, batch: &EncodeBatch) -> Result<usize> {
    if batch.count == 0 {
        return Ok(0);
    }
    let (request, values) = batch.request(0)?;
    batch.workspace_len(device, &request, values, batch.count.min(MAX_BATCH as usize))
}

/// Queues the encoding of tensors on the device. It neither allocates nor waits.
///
/// Once the stream has passed this call, `statuses` holds a [`Status`] for each tensor: its blob's bytes in `size`, or
/// why there is none. A failure of one tensor does not affect another. An error here means that nothing or only part
/// was queued.
///
/// # Safety
/// All memory is memory of this device, is as long as it says, does not overlap, and is neither freed nor used
/// otherwise until the stream has passed this call.
pub unsafe fn encode_batch(
    device: &Device,
    batch: &EncodeBatch,
    statuses: DeviceSlice,
    workspace: DeviceSlice,
    stream: Stream,
) -> Result<()> {
    if batch.count == 0 {
        return Ok(());
    }
    const STATUS: usize = size_of::<Status>();
    let statuses = statuses.part(0, batch.count.saturating_mul(STATUS))?;
    if !workspace.address.is_multiple_of(16) || !statuses.address.is_multiple_of(8) {
        return Err(Error::InvalidArgument("a workspace must be aligned to 16 bytes, a status to 8".into()));
    }
    // The last tensor has room if all have.
    batch.request(batch.count - 1)?;
    let (first, values) = batch.request(0)?;
    let full = match levels::is_lossless(&first, values) {
        true => 1,
        false => {
            let most = batch.count.min(MAX_BATCH as usize);
            match batch.workspace_len(device, &first, values, most)? <= workspace.len {
                true => most,
                // Fewer tensors take more each, as they have more of the device.
                false => {
                    let alone = levels::workspace_len(device, &first, values, Batch::ONE, batch.planning)?.1;
                    let shared = batch.common_len(device, &first, values, most)?;
                    (workspace.len.saturating_sub(shared) / alone).clamp(1, most)
                }
            }
        }
    };
    for start in (0..batch.count).step_by(full) {
        let count = full.min(batch.count - start);
        let (request, _) = batch.request(start)?;
        let status = statuses.part(start * STATUS, count * STATUS)?;
        let part = batch.batch(count, full);
        let planning = batch.planning.from(start);
        let call = Call {
            device,
            request: &request,
            values,
            batch: part,
            status,
            workspace,
            stream,
            planning,
            wants_more: None,
        };
        // SAFETY: the caller's.
        unsafe { levels::encode(&call)? };
    }
    Ok(())
}

//! Tensors on a device to blobs on it.
//!
//! A call queues kernels on the caller's stream and returns. How large the blob became, only the device knows: it
//! leaves that in a [`Status`] beside the blob.

mod assemble;
mod batch;
mod fed;
mod fixed;
mod layout;
mod levels;
mod lossless;
mod rate;
mod ready;
mod together;

use tenfold::{Dtype, EncodeOptions, Goal};

pub use batch::{EncodeBatch, encode_batch, encode_batch_workspace_len};
#[doc(hidden)]
pub use fixed::{FixedPlan, encode_fixed, fixed_workspace_len};

pub(crate) use fed::{FedBlock, Feed, encode_fed, fed_workspace_len, lane_values};
pub(crate) use ready::{PagePlans, make_plans};

use crate::abi::MAX_DIMS;
use crate::device::{Device, DeviceSlice};
use crate::driver::Stream;
use crate::error::{Error, Result};
use crate::status::Status;

/// One tensor to encode.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct EncodeRequest {
    /// The elements in row-major order, at an address that is a multiple of 16.
    pub tensor: DeviceSlice,
    /// Dtype of the elements.
    pub dtype: Dtype,
    /// Outermost dimension first; 16 dimensions at most.
    pub shape: Vec<usize>,
    /// Where the blob goes, at an address that is a multiple of 16. [`tenfold::format::max_encoded_len`] bytes always
    /// suffice; if fewer do not, the status says how many are needed and nothing after the end was touched.
    pub out: DeviceSlice,
    /// What to reach. Threads mean nothing here. No transforms are done by default, and those that are asked for are refused: see
    /// [`DeviceChain`](crate::DeviceChain).
    pub options: EncodeOptions,
    /// What the header says where the tensor is what transforms made of another.
    pub(crate) behind: Option<Behind>,
}

/// A tensor of which transforms have made the one that is encoded: mostly coordinates in place of its columns.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Behind {
    pub dtype: Dtype,
    pub columns: usize,
    /// Its shape, where that differs by more than columns.
    pub shape: Option<Vec<usize>>,
    /// The transforms as a header has them, their number first.
    pub transforms: DeviceSlice,
    /// Where the scales of the last one's columns are, a byte each; 0 for none.
    pub scales: u64,
    /// Positions of a batch's tensors, if each has its own among the transforms.
    pub positions: Option<Positions>,
}

/// First positions of tensors: as many u64 as there are tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Positions {
    pub address: u64,
    /// Bytes of the transforms before the position, which stands in place of one, and before the length of its transform.
    pub at: usize,
    pub length_at: usize,
}

impl EncodeRequest {
    /// A tensor, where its blob goes, and what to reach.
    pub fn new(
        tensor: DeviceSlice,
        dtype: Dtype,
        shape: &[usize],
        out: DeviceSlice,
        options: EncodeOptions,
    ) -> Self {
        EncodeRequest { tensor, dtype, shape: shape.to_vec(), out, options, behind: None }
    }

    /// Number of elements, once everything that the host can know has been checked.
    fn check(&self) -> Result<usize> {
        check_options(&self.options)?;
        if self.shape.len() > MAX_DIMS {
            let dims = self.shape.len();
            return Err(Error::InvalidArgument(format!(
                "{dims} dimensions are too many for a device, which takes at most {MAX_DIMS}"
            )));
        }
        // Refuses shapes whose size overflows.
        tenfold::format::max_encoded_len(self.dtype, &self.shape)?;
        let values = if self.shape.contains(&0) { 0 } else { self.shape.iter().product::<usize>() };
        let (have, need) = (self.tensor.len, values * self.dtype.size());
        if have != need {
            return Err(Error::InvalidArgument(format!(
                "a tensor of this shape has {need} bytes, but there are {have}"
            )));
        }
        if !self.tensor.address.is_multiple_of(16) || !self.out.address.is_multiple_of(16) {
            return Err(Error::InvalidArgument(
                "tensors and blobs on a device must be aligned to 16 bytes".into(),
            ));
        }
        Ok(values)
    }
}

/// Checks the request, whatever the tensor.
pub(crate) fn check_options(options: &EncodeOptions) -> Result<()> {
    if !options.residual.is_empty() {
        return Err(Error::InvalidArgument(
            "layers of residuals wait for one another: use CudaEngine, or Layered with a DeviceCodec".into(),
        ));
    }
    if matches!(options.goal, Goal::RoundToNearest { .. }) {
        return Err(Error::InvalidArgument(
            "how far rounding to nearest is off depends on the tensor's range: ask for max-error, or encode on the CPU"
                .into(),
        ));
    }
    options.validate()?;
    if options.prepare.is_asked() {
        return Err(Error::InvalidArgument(format!(
            "transforms ({}; importance makes such) are for a chain on the device: encode_prepared",
            options.prepare
        )));
    }
    Ok(())
}

/// Tensors that one queue of kernels encodes, and how many bytes lie between one and the next, and between their blobs.
#[derive(Debug, Clone, Copy)]
struct Batch {
    count: u32,
    /// Tensors that kernels are laid out for: `count`, or that of a fuller queue before this one.
    full: u32,
    tensor: usize,
    out: usize,
}

impl Batch {
    const ONE: Batch = Batch { count: 1, full: 1, tensor: 0, out: 0 };
}

/// Where the plans of a batch's tensors come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Planning {
    /// A search for each.
    Each,
    /// One for all, and each has only a step of its own.
    Together,
    /// Those of a basis, which are at an address and have so many classes at most; and where there is a number for each tensor, an f64, that
    /// its step is multiplied by, or 0.
    Ready { plans: u64, classes: u32, steps: u64 },
}

impl Planning {
    /// The same from a tensor of the batch on.
    fn from(self, first: usize) -> Planning {
        match self {
            Planning::Ready { plans, classes, steps } if steps != 0 => {
                Planning::Ready { plans, classes, steps: steps + (first * size_of::<f64>()) as u64 }
            }
            planning => planning,
        }
    }
}

/// A tensor to encode, or the first of a batch, and what the device does that with.
struct Call<'a> {
    device: &'a Device,
    request: &'a EncodeRequest,
    /// Elements of the tensor.
    values: usize,
    batch: Batch,
    /// One status a tensor, one after the other.
    status: DeviceSlice,
    workspace: DeviceSlice,
    stream: Stream,
    planning: Planning,
    /// Waits for a pass and says whether another is wanted, as the status has it; none for who does not wait.
    wants_more: Option<&'a dyn Fn() -> Result<bool>>,
}

/// A shape as the kernels have it.
fn dims(shape: &[usize]) -> [u64; MAX_DIMS] {
    let mut dims = [0; MAX_DIMS];
    dims.iter_mut().zip(shape).for_each(|(to, &from)| *to = from as u64);
    dims
}

/// Bytes of workspace that [`encode`] needs: about those of the tensor.
pub fn encode_workspace_len(device: &Device, request: &EncodeRequest) -> Result<usize> {
    let values = request.check()?;
    Ok(levels::workspace_len(device, request, values, Batch::ONE, Planning::Each)?.0)
}

/// Queues the encoding of a tensor on the device. It neither allocates nor waits.
///
/// Once the stream has passed this call, `status` holds a [`Status`]: the blob's bytes in `size`, or why there is no
/// blob. An error here means that nothing or only part was queued.
///
/// # Safety
/// All memory is memory of this device, is as long as it says, does not overlap, and is neither freed nor used
/// otherwise until the stream has passed this call.
pub unsafe fn encode(
    device: &Device,
    request: &EncodeRequest,
    status: DeviceSlice,
    workspace: DeviceSlice,
    stream: Stream,
) -> Result<()> {
    // SAFETY: the caller's.
    unsafe { encode_passes(device, request, status, workspace, stream, None) }
}

/// The same for a caller who waits: passes are queued one at a time, and `wants_more` waits for one and says whether
/// `detail` of the status asks for another.
///
/// # Safety
/// As for [`encode`].
pub(crate) unsafe fn encode_waiting(
    device: &Device,
    request: &EncodeRequest,
    status: DeviceSlice,
    workspace: DeviceSlice,
    stream: Stream,
    wants_more: &dyn Fn() -> Result<bool>,
) -> Result<()> {
    // SAFETY: the caller's.
    unsafe { encode_passes(device, request, status, workspace, stream, Some(wants_more)) }
}

unsafe fn encode_passes(
    device: &Device,
    request: &EncodeRequest,
    status: DeviceSlice,
    workspace: DeviceSlice,
    stream: Stream,
    wants_more: Option<&dyn Fn() -> Result<bool>>,
) -> Result<()> {
    let values = request.check()?;
    let status = status.part(0, size_of::<Status>())?;
    if !workspace.address.is_multiple_of(16) || !status.address.is_multiple_of(8) {
        return Err(Error::InvalidArgument("a workspace must be aligned to 16 bytes, a status to 8".into()));
    }
    let (batch, planning) = (Batch::ONE, Planning::Each);
    let call = Call { device, request, values, batch, status, workspace, stream, planning, wants_more };
    // SAFETY: the caller's.
    unsafe { levels::encode(&call) }
}

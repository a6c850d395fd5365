//! Decoded values of a transposed blob to their places in the tensor: `kernels/transpose.cu`.

use tenfold::Dtype;

use crate::abi::{self, TRANSPOSE_THREADS, TransposeArgs};
use crate::device::{Device, DeviceSlice};
use crate::driver::{Shape, Stream};
use crate::error::{Error, Result};

/// Bytes of elements that a block is worth launching for.
const BLOCK: usize = 8 << 10;
/// Blocks a multiprocessor, which fill it.
const BLOCKS: u32 = 8;

/// Values that were decoded in the order of their blob.
pub(crate) struct Decoded {
    /// The blob among those of the call, opened.
    pub(crate) item: DeviceSlice,
    /// What the device says of it; nothing is transposed if that is bad.
    pub(crate) status: DeviceSlice,
    pub(crate) values: DeviceSlice,
}

/// Queues the transposition of values, to a place of as many bytes.
///
/// # Safety
/// All memory is memory of this device, is as long as it says, does not overlap, and is neither freed nor used otherwise until the
/// stream has passed this call.
pub(crate) unsafe fn transpose(
    device: &Device,
    decoded: &Decoded,
    to: DeviceSlice,
    dtype: Dtype,
    stream: Stream,
) -> Result<()> {
    let &Decoded { item, status, values } = decoded;
    if values.len != to.len {
        return Err(Error::InvalidArgument(format!(
            "{} bytes of a transposed tensor for a place of {}",
            values.len, to.len
        )));
    }
    let most = device.properties().multiprocessors.max(1).saturating_mul(BLOCKS);
    let grid = values.len.div_ceil(BLOCK).clamp(1, most as usize) as u32;
    let args = TransposeArgs {
        item: item.into(),
        status: status.into(),
        from: values.into(),
        to: to.into(),
        len: values.len as u64,
    };
    // SAFETY: the caller's; the kernel does nothing unless the blob's tensor has as many bytes.
    unsafe {
        device.launch(
            abi::transpose.select(dtype.size()),
            Shape::new(grid, TRANSPOSE_THREADS, 0),
            &args,
            stream,
        )
    }
}

//! Launches of the kernels that layers are made of: `kernels/layers.cu`.

use tenfold::Dtype;

use crate::abi::{self, Kernel, LAYERS_THREADS, LayersArgs};
use crate::device::{Device, DeviceSlice};
use crate::driver::{Shape, Stream};
use crate::error::{Error, Result};

/// What is done to values one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Add,
    Subtract,
    Widen,
    Round,
    Largest,
}

impl Operation {
    fn kernel(self, dtype: Dtype) -> Kernel<LayersArgs> {
        match self {
            Operation::Add => abi::layers_add.select(dtype),
            Operation::Subtract => abi::layers_subtract.select(dtype),
            Operation::Widen => abi::layers_widen,
            Operation::Round => abi::layers_round,
            Operation::Largest => abi::layers_largest,
        }
    }

    /// Bytes that one value takes in the first operand, the second and the result.
    fn sizes(self, dtype: Dtype) -> [usize; 3] {
        let size = dtype.size();
        match self {
            Operation::Add | Operation::Subtract => [size; 3],
            Operation::Widen => [size, 0, 4],
            Operation::Round => [4, 0, size],
            Operation::Largest => [size, 0, 0],
        }
    }
}

/// Queues an operation on values of a dtype; sums and differences are of working values. `second` counts for these alone.
///
/// # Safety
/// The memory is the device's, and left alone until the stream has passed this call. `to` may be the first operand, and is for
/// sums; the largest magnitude takes eight bytes of zeros.
pub(crate) unsafe fn queue(
    device: &Device,
    operation: Operation,
    dtype: Dtype,
    [first, second, to]: [DeviceSlice; 3],
    stream: Stream,
) -> Result<()> {
    let sizes = operation.sizes(dtype);
    let count = first.len / sizes[0];
    let short = [first, second, to].iter().zip(sizes).any(|(slice, size)| slice.len < count * size);
    if short || operation == Operation::Largest && to.len < 8 {
        return Err(Error::InvalidArgument("values of layers that do not have the same number".into()));
    }
    if count == 0 {
        return Ok(());
    }
    let args = LayersArgs {
        first: first.into(),
        second: second.into(),
        to: to.into(),
        count: count as u64,
        dtype: u32::from(dtype.id()),
        unused: 0,
    };
    let most = u64::from(device.properties().multiprocessors) * 16;
    let grid = (count as u64).div_ceil(u64::from(LAYERS_THREADS)).min(most) as u32;
    // SAFETY: the caller's; every operand has the bytes of as many values.
    unsafe { device.launch(operation.kernel(dtype), Shape::new(grid, LAYERS_THREADS, 0), &args, stream) }
}

//! A matrix times a vector, beside decoding: `kernels/multiply.cu`.

use tenfold::Dtype;

use crate::abi::{self, MULTIPLY_THREADS, MultiplyArgs};
use crate::device::{Device, DeviceSlice};
use crate::driver::{Shape, Stream};
use crate::error::{Error, Result};

/// Bytes that must start at a multiple of as many.
const ALIGN: u64 = 16;

/// A product of a matrix and a vector of bf16 or f16, as a layer has it that works on one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MultiplyRequest {
    /// The matrix, row by row, at a multiple of 16 bytes.
    pub matrix: DeviceSlice,
    /// A number for each column, at a multiple of 16 bytes.
    pub vector: DeviceSlice,
    /// A number for each row that is added.
    pub bias: Option<DeviceSlice>,
    /// Where a number for each row goes.
    pub to: DeviceSlice,
    /// Of all of them.
    pub dtype: Dtype,
}

/// Queues a product. Sums are of f32, always in the same order, and rounded once.
///
/// It is made for the multiprocessors that [`DecodeSettings::with_multiprocessors`](crate::DecodeSettings::with_multiprocessors)
/// leaves over. On an H200 28 of them took in 1.1 TB/s while 104 decoded.
///
/// # Safety
/// All memory is memory of this device, is as long as it says, does not overlap, and is neither freed nor used otherwise until the
/// stream has passed this call.
pub unsafe fn multiply(device: &Device, request: &MultiplyRequest, stream: Stream) -> Result<()> {
    let &MultiplyRequest { matrix, vector, bias, to, dtype } = request;
    let kernel = match dtype {
        Dtype::Bf16 => abi::multiply_bf16,
        Dtype::F16 => abi::multiply_f16,
        _ => return Err(Error::InvalidArgument(format!("a device multiplies bf16 and f16, not {dtype}"))),
    };
    let (rows, columns) = (to.len / 2, vector.len / 2);
    let shared = vector.len + 1024;
    let aligned = [matrix, vector].iter().all(|m| m.address.is_multiple_of(ALIGN));
    if !aligned || !columns.is_multiple_of(8) || shared > device.properties().shared_per_block as usize {
        return Err(Error::InvalidArgument(
            "a device multiplies matrices whose rows are a multiple of 16 bytes, start at one, and fit into its shared memory".into(),
        ));
    }
    if Some(matrix.len) != rows.checked_mul(vector.len) || bias.is_some_and(|b| b.len != to.len) {
        return Err(Error::InvalidArgument(
            "a matrix, a vector, a bias and a result whose sizes do not fit".into(),
        ));
    }
    let number = |n: usize| {
        u32::try_from(n)
            .map_err(|_| Error::InvalidArgument("a matrix of more rows than a device multiplies".into()))
    };
    let args = MultiplyArgs {
        matrix: matrix.into(),
        vector: vector.into(),
        bias: bias.unwrap_or(DeviceSlice::new(0, 0)).into(),
        to: to.into(),
        rows: number(rows)?,
        columns: number(columns)?,
    };
    if rows == 0 || columns == 0 {
        return Err(Error::InvalidArgument("a matrix without numbers".into()));
    }
    // Two blocks fill a multiprocessor.
    let grid = args.rows.div_ceil(MULTIPLY_THREADS / 32).min(2 * device.properties().multiprocessors.max(1));
    // SAFETY: the caller's; sizes were checked above.
    unsafe { device.launch(kernel, Shape::new(grid, MULTIPLY_THREADS, vector.len as u32), &args, stream) }
}

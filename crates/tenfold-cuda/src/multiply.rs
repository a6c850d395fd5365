//! A matrix times a vector, beside decoding: `kernels/multiply.cu`. Of two matrices the product is cuBLAS's: work to decode beside.

use tenfold::Dtype;

use crate::abi::{self, MULTIPLY_THREADS, MultiplyArgs};
use crate::device::{Device, DeviceSlice};
use crate::driver::{Matrix, Product, Shape, Stream};
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

/// Square matrices of f16 or bf16, row by row, for programs that measure what a device does beside its work.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SquareProduct {
    /// Rows, and columns.
    pub side: usize,
    /// Of all three.
    pub dtype: Dtype,
    /// What is multiplied.
    pub of: [DeviceSlice; 2],
    /// Where the product goes.
    pub to: DeviceSlice,
    /// Scratch memory for cuBLAS, at a multiple of 256; 32 MiB are plenty.
    pub workspace: DeviceSlice,
}

/// Queues a product of square matrices. [`Error::NoDevice`] if cuBLAS is not installed.
///
/// # Safety
/// All memory is memory of this device, does not overlap, and is neither freed nor used otherwise until the stream has passed this call.
#[doc(hidden)]
pub unsafe fn multiply_squares(device: &Device, request: &SquareProduct, stream: Stream) -> Result<()> {
    let &SquareProduct { side, dtype, of, to, workspace } = request;
    let kind = match dtype {
        Dtype::Bf16 => Matrix::Bf16,
        Dtype::F16 => Matrix::F16,
        _ => return Err(Error::InvalidArgument(format!("a device multiplies bf16 and f16, not {dtype}"))),
    };
    let bytes = side.checked_mul(side).and_then(|n| n.checked_mul(2)).filter(|&n| n > 0);
    if [of[0], of[1], to].iter().any(|m| Some(m.len) != bytes) || !workspace.address.is_multiple_of(256) {
        return Err(Error::InvalidArgument(format!("matrices that have not {side} rows and columns")));
    }
    let product = Product {
        left: of[0].address,
        right: of[1].address,
        to: to.address,
        rows: side,
        inner: side,
        columns: side,
        of: kind,
        out: kind,
        workspace,
        ..Product::NONE
    };
    // SAFETY: the caller's; sizes were checked above.
    unsafe { device.driver.multiply(&product, stream) }
}

#[cfg(all(test, feature = "emulator"))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::memory::Buffer;

    #[test]
    fn squares_are_multiplied() {
        let device = Device::emulated(1 << 20);
        let numbers = |values: [f32; 4]| {
            let bytes: Vec<u8> = values.iter().flat_map(|&v| half::f16::from_f32(v).to_le_bytes()).collect();
            Buffer::from_slice(&device, &bytes).unwrap()
        };
        let (a, b) = (numbers([1.0, 2.0, 3.0, 4.0]), numbers([0.5, 0.0, 1.0, -1.0]));
        let to = Buffer::new(&device, 8).unwrap();
        let request = SquareProduct {
            side: 2,
            dtype: Dtype::F16,
            of: [a.slice(), b.slice()],
            to: to.slice(),
            workspace: DeviceSlice { address: 0, len: 0 },
        };
        // SAFETY: buffers of this device, which live to the end.
        unsafe { multiply_squares(&device, &request, Stream::DEFAULT).unwrap() };
        let mut out = [0u8; 8];
        to.read(&mut out, Stream::DEFAULT).unwrap();
        let found: Vec<f32> =
            out.as_chunks::<2>().0.iter().map(|b| half::f16::from_le_bytes(*b).to_f32()).collect();
        assert_eq!(found, [2.5, -2.0, 5.5, -4.0]);
        for bad in [SquareProduct { side: 3, ..request }, SquareProduct { dtype: Dtype::F32, ..request }] {
            // SAFETY: refused.
            let refused = unsafe { multiply_squares(&device, &bad, Stream::DEFAULT) };
            assert!(matches!(refused, Err(Error::InvalidArgument(_))));
        }
    }
}

//! Some rows and columns of a tensor, brought together on the device so that one copy takes them to the host.

use tenfold::prepare::Runs;

use crate::abi::{self, CHAIN_THREADS, GatherArgs};
use crate::device::{Device, DeviceSlice};
use crate::driver::{Shape, Stream};
use crate::error::Result;

/// Queues the gathering of the elements, of `size` bytes each, where rows cross columns of a tensor of so many columns.
///
/// # Safety
/// The tensor, which holds these rows and columns, and `to`, which has room for their elements, are memory of this device, and left
/// alone until the stream has passed this call.
pub(crate) unsafe fn gather(
    device: &Device,
    from: DeviceSlice,
    (columns, size): (usize, usize),
    (rows, cols): (Runs, Runs),
    to: DeviceSlice,
    stream: Stream,
) -> Result<()> {
    let args = GatherArgs {
        from: from.into(),
        to: to.into(),
        row: (columns * size) as u64,
        size: size as u64,
        rows_of: rows.of as u64,
        rows_take: rows.take as u64,
        rows_len: rows.len as u64,
        cols_of: cols.of as u64,
        cols_take: cols.take as u64,
        cols_len: cols.len as u64,
    };
    let grid = rows.count().clamp(1, device.properties().multiprocessors as usize * 8) as u32;
    // SAFETY: the caller's.
    unsafe { device.launch(abi::chain_gather, Shape::new(grid, CHAIN_THREADS, 0), &args, stream) }
}

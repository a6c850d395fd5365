//! Pages into the blocks of pools. Pages of several bases are decoded together: those of one alone would leave most of a device idle.

use tenfold::Dtype;

use super::pages::{DeviceBasis, PRODUCT_BYTES, all_rows, requests};
use super::pool::DevicePool;
use super::rope::Runs;
use crate::abi::{CType, OpenBasis};
use crate::decode::{DecodeRequest, DecodeSettings, decode_parts, decode_workspace_len};
use crate::device::{Device, DeviceSlice};
use crate::driver::Stream;
use crate::error::{Error, Result};
use crate::pieces::{ALIGN, Pieces, bytes_of};

/// Pages of as many rows each, one blob a page.
#[derive(Debug, Clone)]
pub struct PageBlobs<'a> {
    /// The basis that they are behind; `None` for rows as they are.
    pub basis: Option<&'a DeviceBasis>,
    /// What their headers say that rows are, and the pool has.
    pub dtype: Dtype,
    /// Where the blobs are, at multiples of 16.
    pub blobs: Vec<DeviceSlice>,
    /// Rows of each.
    pub rows: usize,
    /// Columns of a row.
    pub columns: usize,
}

/// Where the rows of pages go.
#[derive(Debug, Clone, Copy)]
pub struct PageSlots<'a> {
    /// The layers that a row has side by side.
    pub pool: &'a DevicePool,
    /// The slot of each row, as [`DevicePool::scatter`] takes them.
    pub slots: DeviceSlice,
}

impl PageBlobs<'_> {
    fn all_rows(&self) -> Result<usize> {
        match self.basis {
            Some(basis) if basis.columns() != self.columns => Err(Error::InvalidArgument(format!(
                "the basis is for rows of {} columns, not {}",
                basis.columns(),
                self.columns
            ))),
            _ => all_rows(self.rows, self.blobs.len()),
        }
    }

    /// Bytes of all rows as bf16.
    fn bytes(&self) -> Result<usize> {
        bytes_of(self.all_rows()?, self.columns, 2)
    }

    /// Bytes of what a value is decoded to: a coordinate of bf16, or an element.
    fn decoded_size(&self) -> usize {
        if self.basis.is_some() { 2 } else { self.dtype.size() }
    }

    /// How its blobs are decoded, one after the other from an address on: each to so many values a row.
    fn requests(&self, width: usize, to: u64) -> Vec<DecodeRequest> {
        if self.basis.is_some() {
            return requests(&self.blobs, self.rows * width, to, true);
        }
        let bytes = self.rows * width * self.dtype.size();
        let request = |(i, &blob): (usize, &DeviceSlice)| {
            DecodeRequest::new(blob, DeviceSlice::new(to + (i * bytes) as u64, bytes), self.dtype)
        };
        self.blobs.iter().enumerate().map(request).collect()
    }
}

/// Where things are in a workspace.
struct Layout {
    scratch: DeviceSlice,
    /// Rows of one call at a time, before they are scattered.
    rows: DeviceSlice,
    /// What each call decodes to: coordinates, or rows that have no basis; and positions of its pages.
    decoded: Vec<DeviceSlice>,
    positions: Vec<DeviceSlice>,
    requests: Vec<DecodeRequest>,
    work: DeviceSlice,
    len: usize,
}

impl Layout {
    fn new(calls: &[PageBlobs<'_>], base: u64) -> Result<Layout> {
        let mut pieces = Pieces::default();
        let mut take = |bytes: usize| DeviceSlice::new(base.saturating_add(pieces.take(bytes) as u64), bytes);
        let scratch = take(PRODUCT_BYTES);
        let mut most = 0;
        for call in calls.iter().filter(|call| call.basis.is_some()) {
            most = most.max(call.bytes()?);
        }
        let rows = take(most);
        let (mut decoded, mut positions, mut all) = (Vec::new(), Vec::new(), Vec::new());
        for call in calls {
            let width = call.basis.map_or(call.columns, DeviceBasis::rank);
            let to = take(bytes_of(call.all_rows()?, width, call.decoded_size())?);
            decoded.push(to);
            positions.push(take(bytes_of(call.blobs.len(), 1, size_of::<u64>())?));
            all.extend(call.requests(width, to.address));
        }
        let work = take(decode_workspace_len(&all));
        Ok(Layout { scratch, rows, decoded, positions, requests: all, work, len: pieces.at })
    }
}

/// Bytes of workspace that [`decode_to_pools`] needs.
pub fn decode_to_pools_workspace_len(calls: &[PageBlobs<'_>]) -> Result<usize> {
    Ok(Layout::new(calls, ALIGN as u64)?.len)
}

/// Queues the decoding of pages into pools, one call's after the other's in `status`, 16 bytes a blob. What a status refuses leaves the
/// slots of its rows without meaning; others are not touched by that.
///
/// # Safety
/// All memory is memory of this device, is as long as it says, does not overlap, and is neither freed nor used otherwise
/// until the stream has passed this call; so are bases and pools.
pub unsafe fn decode_to_pools(
    device: &Device,
    calls: &[PageBlobs<'_>],
    to: &[PageSlots<'_>],
    settings: &DecodeSettings,
    status: DeviceSlice,
    workspace: DeviceSlice,
    stream: Stream,
) -> Result<()> {
    let layout = Layout::new(calls, workspace.address)?;
    if !workspace.address.is_multiple_of(ALIGN as u64) {
        return Err(Error::InvalidArgument(format!("a workspace starts at a multiple of {ALIGN}")));
    }
    workspace.part(0, layout.len)?;
    if calls.len() != to.len() {
        return Err(Error::InvalidArgument(format!("{} calls, but {} pools", calls.len(), to.len())));
    }
    if let Some((call, to)) = calls.iter().zip(to).find(|(call, to)| call.dtype != to.pool.dtype()) {
        let (pages, pool) = (call.dtype, to.pool.dtype());
        return Err(Error::InvalidArgument(format!(
            "pages of {pages} go to pools of {pages}, not of {pool}"
        )));
    }
    let opened = |(call, &positions): (&PageBlobs<'_>, &DeviceSlice)| {
        let basis = call.basis.map_or(OpenBasis::ZERO, |basis| basis.open_pages(positions));
        (basis, call.blobs.len())
    };
    let parts: Vec<(OpenBasis, usize)> = calls.iter().zip(&layout.positions).map(opened).collect();
    // SAFETY: the caller's; the pieces of the workspace do not overlap, and calls of one stream follow each other.
    unsafe {
        decode_parts(device, &layout.requests, &parts, settings, status, layout.work, stream)?;
        for (i, (call, to)) in
            calls.iter().zip(to).enumerate().filter(|(_, (call, _))| !call.blobs.is_empty())
        {
            let (decoded, positions) = (layout.decoded[i], layout.positions[i]);
            let Some(basis) = call.basis else {
                to.pool.scatter(decoded, to.slots, stream)?;
                continue;
            };
            let rows = layout.rows.part(0, call.bytes()?)?;
            let product = basis.product(decoded, rows, call.all_rows()?, layout.scratch);
            basis.device().driver.multiply(&product, stream)?;
            match basis.rope() {
                Some(rope) => {
                    let runs = Runs { starts: positions, run: call.rows as u64 };
                    to.pool.scatter_turned(rows, to.slots, (rope, runs), stream)?;
                }
                None => to.pool.scatter_halves(rows, to.slots, stream)?,
            }
        }
        Ok(())
    }
}

//! A look at pages in a basis before they are encoded: what they would take, and whether some of its vectors will do.

use super::pages::{DeviceBasis, EncodePages, coordinates_len, queue_coordinates};
use crate::abi::{self, PAGE_PLAN_THREADS, PageLookArgs};
use crate::device::DeviceSlice;
use crate::driver::{Shape, Stream};
use crate::error::{Error, Result};

/// What a look at a page has found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PageSeen {
    /// About how many bits a value the page takes at the step, and those that its error is worth: for comparison with other bases.
    pub cost: f32,
    /// Whether the coordinates that were said to be outside can be left out: in no row would enough of them be coded to make a
    /// difference to its error.
    pub inside: bool,
}

impl PageSeen {
    /// Bytes of one on a device.
    pub const BYTES: usize = 8;

    /// As a device has left it.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> PageSeen {
        let [a, b, c, d, inside, ..] = bytes;
        PageSeen { cost: f32::from_le_bytes([a, b, c, d]), inside: inside != 0 }
    }
}

/// Bytes of workspace that [`look_at_pages`] needs.
pub fn look_at_pages_workspace_len(basis: &DeviceBasis, pages: &EncodePages) -> Result<usize> {
    coordinates_len(basis, pages)
}

/// Queues a look at pages at a step of coordinates, which their own steps multiply if they have some; of `pages` the blobs and options mean nothing. `outside` has a byte for each vector of
/// the basis: not zero where a part of it lacks the vector. `seen` has [`PageSeen::BYTES`] bytes for each page.
///
/// # Safety
/// As for [`decode_pages`](crate::decode_pages).
pub unsafe fn look_at_pages(
    basis: &DeviceBasis,
    pages: &EncodePages,
    step: f64,
    outside: Option<DeviceSlice>,
    seen: DeviceSlice,
    workspace: DeviceSlice,
    stream: Stream,
) -> Result<()> {
    let seen = seen.part(0, PageSeen::BYTES.saturating_mul(pages.count))?;
    let outside = outside.map(|bytes| bytes.part(0, basis.rank())).transpose()?;
    let steps = pages.steps(pages.count)?;
    if !(step.is_finite() && step > 0.0 && seen.address.is_multiple_of(8)) {
        return Err(Error::InvalidArgument(
            "pages are looked at with a positive step, and what is seen goes to a multiple of 8".into(),
        ));
    }
    pages.check_positions(basis)?;
    // SAFETY: the caller's.
    unsafe {
        let (coordinates, _) = queue_coordinates(basis, pages, workspace, stream)?;
        let count = u32::try_from(pages.count).ok().filter(|_| coordinates.len > 0);
        let Some(count) = count else { return Ok(()) };
        let args = PageLookArgs {
            coordinates: coordinates.address.into(),
            outside: outside.map_or(0, |bytes| bytes.address).into(),
            seen: seen.address.into(),
            rows: pages.rows as u64,
            steps: steps.map_or(0, |steps| steps.address).into(),
            rank: basis.rank() as u32,
            step,
            unused: 0,
        };
        basis.device().launch(abi::page_look, Shape::new(count, PAGE_PLAN_THREADS, 0), &args, stream)
    }
}

//! A guess at the bytes that pages will take at any step, from their coordinates and the plans that their basis has ready.

use super::pages::{DeviceBasis, EncodePages, queue_coordinates};
use crate::abi::{self, PAGE_PLAN_THREADS, PAGE_RUNG_FIRST, PAGE_SIZES, PAGE_SIZES_FIRST, PageSizesArgs};
use crate::device::DeviceSlice;
use crate::driver::{Shape, Stream};
use crate::error::{Error, Result};

const COUNT: usize = PAGE_SIZES as usize;
/// Octaves of the first size: of a mean magnitude over the step.
const FIRST: f64 = (PAGE_RUNG_FIRST + PAGE_SIZES_FIRST as i32) as f64 / 2.0;

/// Bits that a page's blob is thought to take by step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PageSizes {
    /// Mean magnitude of coordinates.
    mean: f32,
    /// At steps an octave apart, the coarsest first.
    bits: [f32; COUNT],
}

impl PageSizes {
    /// Bytes of one on a device.
    pub const BYTES: usize = 4 * (1 + COUNT);

    /// As a device has left it.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> PageSizes {
        let mut numbers = bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four));
        let mean = numbers.next().unwrap_or(0.0);
        PageSizes { mean, bits: std::array::from_fn(|_| numbers.next().unwrap_or(0.0)) }
    }

    /// Bits at a step of coordinates; not a number where the page has values that are not finite.
    pub fn bits_at(&self, step: f64) -> f64 {
        if self.mean == 0.0 {
            return 0.0;
        }
        let at = (f64::from(self.mean) / step).log2() - FIRST;
        let last = COUNT - 1;
        // Logarithms of sizes bend little from octave to octave. A bit more, for pages of which nothing is left.
        let log = |i: usize| (f64::from(self.bits[i]) + 1.0).log2();
        if at >= last as f64 {
            let each = f64::from(self.bits[last]) - f64::from(self.bits[last - 1]);
            return f64::from(self.bits[last]) + each * (at - last as f64);
        }
        if at <= 0.0 {
            return (log(0) + (log(1) - log(0)) * at).exp2();
        }
        let i = at as usize;
        let (x, from, to) = (at - i as f64, log(i), log(i + 1));
        let slope = |i: usize| match i {
            0 => log(1) - log(0),
            i if i == last => log(last) - log(last - 1),
            i => (log(i + 1) - log(i - 1)) / 2.0,
        };
        // The cubic with these ends and slopes.
        let (a, b) = (slope(i) - (to - from), (to - from) - slope(i + 1));
        (from + (to - from) * x + x * (1.0 - x) * (a * (1.0 - x) + b * x)).exp2()
    }
}

/// Queues a guess at the sizes of pages; of `pages` the blobs and options mean nothing. The basis must have plans ready, and the workspace
/// [`look_at_pages_workspace_len`](super::look_at_pages_workspace_len) bytes; `sizes` has [`PageSizes::BYTES`] bytes for each page.
///
/// # Safety
/// As for [`decode_pages`](crate::decode_pages).
pub unsafe fn guess_page_sizes(
    basis: &DeviceBasis,
    pages: &EncodePages,
    sizes: DeviceSlice,
    workspace: DeviceSlice,
    stream: Stream,
) -> Result<()> {
    let sizes = sizes.part(0, PageSizes::BYTES.saturating_mul(pages.count))?;
    let Some((plans, scales)) = basis.plans().filter(|_| sizes.address.is_multiple_of(8)) else {
        let why = "sizes of pages are guessed from plans that a basis has ready, and go to a multiple of 8";
        return Err(Error::InvalidArgument(why.into()));
    };
    pages.check_positions(basis)?;
    // SAFETY: the caller's.
    unsafe {
        let (coordinates, _) = queue_coordinates(basis, pages, workspace, stream)?;
        let blocks = u32::try_from(pages.count.saturating_mul(COUNT)).ok().filter(|_| coordinates.len > 0);
        let Some(blocks) = blocks else { return Ok(()) };
        let args = PageSizesArgs {
            coordinates: coordinates.address.into(),
            scales: scales.into(),
            plans: plans.address().into(),
            beside: plans.beside().into(),
            sizes: sizes.address.into(),
            rows: pages.rows as u64,
            rank: basis.rank() as u32,
            transforms: basis.transforms_len() as u32,
        };
        basis.device().launch(abi::page_sizes, Shape::new(blocks, PAGE_PLAN_THREADS, 0), &args, stream)
    }
}

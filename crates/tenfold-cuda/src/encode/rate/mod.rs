//! The search for how a tensor is quantised, and the judgement of each pass over it: how a tensor is dealt to kernels, and
//! where they have their memory. `queue` has the kernels.
//!
//! The order is fixed and nothing comes back to the host: kernels that find nothing to do end at once. What is decided
//! lies in a plan on the device, where the kernels that quantise and write find it.

mod queue;

use tenfold::engine::search::Tolerance;
use tenfold::engine::search::tolerance::{DEVICE_BYTES, DEVICE_CAP, DEVICE_ERROR};
use tenfold::{Dtype, Goal};

use super::assemble::Pieces;
use crate::abi::{
    Address, CLASS_BINS, CLASS_COPIES, CType, Each, Encoding, GOAL_BOUND, GOAL_BYTES, GOAL_CAP, GOAL_MSE,
    GOAL_NMSE, GOAL_STEP, Plan, RATE_BYTES, RateArgs, SAMPLE_WINDOW, SCALE_SUMS, SCAN_AHEAD, SCAN_THREADS,
    WAY_BASIS, WAYS,
};
use crate::device::Device;
use crate::driver::Stream;
use crate::error::{Error, Result};
use crate::status::Status;

/// Ways to group values by size: the first and how many, without a basis's scales and with them.
const OWN_WAYS: (u32, u32) = (0, WAY_BASIS);
const BASIS_WAYS: (u32, u32) = (WAY_BASIS, WAYS - WAY_BASIS);

/// Windows of the sample, and of those that trials take while costs still change. A trellis of many states is searched by
/// a warp a lane, which takes so long that it has to do with fewer.
const SAMPLE: u32 = 1024;
const COARSE: u32 = 64;
const WIDE_SAMPLE: u32 = 64;
const WIDE_COARSE: u32 = 16;
/// Windows of the smallest subset.
const FEW: u32 = 8;
/// Windows of a tensor that is no more than a page of a cache.
const PAGE: u64 = 16;

/// Run of values that replaces a row if the tensor has no meaningful rows.
const RUN: u64 = 256;
/// Columns that statistics are kept of.
const COLUMNS: std::ops::RangeInclusive<u64> = 16..=65536;

/// Shared memory of the kernel that counts magnitudes by sum of scales.
const CLASSES_SHARED: u32 = SCALE_SUMS * CLASS_BINS * CLASS_COPIES * 4;
/// The most shared memory that a kernel takes, its own variables included.
const LEAST_SHARED: u32 = CLASSES_SHARED + (2 << 10);

/// A goal's number and what it asks for: bytes, an error, a step or a bound. None for a lossless blob.
pub(super) fn translate_goal(goal: Goal, values: u64, dtype: Dtype) -> Option<(u32, f64)> {
    Some(match goal {
        Goal::Bits(b) => (GOAL_BYTES, b * values as f64 / 8.0),
        Goal::Ratio(r) => (GOAL_BYTES, values as f64 * dtype.size() as f64 / r),
        Goal::MaxBytes(cap) => (GOAL_CAP, cap as f64),
        Goal::Mse(v) => (GOAL_MSE, v),
        Goal::Nmse(v) => (GOAL_NMSE, v),
        Goal::Step(v) => (GOAL_STEP, v),
        Goal::MaxError(v) => (GOAL_BOUND, v),
        _ => return None,
    })
}

/// Passes over a tensor: each is quantised, written and judged.
#[derive(Clone, Copy)]
pub(super) struct Passes {
    /// Passes that search for a step.
    pub search: u32,
    /// Those and the ones after them, which only keep to a limit.
    pub all: u32,
}

impl From<&Tolerance> for Passes {
    fn from(tolerance: &Tolerance) -> Passes {
        let search = tolerance.rounds as u32;
        Passes { search, all: search + tolerance.retreat as u32 }
    }
}

impl Passes {
    /// As many as a goal may take.
    pub(super) fn for_goal(goal: u32) -> Passes {
        match goal {
            GOAL_BYTES => (&DEVICE_BYTES).into(),
            GOAL_CAP => (&DEVICE_CAP).into(),
            GOAL_MSE | GOAL_NMSE => (&DEVICE_ERROR).into(),
            _ => Passes { search: 1, all: 1 },
        }
    }
}

/// Whether the error of what a decoder will see must be measured.
pub(super) fn needs_error(goal: u32) -> bool {
    matches!(goal, GOAL_MSE | GOAL_NMSE)
}

/// Where a search has its memory, for each tensor of a batch: the plan, what the caller is told, and a workspace. All
/// start at multiples of 16.
#[derive(Clone, Copy)]
pub(super) struct Places {
    pub plan: Each<Plan>,
    pub status: Each<Status>,
    pub workspace: Each<u8>,
    /// Tensors of the batch.
    pub batch: u32,
}

/// The search for the plans of a batch: arguments with everything in its place, and how long a workspace is.
pub(super) struct Search<'a> {
    device: &'a Device,
    pub(super) args: RateArgs,
    pub(super) len: usize,
    /// Ways to group values that are tried.
    ways: u32,
    batch: u32,
    stream: Stream,
}

/// Bytes that [`queue_plan`] and [`queue_judge`] need for an encoding beside its plan.
pub(super) fn workspace_len(device: &Device, encoding: &Encoding) -> Result<usize> {
    let places = Places { plan: Each::ZERO, status: Each::ZERO, workspace: Each::ZERO, batch: 1 };
    Ok(Search::new(device, encoding, places, Stream::DEFAULT)?.len)
}

/// Queues what decides on a plan. Workspaces have as many bytes as [`workspace_len`] says.
///
/// # Safety
/// All memory is memory of this device, is as long as it must be, does not overlap, and is neither freed nor used
/// otherwise until the stream has passed this call and all judging.
pub(super) unsafe fn queue_plan(
    device: &Device,
    encoding: &Encoding,
    places: Places,
    stream: Stream,
) -> Result<()> {
    let mut search = Search::new(device, encoding, places, stream)?;
    // SAFETY: the caller's.
    unsafe {
        search.open()?;
        search.scan()?;
        search.scan_lines()?;
        search.make_first_plan()?;
        search.refine()
    }
}

/// Queues the judgement of pass `pass`, after the kernels that quantise and write.
///
/// # Safety
/// As for [`queue_plan`], whose memory is given again.
pub(super) unsafe fn queue_judge(
    device: &Device,
    encoding: &Encoding,
    places: Places,
    pass: u32,
    stream: Stream,
) -> Result<()> {
    let mut search = Search::new(device, encoding, places, stream)?;
    // SAFETY: the caller's.
    unsafe { search.judge(pass, Passes::for_goal(encoding.goal)) }
}

impl<'a> Search<'a> {
    pub(super) fn new(
        device: &'a Device,
        encoding: &Encoding,
        places: Places,
        stream: Stream,
    ) -> Result<Search<'a>> {
        let dtype = Dtype::from_id(encoding.dtype as u8).filter(|d| d.is_float());
        let Some(dtype) = dtype else {
            return Err(Error::InvalidArgument(
                "only floats can be quantised: ask for the goal lossless".into(),
            ));
        };
        if device.properties().shared_per_block < LEAST_SHARED {
            return Err(Error::NoDevice("this device has too little shared memory to encode".into()));
        }
        let n = encoding.values;
        let rows = n.checked_div(encoding.cols).unwrap_or(0);
        let known = encoding.scales.get() != 0 && COLUMNS.contains(&encoding.cols);
        let tabular = known || (rows >= 8 && COLUMNS.contains(&encoding.cols));
        let (first_way, ways) = if known { BASIS_WAYS } else { OWN_WAYS };
        let width = if tabular { encoding.cols } else { RUN };
        let rows = n.div_ceil(width);

        // How the tensor is dealt to the blocks that scan it.
        let per_load = 16 / dtype.size() as u64;
        let loads = width.div_ceil(per_load);
        let row_threads = loads.next_power_of_two().min(SCAN_THREADS).ilog2();
        let stripes = loads.div_ceil(1 << row_threads);
        let together = (SCAN_THREADS >> row_threads) * SCAN_AHEAD;
        // What a band adds up takes bytes too: bands are of several rows a thread where that leaves blocks enough.
        let multiprocessors = device.properties().multiprocessors as u64;
        let bands_of = |blocks: u64, rows: u64| (multiprocessors * blocks / stripes).clamp(1, rows.max(1));
        let bands = bands_of(16, rows.div_ceil(4 * together)).max(bands_of(4, rows.div_ceil(together)));
        let band_rows = rows.div_ceil(bands).next_multiple_of(together);
        let bands = rows.div_ceil(band_rows.max(1));
        let pieces = stripes * (1u64 << row_threads).div_ceil(32);

        let windows = n.div_ceil(SAMPLE_WINDOW);
        let taken = windows.min(SAMPLE as u64);
        let (fine, coarse) = if encoding.nu > 3 { (WIDE_SAMPLE, WIDE_COARSE) } else { (SAMPLE, COARSE) };
        let small = |v: u64| {
            u32::try_from(v)
                .map_err(|_| Error::InvalidArgument("the tensor is too large for one launch".into()))
        };
        let stride = |count: u32| (taken as u32).div_ceil(count).max(1);
        // Of a page a quarter: what is found is looked at again.
        let coarse = if taken <= PAGE { taken.div_ceil(4).max(1) as u32 } else { coarse };

        let mut room = Pieces::new(places.workspace);
        let [per_row, lines, columns] = [pieces, rows, width].map(|n| n as usize);
        let samples = (taken * SAMPLE_WINDOW) as usize;
        let args = RateArgs {
            encoding: *encoding,
            plan: places.plan,
            rate: room.take::<u8>(RATE_BYTES, 1).cast(),
            status: places.status,
            row_parts: room.take(lines, per_row),
            col_parts: room.take(if tabular { bands as usize } else { 0 }, columns),
            parts: room.take(stripes as usize, bands as usize),
            row_logs: room.take(lines, 1),
            col_logs: room.take(columns, 1),
            row_scale: room.take(lines, 1),
            col_scale: room.take(columns, 1),
            sample: room.take(samples, 1),
            sample_class: room.take(samples, 1),
            width,
            rows,
            tabular: tabular as u32,
            stripes: small(stripes)?,
            bands: small(bands)?,
            band_rows: small(band_rows)?,
            row_threads,
            first_way,
            windows: small(windows)?,
            taken: taken as u32,
            coarse_stride: stride(coarse),
            fine_stride: stride(fine),
            few_stride: stride(FEW),
            mode: 0,
            pass: 0,
            passes: 1,
            search_passes: 1,
            table_values: n.max(1),
            pages: Address::NONE,
            pages_apart: 0,
        };
        Ok(Search { device, args, len: room.len()?, ways, batch: places.batch, stream })
    }
}

#[cfg(all(test, feature = "emulator"))]
#[allow(clippy::unwrap_used)]
mod tests;

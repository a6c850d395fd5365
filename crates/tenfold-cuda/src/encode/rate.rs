//! The queue of kernels that decide how a tensor is quantised, and of those that judge a pass over it.
//!
//! The order is fixed and nothing comes back to the host: kernels that find nothing to do end at once. What is decided
//! lies in a plan on the device, where the kernels that quantise and write find it.

use tenfold::{Dtype, Goal};

use super::assemble::Each;
use crate::constants::{MAX_DIMS, RATE_BYTES, TRIAL_NARROW_SHARED, TRIAL_SHARED};
use crate::device::Device;
use crate::driver::{Shape, Stream};
use crate::error::{Error, Result};

/// Goals as the kernels number them.
pub(super) const GOAL_BYTES: u32 = 0;
pub(super) const GOAL_CAP: u32 = 1;
const GOAL_MSE: u32 = 2;
const GOAL_NMSE: u32 = 3;
pub(super) const GOAL_STEP: u32 = 4;
const GOAL_BOUND: u32 = 5;

/// What trials are for, as the kernels number it.
const TRIAL_COARSE: u32 = 0;
const TRIAL_LOW: u32 = 1;
const TRIAL_COSTS: u32 = 2;
const TRIAL_STEP: u32 = 3;
const TRIAL_POINTS: u32 = 4;
const TRIAL_COUNTS: u32 = 5;

/// Ways to group values by size, as the kernels number them: without a basis's scales from the first on, with them from
/// another, and how many of each.
const OWN_WAYS: (u32, u64) = (0, 9);
const BASIS_WAYS: (u32, u64) = (9, 2);
/// Columns by a basis's scales and nothing else.
const COLUMN_WAYS: (u32, u64) = (10, 1);
/// Passes in which a step is looked for.
const SEARCH_PASSES: u32 = 4;

/// Trials while costs still change, and with costs held.
const COARSE_ROUNDS: u32 = 6;
const FINE_ROUNDS: u32 = 5;

/// Values of a window of the sample.
const WINDOW: u64 = 4096;
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

/// Threads of a block that scans, and rows that each of them reads ahead.
const SCAN_THREADS: u64 = 256;
const SCAN_AHEAD: u64 = 4;
/// Run of values that stands in for a row where the tensor has none to speak of.
const RUN: u64 = 256;
/// Bands of rows that a thread adds up by itself.
const FEW_BANDS: u32 = 32;
/// Columns that statistics are kept of.
const COLUMNS: std::ops::RangeInclusive<u64> = 16..=65536;

/// Shared memory of the kernels that count magnitudes: bins of an exponent and six bits of mantissa, and 48 bins for each
/// of 128 sums of scales in four copies.
const FIRST_SHARED: u32 = ((0x7f80_0000 >> 17) + 4) * 4;
const CLASSES_SHARED: u32 = 128 * 48 * 4 * 4;
/// The most shared memory that a kernel takes, its own variables included.
const LEAST_SHARED: u32 = CLASSES_SHARED + (2 << 10);

/// The tensor and the goal, as the kernels have it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    pub data: Each,
    /// Elements, and those of a row.
    pub values: u64,
    pub cols: u64,
    pub dtype: u32,
    pub goal: u32,
    pub target: f64,
    /// log2 of the trellis's states; 0 for a scalar quantiser.
    pub nu: u32,
    pub lanes: u32,
    pub ticks: u32,
    pub tile_values: u64,
    pub tiles: u64,
    pub out: Each,
    pub dims: u32,
    pub shape: [u64; MAX_DIMS],
    /// Dtype of the header, and its transforms with their number; no bytes for none.
    pub header_dtype: u32,
    pub transforms_len: u32,
    pub header_transforms: u64,
    /// Scales of the columns that the last of them knows, a byte each; 0 for none.
    pub scales: u64,
    /// Each tensor's own position among the transforms, or none, and where in the header it and the length of its step are.
    pub positions: Each,
    pub position_at: u32,
    pub length_at: u32,
}

/// A goal's number and what is to be reached: bytes, an error, a step or a bound. None for a lossless blob.
pub(super) fn goal_of(goal: Goal, values: u64, dtype: Dtype) -> Option<(u32, f64)> {
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

/// Passes over the tensor that a goal may take: each is quantised, written and judged.
pub(super) fn passes(goal: u32) -> u32 {
    match goal {
        GOAL_BYTES => 4,
        // After the search, steps so coarse that anything fits that can.
        GOAL_CAP => 10,
        GOAL_MSE | GOAL_NMSE => 5,
        _ => 1,
    }
}

/// Whether the error of what a decoder will see must be measured.
pub(super) fn measures(goal: u32) -> bool {
    matches!(goal, GOAL_MSE | GOAL_NMSE)
}

/// Arguments of every kernel of a search.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Args {
    pub job: Job,
    plan: Each,
    pub rate: Each,
    status: Each,
    row_parts: Each,
    col_parts: Each,
    parts: Each,
    row_logs: Each,
    col_logs: Each,
    row_scale: Each,
    col_scale: Each,
    sample: Each,
    sample_class: Each,
    width: u64,
    rows: u64,
    tabular: u32,
    stripes: u32,
    bands: u32,
    band_rows: u32,
    row_threads: u32,
    first_way: u32,
    windows: u32,
    taken: u32,
    coarse_stride: u32,
    fine_stride: u32,
    few_stride: u32,
    mode: u32,
    pass: u32,
    passes: u32,
    search_passes: u32,
    table_values: u64,
    pages: Each,
}

/// Where a search has its memory, for each tensor of a batch: the plan, what the caller is told, and a workspace. All
/// start at multiples of 16.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    pub plan: Each,
    pub status: Each,
    pub workspace: Each,
    /// Tensors of the batch.
    pub batch: u32,
}

/// The search for the plans of a batch: arguments with everything in its place, and how long a workspace is.
pub(super) struct Search<'a> {
    device: &'a Device,
    pub(super) args: Args,
    pub(super) len: usize,
    /// Ways to group values that are tried.
    ways: u64,
    batch: u32,
    stream: Stream,
}

/// Bytes that [`queue_plan`] and [`queue_judge`] need for a job beside its plan.
pub(super) fn workspace_len(device: &Device, job: &Job) -> Result<usize> {
    let nowhere = Each::one(0);
    let places = Places { plan: nowhere, status: nowhere, workspace: nowhere, batch: 1 };
    Ok(Search::new(device, job, places, Stream::DEFAULT)?.len)
}

/// Queues what decides on a plan. Plans have room for `PLAN_BYTES`, workspaces for what [`workspace_len`] says.
///
/// # Safety
/// All memory is memory of this device, is as long as it must be, does not overlap, and is neither freed nor used
/// otherwise until the stream has passed this call and all judging.
pub(super) unsafe fn queue_plan(device: &Device, job: &Job, places: Places, stream: Stream) -> Result<()> {
    let mut search = Search::new(device, job, places, stream)?;
    // SAFETY: the caller's.
    unsafe {
        search.open()?;
        search.statistics()?;
        search.lines()?;
        search.first_plan()?;
        search.refine()
    }
}

/// Queues the judgement of pass `pass` of [`passes`], after the kernels that quantise and write.
///
/// # Safety
/// As for [`queue_plan`], whose memory is given again.
pub(super) unsafe fn queue_judge(
    device: &Device,
    job: &Job,
    places: Places,
    pass: u32,
    stream: Stream,
) -> Result<()> {
    let mut search = Search::new(device, job, places, stream)?;
    // SAFETY: the caller's.
    unsafe { search.judge(pass, passes(job.goal), SEARCH_PASSES) }
}

impl<'a> Search<'a> {
    pub(super) fn new(device: &'a Device, job: &Job, places: Places, stream: Stream) -> Result<Search<'a>> {
        let dtype = Dtype::from_id(job.dtype as u8).filter(|d| d.is_float());
        let Some(dtype) = dtype else {
            return Err(Error::InvalidArgument("only floats are quantised".into()));
        };
        if device.properties().shared_per_block < LEAST_SHARED {
            return Err(Error::NoDevice("this device has too little shared memory to encode".into()));
        }
        let n = job.values;
        let rows = n.checked_div(job.cols).unwrap_or(0);
        let known = job.scales != 0 && COLUMNS.contains(&job.cols);
        let tabular = known || (rows >= 8 && COLUMNS.contains(&job.cols));
        let (first_way, ways) = if known { BASIS_WAYS } else { OWN_WAYS };
        let width = if tabular { job.cols } else { RUN };
        let rows = n.div_ceil(width);

        // How the tensor is dealt to the blocks that scan it.
        let per_load = 16 / dtype.size() as u64;
        let loads = width.div_ceil(per_load);
        let row_threads = loads.next_power_of_two().min(SCAN_THREADS).ilog2();
        let stripes = loads.div_ceil(1 << row_threads);
        let together = (SCAN_THREADS >> row_threads) * SCAN_AHEAD;
        let blocks = device.properties().multiprocessors as u64 * 16;
        let bands = (blocks / stripes).clamp(1, rows.div_ceil(together).max(1));
        let band_rows = rows.div_ceil(bands).next_multiple_of(together);
        let bands = rows.div_ceil(band_rows.max(1));
        let pieces = stripes * (1u64 << row_threads).div_ceil(32);

        let windows = n.div_ceil(WINDOW);
        let taken = windows.min(SAMPLE as u64);
        let (fine, coarse) = if job.nu > 3 { (WIDE_SAMPLE, WIDE_COARSE) } else { (SAMPLE, COARSE) };
        let small = |v: u64| {
            u32::try_from(v).map_err(|_| Error::InvalidArgument("a tensor too large for a launch".into()))
        };
        let stride = |count: u32| (taken as u32).div_ceil(count).max(1);
        // Of a page a quarter: what is found is looked at again.
        let coarse = if taken <= PAGE { taken.div_ceil(4).max(1) as u32 } else { coarse };

        let mut at = 0;
        let mut take = |bytes: u64| {
            let here = Each { first: places.workspace.first + at, apart: places.workspace.apart };
            at += bytes.next_multiple_of(16);
            here
        };
        let args = Args {
            job: *job,
            plan: places.plan,
            rate: take(RATE_BYTES as u64),
            status: places.status,
            row_parts: take(pieces * rows * 4),
            col_parts: take(if tabular { bands * width * 4 } else { 0 }),
            parts: take(stripes * bands * 32),
            row_logs: take(rows * 4),
            col_logs: take(width * 4),
            row_scale: take(rows),
            col_scale: take(width),
            sample: take(taken * WINDOW * 4),
            sample_class: take(taken * WINDOW),
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
            search_passes: SEARCH_PASSES,
            table_values: n.max(1),
            pages: Each::one(0),
        };
        let len = usize::try_from(at)
            .map_err(|_| Error::InvalidArgument("a workspace larger than the address space".into()))?;
        Ok(Search { device, args, len, ways, batch: places.batch, stream })
    }

    unsafe fn launch(&self, kernel: &'static str, grid: u64, block: u32, shared: u32) -> Result<()> {
        let shape = Shape { grid: grid.clamp(1, 1 << 30) as u32, block, shared, batch: self.batch };
        // SAFETY: the caller's.
        unsafe { self.device.launch(kernel, shape, &self.args, self.stream) }
    }

    /// Blocks of each tensor: as many as there is work for, but no more than fill the device some times over.
    fn blocks(&self, work: u64) -> u64 {
        work.min((self.device.properties().multiprocessors as u64 * 8).div_ceil(self.batch as u64))
    }

    /// For a tensor that is made of pages, which a search knows: columns by a basis alone make their classes, so that one
    /// map holds for all, and tables are those of a page.
    pub(super) fn of_pages(mut self, pages: &Search<'_>) -> Search<'a> {
        (self.args.first_way, self.ways) = COLUMN_WAYS;
        self.args.table_values = pages.args.job.values;
        self.args.pages = pages.args.rate;
        self
    }

    /// Judges a pass; see [`queue_judge`].
    pub(super) unsafe fn judge(&mut self, pass: u32, passes: u32, search_passes: u32) -> Result<()> {
        (self.args.pass, self.args.passes, self.args.search_passes) = (pass, passes, search_passes);
        // SAFETY: the caller's.
        unsafe { self.launch("rate_settle_pass", 1, 32, 0) }
    }

    /// 0. Nothing is known.
    pub(super) unsafe fn open(&self) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.launch("rate_scan_open", self.blocks(8), SCAN_THREADS as u32, 0) }
    }

    /// 1. One look at everything, and another in a better unit where the device finds that it must.
    pub(super) unsafe fn statistics(&mut self) -> Result<()> {
        let args = &self.args;
        let values = args.job.values;
        let blocks = args.stripes as u64 * args.bands as u64;
        let (kernel, again) = match Dtype::from_id(args.job.dtype as u8) {
            Some(Dtype::F8E4M3) => ("rate_scan_f8_e4m3", false),
            Some(Dtype::F8E5M2) => ("rate_scan_f8_e5m2", false),
            Some(Dtype::F16) => ("rate_scan_f16", false),
            Some(Dtype::Bf16) => ("rate_scan_bf16", true),
            Some(Dtype::F32) => ("rate_scan_f32", true),
            _ => ("rate_scan_f64", false),
        };
        // SAFETY: the caller's.
        unsafe {
            if values > 0 && kernel == "rate_scan_f64" {
                self.launch(
                    "rate_scan_exponents",
                    self.blocks(values.div_ceil(SCAN_THREADS)),
                    SCAN_THREADS as u32,
                    0,
                )?;
                self.launch("rate_scan_unit", 1, 32, 0)?;
            }
            for mode in 0..1 + again as u32 {
                self.args.mode = mode;
                if values > 0 {
                    self.launch(kernel, blocks, SCAN_THREADS as u32, 0)?;
                }
                self.launch("rate_scan_settle", 1, 512, 0)?;
            }
            self.args.mode = 0;
        }
        Ok(())
    }

    /// 2. How large rows and columns are, as far as nobody knows.
    unsafe fn lines(&self) -> Result<()> {
        let (rows, width, threads) = (self.args.rows, self.args.width, SCAN_THREADS as u32);
        if self.args.job.values == 0 {
            return Ok(());
        }
        // SAFETY: the caller's.
        unsafe {
            self.launch("rate_scan_rows", self.blocks(rows.div_ceil(SCAN_THREADS)), threads, 0)?;
            if self.args.tabular == 0 || self.args.first_way != OWN_WAYS.0 {
                return Ok(());
            }
            match self.args.bands <= FEW_BANDS {
                true => self.launch("rate_scan_cols_few", width.div_ceil(SCAN_THREADS), threads, 0),
                false => self.launch("rate_scan_cols", width.div_ceil(32), 1024, 0),
            }
        }
    }

    /// 3. A sample, and from it a step, classes and low bits.
    pub(super) unsafe fn first_plan(&mut self) -> Result<()> {
        let taken = self.args.taken as u64;
        // SAFETY: the caller's.
        unsafe {
            if taken > 0 {
                self.launch("rate_fit_sample", self.blocks(taken), 256, 0)?;
            }
            self.launch("rate_fit_first", 1, 1024, FIRST_SHARED)?;
            if taken > 0 {
                // Tensors of a batch keep each other's warps busy: small blocks, and no copies of histograms.
                let (threads, shared) =
                    if self.batch > 1 { (256, CLASSES_SHARED / 4) } else { (1024, CLASSES_SHARED) };
                self.launch("rate_classes_try", self.ways, threads, shared)?;
                let work = taken.max(self.args.rows.div_ceil(256));
                self.launch("rate_classes_apply", self.blocks(work), 256, 0)?;
                self.low()?;
            }
        }
        Ok(())
    }

    /// Low bits of each class.
    unsafe fn low(&self) -> Result<()> {
        let threads = if self.batch > 1 { 256 } else { 1024 };
        // SAFETY: the caller's.
        unsafe { self.launch("rate_fit_low", tenfold::format::MAX_CLASSES as u64, threads, 0) }
    }

    /// 4. Costs and step on the sample: first both in turn, then, costs held, the step alone; reconstruction points.
    pub(super) unsafe fn refine(&mut self) -> Result<()> {
        let goal = self.args.job.goal;
        if self.args.taken == 0 {
            return Ok(());
        }
        // SAFETY: the caller's.
        unsafe {
            if goal == GOAL_BOUND {
                // Nothing is searched; but whether any class has low bits is still to be noted.
                return self.launch("rate_settle_trial", 1, 512, 0);
            }
            for _ in 0..if goal == GOAL_STEP { 4 } else { COARSE_ROUNDS } {
                self.trial(TRIAL_COARSE)?;
            }
            self.args.mode = 1;
            self.low()?;
            self.trial(TRIAL_LOW)?;
            if self.args.job.nu > 0 {
                self.trial(TRIAL_COSTS)?;
            }
            // Points change the error but not the size: a step for an error is found with them in place.
            if measures(goal) {
                self.trial(TRIAL_POINTS)?;
            }
            for _ in 0..if goal == GOAL_STEP { 0 } else { FINE_ROUNDS } {
                self.trial(TRIAL_STEP)?;
            }
            if measures(goal) {
                return Ok(());
            }
            self.trial(TRIAL_POINTS)
        }
    }

    /// Quantises the sample and settles what it says.
    unsafe fn trial(&mut self, mode: u32) -> Result<()> {
        // SAFETY: the caller's.
        unsafe {
            self.quantise(mode)?;
            self.launch("rate_settle_trial", 1, 512, 0)
        }
    }

    /// Quantises the sample and leaves the counts of its symbols.
    pub(super) unsafe fn count(&mut self) -> Result<()> {
        match self.args.taken {
            0 => Ok(()),
            // SAFETY: the caller's.
            _ => unsafe { self.quantise(TRIAL_COUNTS) },
        }
    }

    /// Which machine is in use only the device knows.
    unsafe fn quantise(&mut self, mode: u32) -> Result<()> {
        self.args.mode = mode;
        let stride = if mode <= TRIAL_LOW { self.args.coarse_stride } else { self.args.fine_stride };
        let windows = self.args.taken.div_ceil(stride) as u64;
        let multiprocessors = self.device.properties().multiprocessors as u64;
        // Blocks have eight warps, or four. A warp takes a window, or a lane of one; few windows are spread over all of the device.
        let most = |blocks: u64| blocks.div_ceil(self.batch as u64);
        let narrow =
            windows.div_ceil(8).min(most(multiprocessors * 8)).max(windows.min(most(multiprocessors)));
        let wide = (windows * 8).min(most(multiprocessors * 2));
        // SAFETY: the caller's.
        unsafe {
            self.launch("rate_trial_narrow", narrow, 256, TRIAL_NARROW_SHARED as u32)?;
            if self.args.job.nu > 3 {
                self.launch("rate_trial_wide", wide, 128, TRIAL_SHARED as u32)?;
            }
        }
        Ok(())
    }
}

#[cfg(all(test, feature = "emulator"))]
#[path = "rate_tests.rs"]
#[allow(clippy::unwrap_used)]
mod tests;

//! The kernels of a search, in their order.

use tenfold::Dtype;
use tenfold::format::MAX_CLASSES;

use super::{CLASSES_SHARED, OWN_WAYS, Passes, Search, needs_error};
use crate::abi::{
    self, CLASS_COPIES, COARSE_ROUNDS, COARSE_SETTLING, Each, FINE_ROUNDS, FIT_BINS, FIT_THREADS, GOAL_BOUND,
    GOAL_STEP, Kernel, RateArgs, SCAN_THREADS, SUM_THREADS, TRIAL_COARSE, TRIAL_COSTS, TRIAL_COUNTS,
    TRIAL_LOW, TRIAL_NARROW, TRIAL_NARROW_SHARED, TRIAL_PARTS, TRIAL_POINTS, TRIAL_SHARED, TRIAL_STEP,
    TRIAL_THIN, TRIAL_WIDE, WAYS, WINDOW_THREADS,
};
use crate::driver::Shape;
use crate::error::Result;

/// Columns by a basis's scales and nothing else: the first such way, and how many.
const COLUMN_WAYS: (u32, u32) = (WAYS - 1, 1);
/// Bands of rows that a thread adds up by itself.
const FEW_BANDS: u32 = 32;
/// Shared memory of the kernel that counts magnitudes by exponent and a part of the mantissa.
const FIRST_SHARED: u32 = (FIT_BINS + 4) * 4;

impl<'a> Search<'a> {
    unsafe fn launch(&self, kernel: Kernel<RateArgs>, grid: u64, block: u32, shared: u32) -> Result<()> {
        let shape = Shape { grid: grid.clamp(1, 1 << 30) as u32, block, shared, batch: self.batch };
        // SAFETY: the caller's.
        unsafe { self.device.launch(kernel, shape, &self.args, self.stream) }
    }

    /// Blocks of each tensor: as many as there is work for, but no more than fill the device some times over.
    fn blocks(&self, work: u64) -> u64 {
        work.min((self.device.properties().multiprocessors as u64 * 8).div_ceil(self.batch as u64))
    }

    /// With classes of columns by a basis, and nothing else.
    pub(in crate::encode) fn by_columns(mut self) -> Search<'a> {
        (self.args.first_way, self.ways) = COLUMN_WAYS;
        self
    }

    /// For a tensor that is made of pages, which a search knows: columns by a basis alone make their classes, so that one
    /// map holds for all, and tables are those of a page.
    pub(in crate::encode) fn with_pages(mut self, pages: &Search<'_>) -> Search<'a> {
        self = self.by_columns();
        self.args.table_values = pages.args.encoding.values;
        let Each { first, apart } = pages.args.rate;
        (self.args.pages, self.args.pages_apart) = (first.cast(), apart);
        self
    }

    /// Judges a pass; see [`queue_judge`].
    pub(in crate::encode) unsafe fn judge(&mut self, pass: u32, passes: Passes) -> Result<()> {
        (self.args.pass, self.args.passes, self.args.search_passes) = (pass, passes.all, passes.search);
        // SAFETY: the caller's.
        unsafe { self.launch(abi::rate_judge_pass, 1, 32, 0) }
    }

    /// 0. Nothing is known.
    pub(in crate::encode) unsafe fn open(&self) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.launch(abi::rate_scan_open, self.blocks(8), SCAN_THREADS as u32, 0) }
    }

    /// 1. One look at everything, and another in a better unit where the device finds that it must.
    pub(in crate::encode) unsafe fn scan(&mut self) -> Result<()> {
        let args = &self.args;
        let values = args.encoding.values;
        let blocks = args.stripes as u64 * args.bands as u64;
        let dtype = Dtype::from_id(args.encoding.dtype as u8).unwrap_or(Dtype::F64);
        let again = matches!(dtype, Dtype::Bf16 | Dtype::F32);
        // SAFETY: the caller's.
        unsafe {
            if values > 0 && dtype == Dtype::F64 {
                self.launch(
                    abi::rate_scan_exponents,
                    self.blocks(values.div_ceil(SCAN_THREADS)),
                    SCAN_THREADS as u32,
                    0,
                )?;
                self.launch(abi::rate_scan_unit, 1, 32, 0)?;
            }
            for mode in 0..1 + again as u32 {
                self.args.mode = mode;
                if values > 0 {
                    self.launch(abi::rate_scan.select(dtype), blocks, SCAN_THREADS as u32, 0)?;
                }
                self.launch(abi::rate_scan_sum, 1, SUM_THREADS, 0)?;
            }
            self.args.mode = 0;
        }
        Ok(())
    }

    /// 2. Sizes of rows and columns that are not known yet.
    pub(super) unsafe fn scan_lines(&self) -> Result<()> {
        let (rows, width, threads) = (self.args.rows, self.args.width, SCAN_THREADS as u32);
        if self.args.encoding.values == 0 {
            return Ok(());
        }
        // SAFETY: the caller's.
        unsafe {
            self.launch(abi::rate_scan_rows, self.blocks(rows.div_ceil(SCAN_THREADS)), threads, 0)?;
            if self.args.tabular == 0 || self.args.first_way != OWN_WAYS.0 {
                return Ok(());
            }
            match self.args.bands <= FEW_BANDS {
                true => self.launch(abi::rate_scan_cols_few, width.div_ceil(SCAN_THREADS), threads, 0),
                false => self.launch(abi::rate_scan_cols, width.div_ceil(32), 1024, 0),
            }
        }
    }

    /// 3. A sample, and from it a step, classes and low bits.
    pub(in crate::encode) unsafe fn make_first_plan(&mut self) -> Result<()> {
        let taken = self.args.taken as u64;
        // SAFETY: the caller's.
        unsafe {
            if taken > 0 {
                self.launch(abi::rate_fit_sample, self.blocks(taken), WINDOW_THREADS, 0)?;
            }
            self.launch(abi::rate_fit_first, 1, FIT_THREADS, FIRST_SHARED)?;
            if taken > 0 {
                // Tensors of a batch keep each other's warps busy: small blocks, and no copies of histograms.
                let (threads, shared) = if self.batch > 1 {
                    (256, CLASSES_SHARED / CLASS_COPIES)
                } else {
                    (FIT_THREADS, CLASSES_SHARED)
                };
                self.launch(abi::rate_classes_try, u64::from(self.ways), threads, shared)?;
                let work = taken.max(self.args.rows.div_ceil(256));
                self.launch(abi::rate_classes_apply, self.blocks(work), WINDOW_THREADS, 0)?;
                self.choose_low_bits()?;
            }
        }
        Ok(())
    }

    /// Low bits of each class.
    unsafe fn choose_low_bits(&self) -> Result<()> {
        let threads = if self.batch > 1 { 256 } else { FIT_THREADS };
        // SAFETY: the caller's.
        unsafe { self.launch(abi::rate_fit_low, MAX_CLASSES as u64, threads, 0) }
    }

    /// 4. Costs and step on the sample: first both in turn, then, costs held, the step alone; reconstruction points.
    pub(in crate::encode) unsafe fn refine(&mut self) -> Result<()> {
        let goal = self.args.encoding.goal;
        if self.args.taken == 0 {
            return Ok(());
        }
        // SAFETY: the caller's.
        unsafe {
            if goal == GOAL_BOUND {
                return Ok(());
            }
            // With a step given, only the costs settle.
            for _ in 0..if goal == GOAL_STEP { COARSE_SETTLING } else { COARSE_ROUNDS } {
                self.run_trial(TRIAL_COARSE)?;
            }
            self.args.mode = 1;
            self.choose_low_bits()?;
            self.run_trial(TRIAL_LOW)?;
            if self.args.encoding.nu > 0 {
                self.run_trial(TRIAL_COSTS)?;
            }
            // Points change the error but not the size: a step for an error is found with them in place.
            if needs_error(goal) {
                self.run_trial(TRIAL_POINTS)?;
            }
            // Otherwise trials for a step see to them, and where a step is given one of their own.
            if goal == GOAL_STEP {
                return self.run_trial(TRIAL_POINTS);
            }
            for _ in 0..FINE_ROUNDS {
                self.run_trial(TRIAL_STEP)?;
            }
            Ok(())
        }
    }

    /// Quantises the sample and leaves the counts of its symbols.
    pub(in crate::encode) unsafe fn count(&mut self) -> Result<()> {
        match self.args.taken {
            0 => Ok(()),
            // SAFETY: the caller's.
            _ => unsafe { self.run_trial(TRIAL_COUNTS) },
        }
    }

    /// Quantises the sample and, unless symbols are only counted, draws the conclusions. Which machine is in use only the
    /// device knows.
    unsafe fn run_trial(&mut self, mode: u32) -> Result<()> {
        self.args.mode = mode;
        let stride = if mode <= TRIAL_LOW { self.args.coarse_stride } else { self.args.fine_stride };
        let windows = self.args.taken.div_ceil(stride) as u64;
        let thin = mode > TRIAL_LOW && mode != TRIAL_COUNTS && windows >= u64::from(TRIAL_THIN);
        let parts = windows * if thin { 1 } else { u64::from(TRIAL_PARTS) };
        let multiprocessors = self.device.properties().multiprocessors as u64;
        // A warp takes a part of a window, or a lane of one; few are spread over all of the device.
        let most = |blocks: u64| blocks.div_ceil(self.batch as u64);
        let narrow = parts
            .div_ceil(u64::from(TRIAL_NARROW))
            .min(most(multiprocessors * 8))
            .max(parts.min(most(multiprocessors)));
        let wide = (windows * 8).min(most(multiprocessors * 2));
        // SAFETY: the caller's.
        unsafe {
            self.launch(abi::rate_trial_narrow, narrow, TRIAL_NARROW * 32, TRIAL_NARROW_SHARED)?;
            if self.args.encoding.nu > 3 {
                self.launch(abi::rate_trial_wide, wide, TRIAL_WIDE * 32, TRIAL_SHARED)?;
            }
        }
        Ok(())
    }
}

//! One plan for many tensors: pages of a cache behind a basis, which knows how large their coordinates are.
//!
//! All pages, seen as one tensor, make classes, costs, tables and a header. Each page has a step of its own, found by what
//! its symbols would take in those tables; what is left is to pack and write.

use tenfold::engine::search::tolerance::DEVICE_PAGES;
use tenfold::{Effort, Goal};

use super::layout::{Layout, Shapes};
use super::levels::{self, Encoder};
use super::rate::{self, Passes, Search};
use super::{Batch, Call, EncodeRequest, Planning};
use crate::abi::{
    self, CType, Each, Encoding, GOAL_BYTES, GOAL_CAP, GOAL_STEP, Kernel, SHARE_THREADS, ShareArgs,
};
use crate::device::Device;
use crate::driver::Shape;
use crate::error::{Error, Result};

/// Values of a page, at most: kernels count them in 32 bits.
const MOST_VALUES: usize = 1 << 31;

/// Refuses what has no plan for many.
pub(super) fn check(request: &EncodeRequest, values: usize, dense: bool) -> Result<()> {
    let refuse = |why: &str| Err(Error::InvalidArgument(format!("pages are planned together {why}")));
    if request.options.effort != Effort::Fast {
        return refuse("only with effort fast");
    }
    if !matches!(request.options.goal, Goal::Bits(_) | Goal::Ratio(_) | Goal::MaxBytes(_) | Goal::Step(_)) {
        return refuse("only for a number of bytes or a step, not for an error");
    }
    if request.behind.as_ref().is_none_or(|b| b.scales == 0) {
        return refuse("only with a basis that has the deviations of its coordinates");
    }
    if values > MOST_VALUES {
        return refuse("only if they have at most 2^31 values");
    }
    if !dense {
        return refuse("only if they lie one directly after the other");
    }
    Ok(())
}

/// All pages as one tensor, for the search; and for the tables, which have no tiles to clear.
fn join_pages(encoding: &Encoding, count: u64) -> (Encoding, Encoding) {
    let mut all = *encoding;
    all.data = Each::one(encoding.data.first);
    all.out = Each::one(encoding.out.first);
    all.positions = Each::ZERO;
    // Pages have the classes of a basis's columns, which differ from one to the next.
    all.may_pair = 0;
    all.values = encoding.values.saturating_mul(count);
    all.tiles = encoding.tiles.saturating_mul(count);
    if matches!(encoding.goal, GOAL_BYTES | GOAL_CAP) {
        all.target = encoding.target * count as f64;
    }
    let tables = Encoding { tiles: 0, ..all };
    (all, tables)
}

/// Bytes of workspace for what is made once.
pub(super) fn workspace_len(
    device: &Device,
    request: &EncodeRequest,
    values: usize,
    count: usize,
) -> Result<usize> {
    let encoding = Encoding::new(request, values, Batch::ONE, 0)?;
    let (all, tables) = join_pages(&encoding, count as u64);
    let shapes = Shapes::new(device, &tables, Batch::ONE, None)?;
    Layout::new(&tables, &shapes, rate::workspace_len(device, &all)?, Each::ZERO).pieces.len()
}

/// Queues the encoding of a batch by one plan.
///
/// # Safety
/// As for [`super::encode`].
pub(super) unsafe fn encode(call: &Call, pages: Encoder) -> Result<()> {
    let Call { device, request, values, batch, workspace, stream, .. } = *call;
    let encoding = pages.pass.encoding;
    let (all, tables) = join_pages(&encoding, u64::from(batch.count));

    // What all pages share lies after what each page has.
    let (_, stride) = levels::workspace_len(device, request, values, batch, Planning::Together)?;
    let used = stride.saturating_mul(batch.count as usize);
    let len = workspace_len(device, request, values, batch.count as usize)?;
    let shared = workspace.part(used, len)?;
    let once = Encoder::for_tables(call, &tables, rate::workspace_len(device, &all)?, shared)?;
    let mut search = Search::new(device, &encoding, pages.places, stream)?;
    let mut plan = Search::new(device, &all, once.places, stream)?.with_pages(&search);

    let share = ShareArgs {
        page: search.args,
        rate: plan.args.rate.first,
        plan: once.pass.plan.first,
        freq: once.pass.freq.first.cast(),
        counts: once.pass.counts.first,
        header: once.pass.header.first.cast(),
        header_len: once.pass.header_len.first.cast(),
        page_header: pages.pass.header,
        page_header_len: pages.pass.header_len,
        pass: pages.pass.pass,
        pages: batch.count,
    };
    let launch = |kernel: Kernel<ShareArgs>, batch: u32| {
        let shape = Shape { grid: 1, block: SHARE_THREADS, shared: 0, batch };
        // SAFETY: the caller's.
        unsafe { device.launch(kernel, shape, &share, stream) }
    };
    let pages = pages.with_tables(Each::one(once.pass.freq.first));
    // SAFETY: the caller's; the pieces of the workspace do not overlap.
    unsafe {
        // 1. What each page has seen of itself, and what that makes together.
        pages.open()?;
        search.open()?;
        search.scan()?;
        launch(abi::rate_share_scale, batch.count)?;
        once.open()?;
        plan.open()?;
        launch(abi::rate_share_open, 1)?;
        // 2. The plan, its tables and its header.
        plan.make_first_plan()?;
        plan.refine()?;
        plan.count()?;
        once.begin()?;
        launch(abi::rate_share_counts, 1)?;
        once.queue_tables()?;
        // 3. Each page's step.
        launch(abi::rate_share_begin, batch.count)?;
        launch(abi::rate_share_step, batch.count)?;
        // 4. Blobs.
        let passes =
            if encoding.goal == GOAL_STEP { Passes::for_goal(GOAL_STEP) } else { (&DEVICE_PAGES).into() };
        for pass in 0..passes.all {
            pages.begin()?;
            launch(abi::rate_share_header, batch.count)?;
            pages.finish()?;
            search.judge(pass, passes)?;
        }
        pages.close(false)
    }
}

//! Plans that a basis has ready: a page at a step needs no search, only a look at how large it is.
//!
//! A basis tells how its coordinates' deviations compare. From those pages are made up, each half an octave larger than the one before,
//! and planned at a step of one. A page at any step has the plan of the made-up page that is as many steps large, and scales for its rows
//! where these are not alike. What a page becomes depends on the page, its basis and its step alone, and not on the pages beside it.

use tenfold::{Dtype, Effort, EncodeOptions, Goal};

use super::levels::Encoder;
use super::rate::Search;
use super::{Batch, Behind, Call, EncodeRequest, Planning};
use crate::abi::{self, Each, Encoding, PAGE_PLAN_THREADS, PAGE_RUNGS, PageModelArgs, PagePlanArgs, Plan};
use crate::device::{Device, DeviceSlice};
use crate::driver::{Shape, Stream};
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::status::Status;

/// Rows of a made-up page: those of a page of a cache, but fewer where rows are long.
const ROWS: usize = 64;
const LEAST_ROWS: usize = 8;
const VALUES: usize = 1 << 18;
/// Threads of a block that makes the tables of a page: a scalar quantiser has one for each of sixteen classes at most.
const TABLES_THREADS: u32 = 512;

/// Refuses what no plan is ready for.
pub(super) fn check(request: &EncodeRequest) -> Result<()> {
    let refuse = |why: &str| Err(Error::InvalidArgument(format!("a basis has plans ready {why}")));
    if request.options.effort != Effort::Fast {
        return refuse("only for effort fast");
    }
    if !matches!(request.options.goal, Goal::Step(_)) {
        return refuse("only for a step");
    }
    if request.dtype != Dtype::F32 || request.behind.as_ref().is_none_or(|b| b.scales == 0) {
        return refuse("only if it has the deviations of its coordinates");
    }
    Ok(())
}

/// How tables are made: a block more writes the one list that a page's header may have, of its rows.
pub(super) fn tables(batch: Batch) -> Shape {
    Shape { grid: 2, block: TABLES_THREADS, shared: 0, batch: batch.count }
}

/// Bytes of workspace for the scales of a page's rows.
pub(super) fn workspace_len(encoding: &Encoding) -> usize {
    (encoding.values / encoding.cols.max(1)) as usize
}

fn choose(plans: u64, steps: u64, encoder: &Encoder<'_>) -> PagePlanArgs {
    PagePlanArgs {
        encoding: encoder.pass.encoding,
        plan: encoder.pass.plan,
        status: encoder.places.status,
        plans: plans.into(),
        kept: Each::new(plans, size_of::<Plan>()),
        steps: Each::new(steps, if steps == 0 { 0 } else { size_of::<f64>() }),
        row_scale: encoder.places.workspace,
    }
}

fn block_each(batch: u32) -> Shape {
    Shape { grid: 1, block: PAGE_PLAN_THREADS, shared: 0, batch }
}

/// Queues the encoding of a batch by plans at an address, with steps of its own for each tensor if there are some.
///
/// # Safety
/// As for [`super::encode`].
pub(super) unsafe fn encode(encoder: Encoder<'_>, plans: u64, steps: u64) -> Result<()> {
    let args = choose(plans, steps, &encoder);
    // SAFETY: the caller's.
    unsafe {
        encoder.open()?;
        encoder.device.launch(abi::page_plan, block_each(encoder.places.batch), &args, encoder.stream)?;
        encoder.pass()?;
        encoder.close(false)
    }
}

/// Plans for pages of any size.
pub(crate) struct PagePlans {
    plans: Buffer,
    /// Classes that one of them has, at most; far fewer than 256.
    classes: u32,
}

impl PagePlans {
    pub(crate) fn planning(&self, steps: u64) -> Planning {
        Planning::Ready { plans: self.address(), classes: self.classes, steps }
    }

    pub(crate) fn address(&self) -> u64 {
        self.plans.slice().address
    }
}

/// Makes the plans of a basis of so many vectors, whose scales are at an address of the device, a byte each. Waits for them.
pub(crate) fn make_plans(device: &Device, rank: usize, scales: u64) -> Result<PagePlans> {
    let rows = (VALUES / rank.max(1)).clamp(LEAST_ROWS, ROWS);
    let values = rows * rank;
    let count = PAGE_RUNGS as usize;
    let narrow = |v: usize| {
        u32::try_from(v).map_err(|_| Error::InvalidArgument("a basis has fewer than 2^32 vectors".into()))
    };
    let pages = Buffer::new(device, count * values * size_of::<f32>())?;
    let statuses = Buffer::new(device, count * size_of::<Status>())?;
    let plans = Buffer::new(device, count * size_of::<Plan>())?;
    let options = EncodeOptions::new(Goal::Step(1.0)).with_effort(Effort::Fast);
    let bytes = values * size_of::<f32>();
    // Nothing is written: a plan is all that is wanted.
    let out = DeviceSlice::new(0, 0);
    let mut request =
        EncodeRequest::new(pages.slice().part(0, bytes)?, Dtype::F32, &[rows, rank], out, options);
    let transforms = DeviceSlice::new(0, 0);
    let (dtype, columns) = (Dtype::Bf16, rank);
    request.behind = Some(Behind { dtype, columns, shape: None, transforms, scales, positions: None });
    let batch = Batch { count: PAGE_RUNGS, full: PAGE_RUNGS, tensor: bytes, out: 0 };
    let need = super::levels::workspace_len(device, &request, values, batch, Planning::Each)?.1;
    let workspace = Buffer::new(device, need * count)?;
    let (status, stream, planning) = (statuses.slice(), Stream::DEFAULT, Planning::Each);
    let call = Call {
        device,
        request: &request,
        values,
        batch,
        status,
        workspace: workspace.slice(),
        stream,
        planning,
        wants_more: None,
    };
    let mut encoder = Encoder::new(&call, 0)?;
    encoder.pass.encoding.may_pair = 0;
    let model = PageModelArgs {
        to: pages.slice().address.into(),
        scales: scales.into(),
        rows: narrow(rows)?,
        columns: narrow(rank)?,
    };
    let mut search = Search::new(device, &encoder.pass.encoding, encoder.places, stream)?.by_columns();
    let keep = choose(plans.slice().address, 0, &encoder);
    // SAFETY: all memory is there until the stream has passed, which is waited for.
    unsafe {
        device.launch(abi::page_model, Shape::new(PAGE_RUNGS, PAGE_PLAN_THREADS, 0), &model, stream)?;
        encoder.open()?;
        search.open()?;
        search.scan()?;
        search.make_first_plan()?;
        search.refine()?;
        device.launch(abi::page_plan_keep, block_each(PAGE_RUNGS), &keep, stream)?;
    }
    let mut said = vec![0; statuses.slice().len];
    statuses.read(&mut said, stream)?;
    let refused = said.as_chunks().0.iter().find_map(|status| Status::from_bytes(*status).check().err());
    if let Some(error) = refused {
        return Err(Error::InvalidArgument(format!("no plans can be made for a basis: {error}")));
    }
    let mut made = vec![0; plans.slice().len];
    plans.read(&mut made, stream)?;
    let at = std::mem::offset_of!(Plan, classes);
    let classes = made.chunks_exact(size_of::<Plan>()).map(|plan| u32::from(plan[at])).max().unwrap_or(1);
    Ok(PagePlans { plans, classes })
}

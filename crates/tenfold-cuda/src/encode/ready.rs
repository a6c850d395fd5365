//! Plans that a basis has ready: a page at a step needs no search, only a look at how large it is.
//!
//! A basis tells how its coordinates' deviations compare. From those pages are made up, each half an octave larger than the one before,
//! and planned at a step of one. A page at any step has the plan of the made-up page that is as many steps large, and scales for its rows
//! where these are not alike. What a page becomes depends on the page, its basis and its step alone, and not on the pages beside it.

use tenfold::{Dtype, Effort, EncodeOptions, Goal};

use super::levels::Encoder;
use super::rate::Search;
use super::{Batch, Behind, Call, EncodeRequest, Planning};
use crate::abi::{
    self, Each, Encoding, PAGE_PLAN_THREADS, PAGE_RUNGS, PAGE_SIZES, PAGE_SIZES_FIRST, PageModelArgs,
    PagePlanArgs, PageSizesArgs, Plan,
};
use crate::device::{Device, DeviceSlice};
use crate::driver::{Shape, Stream};
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::status::Status;

/// Rows of a made-up page: those of a page of a cache, but fewer where rows are long.
const ROWS: usize = 64;
const LEAST_ROWS: usize = 8;
const VALUES: usize = 1 << 18;
/// Bytes of a made-up page's header, at most.
const MOST_HEADER: usize = 1 << 16;
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
    /// Bits of a blob beside its symbols, for each plan by which sizes are guessed.
    beside: Buffer,
}

impl PagePlans {
    pub(crate) fn planning(&self, steps: u64) -> Planning {
        Planning::Ready { plans: self.address(), classes: self.classes, steps }
    }

    pub(crate) fn address(&self) -> u64 {
        self.plans.slice().address
    }

    /// Where the bits are that blobs have beside their symbols.
    pub(crate) fn beside(&self) -> u64 {
        self.beside.slice().address
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
    drop(workspace);
    let planning = Planning::Ready { plans: plans.slice().address, classes, steps: 0 };
    let took = encode_models(device, &request, values, planning)?;
    let guessed = guess_model(device, pages.slice().address, [rows, rank], scales, plans.slice().address)?;
    // Header, tables, what lanes start with, and what symbols cost more than they are thought to.
    let every = took.iter().skip(PAGE_SIZES_FIRST as usize).step_by(2);
    let beside = every.zip(guessed).map(|(took, bits)| took.map_or(0.0, |bytes| 8.0 * bytes as f32 - bits));
    let beside: Vec<u8> = beside.flat_map(f32::to_le_bytes).collect();
    Ok(PagePlans { plans, classes, beside: Buffer::from_slice(device, &beside)? })
}

/// Bytes that made-up pages take with their plans, where they can be encoded.
fn encode_models(
    device: &Device,
    request: &EncodeRequest,
    values: usize,
    planning: Planning,
) -> Result<Vec<Option<u64>>> {
    let count = PAGE_RUNGS as usize;
    // No level takes more than this; tables lie in what a header may take.
    let slot = 4 * values + MOST_HEADER;
    let blobs = Buffer::new(device, count * slot)?;
    let statuses = Buffer::new(device, count * size_of::<Status>())?;
    let mut request = request.clone();
    request.out = blobs.slice().part(0, slot)?;
    let batch = Batch { count: PAGE_RUNGS, full: PAGE_RUNGS, tensor: values * size_of::<f32>(), out: slot };
    let need = super::levels::workspace_len(device, &request, values, batch, planning)?.1;
    let workspace = Buffer::new(device, need * count)?;
    let (status, stream) = (statuses.slice(), Stream::DEFAULT);
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
    // SAFETY: all memory is there until the stream has passed, which is waited for.
    unsafe { super::levels::encode(&call)? };
    let mut said = vec![0; statuses.slice().len];
    statuses.read(&mut said, stream)?;
    let status = |bytes: &[u8; size_of::<Status>()]| Status::from_bytes(*bytes);
    Ok(said.as_chunks().0.iter().map(status).map(|s| s.check().is_ok().then_some(s.size)).collect())
}

/// What symbols of a made-up page are thought to take by plan. They are the same pages but for their size, so that one will do.
fn guess_model(
    device: &Device,
    page: u64,
    [rows, rank]: [usize; 2],
    scales: u64,
    plans: u64,
) -> Result<Vec<f32>> {
    let sizes = Buffer::new(device, size_of::<f32>() * (1 + PAGE_SIZES as usize))?;
    let args = PageSizesArgs {
        coordinates: page.into(),
        scales: scales.into(),
        plans: plans.into(),
        beside: 0.into(),
        sizes: sizes.slice().address.into(),
        rows: rows as u64,
        rank: rank as u32,
        transforms: 0,
    };
    let stream = Stream::DEFAULT;
    // SAFETY: all memory is there until the stream has passed, which is waited for.
    unsafe {
        device.launch(abi::page_sizes, Shape::new(PAGE_SIZES, PAGE_PLAN_THREADS, 0), &args, stream)?;
    }
    let mut found = vec![0; sizes.slice().len];
    sizes.read(&mut found, stream)?;
    Ok(found.as_chunks().0.iter().skip(1).map(|four| f32::from_le_bytes(*four)).collect())
}

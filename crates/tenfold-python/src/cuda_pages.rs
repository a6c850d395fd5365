//! Pages on a GPU, out of paged pools and into them. What is said of addresses in `cuda` holds here too.
#![allow(unsafe_code)]

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tenfold_cuda::{DecodeSettings, DevicePool, DeviceSlice, PoolLayout, Stream};
use tenfold_kv::device::{
    self, Assembled, Batch, Blocks, DevicePages, Given, Ladder, Load, Made, Part, Place, Save,
};

use crate::cuda::{CudaDevice, Memory, slice, stream_of};
use crate::errors;
use crate::kv::Pages;
use crate::tensors::{Blob, Output, parse_dtype, python_name};

/// Layers of a pool: their memory, and blocks, slots of a block, heads, bytes of a head, the strides of blocks, slots and heads, and the
/// dtype.
type PoolArgs = (Vec<Memory>, (usize, usize, usize, usize), (usize, usize, usize), String);

/// Groups of pages that are decoded with others: whose they are, the plan, the first group and the one behind the last, where they are staged,
/// and pools of keys and values for each.
type PartArgs = (Py<CudaPages>, Py<CudaLoad>, (usize, usize), Memory, Vec<(PoolArgs, PoolArgs)>);

/// The same, of groups that are not staged yet.
type PlannedArgs = (Py<CudaPages>, Py<CudaLoad>, (usize, usize));

/// Bytes of workspace that groups of some loads need together, at a multiple of 256.
#[pyfunction]
pub fn cuda_pages_workspace(parts: Vec<PlannedArgs>) -> PyResult<usize> {
    let parts: Vec<_> = parts
        .iter()
        .map(|(pages, load, (from, to))| (&pages.get().pages, &load.get().load, *from..*to))
        .collect();
    device::workspace_len(&parts).map_err(errors::kv)
}

/// Queues the decoding of groups of some loads. `status` is the address of 16 bytes a blob.
#[pyfunction]
pub fn cuda_pages_queue(
    py: Python<'_>,
    parts: Vec<PartArgs>,
    status: u64,
    workspace: Memory,
    stream: usize,
) -> PyResult<()> {
    let pools = |(pages, _, _, _, pools): &PartArgs| {
        let pool =
            |(keys, values): &(PoolArgs, PoolArgs)| Ok((pages.get().pool(keys)?, pages.get().pool(values)?));
        pools.iter().map(pool).collect::<PyResult<Vec<(DevicePool, DevicePool)>>>()
    };
    let pools = parts.iter().map(pools).collect::<PyResult<Vec<_>>>()?;
    let mut statuses = 0;
    let mut all = Vec::with_capacity(parts.len());
    for ((pages, load, groups, staged, _), pools) in parts.iter().zip(&pools) {
        let (load, groups) = (&load.get().load, groups.0..groups.1);
        statuses += load.statuses(groups.clone()).map_err(errors::kv)?;
        let blocks = pools.iter().map(|(keys, values)| Blocks { keys, values }).collect();
        all.push(Part { pages: &pages.get().pages, load, groups, staged: slice(*staged), blocks });
    }
    let (status, workspace) = (DeviceSlice::new(status, 16 * statuses), slice(workspace));
    let settings = DecodeSettings::default();
    // SAFETY: the caller's promise; see the module `cuda`.
    py.detach(|| unsafe { device::queue(&all, &settings, status, workspace, stream_of(stream)) })
        .map_err(errors::kv)
}

/// A page codec's bases on a device.
#[pyclass(frozen, module = "tenfold._native")]
pub struct CudaPages {
    pages: DevicePages,
}

#[pymethods]
impl CudaPages {
    #[new]
    fn new(py: Python<'_>, codec: &Pages, device: &CudaDevice) -> PyResult<CudaPages> {
        let (device, codec) = (device.device(), codec.codec());
        let pages = py.detach(|| DevicePages::new(device, codec)).map_err(errors::kv)?;
        Ok(CudaPages { pages })
    }

    /// Reads the headers of pages.
    fn plan(&self, py: Python<'_>, pages: Vec<Bound<'_, PyAny>>) -> PyResult<CudaLoad> {
        let pages = pages.iter().map(Blob::from_object).collect::<PyResult<Vec<Blob>>>()?;
        let bytes: Vec<&[u8]> = pages.iter().map(Blob::data).collect();
        let plan = || {
            let load = self.pages.plan(&bytes)?;
            let workspace = load.workspace_len(&self.pages)?;
            Ok((load, workspace))
        };
        let (load, workspace) = py.detach(plan).map_err(errors::kv)?;
        Ok(CudaLoad { load, workspace })
    }

    /// Prepares the encoding of pages of so many tokens, at a step for each. `columns` are those of keys and of values of a token, for each
    /// group.
    fn save(
        &self,
        py: Python<'_>,
        tokens: usize,
        steps: Vec<f64>,
        columns: Vec<[usize; 2]>,
        dtype: &str,
    ) -> PyResult<CudaSave> {
        let dtype = parse_dtype(dtype)?;
        let save = py.detach(|| self.pages.save(tokens, &steps, &columns, dtype)).map_err(errors::kv)?;
        Ok(CudaSave { save })
    }

    /// The same for so many pages that keep every bit.
    fn save_lossless(
        &self,
        py: Python<'_>,
        tokens: usize,
        count: usize,
        columns: Vec<[usize; 2]>,
        dtype: &str,
    ) -> PyResult<CudaSave> {
        let dtype = parse_dtype(dtype)?;
        let save =
            py.detach(|| self.pages.save_lossless(tokens, count, &columns, dtype)).map_err(errors::kv)?;
        Ok(CudaSave { save })
    }

    /// Bytes that the blobs of a page of at most so many bytes may take together beside those of exact tokens; None if there is no room
    /// for any.
    fn budget(&self, save: &CudaSave, cap: usize, exact: usize) -> Option<usize> {
        save.save.budget(&self.pages, cap, exact)
    }

    /// Keys (0) or values (1) of groups that must be looked at before they are encoded, and bytes of what is seen and of the workspace.
    fn looks(&self, save: &CudaSave) -> PyResult<Vec<Look>> {
        let lengths = |look: (usize, usize)| {
            let workspace = save.save.look_workspace_len(&self.pages, look)?;
            Ok((look, save.save.look_len(&self.pages, look)?, workspace))
        };
        let looks = save.save.looks(&self.pages);
        looks.into_iter().map(lengths).collect::<Result<_, _>>().map_err(errors::kv)
    }

    /// Queues looks at keys or values of groups, on some streams in turn. `pools` are those of keys and of values of each group; given are slots,
    /// positions and steps of pages, numbers of 64 bits; what is seen goes side by side.
    #[allow(clippy::too_many_arguments)] // each is one address
    fn queue_looks(
        &self,
        py: Python<'_>,
        save: &CudaSave,
        sides: Vec<(usize, usize)>,
        pools: Vec<[PoolArgs; 2]>,
        given: [Memory; 3],
        seen: Memory,
        lanes: Vec<LaneArgs>,
    ) -> PyResult<()> {
        self.ask(py, &sides, &pools, given, &lanes, |side, pool, given, at, work, stream| {
            let len = save.save.look_len(&self.pages, side)?;
            let seen = slice(seen).part(at, len).map_err(errors_of)?;
            // SAFETY: the caller's promise; see the module `cuda`.
            unsafe { save.save.queue_look(&self.pages, side, pool, given, seen, work, stream)? };
            Ok(len)
        })
    }

    /// Keys (0) or values (1) of groups whose sizes can be guessed, all or none, and bytes of what is guessed and of the workspace.
    fn guesses(&self, save: &CudaSave) -> PyResult<Vec<Look>> {
        let lengths = |side: (usize, usize)| {
            Ok((side, save.save.guess_len(), save.save.look_workspace_len(&self.pages, side)?))
        };
        let sides = save.save.guesses(&self.pages);
        sides.into_iter().map(lengths).collect::<Result<_, _>>().map_err(errors::kv)
    }

    /// Queues guesses at the sizes of keys or values of groups at any step, as looks are queued.
    #[allow(clippy::too_many_arguments)] // each is one address
    fn queue_guesses(
        &self,
        py: Python<'_>,
        save: &CudaSave,
        sides: Vec<(usize, usize)>,
        pools: Vec<[PoolArgs; 2]>,
        given: [Memory; 3],
        sizes: Memory,
        lanes: Vec<LaneArgs>,
    ) -> PyResult<()> {
        self.ask(py, &sides, &pools, given, &lanes, |side, pool, given, at, work, stream| {
            let len = save.save.guess_len();
            let sizes = slice(sizes).part(at, len).map_err(errors_of)?;
            // SAFETY: the caller's promise; see the module `cuda`.
            unsafe { save.save.queue_guess(&self.pages, side, pool, given, sizes, work, stream)? };
            Ok(len)
        })
    }

    /// A search for each page's step, by the bytes that its blobs may take and what was guessed.
    fn ladder(
        &self,
        save: &CudaSave,
        budgets: Vec<Option<usize>>,
        guessed: Vec<Vec<u8>>,
    ) -> PyResult<CudaLadder> {
        let guessed: Vec<&[u8]> = guessed.iter().map(Vec::as_slice).collect();
        let ladder = save.save.ladder(&self.pages, &budgets, &guessed).map_err(errors::kv)?;
        Ok(CudaLadder { ladder })
    }

    /// What is encoded at once, from what every look has seen.
    fn batches(&self, save: &CudaSave, seen: Vec<Vec<u8>>) -> PyResult<Vec<CudaBatch>> {
        let seen: Vec<&[u8]> = seen.iter().map(Vec::as_slice).collect();
        let found = save.save.batches(&self.pages, &seen).map_err(errors::kv)?;
        let made = |batch: Batch| {
            let workspace = save.save.workspace_len(&self.pages, &batch)?;
            let blobs = save.save.blobs_len(&self.pages, &batch)?;
            Ok(CudaBatch { batch, workspace, blobs })
        };
        found.into_iter().map(made).collect::<Result<_, _>>().map_err(errors::kv)
    }

    /// Queues the encoding of batches, on some streams in turn. Given is what looks are given, of each batch's pages; blobs go side by side,
    /// and `status` is the address of 16 bytes a page of all batches.
    #[allow(clippy::too_many_arguments)] // each is one address
    fn queue_saves(
        &self,
        py: Python<'_>,
        save: &CudaSave,
        batches: Vec<Py<CudaBatch>>,
        pools: Vec<[PoolArgs; 2]>,
        given: Vec<[Memory; 3]>,
        blobs: Memory,
        status: u64,
        lanes: Vec<LaneArgs>,
    ) -> PyResult<()> {
        if given.len() != batches.len() || lanes.is_empty() {
            return Err(errors::ArgumentError::new_err(
                "every batch is given its pages, and there is a stream",
            ));
        }
        let pools = self.pools(&pools)?;
        let queue = || {
            let (mut at, mut said) = (0, 0);
            for (number, (batch, given)) in batches.iter().zip(given).enumerate() {
                let (batch, lane) = (batch.get(), &lanes[number % lanes.len()]);
                let pages = batch.batch.pages.len();
                let pool = pool_of(&pools, (batch.batch.group, batch.batch.side))?;
                let to = slice(blobs).part(at, batch.blobs).map_err(errors_of)?;
                let status = DeviceSlice::new(status + 16 * said as u64, 16 * pages);
                let (given, work, stream) = (given_of(given), slice(lane.1), stream_of(lane.0));
                // SAFETY: the caller's promise; see the module `cuda`.
                unsafe {
                    save.save.queue(&self.pages, &batch.batch, pool, &given, to, status, work, stream)?;
                }
                at += batch.blobs;
                said += pages;
            }
            Ok(())
        };
        py.detach(queue).map_err(errors::kv)
    }

    /// Where each page's blob is among a batch's; None where the device has refused it.
    fn places(&self, save: &CudaSave, batch: &CudaBatch, statuses: &[u8]) -> PyResult<Vec<Place>> {
        let found = save.save.places(&self.pages, &batch.batch, statuses).map_err(errors::kv)?;
        Ok(found.into_iter().map(|place| place.ok().map(|place| (place.start, place.end))).collect())
    }

    /// Queues the gathering of rows of exact tokens, keys (0) or values (1) of a group.
    #[allow(clippy::too_many_arguments)] // each is one address
    fn queue_exact(
        &self,
        py: Python<'_>,
        save: &CudaSave,
        side: (usize, usize),
        pool: PoolArgs,
        slots: Memory,
        rows: Memory,
        stream: usize,
    ) -> PyResult<()> {
        let pool = self.pool(&pool)?;
        let [slots, rows] = [slots, rows].map(slice);
        // SAFETY: the caller's promise; see the module `cuda`.
        py.detach(|| unsafe { save.save.queue_exact(side, &pool, slots, rows, stream_of(stream)) })
            .map_err(errors::kv)
    }

    /// Lossless blobs of the exact tokens of each page, from their rows on the host: keys and values of each group in turn.
    fn encode_exact(
        &self,
        py: Python<'_>,
        save: &CudaSave,
        rows: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<CudaExact> {
        let held = rows.iter().map(Blob::from_object).collect::<PyResult<Vec<Blob>>>()?;
        let rows: Vec<&[u8]> = held.iter().map(Blob::data).collect();
        let blobs = py.detach(|| save.save.encode_exact(&self.pages, &rows)).map_err(errors::kv)?;
        Ok(CudaExact { blobs })
    }

    /// Pages from all batches: of each the bytes, and where in them each page's are. None for pages of which a batch has none.
    fn assemble<'py>(
        &self,
        py: Python<'py>,
        save: &CudaSave,
        batches: Vec<MadeArgs<'py>>,
        exact: &CudaExact,
    ) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let held =
            batches.iter().map(|(_, bytes, _)| Blob::from_object(bytes)).collect::<PyResult<Vec<Blob>>>()?;
        let made: Vec<Made<'_>> = batches
            .iter()
            .zip(&held)
            .map(|((batch, _, places), bytes)| (&batch.get().batch, bytes.data(), places.as_slice()))
            .collect();
        let assembled =
            py.detach(|| save.save.assemble(&self.pages, &made, &exact.blobs)).map_err(errors::kv)?;
        let mut out = Vec::with_capacity(assembled.len());
        let mut work: Vec<(&Assembled<'_>, &mut [u8])> = Vec::new();
        for page in &assembled {
            let Some(page) = page else {
                out.push(None);
                continue;
            };
            // SAFETY: `out` holds the object until all of it is written, and nobody else has it.
            let (bytes, memory) = unsafe { fresh_bytes(py, page.len())? };
            work.push((page, memory));
            out.push(Some(bytes));
        }
        py.detach(|| Assembled::write_all(work));
        Ok(out)
    }
}

impl CudaPages {
    /// Queues something for each side, on some streams in turn. It says how many bytes its answer takes.
    fn ask(
        &self,
        py: Python<'_>,
        sides: &[(usize, usize)],
        pools: &[[PoolArgs; 2]],
        given: [Memory; 3],
        lanes: &[LaneArgs],
        mut queue: impl FnMut(
            (usize, usize),
            &DevicePool,
            &Given,
            usize,
            DeviceSlice,
            Stream,
        ) -> tenfold_kv::Result<usize>
        + Send,
    ) -> PyResult<()> {
        if lanes.is_empty() {
            return Err(errors::ArgumentError::new_err("there is no stream to queue anything on"));
        }
        let (pools, given) = (self.pools(pools)?, given_of(given));
        let all = || {
            let mut at = 0;
            for (number, &side) in sides.iter().enumerate() {
                let lane = &lanes[number % lanes.len()];
                let pool = pool_of(&pools, side)?;
                at += queue(side, pool, &given, at, slice(lane.1), stream_of(lane.0))?;
            }
            Ok(())
        };
        py.detach(all).map_err(errors::kv)
    }

    fn pools(&self, pools: &[[PoolArgs; 2]]) -> PyResult<Vec<[DevicePool; 2]>> {
        pools.iter().map(|[keys, values]| Ok([self.pool(keys)?, self.pool(values)?])).collect()
    }

    fn pool(
        &self,
        (layers, (blocks, block, heads, head), (by_block, by_slot, by_head), dtype): &PoolArgs,
    ) -> PyResult<DevicePool> {
        let layout =
            PoolLayout::new(*blocks, *block, *heads, *head).with_strides(*by_block, *by_slot, *by_head);
        let layers: Vec<DeviceSlice> = layers.iter().copied().map(slice).collect();
        let dtype = parse_dtype(dtype)?;
        let pool = DevicePool::new(self.pages.device(), &layers, layout);
        pool.and_then(|pool| pool.with_dtype(dtype)).map_err(errors::cuda)
    }
}

/// A stream and its workspace.
type LaneArgs = (usize, Memory);

fn errors_of(error: tenfold_cuda::Error) -> tenfold_kv::Error {
    tenfold::Error::from(error).into()
}

fn pool_of(pools: &[[DevicePool; 2]], (group, side): (usize, usize)) -> tenfold_kv::Result<&DevicePool> {
    let found = pools.get(group).and_then(|pools| pools.get(side));
    found.ok_or_else(|| {
        tenfold::Error::InvalidArgument("every group has pools of keys and values".into()).into()
    })
}

fn given_of(given: [Memory; 3]) -> Given {
    let [slots, positions, steps] = given.map(slice);
    Given { slots, positions, steps }
}

/// Keys or values of a group to look at, and bytes of what is seen and of the workspace.
type Look = ((usize, usize), usize, usize);

/// A batch, its bytes, and where in them each page's blob is.
type MadeArgs<'py> = (Py<CudaBatch>, Bound<'py, PyAny>, Vec<Place>);

/// Bytes that are not written yet: many threads write them, and none of them need zeros first.
///
/// # Safety
/// The memory is used while the object lives, and the object by nobody before all of it is written.
unsafe fn fresh_bytes<'py, 'm>(py: Python<'py>, len: usize) -> PyResult<(Bound<'py, PyBytes>, &'m mut [u8])> {
    // SAFETY: Python makes an object of so many bytes, or an error; the rest is the caller's.
    unsafe {
        let size = pyo3::ffi::Py_ssize_t::try_from(len)?;
        let object = pyo3::ffi::PyBytes_FromStringAndSize(std::ptr::null(), size);
        let bytes = Bound::from_owned_ptr_or_err(py, object)?.cast_into_unchecked::<PyBytes>();
        let at = pyo3::ffi::PyBytes_AsString(object).cast::<u8>();
        Ok((bytes, std::slice::from_raw_parts_mut(at, len)))
    }
}

/// Pages that are about to be encoded.
#[pyclass(frozen, module = "tenfold._native")]
pub struct CudaSave {
    save: Save,
}

#[pymethods]
impl CudaSave {
    /// Tokens of a page that the device codes: the first, and the one behind the last.
    #[getter]
    fn coded(&self) -> (usize, usize) {
        let tokens = self.save.coded();
        (tokens.start, tokens.end)
    }

    /// Tokens of a page that stay exact.
    #[getter]
    fn exact(&self) -> Vec<usize> {
        self.save.exact()
    }

    /// Bytes of the rows of exact tokens: keys (0) or values (1) of a group.
    fn exact_len(&self, group: usize, side: usize) -> PyResult<usize> {
        self.save.exact_len(group, side).map_err(errors::kv)
    }
}

/// Keys or values of a group that are encoded at once.
#[pyclass(frozen, module = "tenfold._native")]
pub struct CudaBatch {
    batch: Batch,
    workspace: usize,
    blobs: usize,
}

#[pymethods]
impl CudaBatch {
    /// The group, and 0 for keys, 1 for values.
    #[getter]
    fn side(&self) -> (usize, usize) {
        (self.batch.group, self.batch.side)
    }

    /// Pages by their number in the save.
    #[getter]
    fn pages(&self) -> Vec<usize> {
        self.batch.pages.clone()
    }

    /// Bytes of workspace, at a multiple of 256.
    #[getter]
    fn workspace_len(&self) -> usize {
        self.workspace
    }

    /// Bytes that the blobs need, likewise.
    #[getter]
    fn blobs_len(&self) -> usize {
        self.blobs
    }
}

/// Blobs of exact tokens, of each page.
#[pyclass(frozen, module = "tenfold._native")]
pub struct CudaExact {
    blobs: Vec<Vec<Vec<u8>>>,
}

#[pymethods]
impl CudaExact {
    /// Bytes of each page's.
    #[getter]
    fn sizes(&self) -> Vec<usize> {
        self.blobs.iter().map(|blobs| blobs.iter().map(Vec::len).sum()).collect()
    }

    /// Those of some pages.
    fn of(&self, pages: Vec<usize>) -> PyResult<CudaExact> {
        let blobs = pages.iter().map(|&page| self.blobs.get(page).cloned()).collect::<Option<_>>();
        let missing = || errors::ArgumentError::new_err("there is no such page");
        Ok(CudaExact { blobs: blobs.ok_or_else(missing)? })
    }
}

/// Steps of pages under caps, looked for at once.
#[pyclass(module = "tenfold._native")]
pub struct CudaLadder {
    ladder: Ladder,
}

#[pymethods]
impl CudaLadder {
    /// Pages that are to be tried next, and the step of each.
    fn standing(&self) -> Vec<(usize, f64)> {
        self.ladder.standing()
    }

    /// Learns how many bytes the blobs of a page that stands take, or that a device does not make them. Whether the page stays as it was made.
    fn tried(&mut self, page: usize, size: Option<usize>) -> bool {
        self.ladder.tried(page, size)
    }
}

/// Pages whose headers were read.
#[pyclass(frozen, module = "tenfold._native")]
pub struct CudaLoad {
    load: Load,
    workspace: usize,
}

#[pymethods]
impl CudaLoad {
    /// Tokens of all pages.
    #[getter]
    fn tokens(&self) -> usize {
        self.load.tokens()
    }

    /// What pools must have; None if there are no pages.
    #[getter]
    fn dtype(&self) -> Option<&'static str> {
        self.load.dtype().map(python_name)
    }

    /// Bytes to stage.
    #[getter]
    fn staged_len(&self) -> usize {
        self.load.staged_len()
    }

    /// Bytes of workspace, at a multiple of 256.
    #[getter]
    fn workspace_len(&self) -> usize {
        self.workspace
    }

    /// Groups that are decoded together: the first, and the one behind the last.
    #[getter]
    fn waves(&self) -> Vec<(usize, usize)> {
        self.load.waves().into_iter().map(|wave| (wave.start, wave.end)).collect()
    }

    /// Blobs of some groups.
    fn statuses(&self, groups: (usize, usize)) -> PyResult<usize> {
        self.load.statuses(groups.0..groups.1).map_err(errors::kv)
    }

    /// Where some groups are among all that is staged.
    fn staged(&self, groups: (usize, usize)) -> PyResult<(usize, usize)> {
        let place = self.load.staged(groups.0..groups.1).map_err(errors::kv)?;
        Ok((place.start, place.end))
    }

    /// Puts blobs and slots of some groups into memory of the host.
    fn stage(
        &self,
        py: Python<'_>,
        groups: (usize, usize),
        pages: Vec<Bound<'_, PyAny>>,
        slots: Vec<i64>,
        to: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let pages = pages.iter().map(Blob::from_object).collect::<PyResult<Vec<Blob>>>()?;
        let bytes: Vec<&[u8]> = pages.iter().map(Blob::data).collect();
        let mut to = Output::from_object(to)?;
        let to = to.data();
        py.detach(|| self.load.stage(groups.0..groups.1, &bytes, &slots, to)).map_err(errors::kv)
    }

    /// What a device said of each page's blobs of some groups: nothing, or the error.
    fn check(&self, groups: (usize, usize), statuses: &[u8]) -> PyResult<Vec<Option<PyErr>>> {
        let said = self.load.check(groups.0..groups.1, statuses).map_err(errors::kv)?;
        Ok(said.into_iter().map(|page| page.err().map(errors::kv)).collect())
    }
}

//! Pages on a GPU, out of paged pools and into them. What is said of addresses in `cuda` holds here too.
#![allow(unsafe_code)]

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tenfold_cuda::{DecodeSettings, DevicePool, DeviceSlice, PoolLayout};
use tenfold_kv::device::{self, Blocks, DevicePages, Load, Part, Place, Save};

use crate::cuda::{CudaDevice, Memory, slice, stream_of};
use crate::errors;
use crate::kv::Pages;
use crate::tensors::{Blob, Output};

/// Layers of a pool: their memory, and blocks, slots of a block, heads, bytes of a head, and the strides of blocks, slots and heads.
type PoolArgs = (Vec<Memory>, (usize, usize, usize, usize), (usize, usize, usize));

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

    /// Prepares the encoding of pages of so many tokens.
    fn save(&self, pages: usize, tokens: usize, step: f64) -> PyResult<CudaSave> {
        let made = self.pages.save(pages, tokens, step).and_then(|save| {
            let workspace = save.workspace_len(&self.pages)?;
            let groups = 0..self.pages.groups();
            let blobs = groups.map(|group| save.blobs_len(&self.pages, group)).collect::<Result<_, _>>()?;
            Ok(CudaSave { save, workspace, blobs })
        });
        made.map_err(errors::kv)
    }

    /// Bytes that the blobs of a page of at most so many bytes may take together; None if there is no room for any.
    fn budget(&self, save: &CudaSave, cap: usize) -> Option<usize> {
        save.save.budget(&self.pages, cap)
    }

    /// Queues the encoding of a group of all pages. `slots` and `positions` are numbers of 64 bits; `status` is the address of 16 bytes
    /// a blob.
    #[allow(clippy::too_many_arguments)] // each is one address
    fn queue_save(
        &self,
        py: Python<'_>,
        save: &CudaSave,
        group: usize,
        keys: PoolArgs,
        values: PoolArgs,
        slots: Memory,
        positions: Memory,
        blobs: Memory,
        status: u64,
        workspace: Memory,
        stream: usize,
    ) -> PyResult<()> {
        let (keys, values) = (self.pool(&keys)?, self.pool(&values)?);
        let blocks = Blocks { keys: &keys, values: &values };
        let status = DeviceSlice::new(status, 16 * save.save.statuses());
        let (slots, positions) = (slice(slots), slice(positions));
        let (blobs, workspace) = (slice(blobs), slice(workspace));
        py.detach(|| {
            let stream = stream_of(stream);
            // SAFETY: the caller's promise; see the module `cuda`.
            unsafe {
                let save = &save.save;
                save.queue(&self.pages, group, blocks, slots, positions, blobs, status, workspace, stream)
            }
        })
        .map_err(errors::kv)
    }

    /// Where the keys and the values of each page are among a group's blobs; None where the device has refused them.
    fn places(&self, save: &CudaSave, group: usize, statuses: &[u8]) -> PyResult<Vec<Place>> {
        let found = save.save.places(&self.pages, group, statuses).map_err(errors::kv)?;
        let pair = |places: [std::ops::Range<usize>; 2]| places.map(|place| (place.start, place.end));
        Ok(found.into_iter().map(|page| page.ok().map(pair)).collect())
    }

    /// Pages from the keys and the values of all groups: of each group the bytes, and where in them each page's are. None for pages of
    /// which a group has none.
    fn assemble<'py>(
        &self,
        py: Python<'py>,
        save: &CudaSave,
        groups: Vec<(Bound<'py, PyAny>, Vec<Place>)>,
    ) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let held =
            groups.iter().map(|(bytes, _)| Blob::from_object(bytes)).collect::<PyResult<Vec<Blob>>>()?;
        let bytes: Vec<&[u8]> = held.iter().map(Blob::data).collect();
        let places: Vec<_> = groups.iter().map(|(_, places)| places.as_slice()).collect();
        let made = py.detach(|| save.save.assemble_all(&self.pages, &bytes, &places)).map_err(errors::kv)?;
        Ok(made.into_iter().map(|page| page.map(|page| PyBytes::new(py, &page))).collect())
    }
}

impl CudaPages {
    fn pool(
        &self,
        (layers, (blocks, block, heads, head), (by_block, by_slot, by_head)): &PoolArgs,
    ) -> PyResult<DevicePool> {
        let layout =
            PoolLayout::new(*blocks, *block, *heads, *head).with_strides(*by_block, *by_slot, *by_head);
        let layers: Vec<DeviceSlice> = layers.iter().copied().map(slice).collect();
        DevicePool::new(self.pages.device(), &layers, layout).map_err(errors::cuda)
    }
}

/// Pages that are about to be encoded.
#[pyclass(frozen, module = "tenfold._native")]
pub struct CudaSave {
    save: Save,
    workspace: usize,
    blobs: Vec<usize>,
}

#[pymethods]
impl CudaSave {
    /// Bytes of workspace, at a multiple of 256.
    #[getter]
    fn workspace_len(&self) -> usize {
        self.workspace
    }

    /// Bytes that the blobs of each group need, likewise.
    #[getter]
    fn blobs_len(&self) -> Vec<usize> {
        self.blobs.clone()
    }

    /// Statuses of a group.
    #[getter]
    fn statuses(&self) -> usize {
        self.save.statuses()
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

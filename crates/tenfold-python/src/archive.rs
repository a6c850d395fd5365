//! Model files: opened lazily, and written from tensors in memory.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use numpy::PyArray1;
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use tenfold_archive::{CompressOptions, Progress, Recipe, Source};

use crate::codec::{BlobInfo, EncodeOptions, decode_options, shape_text};
use crate::errors::{self, ArgumentError};
use crate::tensors::{Input, python_name};
use crate::threads::usable;

/// An array of bytes, the name of its dtype and its shape.
type Raw<'py> = (Bound<'py, PyArray1<u8>>, &'static str, Bound<'py, PyTuple>);

/// A model file, compressed or not.
#[pyclass(frozen, module = "tenfold._native")]
pub struct Archive(tenfold_archive::Archive);

#[pymethods]
impl Archive {
    /// Opens a file, an index of shards or a folder.
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Archive> {
        py.detach(|| tenfold_archive::Archive::open(&path)).map(Archive).map_err(errors::archive)
    }

    /// Names of the tensors, in the order of the file.
    fn names(&self) -> Vec<&str> {
        self.0.tensors().iter().map(|tensor| tensor.name.as_str()).collect()
    }

    /// Number of the tensor with this name.
    fn find(&self, name: &str) -> Option<usize> {
        self.0.find(name)
    }

    /// The metadata of the file, without tenfold's own.
    fn metadata(&self) -> BTreeMap<String, String> {
        self.0.metadata().clone()
    }

    /// Whether tenfold has compressed the model.
    fn is_compressed(&self) -> bool {
        self.0.is_compressed()
    }

    /// What the file says of a tensor.
    fn info(&self, index: usize) -> PyResult<TensorInfo> {
        let blob = self.0.blob_info(index).map_err(errors::archive)?;
        let tensor = self.0.tensors().get(index).cloned();
        let tensor = tensor.ok_or_else(|| ArgumentError::new_err(format!("no tensor {index}")))?;
        Ok(TensorInfo { tensor, blob })
    }

    /// Reads a tensor, or some rows of it.
    #[pyo3(signature = (index, rows=None, threads=0, max_bytes=None))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        index: usize,
        rows: Option<(usize, usize)>,
        threads: usize,
        max_bytes: Option<u64>,
    ) -> PyResult<Raw<'py>> {
        let options = decode_options(threads, max_bytes);
        self.check_memory(index, rows)?;
        let tensor = py.detach(|| match rows {
            Some((start, end)) => self.0.read_rows(index, start..end, &options),
            None => self.0.read(index, &options),
        });
        let tensor = tensor.map_err(errors::archive)?;
        // The array takes the vector over: no copy.
        let data = PyArray1::from_vec(py, tensor.data);
        Ok((data, python_name(tensor.dtype), PyTuple::new(py, tensor.shape)?))
    }

    /// Checks all checksums of a tensor and decodes it.
    #[pyo3(signature = (index, threads=0))]
    fn verify(&self, py: Python<'_>, index: usize, threads: usize) -> PyResult<()> {
        let options = decode_options(threads, None);
        py.detach(|| self.0.verify(index, &options)).map_err(errors::archive)
    }
}

impl Archive {
    /// Raises where a tensor, or rows of it, cannot be had: Rust would end the process on the allocation itself.
    fn check_memory(&self, index: usize, rows: Option<(usize, usize)>) -> PyResult<()> {
        let Some(tensor) = self.0.tensors().get(index) else { return Ok(()) };
        let mut bytes = usize::try_from(tensor.bytes).unwrap_or(usize::MAX);
        if let (Some((start, end)), Some(dtype)) = (rows, tensor.dtype) {
            let width = tensor.shape.last().map_or(1, |&cols| cols).saturating_mul(dtype.size());
            bytes = bytes.min(end.saturating_sub(start).saturating_mul(width));
        }
        Vec::<u8>::new().try_reserve_exact(bytes).map_err(|_| {
            PyMemoryError::new_err(format!(
                "tensor {:?} takes {bytes} bytes, which are not there",
                tensor.name
            ))
        })
    }
}

/// What a model file says of one tensor.
#[pyclass(frozen, module = "tenfold")]
pub struct TensorInfo {
    tensor: tenfold_archive::ArchiveTensor,
    blob: Option<tenfold::BlobInfo>,
}

#[pymethods]
impl TensorInfo {
    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.tensor.name
    }

    /// Element type, by its name in numpy, ml_dtypes and torch.
    #[getter]
    fn dtype(&self) -> &str {
        match self.tensor.dtype {
            Some(dtype) => python_name(dtype),
            None => &self.tensor.dtype_name,
        }
    }

    /// Shape, outermost dimension first.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.tensor.shape)
    }

    /// Bytes of the tensor.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.tensor.bytes
    }

    /// Bytes in the file.
    #[getter]
    fn stored_bytes(&self) -> u64 {
        self.tensor.stored_bytes
    }

    /// Whether it is stored as a blob.
    #[getter]
    fn compressed(&self) -> bool {
        self.tensor.compressed
    }

    /// Name of the file that holds it.
    #[getter]
    fn file(&self) -> &str {
        &self.tensor.file
    }

    /// What its blob says; None for a tensor that is stored as it was.
    #[getter]
    fn blob(&self) -> Option<BlobInfo> {
        self.blob.clone().map(BlobInfo)
    }

    fn __repr__(&self) -> String {
        let how = match &self.blob {
            Some(blob) => format!("{}, {:.3} bits a value", blob.codec.name(), blob.bits_per_value()),
            None => "as it was".into(),
        };
        let shape = shape_text(&self.tensor.shape);
        format!("<TensorInfo {:?} {} {shape}, {how}>", self.tensor.name, self.dtype())
    }
}

/// Sums over what was written.
#[pyclass(frozen, get_all, module = "tenfold")]
pub struct Report {
    /// Tensors in the file.
    tensors: usize,
    /// Tensors that became blobs.
    compressed: usize,
    /// Bytes of all tensors.
    nbytes: u64,
    /// Bytes that they take in the file.
    stored_bytes: u64,
    /// Bits stored for each value of the tensors that became blobs.
    bits_per_value: f64,
    /// Bytes of all tensors over bytes in the file.
    ratio: f64,
}

#[pymethods]
impl Report {
    fn __repr__(&self) -> String {
        format!(
            "<Report {} tensors, {} compressed at {:.3} bits a value: {} bytes, ratio {:.2}>",
            self.tensors, self.compressed, self.bits_per_value, self.stored_bytes, self.ratio
        )
    }
}

/// Tensors of Python as a source of the archive; their memory is read in place.
struct StateDict {
    infos: Vec<tenfold_archive::TensorInfo>,
    inputs: Vec<Input>,
    metadata: BTreeMap<String, String>,
}

impl Source for StateDict {
    fn tensors(&self) -> &[tenfold_archive::TensorInfo] {
        &self.infos
    }

    fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    fn read(&self, index: usize) -> tenfold_archive::Result<Cow<'_, [u8]>> {
        let input = self.inputs.get(index);
        let input =
            input.ok_or_else(|| tenfold_archive::Error::InvalidArgument(format!("no tensor {index}")))?;
        Ok(Cow::Borrowed(input.data()))
    }
}

/// Tells a Python function `f(done, total)` how far the work is, in bytes.
struct Callback {
    function: Option<Py<PyAny>>,
    total: AtomicU64,
    done: AtomicU64,
    /// The first exception of the function; raised once the work is over.
    error: Mutex<Option<PyErr>>,
}

impl Callback {
    fn tell(&self) {
        let Some(function) = &self.function else { return };
        let (done, total) = (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        // The thread that waits for the work has released the interpreter, so this cannot lock up.
        if let Err(error) = Python::attach(|py| function.call1(py, (done, total)).map(|_| ())) {
            self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }
}

impl Progress for Callback {
    fn start(&self, total_bytes: u64) {
        self.total.store(total_bytes, Ordering::Relaxed);
        self.done.store(0, Ordering::Relaxed);
        self.tell();
    }

    fn advance(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
        self.tell();
    }
}

/// How a model is written; see `tenfold.save`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct SaveOptions {
    alloc: String,
    include: Vec<String>,
    exclude: Vec<String>,
    recipe: Option<PathBuf>,
    overwrite: bool,
    metadata: BTreeMap<String, String>,
}

/// Writes named tensors into a file. `options` is None where the recipe states the goals, or else says them.
#[pyfunction]
#[pyo3(signature = (tensors, path, options, save_options, progress=None))]
pub fn save(
    py: Python<'_>,
    tensors: Vec<(Bound<'_, PyString>, Bound<'_, PyAny>)>,
    path: PathBuf,
    options: Option<&EncodeOptions>,
    save_options: SaveOptions,
    progress: Option<Py<PyAny>>,
) -> PyResult<Report> {
    let (mut infos, mut inputs) = (Vec::with_capacity(tensors.len()), Vec::with_capacity(tensors.len()));
    for (name, tensor) in &tensors {
        let name = name.to_str()?.to_owned();
        let input = Input::of(tensor, None).map_err(|error| named(py, &name, error))?;
        infos.push(tenfold_archive::TensorInfo {
            name,
            dtype: input.dtype,
            shape: input.shape.clone(),
            bytes: input.data().len() as u64,
        });
        inputs.push(input);
    }
    let source = StateDict { infos, inputs, metadata: save_options.metadata };

    let mut compress = match options {
        Some(EncodeOptions(options)) => {
            CompressOptions::new(options.goal).with_effort(options.effort).with_threads(options.threads)
        }
        None => CompressOptions::default().with_threads(usable(0)),
    };
    compress = compress
        .with_alloc(save_options.alloc.parse().map_err(ArgumentError::new_err)?)
        .with_overwrite(save_options.overwrite);
    compress.include = save_options.include;
    compress.exclude = save_options.exclude;
    if let Some(recipe) = &save_options.recipe {
        compress = compress.with_recipe(Recipe::read(recipe).map_err(errors::archive)?);
    }

    let callback = Callback {
        function: progress,
        total: AtomicU64::new(0),
        done: AtomicU64::new(0),
        error: Mutex::new(None),
    };
    let report =
        py.detach(|| tenfold_archive::compress_source(Box::new(source), &path, &compress, &callback));
    let report = report.map_err(errors::archive)?;
    match callback.error.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(Report {
            tensors: report.total.tensors,
            compressed: report.compressed.tensors,
            nbytes: report.total.original_bytes,
            stored_bytes: report.total.stored_bytes,
            bits_per_value: report.compressed.bits_per_value,
            ratio: report.total.ratio,
        }),
    }
}

/// The same exception, with the tensor's name in front.
fn named(py: Python<'_>, name: &str, error: PyErr) -> PyErr {
    let text = format!("tensor {name:?}: {}", error.value(py));
    PyErr::from_type(error.get_type(py), text)
}

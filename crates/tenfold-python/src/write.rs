//! Model files, written from tensors in memory or from other files.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyString;
use tenfold::engine::Stop;
use tenfold_archive::{Calibration, CompressOptions, Importance, Progress, Recipe, Source};

use crate::attend;
use crate::codec::{EncodeOptions, decode_options};
use crate::errors::{self, ArgumentError};
use crate::tensors::{Input, parse_dtype};
use crate::threads::limit_threads;

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

impl From<tenfold_archive::Report> for Report {
    fn from(report: tenfold_archive::Report) -> Report {
        Report {
            tensors: report.total.tensors,
            compressed: report.compressed.tensors,
            nbytes: report.total.original_bytes,
            stored_bytes: report.total.stored_bytes,
            bits_per_value: report.compressed.bits_per_value,
            ratio: report.total.ratio,
        }
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
        let input = input.ok_or_else(|| {
            tenfold_archive::Error::InvalidArgument(format!("tensor {index} does not exist"))
        })?;
        Ok(Cow::Borrowed(input.data()))
    }
}

/// Progress in bytes. Worker threads only count; the waiting thread calls Python.
#[derive(Default)]
pub struct Counter {
    total: AtomicU64,
    done: AtomicU64,
}

impl Counter {
    /// Calls `f(done, total)` if that has changed since `told`.
    fn tell(&self, py: Python<'_>, function: Option<&Py<PyAny>>, told: &mut (u64, u64)) -> PyResult<()> {
        let now = (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        if let Some(function) = function
            && now != *told
        {
            *told = now;
            function.call1(py, now)?;
        }
        Ok(())
    }
}

impl Progress for Counter {
    fn start(&self, total_bytes: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total_bytes, Ordering::Relaxed);
    }

    fn advance(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// How a model is written; see `tenfold.save`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct WriteOptions {
    /// Whether the goal of the encoding is the caller's; a recipe states one where it is not.
    own_goal: bool,
    /// The same of the effort.
    own_effort: bool,
    alloc: String,
    include: Vec<String>,
    exclude: Vec<String>,
    recipe: Option<PathBuf>,
    importance: Option<ImportanceOf>,
    made: BTreeMap<String, PathBuf>,
    overwrite: bool,
    calibration: Option<PathBuf>,
    loss: Option<f64>,
}

/// Importance of columns: a file of it, or vectors by the names of tensors.
#[derive(FromPyObject)]
enum ImportanceOf {
    File(PathBuf),
    Vectors(Vec<(String, Vec<f64>)>),
}

impl WriteOptions {
    fn with_encoding(self, EncodeOptions(encode): &EncodeOptions) -> PyResult<CompressOptions> {
        let mut options = CompressOptions::default()
            .with_threads(limit_threads(encode.threads))
            .with_alloc(self.alloc.parse().map_err(ArgumentError::new_err)?)
            .with_overwrite(self.overwrite);
        options.goal = self.own_goal.then_some(encode.goal);
        options.effort = self.own_effort.then_some(encode.effort);
        options.include = self.include;
        options.exclude = self.exclude;
        options.made = self.made;
        if let Some(recipe) = &self.recipe {
            options = options.with_recipe(Recipe::read(recipe).map_err(errors::archive)?);
        }
        options.prepare = encode.prepare.clone();
        options.residual = encode.residual.clone();
        options.minor = Some(encode.minor);
        let importance = match self.importance {
            Some(ImportanceOf::File(path)) => Importance::read(&path),
            Some(ImportanceOf::Vectors(vectors)) => Importance::new(vectors),
            None => Ok(Importance::default()),
        };
        options.importance = importance.map_err(errors::archive)?;
        if let Some(path) = &self.calibration {
            options = options.with_calibration(Calibration::read(path).map_err(errors::archive)?);
        }
        if let Some(loss) = self.loss {
            options = options.with_loss(loss);
        }
        Ok(options)
    }
}

/// Does long work, reports progress to a Python function `f(done, total)`, and raises what that or a signal raises.
pub fn run_reporting<T: Send, E: Send>(
    py: Python<'_>,
    function: Option<&Py<PyAny>>,
    raise: impl FnOnce(E) -> PyErr,
    work: impl FnOnce(&Stop, &Counter) -> Result<T, E> + Send,
) -> PyResult<T> {
    let (counter, mut told) = (Counter::default(), (0, 0));
    let result = attend::attend(py, |stop| work(stop, &counter), |py| counter.tell(py, function, &mut told))?;
    let result = result.map_err(raise)?;
    counter.tell(py, function, &mut told)?;
    Ok(result)
}

/// Writes named tensors into a file.
#[pyfunction]
#[pyo3(signature = (tensors, metadata, path, options, write, progress=None))]
pub fn save(
    py: Python<'_>,
    tensors: Vec<(Bound<'_, PyString>, Bound<'_, PyAny>)>,
    metadata: BTreeMap<String, String>,
    path: PathBuf,
    options: &EncodeOptions,
    write: WriteOptions,
    progress: Option<Py<PyAny>>,
) -> PyResult<Report> {
    let (mut infos, mut inputs) = (Vec::with_capacity(tensors.len()), Vec::with_capacity(tensors.len()));
    for (name, tensor) in &tensors {
        let name = name.to_str()?.to_owned();
        let input =
            Input::from_object(tensor, None).map_err(|error| errors::prefix_name(py, &name, error))?;
        infos.push(tenfold_archive::TensorInfo {
            name,
            dtype: input.dtype,
            shape: input.shape.clone(),
            bytes: input.data().len() as u64,
        });
        inputs.push(input);
    }
    let source = Box::new(StateDict { infos, inputs, metadata });
    let options = write.with_encoding(options)?;
    let report = run_reporting(py, progress.as_ref(), errors::archive, |stop, counter| {
        tenfold_archive::compress_source(source, &path, &options.with_stop(stop.clone()), counter)
    })?;
    Ok(Report::from(report))
}

/// Compresses a model file or folder into another.
#[pyfunction]
#[pyo3(signature = (input, output, options, write, progress=None))]
pub fn compress(
    py: Python<'_>,
    input: PathBuf,
    output: PathBuf,
    options: &EncodeOptions,
    write: WriteOptions,
    progress: Option<Py<PyAny>>,
) -> PyResult<Report> {
    let options = write.with_encoding(options)?;
    let report = run_reporting(py, progress.as_ref(), errors::archive, |stop, counter| {
        tenfold_archive::compress(&input, &output, &options.with_stop(stop.clone()), counter)
    })?;
    Ok(Report::from(report))
}

/// Unpacks a compressed model file or folder into another.
#[pyfunction]
#[pyo3(signature = (input, output, threads=0, overwrite=false, progress=None))]
pub fn decompress(
    py: Python<'_>,
    input: PathBuf,
    output: PathBuf,
    threads: usize,
    overwrite: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<()> {
    let options = decode_options(threads, None);
    run_reporting(py, progress.as_ref(), errors::archive, |stop, counter| {
        tenfold_archive::decompress(&input, &output, &options.with_stop(stop.clone()), overwrite, counter)
    })
}

/// The checksum that a model file states of a tensor that is stored as it was.
#[pyfunction]
pub fn checksum(py: Python<'_>, tensor: &Bound<'_, PyAny>) -> PyResult<u32> {
    let input = Input::from_object(tensor, None)?;
    let view = input.view().map_err(errors::codec)?;
    py.detach(|| tenfold_archive::checksum(&view)).map_err(errors::archive)
}

/// The metadata for all files of a model: its blobs (name, dtype, shape), checksums of its other tensors, its own metadata.
#[pyfunction]
pub fn model_tags(
    blobs: Vec<(String, String, Vec<usize>)>,
    plain: Option<Vec<(String, u32)>>,
    metadata: BTreeMap<String, String>,
) -> PyResult<BTreeMap<String, String>> {
    let mut known = Vec::with_capacity(blobs.len());
    for (name, dtype, shape) in &blobs {
        known.push((name.as_str(), parse_dtype(dtype)?, shape.as_slice()));
    }
    let metadata: Vec<(String, String)> = metadata.into_iter().collect();
    let tags = tenfold_archive::model_tags(known, plain.as_deref(), &metadata).map_err(errors::archive)?;
    Ok(tags.into_iter().collect())
}

//! Deltas of models: state dicts and files. `delta` has those of single tensors.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tenfold::DecodeOptions;
use tenfold_archive::delta::{self, ApplyOptions, MakeOptions, Patched, Tensors};
use tenfold_archive::{Archive, Silent};

use crate::attend::{self, LONG_DECODE};
use crate::codec::{parse_effort, parse_goal};
use crate::delta::{DeltaInfo, parse_verify};
use crate::errors::{self, ArgumentError};
use crate::tensors::{Blob, Input, python_name};
use crate::threads::limit_threads;
use crate::write::run_reporting;

/// What errors call a delta that is no file.
const MEMORY: &str = "the delta";

/// A tensor of Python: its name, the array or DLPack tensor, and the true element type of a raw view.
type Named<'py> = (String, Bound<'py, PyAny>, Option<String>);

/// Names and memory of Python's tensors.
fn inputs(py: Python<'_>, tensors: &[Named<'_>]) -> PyResult<Vec<(String, Input)>> {
    let input = |(name, tensor, dtype): &Named<'_>| {
        let input = Input::from_object(tensor, dtype.as_deref());
        Ok((name.clone(), input.map_err(|error| errors::prefix_name(py, name, error))?))
    };
    tensors.iter().map(input).collect()
}

/// The same as a version of a model.
fn version(inputs: &[(String, Input)]) -> tenfold_archive::Result<Tensors<'_>> {
    let mut views = Vec::with_capacity(inputs.len());
    for (name, input) in inputs {
        let codec = |source| tenfold_archive::Error::Codec { name: name.clone(), source };
        views.push((name.clone(), input.view().map_err(codec)?));
    }
    Tensors::new(views)
}

fn bytes_of(inputs: &[(String, Input)]) -> usize {
    inputs.iter().map(|(_, input)| input.data().len()).sum()
}

/// How a delta is made: threads, and a goal for differences of tensors, if they may come back with loss.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct DeltaMakeOptions {
    threads: usize,
    goal: Option<(String, Option<f64>)>,
    effort: String,
    exclude: Vec<String>,
}

impl DeltaMakeOptions {
    fn native(&self) -> PyResult<MakeOptions> {
        let mut options = MakeOptions::default().with_threads(limit_threads(self.threads));
        if let Some((name, number)) = &self.goal {
            options = options.with_goal(parse_goal(name, *number)?);
        }
        options = options.with_effort(parse_effort(&self.effort)?);
        Ok(self.exclude.iter().fold(options, |options, glob| options.with_exclude(glob.clone())))
    }
}

/// Makes a delta from two versions of a model in memory; returns the bytes that its file would have.
#[pyfunction]
pub fn delta_make_state<'py>(
    py: Python<'py>,
    base: Vec<Named<'py>>,
    new: Vec<Named<'py>>,
    options: DeltaMakeOptions,
) -> PyResult<Bound<'py, PyBytes>> {
    let (base, new) = (inputs(py, &base)?, inputs(py, &new)?);
    let options = options.native()?;
    let made = attend::run(py, bytes_of(&new) >= LONG_DECODE, |stop| {
        delta::make_bytes(&version(&base)?, &version(&new)?, &options.with_stop(stop.clone()), &Silent)
    })?;
    Ok(PyBytes::new(py, &made.map_err(errors::archive)?.0))
}

/// Makes a delta of a model from those of its tensors. `prints` has the fingerprint of every tensor. Returns the bytes that the file would
/// have, and the fingerprint of the result.
#[pyfunction]
pub fn delta_collect<'py>(
    py: Python<'py>,
    prints: BTreeMap<String, String>,
    blobs: Vec<(String, Bound<'py, PyBytes>)>,
) -> PyResult<(Bound<'py, PyBytes>, String)> {
    let mut prints = parse_prints(&prints)?;
    let blobs = blobs.into_iter().map(|(name, blob)| (name, blob.as_bytes().to_vec())).collect();
    let (bytes, report) = py.detach(|| delta::collect(&mut prints, blobs)).map_err(errors::archive)?;
    Ok((PyBytes::new(py, &bytes), report.result))
}

/// The fingerprint of a model, from those of all of its tensors.
#[pyfunction]
pub fn delta_model_fingerprint(prints: BTreeMap<String, String>) -> PyResult<String> {
    Ok(delta::fingerprint_of(&parse_prints(&prints)?).to_string())
}

fn parse_prints(prints: &BTreeMap<String, String>) -> PyResult<BTreeMap<String, delta::Fingerprint>> {
    let parse = |(name, text): (&String, &String)| match delta::parse_fingerprint(text) {
        Some(print) => Ok((name.clone(), print)),
        None => Err(ArgumentError::new_err(format!(
            "{text:?} is no fingerprint: 32 hexadecimal digits are needed"
        ))),
    };
    prints.iter().map(parse).collect()
}

/// A delta of a model.
#[pyclass(frozen, module = "tenfold._native")]
pub struct DeltaFile(delta::DeltaFile);

impl DeltaFile {
    fn change(&self, name: &str) -> PyResult<&delta::Change> {
        // They are in the order of their names.
        let changes = self.0.changes();
        let at = changes.binary_search_by(|change| change.name.as_str().cmp(name));
        at.map(|at| &changes[at]).map_err(|_| no_delta(name))
    }
}

fn no_delta(name: &str) -> PyErr {
    ArgumentError::new_err(format!("there is no delta of tensor {name:?}"))
}

/// What a delta does to a tensor: name, how, the base's name, dtype and shape of what is stored, fingerprints of base and result,
/// values that change, bytes.
type Change = (
    String,
    &'static str,
    Option<String>,
    Option<String>,
    Option<Vec<usize>>,
    Option<String>,
    String,
    Option<u64>,
    u64,
);

/// A tensor of a result: name, dtype, shape, and its bytes where it is not the base's.
type Made<'py> = (String, String, Vec<usize>, Option<Bound<'py, PyBytes>>);

#[pymethods]
impl DeltaFile {
    /// Opens a file.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<DeltaFile> {
        py.detach(|| delta::DeltaFile::open(&path)).map(DeltaFile).map_err(errors::archive)
    }

    /// Reads the bytes of a file.
    #[staticmethod]
    fn parse(py: Python<'_>, bytes: &Bound<'_, PyAny>) -> PyResult<DeltaFile> {
        let blob = Blob::from_object(bytes)?;
        let data = blob.data();
        py.detach(|| delta::DeltaFile::parse(data.to_vec(), Path::new(MEMORY)))
            .map(DeltaFile)
            .map_err(errors::archive)
    }

    /// Fingerprint of the model that it belongs to.
    fn base(&self) -> String {
        self.0.base().to_string()
    }

    /// Fingerprint of what that becomes.
    fn result(&self) -> String {
        self.0.result().to_string()
    }

    /// Names that the result does not have.
    fn removed(&self) -> Vec<String> {
        self.0.removed().to_vec()
    }

    /// The tensors that change, in the order of their names.
    fn changes(&self) -> Vec<Change> {
        let change = |change: &delta::Change| -> Change {
            let meta = change.meta();
            (
                change.name.clone(),
                change.how.name(),
                change.from.clone(),
                meta.map(dtype_of),
                meta.map(|meta| meta.shape.clone()),
                change.base.map(|print| print.to_string()),
                change.result.to_string(),
                change.changed,
                change.bytes,
            )
        };
        self.0.changes().iter().map(change).collect()
    }

    /// What the delta of a tensor says of itself.
    fn info(&self, name: &str) -> PyResult<DeltaInfo> {
        self.change(name)?.info().cloned().map(DeltaInfo).ok_or_else(|| no_delta(name))
    }

    /// The delta of a tensor.
    fn blob<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyBytes>> {
        let change = self.change(name)?;
        let blob = py.detach(|| self.0.read_blob(change)).map_err(errors::archive)?;
        blob.map(|blob| PyBytes::new(py, &blob)).ok_or_else(|| no_delta(name))
    }

    /// What becomes of tensors; they stay as they are. With `only` of these names alone, else of a whole model.
    #[pyo3(signature = (tensors, only=None, verify="whole", threads=0))]
    fn patch<'py>(
        &self,
        py: Python<'py>,
        tensors: Vec<Named<'py>>,
        only: Option<Vec<String>>,
        verify: &str,
        threads: usize,
    ) -> PyResult<Vec<Made<'py>>> {
        let inputs = inputs(py, &tensors)?;
        let mut options =
            ApplyOptions::default().with_verify(parse_verify(verify)?).with_threads(limit_threads(threads));
        options.only = only.unwrap_or_default().iter().map(|name| escape(name)).collect();
        let made = attend::run(py, bytes_of(&inputs) >= LONG_DECODE, |stop| {
            let base = version(&inputs)?;
            let patched = Patched::new(&base, &[&self.0], &options.with_stop(stop.clone()))?;
            let bytes = patched.read_changes(&Silent)?;
            let metas = patched.tensors().iter().map(|tensor| tensor.meta.clone());
            Ok(metas.zip(bytes).collect::<Vec<_>>())
        })?;
        let made = made.map_err(errors::archive)?.into_iter();
        let each = |(meta, bytes): (delta::Meta, Option<Vec<u8>>)| {
            (meta.name.clone(), dtype_of(&meta), meta.shape, bytes.map(|bytes| PyBytes::new(py, &bytes)))
        };
        Ok(made.map(each).collect())
    }
}

/// A glob that is one name.
fn escape(name: &str) -> String {
    let mut glob = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '?' | '*' | '[' | ']' | '{' | '}' | '!' | '\\' => glob.extend(['\\', c]),
            _ => glob.push(c),
        }
    }
    glob
}

fn dtype_of(meta: &delta::Meta) -> String {
    meta.dtype().map_or_else(|| meta.dtype_name(), |dtype| python_name(dtype).to_owned())
}

/// Makes a delta from two model files or folders and writes it to a file.
#[pyfunction]
#[pyo3(signature = (base, new, output, options, overwrite=false, progress=None))]
pub fn delta_make_file(
    py: Python<'_>,
    base: PathBuf,
    new: PathBuf,
    output: PathBuf,
    options: DeltaMakeOptions,
    overwrite: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<()> {
    let options = options.native()?.with_overwrite(overwrite);
    run_reporting(py, progress.as_ref(), errors::archive, |stop, counter| {
        let options = options.with_stop(stop.clone());
        let decode = DecodeOptions::default().with_stop(stop.clone());
        let (base, new) = (Archive::open(&base)?, Archive::open(&new)?);
        let (base, new) = (Tensors::of_archive(&base, &decode), Tensors::of_archive(&new, &decode));
        delta::make(&base, &new, &output, &options, counter).map(drop)
    })
}

/// Applies deltas, one after the other, to a model file or folder and writes the result.
#[pyfunction]
#[pyo3(signature = (base, deltas, output, verify="whole", threads=0, overwrite=false, progress=None))]
#[allow(clippy::too_many_arguments, reason = "one for each of Python's")]
pub fn delta_apply_file(
    py: Python<'_>,
    base: PathBuf,
    deltas: Vec<PathBuf>,
    output: PathBuf,
    verify: &str,
    threads: usize,
    overwrite: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<()> {
    let options = ApplyOptions::default().with_threads(limit_threads(threads)).with_overwrite(overwrite);
    let options = options.with_verify(parse_verify(verify)?);
    run_reporting(py, progress.as_ref(), errors::archive, |stop, counter| {
        let deltas = deltas.iter().map(|path| delta::DeltaFile::open(path)).collect::<Result<Vec<_>, _>>()?;
        let deltas: Vec<&delta::DeltaFile> = deltas.iter().collect();
        let options = options.with_stop(stop.clone());
        delta::apply(&Archive::open(&base)?, &deltas, &output, &options, counter)
    })
}

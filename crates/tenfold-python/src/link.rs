//! Models over HTTP, into files or into tensors.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tenfold_link::pull::{PullOptions, Pulled, Taken};

use crate::codec::decode_options;
use crate::errors::{self, ArgumentError};
use crate::tensors::python_name;
use crate::write::run_reporting;

/// How a model is pulled; see `tenfold.pull`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct PullSettings {
    decode: bool,
    include: Vec<String>,
    rows: Option<(usize, usize)>,
    query: Option<String>,
    bandwidth: Option<f64>,
    token: Option<String>,
    ca: Option<PathBuf>,
    connections: usize,
    retries: u32,
    stall: f64,
    max_memory: u64,
    cache: Option<PathBuf>,
    overwrite: bool,
    threads: usize,
}

impl PullSettings {
    fn options(self) -> PyResult<PullOptions> {
        let stall = Duration::try_from_secs_f64(self.stall).ok().filter(|stall| !stall.is_zero());
        let stall = stall.ok_or_else(|| {
            ArgumentError::new_err(format!("stall is a positive number of seconds, not {}", self.stall))
        })?;
        let mut options = PullOptions::default();
        options.decode = self.decode;
        options.include = self.include;
        options.rows = self.rows.map(|(first, last)| first..last);
        options.query = self.query;
        options.bandwidth = self.bandwidth;
        options.token = self.token;
        options.ca = self.ca;
        options.connections = self.connections;
        options.retries = self.retries;
        options.stall = stall;
        options.max_memory = self.max_memory;
        options.cache = self.cache;
        options.overwrite = self.overwrite;
        options.read.decode = decode_options(self.threads, None);
        Ok(options)
    }
}

/// Files, bytes fetched, bytes written or handed over, and those of them that nothing vouches for.
type Sums = (usize, u64, u64, u64);

fn sums(pulled: &Pulled) -> Sums {
    (pulled.files, pulled.fetched, pulled.written, pulled.unchecked)
}

/// Pulls a model into a file or folder.
#[pyfunction]
#[pyo3(signature = (url, output, settings, progress=None))]
pub fn pull(
    py: Python<'_>,
    url: String,
    output: PathBuf,
    settings: PullSettings,
    progress: Option<Py<PyAny>>,
) -> PyResult<Sums> {
    let mut options = settings.options()?;
    run_reporting(py, progress.as_ref(), errors::link, |stop, counter| {
        options.stop = stop.clone();
        tenfold_link::pull::pull(&url, &output, &options, counter).map(|pulled| sums(&pulled))
    })
}

/// Pulls the tensors of a model and calls `each(name, dtype, shape, bytes, is_blob)` with every one as it arrives, on another thread.
#[pyfunction]
#[pyo3(signature = (url, each, settings, progress=None))]
pub fn pull_tensors(
    py: Python<'_>,
    url: String,
    each: Py<PyAny>,
    settings: PullSettings,
    progress: Option<Py<PyAny>>,
) -> PyResult<Sums> {
    let mut options = settings.options()?;
    // What the function raised, which ends the pull and comes back.
    let raised: Mutex<Option<PyErr>> = Mutex::new(None);
    let take = |tensor: Taken| {
        Python::attach(|py| hand_over(py, &each, tensor)).map_err(|error| {
            *raised.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(error);
            tenfold_link::Error::Stopped
        })
    };
    let result = run_reporting(py, progress.as_ref(), errors::link, |stop, counter| {
        options.stop = stop.clone();
        tenfold_link::pull::pull_tensors(&url, &options, &take, counter).map(|pulled| sums(&pulled))
    });
    let raised = raised.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    raised.map_or(result, Err)
}

fn hand_over(py: Python<'_>, each: &Py<PyAny>, tensor: Taken) -> PyResult<()> {
    let dtype = tensor.dtype.map_or_else(|| tensor.dtype_name.clone(), |dtype| python_name(dtype).to_owned());
    let shape = PyTuple::new(py, &tensor.shape)?;
    let data = PyArray1::from_vec(py, tensor.data);
    each.call1(py, (tensor.name, dtype, shape, data, tensor.is_blob)).map(|_| ())
}

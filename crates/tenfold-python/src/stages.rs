//! Stages of `tenfold-pipeline` whose work is Python's.
//!
//! Threads are Rust's; each takes the interpreter's lock for a call and gives it back in between. So stages overlap as far as their calls
//! release it themselves, as reading, hashing and decoding do.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyList};
use tenfold::engine;
use tenfold_pipeline as pipeline;

use crate::{attend, errors};

mod classes {
    // The macro makes types without documentation.
    #![allow(missing_docs)]
    pyo3::import_exception!(concurrent.futures, CancelledError);
}

/// When stages worked on what.
#[pyclass(frozen, module = "tenfold._native")]
pub struct Timeline(pipeline::Timeline);

#[pymethods]
impl Timeline {
    #[new]
    #[pyo3(signature = (room=None))]
    fn new(room: Option<usize>) -> Timeline {
        Timeline(room.map_or_else(pipeline::Timeline::new, pipeline::Timeline::with_room))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// Stages with items, bytes and busy seconds; seconds of all; the overlap reached over possible.
    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = py.detach(|| self.0.summary());
        let stages = PyList::empty(py);
        for stage in &found.stages {
            let one = PyDict::new(py);
            one.set_item("stage", &stage.stage)?;
            one.set_item("items", stage.items)?;
            one.set_item("bytes", stage.bytes)?;
            one.set_item("busy", stage.busy)?;
            stages.append(one)?;
        }
        let summary = PyDict::new(py);
        summary.set_item("seconds", found.seconds)?;
        summary.set_item("overlap", found.overlap())?;
        summary.set_item("stages", stages)?;
        Ok(summary)
    }

    /// Writes a Chrome trace.
    fn write_trace(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let write = || {
            let mut file = BufWriter::new(File::create(&path)?);
            self.0.write_trace(&mut file)?;
            file.flush()
        };
        let written = py.detach(write);
        written.map_err(|source| errors::archive(tenfold_archive::Error::Io { path: path.clone(), source }))
    }
}

/// Ends a pipeline.
#[pyclass(frozen, module = "tenfold._native")]
pub struct Stop(engine::Stop);

#[pymethods]
impl Stop {
    #[new]
    fn new() -> Stop {
        Stop(engine::Stop::new())
    }

    fn stop(&self) {
        self.0.stop();
    }

    #[getter]
    fn is_stopped(&self) -> bool {
        self.0.is_stopped()
    }
}

fn stopped() -> PyErr {
    classes::CancelledError::new_err("the pipeline was stopped")
}

/// Name and workers of a stage, and a function that turns an item into another and the bytes that went through.
type StageArgs = (String, usize, Py<PyAny>);

/// Runs stages until the source has no more items; see `tenfold._stages.run`.
#[pyfunction]
pub fn run_stages(
    py: Python<'_>,
    source: &Bound<'_, PyAny>,
    stages: Vec<StageArgs>,
    sink: (String, Py<PyAny>),
    window: usize,
    timeline: &Timeline,
    stop: &Stop,
) -> PyResult<()> {
    if window == 0 || stages.iter().any(|(_, workers, _)| *workers == 0) {
        return Err(PyValueError::new_err("a pipeline has a window and workers, one at least of each"));
    }
    let items = source.try_iter()?.unbind();
    let run = |ended: &engine::Stop| {
        pipeline::run(&timeline.0, ended, stopped, |adding| {
            let mut inlet = adding.source("source", window, move |out| {
                while let Some(item) = next(&items)? {
                    out.send(item)?;
                }
                Ok(())
            });
            for (name, workers, work) in stages {
                inlet = adding.stage(name, workers, inlet, move |item: Py<PyAny>| {
                    Python::attach(|py| work.call1(py, (item,))?.extract::<(Py<PyAny>, u64)>(py))
                });
            }
            let (name, work) = sink;
            adding.sink(name, inlet, move |item: Py<PyAny>| {
                Python::attach(|py| work.call1(py, (item,))?.extract::<u64>(py))
            });
        })
    };
    attend::attend(py, run, |_| if stop.0.is_stopped() { Err(stopped()) } else { Ok(()) })?
}

fn next(items: &Py<PyIterator>) -> PyResult<Option<Py<PyAny>>> {
    Python::attach(|py| items.bind(py).clone().next().transpose().map(|item| item.map(Bound::unbind)))
}

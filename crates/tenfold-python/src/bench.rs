//! The Rust library on its own, on the same memory and in the same process, for `python/bench/speed.py` to compare the
//! package with.

use std::time::Instant;

use pyo3::prelude::*;

use crate::codec::{EncodeOptions, decode_options};
use crate::errors;
use crate::tensors::{Blob, Input, Output};
use tenfold::engine::{Cpu, Engine};

/// Seconds that `tenfold::encode` takes.
#[pyfunction]
pub fn time_encode(py: Python<'_>, tensor: &Bound<'_, PyAny>, options: &EncodeOptions) -> PyResult<f64> {
    let input = Input::from_object(tensor, None)?;
    let view = input.view().map_err(errors::codec)?;
    time(py, || tenfold::encode(&view, &options.0))
}

/// Seconds that `tenfold::decode` takes, or `tenfold::decode_into` where there is an `out`.
#[pyfunction]
#[pyo3(signature = (blob, out=None, threads=0))]
pub fn time_decode(
    py: Python<'_>,
    blob: &Bound<'_, PyAny>,
    out: Option<&Bound<'_, PyAny>>,
    threads: usize,
) -> PyResult<f64> {
    let (blob, mut out) = (Blob::from_object(blob)?, out.map(Output::from_object).transpose()?);
    let (blob, options) = (blob.data(), decode_options(threads, None));
    match &mut out {
        Some(out) => {
            let out = out.data();
            time(py, || Cpu.decode_into(blob, &options, out))
        }
        None => time(py, || tenfold::decode(blob, &options)),
    }
}

fn time<T: Send>(py: Python<'_>, work: impl FnOnce() -> tenfold::engine::Result<T> + Send) -> PyResult<f64> {
    py.detach(|| {
        let start = Instant::now();
        let result = work();
        let seconds = start.elapsed().as_secs_f64();
        result.map(|_| seconds).map_err(errors::codec)
    })
}

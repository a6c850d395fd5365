//! What changed between two versions of a tensor: deltas, made, applied in place and looked at.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use tenfold::delta::{self, DeltaOptions, Pending, Verify};
use tenfold::engine::Limits;

use crate::attend::{self, LONG_DECODE};
use crate::errors::{self, ArgumentError};
use crate::tensors::{Blob, Input, Output, python_name, shape_text};
use crate::threads::limit_threads;

/// Changes that are kept between the check of all tensors and the first write: 12 bytes each. What is beyond is decoded again.
const HELD: u64 = 1 << 24;

fn delta_options(threads: usize, max_bytes: Option<u64>) -> DeltaOptions {
    let mut limits = Limits::default();
    if let Some(bytes) = max_bytes {
        limits = limits.with_max_bytes(bytes);
    }
    DeltaOptions::default().with_threads(limit_threads(threads)).with_limits(limits)
}

/// How sure an application is of its base, by name.
pub fn parse_verify(verify: &str) -> PyResult<Verify> {
    match verify {
        "whole" => Ok(Verify::Whole),
        "touched" => Ok(Verify::Touched),
        _ => Err(ArgumentError::new_err(format!("verify must be \"whole\" or \"touched\", not {verify:?}"))),
    }
}

/// Makes a delta from two versions of a tensor. `dtype` names the true element type of raw views.
#[pyfunction]
#[pyo3(signature = (base, new, dtype=None, threads=0))]
pub fn delta_make<'py>(
    py: Python<'py>,
    base: &Bound<'py, PyAny>,
    new: &Bound<'py, PyAny>,
    dtype: Option<&str>,
    threads: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let (base, new) = (Input::from_object(base, dtype)?, Input::from_object(new, dtype)?);
    let options = delta_options(threads, None);
    let blob = attend::run(py, new.data().len() >= LONG_DECODE, |stop| {
        delta::make(&base.view()?, &new.view()?, &options.with_stop(stop.clone()))
    })?;
    Ok(PyBytes::new(py, &blob.map_err(errors::codec)?))
}

/// Applies deltas in place, each to the array or DLPack tensor beside it. All are held against their tensors before a byte
/// changes. Returns how many values were written in each, and how many had the new value already.
///
/// An exception names its tensor by `names`, where those are given. `check_only` writes nothing.
#[pyfunction]
#[pyo3(signature = (pairs, names=None, verify="whole", threads=0, max_bytes=None, check_only=false))]
pub fn delta_apply(
    py: Python<'_>,
    pairs: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)>,
    names: Option<Vec<String>>,
    verify: &str,
    threads: usize,
    max_bytes: Option<u64>,
    check_only: bool,
) -> PyResult<Vec<(u64, u64)>> {
    let options = delta_options(threads, max_bytes).with_verify(parse_verify(verify)?);
    let name = |at: usize| names.as_ref().and_then(|names| names.get(at)).map(String::as_str);
    let named = |at: usize, error| match name(at) {
        Some(name) => errors::prefix_name(py, name, error),
        None => error,
    };
    let mut opened = Vec::with_capacity(pairs.len());
    for (at, (blob, tensor)) in pairs.iter().enumerate() {
        opened.push(open(blob, tensor).map_err(|error| named(at, error))?);
    }
    let mut targets: Vec<Target<'_>> = opened.iter_mut().map(Opened::target).collect();
    check_apart(&targets)?;
    let bytes: usize = targets.iter().map(|target| target.data.len()).sum();
    let applied = attend::run(py, bytes >= LONG_DECODE, |stop| {
        apply_all(&mut targets, &options.with_stop(stop.clone()), check_only)
    })?;
    applied.map_err(|(at, error)| named(at, errors::codec(error)))
}

/// A delta and the memory that it is for.
struct Opened<'py> {
    blob: Blob<'py>,
    info: delta::DeltaInfo,
    out: Output,
}

/// The same without Python's objects.
struct Target<'a> {
    blob: &'a [u8],
    info: &'a delta::DeltaInfo,
    data: &'a mut [u8],
}

impl Opened<'_> {
    fn target(&mut self) -> Target<'_> {
        Target { blob: self.blob.data(), info: &self.info, data: self.out.data() }
    }
}

fn open<'py>(blob: &Bound<'py, PyAny>, tensor: &Bound<'py, PyAny>) -> PyResult<Opened<'py>> {
    let blob = Blob::from_object(blob)?;
    let info = delta::inspect(blob.data()).map_err(errors::codec)?;
    let out = Output::from_object(tensor)?;
    out.check(info.dtype, &info.shape, None)?;
    Ok(Opened { blob, info, out })
}

/// Refuses memory that two deltas would change, or that holds a delta itself.
fn check_apart(targets: &[Target<'_>]) -> PyResult<()> {
    let mut spans: Vec<_> = targets.iter().map(|target| (target.data.as_ptr_range(), true)).collect();
    spans.extend(targets.iter().map(|target| (target.blob.as_ptr_range(), false)));
    spans.retain(|(span, _)| !span.is_empty());
    spans.sort_by_key(|(span, _)| span.start);
    let mut end = spans.first().map_or(std::ptr::null(), |(span, _)| span.start);
    let mut writes = false;
    for (span, written) in spans {
        if span.start < end && (written || writes) {
            return Err(ArgumentError::new_err(
                "two of the tensors, or a tensor and a delta, share memory; pass each memory once",
            ));
        }
        // Two deltas may be the same bytes: what reaches furthest, and whether any of it is written.
        writes = if span.start < end { writes || written } else { written };
        end = end.max(span.end);
    }
    Ok(())
}

/// Holds every delta against its tensor, then writes. An error comes with the number of its tensor; before the first write it
/// leaves all as they are.
fn apply_all(
    targets: &mut [Target<'_>],
    options: &DeltaOptions,
    check_only: bool,
) -> Result<Vec<(u64, u64)>, (usize, tenfold::Error)> {
    let (mut held, mut pending, mut done) = (0, Vec::with_capacity(targets.len()), Vec::new());
    for (at, target) in targets.iter().enumerate() {
        let one = prepare(target, options).map_err(|error| (at, error))?;
        let applied = one.applied();
        done.push((applied.written, applied.before));
        let keep = !check_only && held + applied.written <= HELD;
        held += if keep { applied.written } else { 0 };
        pending.push(keep.then_some(one));
    }
    if check_only {
        return Ok(done);
    }
    // The bases are known by now, and what is left to check is which tiles are new.
    let again = options.clone().with_verify(Verify::Touched);
    for (at, (target, pending)) in targets.iter_mut().zip(pending).enumerate() {
        let pending = match pending {
            Some(pending) => Ok(pending),
            None => prepare(target, &again),
        };
        pending
            .and_then(|pending| pending.write(0..pending.tiles(), target.data))
            .map_err(|error| (at, error))?;
    }
    Ok(done)
}

fn prepare(target: &Target<'_>, options: &DeltaOptions) -> Result<Pending, tenfold::Error> {
    delta::prepare(target.blob, target.info.dtype, &target.info.shape, target.data, options)
}

/// Reads a delta's header and the heads of its tiles.
#[pyfunction]
pub fn delta_inspect(blob: &Bound<'_, PyAny>) -> PyResult<DeltaInfo> {
    delta::inspect(Blob::from_object(blob)?.data()).map(DeltaInfo).map_err(errors::codec)
}

/// The fingerprint of a tensor, in hexadecimal digits: of its dtype, its shape and every byte.
#[pyfunction]
#[pyo3(signature = (tensor, dtype=None))]
pub fn delta_fingerprint(py: Python<'_>, tensor: &Bound<'_, PyAny>, dtype: Option<&str>) -> PyResult<String> {
    let input = Input::from_object(tensor, dtype)?;
    let fingerprint = py.detach(|| {
        let view = input.view()?;
        match limit_threads(0) {
            0 => Ok(delta::fingerprint(&view)),
            // A forked process: what changes nothing is made on one thread, and names its base.
            one => {
                let same = delta::make(&view, &view, &DeltaOptions::default().with_threads(one))?;
                delta::inspect(&same).map(|info| info.base)
            }
        }
    });
    Ok(fingerprint.map_err(errors::codec)?.to_string())
}

/// What a delta says of itself.
#[pyclass(frozen, module = "tenfold.delta")]
pub struct DeltaInfo(pub(crate) delta::DeltaInfo);

#[pymethods]
impl DeltaInfo {
    /// Element type of both tensors, by its name in numpy, ml_dtypes and torch.
    #[getter]
    fn dtype(&self) -> &'static str {
        python_name(self.0.dtype)
    }

    /// Shape of both tensors.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.0.shape)
    }

    /// Fingerprint of the tensor that it belongs to.
    #[getter]
    fn base(&self) -> String {
        self.0.base.to_string()
    }

    /// Fingerprint of what that becomes; the same if nothing changes.
    #[getter]
    fn result(&self) -> String {
        self.0.result.to_string()
    }

    /// Values of the tensor.
    #[getter]
    fn size(&self) -> u64 {
        self.0.values
    }

    /// Values that change.
    #[getter]
    fn changed(&self) -> u64 {
        self.0.changed
    }

    /// Tiles, which are applied independently.
    #[getter]
    fn tiles(&self) -> u64 {
        self.0.tiles
    }

    /// Bytes of the tensor.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.0.values.saturating_mul(self.0.dtype.size() as u64)
    }

    /// Bytes of the whole delta.
    #[getter]
    fn blob_bytes(&self) -> u64 {
        self.0.blob_bytes
    }

    fn __repr__(&self) -> String {
        let info = &self.0;
        format!(
            "<DeltaInfo {} {}: {} of {} values change, {} bytes>",
            python_name(info.dtype),
            shape_text(&info.shape),
            info.changed,
            info.values,
            info.blob_bytes
        )
    }
}

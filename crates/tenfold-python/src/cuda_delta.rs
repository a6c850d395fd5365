//! Deltas on a GPU: tensors that are brought up to date where they lie. Who calls vouches for addresses, as in [`crate::cuda`].
#![allow(unsafe_code)]

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use tenfold::Dtype;
use tenfold::delta::{Applied, DeltaOptions};
use tenfold::engine::Limits;
use tenfold_cuda::{
    DeltaApplier, DeltaPlan as Plan, DeltaRequest, DeviceSlice, Status, apply_delta, delta_workspace_len,
    fingerprints,
};

use crate::cuda::{CudaDevice, Memory, slice, stream_of};
use crate::errors;
use crate::tensors::{Blob, parse_dtype, python_name};

/// Values that were written, and values that were new already.
type Counts = (u64, u64);

fn counts(applied: Applied) -> Counts {
    (applied.written, applied.before)
}

fn limits(max_bytes: Option<u64>) -> Limits {
    max_bytes.map_or_else(Limits::default, |bytes| Limits::default().with_max_bytes(bytes))
}

/// A delta's header, for any number of applications on a device.
#[pyclass(frozen, module = "tenfold._native")]
pub struct DeltaPlan(Plan);

#[pymethods]
impl DeltaPlan {
    /// Reads a delta in memory of the host.
    #[new]
    #[pyo3(signature = (blob, max_bytes=None))]
    fn new(py: Python<'_>, blob: Bound<'_, PyAny>, max_bytes: Option<u64>) -> PyResult<DeltaPlan> {
        let blob = Blob::from_object(&blob)?;
        let (bytes, limits) = (blob.data(), limits(max_bytes));
        py.detach(|| Plan::new(bytes, &limits)).map(DeltaPlan).map_err(errors::cuda)
    }

    /// Element type of the tensor.
    #[getter]
    fn dtype(&self) -> &'static str {
        python_name(self.0.dtype())
    }

    /// Shape of the tensor.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.shape())
    }

    /// Bytes of the tensor.
    #[getter]
    fn tensor_len(&self) -> usize {
        self.0.tensor_len()
    }

    /// Bytes of the delta.
    #[getter]
    fn blob_len(&self) -> usize {
        self.0.blob_len()
    }

    /// Values that change.
    #[getter]
    fn changed(&self) -> u64 {
        self.0.changed()
    }

    /// What the device must have of it, at a multiple of 16 bytes.
    #[getter]
    fn setup<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.setup())
    }

    /// Bytes of workspace that an application needs. Many need the sum of theirs, each rounded up to 256.
    #[getter]
    fn workspace_len(&self) -> usize {
        let nowhere = DeviceSlice::new(0, 0);
        delta_workspace_len(&[DeltaRequest::new(&self.0, nowhere, nowhere, nowhere)])
    }

    /// What a status says: counts of values, or an exception. Then the tensor is as it was.
    fn check(&self, said: [u8; 16]) -> PyResult<Counts> {
        self.0.check(Status::from_bytes(said)).map(counts).map_err(errors::codec)
    }
}

/// A delta's header; the delta, its setup and the tensor on the device.
type Request<'py> = (PyRef<'py, DeltaPlan>, Memory, Memory, Memory);

/// Queues the application of deltas, in place. `status` is the address of 16 bytes a delta.
#[pyfunction]
pub fn cuda_apply_deltas(
    py: Python<'_>,
    device: &CudaDevice,
    requests: Vec<Request<'_>>,
    status: u64,
    workspace: Memory,
    stream: usize,
) -> PyResult<()> {
    let requests: Vec<DeltaRequest<'_>> = requests
        .iter()
        .map(|(plan, blob, setup, tensor)| {
            DeltaRequest::new(&plan.0, slice(*blob), slice(*setup), slice(*tensor))
        })
        .collect();
    let status = DeviceSlice::new(status, requests.len() * size_of::<Status>());
    let device = device.device();
    // SAFETY: the caller's promise; see the module.
    py.detach(|| unsafe { apply_delta(device, &requests, status, slice(workspace), stream_of(stream)) })
        .map_err(errors::cuda)
}

/// Memory of a tensor, its dtype and its shape.
type Tensor = (Memory, String, Vec<usize>);

/// The fingerprints of tensors on a device, in hexadecimal digits. Waits for the stream.
#[pyfunction]
pub fn cuda_fingerprints(
    py: Python<'_>,
    device: &CudaDevice,
    tensors: Vec<Tensor>,
    stream: usize,
) -> PyResult<Vec<String>> {
    let tensors = tensors
        .iter()
        .map(|(memory, dtype, shape)| Ok((slice(*memory), parse_dtype(dtype)?, &shape[..])))
        .collect::<PyResult<Vec<_>>>()?;
    // SAFETY: the caller's promise; see the module.
    let found = py.detach(|| unsafe { fingerprints(device.device(), &tensors, stream_of(stream)) });
    Ok(found.map_err(errors::cuda)?.iter().map(ToString::to_string).collect())
}

/// Applies deltas that lie in host memory, one after the other; keeps its memory.
#[pyclass(frozen, module = "tenfold._native")]
pub struct DeviceDelta(Mutex<DeltaApplier>);

#[pymethods]
impl DeviceDelta {
    /// For tensors on a device.
    #[new]
    fn new(device: &CudaDevice) -> PyResult<DeviceDelta> {
        DeltaApplier::new(device.device()).map(|a| DeviceDelta(Mutex::new(a))).map_err(errors::cuda)
    }

    /// Copies a delta to the device and applies it there, unless `check_only` asks what that would do. Waits; gives the values that were
    /// written, and those that were new already.
    #[pyo3(signature = (blob, tensor, dtype, shape, stream, max_bytes=None, check_only=false))]
    #[allow(clippy::too_many_arguments)] // a delta, a tensor in parts, and a stream
    fn apply(
        &self,
        py: Python<'_>,
        blob: Bound<'_, PyAny>,
        tensor: Memory,
        dtype: &str,
        shape: Vec<usize>,
        stream: usize,
        max_bytes: Option<u64>,
        check_only: bool,
    ) -> PyResult<Counts> {
        let blob = Blob::from_object(&blob)?;
        let (bytes, dtype, limits) = (blob.data(), parse_dtype(dtype)?, limits(max_bytes));
        self.with(py, |applier| {
            let to: (DeviceSlice, Dtype, &[usize]) = (slice(tensor), dtype, &shape);
            // SAFETY: the caller's promise; see the module.
            unsafe {
                match check_only {
                    true => applier.compare(bytes, to, &limits, stream_of(stream)),
                    false => applier.apply(bytes, to, &limits, stream_of(stream)),
                }
            }
        })
    }

    /// The same, decoded on the host with `copy`, the bytes of the tensor before or after the delta.
    #[pyo3(signature = (blob, copy, tensor, dtype, shape, stream, threads=0, max_bytes=None))]
    #[allow(clippy::too_many_arguments)] // as above
    fn apply_decoded(
        &self,
        py: Python<'_>,
        blob: Bound<'_, PyAny>,
        copy: Bound<'_, PyAny>,
        tensor: Memory,
        dtype: &str,
        shape: Vec<usize>,
        stream: usize,
        threads: usize,
        max_bytes: Option<u64>,
    ) -> PyResult<Counts> {
        let (blob, copy) = (Blob::from_object(&blob)?, Blob::from_object(&copy)?);
        let (bytes, copy, dtype) = (blob.data(), copy.data(), parse_dtype(dtype)?);
        let options = DeltaOptions::default().with_threads(threads).with_limits(limits(max_bytes));
        self.with(py, |applier| {
            let to: (DeviceSlice, Dtype, &[usize]) = (slice(tensor), dtype, &shape);
            // SAFETY: as above.
            unsafe { applier.apply_decoded(bytes, copy, to, &options, stream_of(stream)) }
        })
    }
}

impl DeviceDelta {
    fn with(
        &self,
        py: Python<'_>,
        apply: impl FnOnce(&mut DeltaApplier) -> tenfold_cuda::Result<Applied> + Send,
    ) -> PyResult<Counts> {
        py.detach(|| apply(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner)))
            .map(counts)
            .map_err(errors::cuda)
    }
}

//! Blobs and tensors on a GPU: device addresses of Python's side become requests of the CUDA engine.
//!
//! Whoever calls vouches for addresses, as the engine asks: memory of this device, as long as it says, left alone until the
//! stream has passed the call. `tenfold.torch` takes them from tensors that it has looked at, and is the only caller. Calls
//! queue work and return; the interpreter's lock is released meanwhile, because a first call loads kernels.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use tenfold::engine::{Coded, Limits, Outcome};
use tenfold::format::Codec;
use tenfold::{Dtype, Goal};
use tenfold_cuda::{
    DecodeRequest, DecodeSettings, Device, DeviceChain, DeviceSlice, EncodeRequest, Status, Stream,
    decode_workspace_len, encode_prepared, encode_prepared_workspace_len,
};

use crate::codec::EncodeOptions;
use crate::errors::{self, ArgumentError, DataError, LimitError};
use crate::tensors::known_dtype;

/// An address of the device and the bytes there.
type Memory = (u64, usize);

/// Devices that were opened. They stay so: kernels are loaded once, and when a process ends the driver may be gone before
/// anything of ours could be given back.
static OPEN: Mutex<BTreeMap<u32, Device>> = Mutex::new(BTreeMap::new());

/// A CUDA device, in the context that torch uses (the primary one).
#[pyclass(frozen, module = "tenfold._native")]
pub struct CudaDevice(Device);

#[pymethods]
impl CudaDevice {
    /// Opens a device by its number; the same number is opened once.
    #[new]
    fn new(py: Python<'_>, ordinal: u32) -> PyResult<CudaDevice> {
        py.detach(|| {
            let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(device) = open.get(&ordinal) {
                return Ok(CudaDevice(device.clone()));
            }
            let device = Device::open(ordinal).map_err(errors::cuda)?;
            open.insert(ordinal, device.clone());
            Ok(CudaDevice(device))
        })
    }

    /// A device that is none, for tests: its memory is the host's, and calls have done their work when they return.
    #[cfg(feature = "emulator")]
    #[staticmethod]
    fn emulated(memory: u64) -> CudaDevice {
        CudaDevice(Device::emulated(memory))
    }

    /// Name for people.
    #[getter]
    fn name(&self) -> String {
        self.0.properties().name.clone()
    }

    /// Queues the decoding of blobs. `status` is the address of 16 bytes a blob.
    fn decode(
        &self,
        py: Python<'_>,
        requests: &DecodeRequests,
        status: u64,
        workspace: Memory,
        stream: usize,
    ) -> PyResult<()> {
        // SAFETY: the caller's promise; see the module.
        py.detach(|| unsafe { self.queue(requests, status, workspace, stream) }).map_err(errors::cuda)
    }

    /// Milliseconds, by the device's clock, of decoding a list of requests one after the other without Python in between:
    /// what benchmarks hold the Python functions against. Waits.
    fn time_decode(
        &self,
        py: Python<'_>,
        requests: Vec<PyRef<'_, DecodeRequests>>,
        status: u64,
        workspace: Memory,
        stream: usize,
    ) -> PyResult<f32> {
        let requests: Vec<&DecodeRequests> = requests.iter().map(|r| &**r).collect();
        let queue = || {
            // SAFETY: the caller's promise; see the module.
            requests.iter().try_for_each(|r| unsafe { self.queue(r, status, workspace, stream) })
        };
        py.detach(|| self.0.time(stream_of(stream), queue)).map_err(errors::cuda)
    }

    /// Bytes of workspace that `encode` needs. `exact` asks for a lossless blob, whatever the goal.
    fn encode_workspace_len(
        &self,
        dtype: &str,
        shape: Vec<usize>,
        options: &EncodeOptions,
        exact: bool,
    ) -> PyResult<usize> {
        let dtype = known_dtype(dtype)?;
        let values = shape.iter().try_fold(dtype.size(), |n, &d| n.checked_mul(d));
        let bytes = values.ok_or_else(|| ArgumentError::new_err(format!("shape {shape:?} is too large")))?;
        let request = encode_request((0, bytes), dtype, &shape, (0, 0), options, exact);
        match self.chain(dtype, &shape, options, exact)? {
            Some(chain) => encode_prepared_workspace_len(&chain, &request),
            None => tenfold_cuda::encode_workspace_len(&self.0, &request),
        }
        .map_err(errors::cuda)
    }

    /// Queues the encoding of a tensor. `status` is the address of 16 bytes, which `cuda_encoded` reads.
    #[allow(clippy::too_many_arguments)] // where from, where to, with what: each is one address or one name
    fn encode(
        &self,
        py: Python<'_>,
        tensor: Memory,
        dtype: &str,
        shape: Vec<usize>,
        out: Memory,
        options: &EncodeOptions,
        exact: bool,
        status: u64,
        workspace: Memory,
        stream: usize,
    ) -> PyResult<()> {
        let dtype = known_dtype(dtype)?;
        let request = encode_request(tensor, dtype, &shape, out, options, exact);
        let chain = self.chain(dtype, &shape, options, exact)?;
        let status = DeviceSlice::new(status, size_of::<Status>());
        let queued = py.detach(|| {
            let (workspace, stream) = (slice(workspace), stream_of(stream));
            // SAFETY: the caller's promise; see the module. The chain lives until the stream has passed it.
            unsafe {
                match &chain {
                    Some(chain) => {
                        encode_prepared(chain, &request, status, workspace, stream)?;
                        self.0.synchronize(stream)
                    }
                    None => tenfold_cuda::encode(&self.0, &request, status, workspace, stream),
                }
            }
        });
        queued.map_err(errors::cuda)
    }
}

impl CudaDevice {
    /// The transforms of a lossy blob on the device, if there are any.
    fn chain(
        &self,
        dtype: Dtype,
        shape: &[usize],
        options: &EncodeOptions,
        exact: bool,
    ) -> PyResult<Option<DeviceChain>> {
        if exact || options.0.goal == Goal::Lossless || !dtype.is_float() {
            return Ok(None);
        }
        let Some(mut transforms) = options.1.fixed() else {
            return Err(ArgumentError::new_err(
                "which transforms auto takes, and what means are, only a look at the tensor tells: encode it on the CPU, or name other transforms",
            ));
        };
        transforms.extend(options.0.transforms.iter().cloned());
        if transforms.is_empty() {
            return Ok(None);
        }
        DeviceChain::new(&self.0, dtype, shape, &transforms).map(Some).map_err(errors::cuda)
    }

    /// # Safety
    /// As of [`tenfold_cuda::decode`].
    unsafe fn queue(
        &self,
        requests: &DecodeRequests,
        status: u64,
        workspace: Memory,
        stream: usize,
    ) -> tenfold_cuda::Result<()> {
        let status = DeviceSlice::new(status, requests.items.len() * size_of::<Status>());
        let (items, settings) = (&requests.items, &requests.settings);
        // SAFETY: the caller's promise.
        unsafe { tenfold_cuda::decode(&self.0, items, settings, status, slice(workspace), stream_of(stream)) }
    }
}

fn slice((address, len): Memory) -> DeviceSlice {
    DeviceSlice::new(address, len)
}

fn stream_of(handle: usize) -> Stream {
    Stream(std::ptr::with_exposed_provenance_mut(handle))
}

fn encode_request(
    tensor: Memory,
    dtype: Dtype,
    shape: &[usize],
    out: Memory,
    options: &EncodeOptions,
    exact: bool,
) -> EncodeRequest {
    let mut options = options.0.clone();
    // These are a chain's.
    options.transforms.clear();
    if exact {
        options.goal = Goal::Lossless;
    }
    EncodeRequest::new(slice(tensor), dtype, shape, slice(out), options)
}

/// Blobs to decode in one call, and where to. Made once, queued as often as wanted.
#[pyclass(frozen, module = "tenfold._native")]
pub struct DecodeRequests {
    items: Vec<DecodeRequest>,
    settings: DecodeSettings,
}

#[pymethods]
impl DecodeRequests {
    /// Each item is a blob, an output, the output's dtype and the blob's codec where it is known ("lossy", "lossless").
    #[new]
    #[pyo3(signature = (items, checksums=true, max_bytes=None))]
    fn new(
        items: Vec<(Memory, Memory, String, Option<String>)>,
        checksums: bool,
        max_bytes: Option<u64>,
    ) -> PyResult<DecodeRequests> {
        let request = |(blob, out, dtype, codec): (Memory, Memory, String, Option<String>)| {
            let request = DecodeRequest::new(slice(blob), slice(out), known_dtype(&dtype)?);
            Ok(match codec.as_deref() {
                None => request,
                Some(name) if name == Codec::Levels.name() => request.with_codec(Codec::Levels),
                Some(name) if name == Codec::Planes.name() => request.with_codec(Codec::Planes),
                Some(other) => {
                    return Err(ArgumentError::new_err(format!("{other} is no codec of a device")));
                }
            })
        };
        let items: Vec<_> = items.into_iter().map(request).collect::<PyResult<_>>()?;
        check_apart(&items)?;
        let mut limits = Limits::default();
        if let Some(bytes) = max_bytes {
            limits = limits.with_max_bytes(bytes);
        }
        let settings = DecodeSettings::default().with_checksums(checksums).with_limits(limits);
        Ok(DecodeRequests { items, settings })
    }

    /// Bytes of workspace that decoding them needs.
    #[getter]
    fn workspace_len(&self) -> usize {
        decode_workspace_len(&self.items)
    }

    fn __len__(&self) -> usize {
        self.items.len()
    }
}

/// Refuses outputs that share memory with one another or with a blob.
fn check_apart(items: &[DecodeRequest]) -> PyResult<()> {
    let part = |slice: DeviceSlice, written: bool| (slice.address, slice.len as u64, written);
    let both = items.iter().flat_map(|r| [part(r.blob, false), part(r.out, true)]);
    let mut parts: Vec<_> = both.filter(|p| p.1 > 0).collect();
    parts.sort_unstable();
    // Blobs may be the same or overlap: the furthest end of what is read and of what is written are kept apart.
    let (mut read, mut written) = (0, 0);
    for (start, len, writes) in parts {
        if start < written || writes && start < read {
            return Err(ArgumentError::new_err(
                "outputs share memory with one another or with a blob; decode into tensors of their own",
            ));
        }
        let end = if writes { &mut written } else { &mut read };
        *end = (*end).max(start.saturating_add(len));
    }
    Ok(())
}

/// What a device said of decoding a blob: raises what is wrong with it.
#[pyfunction]
pub fn cuda_decoded(said: [u8; 16]) -> PyResult<()> {
    // What only the caller knows is missing in what a device says.
    Status::from_bytes(said).check().map_err(|error| match error {
        tenfold::Error::Truncated { need, .. } => {
            DataError::new_err(format!("the blob is truncated: {need} bytes needed"))
        }
        tenfold::Error::BufferTooSmall { need, .. } => {
            ArgumentError::new_err(format!("the blob's tensor has {need} bytes; out has another size"))
        }
        tenfold::Error::LimitExceeded { what, asked, limit: 0 } => LimitError::new_err(format!(
            "{what} of {asked} exceeds the limit; raise max_bytes if the source is trusted"
        )),
        other => errors::codec(other),
    })
}

/// What a device said of encoding: whether there is a blob, and its bytes, or those that it would have taken (0 if that is
/// not known). Raises anything else.
#[pyfunction]
pub fn cuda_encoded(said: [u8; 16]) -> PyResult<(bool, u64)> {
    let status = Status::from_bytes(said);
    match status.check() {
        Ok(()) => Ok((true, status.size)),
        Err(tenfold::Error::DoesNotFit { need, .. }) => Ok((false, need)),
        // Larger than any lossless blob would be.
        Err(tenfold::Error::BufferTooSmall { .. }) => Ok((false, 0)),
        Err(error) => Err(errors::codec(error)),
    }
}

/// Values a lane for a blob that a device decodes alone.
#[pyfunction]
pub fn cuda_lane_values(values: u64) -> u32 {
    tenfold_cuda::lane_values(values)
}

/// A blob that Python holds.
struct Held(Py<PyAny>, usize);

impl Coded for Held {
    fn coded_len(&self) -> usize {
        self.1
    }
}

/// Meets a goal with whatever takes fewer bytes. `exact` and `lossy` are functions that give a blob (any object) and its bytes;
/// `lossy` gives None and the bytes of the smallest blob seen, or 0, where it does not reach the goal.
#[pyfunction]
pub fn meet_goal(
    py: Python<'_>,
    dtype: &str,
    values: usize,
    options: &EncodeOptions,
    exact: &Bound<'_, PyAny>,
    lossy: &Bound<'_, PyAny>,
) -> PyResult<Py<PyAny>> {
    // The policy knows nothing of Python's errors: one waits here until it has given up.
    let raised = Mutex::new(None);
    let keep = |error: PyErr| {
        let text = error.to_string();
        *raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        tenfold::Error::InvalidArgument(text)
    };
    let call = |function: &Bound<'_, PyAny>| -> tenfold::engine::Result<(Option<Py<PyAny>>, usize)> {
        function.call0().and_then(|r| r.extract()).map_err(&keep)
    };
    let exactly = || match call(exact)? {
        (Some(blob), len) => Ok(Held(blob, len)),
        (None, _) => Err(tenfold::Error::InvalidArgument("a lossless blob is missing".into())),
    };
    let lossily = || match call(lossy)? {
        (Some(blob), len) => Ok(Outcome::Blob(Held(blob, len))),
        (None, need) => Ok(Outcome::Failed((need > 0).then_some(need))),
    };
    let met = tenfold::engine::meet_goal(known_dtype(dtype)?, values, &options.0, exactly, lossily);
    let raised = raised.into_inner().unwrap_or_else(PoisonError::into_inner);
    match (met, raised) {
        (Ok(held), _) => Ok(held.0.clone_ref(py)),
        (Err(_), Some(error)) => Err(error),
        (Err(error), None) => Err(errors::codec(error)),
    }
}

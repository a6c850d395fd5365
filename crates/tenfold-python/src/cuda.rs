//! Blobs and tensors on a GPU: device addresses of Python's side become requests of the CUDA engine.
//!
//! Whoever calls vouches for addresses, as the engine asks: memory of this device, as long as it says, left alone until the
//! stream has passed the call. `tenfold.torch` takes them from tensors that it has looked at, and is the only caller. Calls
//! queue work and return; the interpreter's lock is released meanwhile, because a first call loads kernels.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use tenfold::engine::{Elements, Layered, Limits, Scratch};
use tenfold_cuda::{
    DecodeRequest, DecodeSettings, Device, DeviceCodec, DeviceSlice, MultiplyRequest, Order, Status, Stream,
    decode_workspace_len,
};

use crate::calibrated::Curvature;
use crate::codec::{BlobInfo, EncodeOptions, decode_options};
use crate::errors::{self, ArgumentError, DataError, LimitError};
use crate::tensors::{Blob, parse_dtype};

/// An address of the device and the bytes there.
pub type Memory = (u64, usize);

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

    /// An emulated device, for tests: its memory is the host's, and calls finish their work before they return.
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
        py.detach(|| unsafe { self.queue(tenfold_cuda::decode, requests, status, workspace, stream) })
            .map_err(errors::cuda)
    }

    /// Queues the reading of their headers; then `decode_opened` decodes them, as often as wanted.
    fn open(
        &self,
        py: Python<'_>,
        requests: &DecodeRequests,
        status: u64,
        workspace: Memory,
        stream: usize,
    ) -> PyResult<()> {
        // SAFETY: as above.
        py.detach(|| unsafe { self.queue(tenfold_cuda::open, requests, status, workspace, stream) })
            .map_err(errors::cuda)
    }

    /// Queues the decoding of blobs that are open.
    fn decode_opened(
        &self,
        py: Python<'_>,
        requests: &DecodeRequests,
        status: u64,
        workspace: Memory,
        stream: usize,
    ) -> PyResult<()> {
        // SAFETY: as above.
        py.detach(|| unsafe { self.queue(tenfold_cuda::decode_opened, requests, status, workspace, stream) })
            .map_err(errors::cuda)
    }

    /// Queues the product of a matrix and a vector, to which a bias may be added.
    #[allow(clippy::too_many_arguments)] // each is one address
    fn multiply(
        &self,
        py: Python<'_>,
        matrix: Memory,
        vector: Memory,
        bias: Option<Memory>,
        to: Memory,
        dtype: &str,
        stream: usize,
    ) -> PyResult<()> {
        let request = MultiplyRequest {
            matrix: slice(matrix),
            vector: slice(vector),
            bias: bias.map(slice),
            to: slice(to),
            dtype: parse_dtype(dtype)?,
        };
        // SAFETY: the caller's promise; see the module.
        py.detach(|| unsafe { tenfold_cuda::multiply(&self.0, &request, stream_of(stream)) })
            .map_err(errors::cuda)
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
            requests
                .iter()
                .try_for_each(|r| unsafe { self.queue(tenfold_cuda::decode, r, status, workspace, stream) })
        };
        py.detach(|| self.0.time(stream_of(stream), queue)).map_err(errors::cuda)
    }

    /// Encodes a tensor and gives the blob, in memory of `allocate`: a function that takes a number of bytes, and gives a
    /// tensor of so many on the device and its address. Waits.
    #[allow(clippy::too_many_arguments)] // where from, where to, with what: each is one address or one name
    fn encode(
        &self,
        py: Python<'_>,
        tensor: Memory,
        dtype: &str,
        shape: Vec<usize>,
        options: &EncodeOptions,
        allocate: Py<PyAny>,
        stream: usize,
    ) -> PyResult<Py<PyAny>> {
        let dtype = parse_dtype(dtype)?;
        let (tensor, memory) = (slice(tensor), Allocator::new(allocate));
        let made = py.detach(|| {
            // SAFETY: the caller's promise; see the module.
            let codec = unsafe { DeviceCodec::new(&self.0, &memory, stream_of(stream)) };
            let engine = Layered(codec);
            let pieces = engine.encode(&Elements { dtype, shape: &shape, bytes: &tensor }, &options.0)?;
            Ok(engine.0.join(pieces)?)
        });
        memory.finish(made).map(|taken| taken.piece)
    }

    /// Encodes the matrix of a linear layer with the curvature of its options. Gives the blob, in memory of `allocate` as `encode` does, the
    /// predicted rise of the model's loss, what it would be by importance alone, and why errors were not fed back if they were not.
    /// Waits.
    #[allow(clippy::too_many_arguments)] // as above
    fn encode_calibrated(
        &self,
        py: Python<'_>,
        tensor: Memory,
        dtype: &str,
        shape: Vec<usize>,
        options: &EncodeOptions,
        allocate: Py<PyAny>,
        stream: usize,
    ) -> PyResult<(Py<PyAny>, f64, f64, Option<&'static str>)> {
        let dtype = parse_dtype(dtype)?;
        let (tensor, memory) = (slice(tensor), Allocator::new(allocate));
        let made = py.detach(|| {
            // SAFETY: the caller's promise; see the module.
            let codec = unsafe { DeviceCodec::new(&self.0, &memory, stream_of(stream)) };
            codec.encode_calibrated(&Elements { dtype, shape: &shape, bytes: &tensor }, &options.0)
        });
        let coded = memory.finish(made)?;
        Ok((coded.blob.piece, coded.loss, coded.plain, coded.fell_back))
    }

    /// What to multiply a step by so that one number serves a whole model: as `Curvature.unit`, which knows it from then on. Waits.
    fn curvature_unit(
        &self,
        py: Python<'_>,
        curvature: &Curvature,
        allocate: Py<PyAny>,
        stream: usize,
    ) -> PyResult<f64> {
        let memory = Allocator::new(allocate);
        let found = py.detach(|| {
            // SAFETY: no memory is the caller's.
            let codec = unsafe { DeviceCodec::new(&self.0, &memory, stream_of(stream)) };
            codec.curvature_unit(&curvature.0)
        });
        memory.finish(found)
    }

    /// Decodes any native blob, all its values, into exactly their bytes: chains of transforms are undone and layers added,
    /// of which `layers` are the first ones to take, 0 for all. `host` has the bytes of the blob too where the caller has them;
    /// `allocate` is as for `encode`. Waits.
    #[allow(clippy::too_many_arguments)] // as above
    #[pyo3(signature = (blob, out, layers, checksums, max_bytes, host, allocate, stream))]
    fn decode_any(
        &self,
        py: Python<'_>,
        blob: Memory,
        out: Memory,
        layers: usize,
        checksums: bool,
        max_bytes: Option<u64>,
        host: Option<Bound<'_, PyAny>>,
        allocate: Py<PyAny>,
        stream: usize,
    ) -> PyResult<()> {
        let host = host.as_ref().map(Blob::from_object).transpose()?;
        let options = decode_options(1, max_bytes).with_layers(layers);
        let settings =
            DecodeSettings::default().with_checksums(checksums).with_limits(options.limits.clone());
        let (blob, mut out, memory) = (slice(blob), slice(out), Allocator::new(allocate));
        let twin = host.as_ref().map(Blob::data);
        let decoded = py.detach(|| {
            // SAFETY: the caller's promise; see the module.
            let codec = unsafe { DeviceCodec::new(&self.0, &memory, stream_of(stream)) };
            let codec = codec.with_settings(settings);
            let engine = Layered(match twin {
                Some(bytes) => codec.with_twin(blob, bytes),
                None => codec,
            });
            let opened = engine.open(&blob, &options)?;
            opened.check_layers()?;
            let need = (opened.values * opened.dtype.size()) as u64;
            if out.len as u64 != need {
                return Err(tenfold::Error::BufferTooSmall { need, have: out.len as u64 });
            }
            engine.decode(&opened, &blob, 0..opened.values, &mut out, &mut Scratch::default())
        });
        memory.finish(decoded)
    }
}

/// Memory of a device from Python, and the error of Python's that ended a call.
struct Allocator {
    allocate: Py<PyAny>,
    raised: Mutex<Option<PyErr>>,
}

impl Allocator {
    fn new(allocate: Py<PyAny>) -> Allocator {
        Allocator { allocate, raised: Mutex::new(None) }
    }

    /// What came of a call; what Python raised in it goes first.
    fn finish<T>(self, result: tenfold::engine::Result<T>) -> PyResult<T> {
        match (result, self.raised.into_inner().unwrap_or_else(PoisonError::into_inner)) {
            (Ok(found), _) => Ok(found),
            (Err(_), Some(error)) => Err(error),
            (Err(error), None) => Err(errors::codec(error)),
        }
    }
}

// SAFETY: torch's allocator hands memory out again only to what comes later on the stream that was current when it was taken,
// which is the stream of the call.
unsafe impl tenfold_cuda::Memory for Allocator {
    type Piece = Py<PyAny>;

    fn take(&self, len: usize) -> tenfold_cuda::Result<(Py<PyAny>, u64)> {
        // Nothing has no address.
        let taken = Python::attach(|py| self.allocate.call1(py, (len.max(1),))?.extract(py));
        taken.map_err(|error| {
            *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            tenfold_cuda::Error::OutOfMemory { asked: len as u64 }
        })
    }
}

impl CudaDevice {
    pub fn device(&self) -> &Device {
        &self.0
    }

    /// # Safety
    /// As of [`tenfold_cuda::decode`].
    unsafe fn queue(
        &self,
        what: Queue,
        requests: &DecodeRequests,
        status: u64,
        workspace: Memory,
        stream: usize,
    ) -> tenfold_cuda::Result<()> {
        let status = DeviceSlice::new(status, requests.items.len() * size_of::<Status>());
        let (items, settings) = (&requests.items, &requests.settings);
        // SAFETY: the caller's promise.
        unsafe { what(&self.0, items, settings, status, slice(workspace), stream_of(stream)) }
    }
}

/// Decoding, or a half of it.
type Queue = unsafe fn(
    &Device,
    &[DecodeRequest],
    &DecodeSettings,
    DeviceSlice,
    DeviceSlice,
    Stream,
) -> tenfold_cuda::Result<()>;

pub fn slice((address, len): Memory) -> DeviceSlice {
    DeviceSlice::new(address, len)
}

pub fn stream_of(handle: usize) -> Stream {
    Stream(std::ptr::with_exposed_provenance_mut(handle))
}

/// A blob, an output, the output's dtype, whether the output is column by column as a transposed blob is, and what the blob's
/// header says where that is known.
type RequestItem<'py> = (Memory, Memory, String, bool, Option<PyRef<'py, BlobInfo>>);

/// Blobs to decode in one call, and where to. Made once, queued as often as wanted.
#[pyclass(frozen, module = "tenfold._native")]
pub struct DecodeRequests {
    items: Vec<DecodeRequest>,
    settings: DecodeSettings,
}

#[pymethods]
impl DecodeRequests {
    /// Requests with these settings.
    #[new]
    #[pyo3(signature = (items, checksums=true, max_bytes=None, multiprocessors=None))]
    fn new(
        items: Vec<RequestItem<'_>>,
        checksums: bool,
        max_bytes: Option<u64>,
        multiprocessors: Option<u32>,
    ) -> PyResult<DecodeRequests> {
        let request = |(blob, out, dtype, turned, info): RequestItem<'_>| {
            let mut request = DecodeRequest::new(slice(blob), slice(out), parse_dtype(&dtype)?);
            if let Some(info) = info.filter(|info| tenfold_cuda::can_decode(&info.0).is_ok()) {
                request = request.with_info(&info.0);
            }
            if turned {
                // Of a blob that is not transposed the values would lie otherwise.
                request.transposed = Some(true);
                request = request.with_order(Order::Coded);
            }
            Ok(request)
        };
        let items: Vec<_> = items.into_iter().map(request).collect::<PyResult<_>>()?;
        check_apart(&items)?;
        let mut limits = Limits::default();
        if let Some(bytes) = max_bytes {
            limits = limits.with_max_bytes(bytes);
        }
        let mut settings = DecodeSettings::default().with_checksums(checksums).with_limits(limits);
        settings.multiprocessors = multiprocessors;
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
            DataError::new_err(format!("the blob is truncated: it needs {need} bytes"))
        }
        tenfold::Error::BufferTooSmall { need, .. } => {
            ArgumentError::new_err(format!("the blob decodes to {need} bytes, but out has another size"))
        }
        tenfold::Error::LimitExceeded { what, asked, limit: 0 } => LimitError::new_err(format!(
            "{what} of {asked} exceeds the limit; raise max_bytes if the source is trusted"
        )),
        other => errors::codec(other),
    })
}

/// Whether a device decodes a blob without waiting for anything; if not, raises why.
#[pyfunction]
pub fn cuda_can_decode(info: &BlobInfo) -> PyResult<()> {
    tenfold_cuda::can_decode(&info.0).map_err(errors::codec)
}

/// Whether a device writes the values of a blob as a dtype by itself.
#[pyfunction]
pub fn cuda_can_convert(info: &BlobInfo, dtype: &str) -> PyResult<bool> {
    Ok(tenfold_cuda::can_convert(&info.0, parse_dtype(dtype)?))
}

/// Values a lane for a blob that a device decodes alone.
#[pyfunction]
pub fn cuda_lane_values(values: u64) -> u32 {
    tenfold_cuda::lane_values(values)
}

//! The video engines of a GPU: blobs of pictures into tensors where they lie, and back. Who calls vouches for addresses, as in
//! [`crate::cuda`]; the tensor that is written to is held until nothing writes to it any more.
#![allow(unsafe_code)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use tenfold_nvcodec::nvenc::Encoder;
use tenfold_nvcodec::{Decoder, Error, LaneSettings, Output, Pending, use_engines};
use tenfold_video::{Hardware, Quality, Scaling, Standard};

use crate::codec::{EncodeOptions, decode_options};
use crate::cuda::{CudaDevice, Memory, slice, stream_of};
use crate::errors::{self, ArgumentError};
use crate::tensors::{Blob, Input, parse_dtype};
use crate::threads::limit_threads;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The decoding engines of a device, with decoders that are kept from blob to blob.
#[pyclass(frozen, module = "tenfold._native")]
pub struct VideoLanes {
    /// None once closed.
    open: Mutex<Option<Arc<Decoder>>>,
}

#[pymethods]
impl VideoLanes {
    /// Opens the engines: `lanes` of them, 0 for all; decoders without work keep `idle_bytes` of device memory at most; an engine may
    /// be silent for `patience` seconds.
    #[new]
    #[pyo3(signature = (device, lanes=0, idle_bytes=None, patience=None))]
    fn new(
        py: Python<'_>,
        device: &CudaDevice,
        lanes: usize,
        idle_bytes: Option<u64>,
        patience: Option<f64>,
    ) -> PyResult<VideoLanes> {
        let mut settings = LaneSettings::default().with_lanes(lanes);
        if let Some(bytes) = idle_bytes {
            settings = settings.with_idle_bytes(bytes);
        }
        if let Some(seconds) = patience {
            let patience = Duration::try_from_secs_f64(seconds).ok().filter(|p| !p.is_zero());
            settings = settings.with_patience(patience.ok_or_else(|| {
                ArgumentError::new_err(format!("patience must be a number of seconds above 0, not {seconds}"))
            })?);
        }
        let device = device.device();
        let decoder = py.detach(|| Decoder::with_settings(device, settings)).map_err(errors::nvcodec)?;
        Ok(VideoLanes { open: Mutex::new(Some(Arc::new(decoder))) })
    }

    /// Checks a blob and starts decoding it behind what is on the stream. `tensor` owns the memory `out`.
    #[allow(clippy::too_many_arguments)] // a blob, a tensor in parts, and a stream
    fn submit(
        &self,
        py: Python<'_>,
        blob: Bound<'_, PyAny>,
        tensor: Py<PyAny>,
        out: Memory,
        dtype: &str,
        max_bytes: Option<u64>,
        stream: usize,
    ) -> PyResult<VideoPending> {
        let decoder = self.get()?;
        let blob = Blob::from_object(&blob)?;
        let output = Output { memory: slice(out), dtype: parse_dtype(dtype)? };
        let (bytes, options) = (blob.data(), decode_options(0, max_bytes));
        let pending = py.detach(|| {
            // SAFETY: the caller's promise; see the module. The tensor is held by what is returned.
            let pending = unsafe { decoder.submit(bytes, output, &options, stream_of(stream)) };
            // The last user of lanes that were closed meanwhile closes them, which waits.
            drop(decoder);
            pending
        });
        let pending = pending.map_err(errors::nvcodec)?;
        Ok(VideoPending { waiting: Mutex::new(Some(Waiting { pending, tensor })) })
    }

    /// What was done so far: lanes, decoders that are open, that were created, reused and set up anew, pictures.
    #[getter]
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counters = self.get()?.counters();
        let dict = PyDict::new(py);
        for (name, count) in [
            ("lanes", counters.lanes),
            ("open", counters.open),
            ("created", counters.created),
            ("reused", counters.reused),
            ("reconfigured", counters.reconfigured),
            ("pictures", counters.pictures),
        ] {
            dict.set_item(name, count)?;
        }
        Ok(dict)
    }

    /// Whether `close` was called.
    #[getter]
    fn closed(&self) -> bool {
        lock(&self.open).is_none()
    }

    /// Finishes what was submitted and closes the decoders. Waits.
    fn close(&self, py: Python<'_>) {
        let decoder = lock(&self.open).take();
        py.detach(|| drop(decoder));
    }
}

impl VideoLanes {
    fn get(&self) -> PyResult<Arc<Decoder>> {
        lock(&self.open)
            .clone()
            .ok_or_else(|| ArgumentError::new_err("the video decoder is closed; open another"))
    }
}

/// What is being decoded, and the tensor that it goes to.
struct Waiting {
    pending: Pending,
    tensor: Py<PyAny>,
}

impl Waiting {
    /// Gives it up. An engine that does not answer may still write to the tensor, which then stays for good.
    fn abandon(self) {
        if !self.pending.abandon() {
            std::mem::forget(self.tensor);
        }
    }
}

/// A blob on its way through the engines.
#[pyclass(frozen, module = "tenfold._native")]
pub struct VideoPending {
    /// None once the result was taken.
    waiting: Mutex<Option<Waiting>>,
}

#[pymethods]
impl VideoPending {
    /// Whether `result` would not wait for an engine.
    #[getter]
    fn ready(&self) -> bool {
        lock(&self.waiting).as_ref().is_none_or(|waiting| waiting.pending.is_ready())
    }

    /// Waits for the engines, compares checksums and queues what is left on the stream, which sees the tensor from then on.
    fn result(&self, py: Python<'_>, stream: usize) -> PyResult<()> {
        let Some(Waiting { pending, tensor }) = lock(&self.waiting).take() else {
            return Err(ArgumentError::new_err("the result was taken already, or given up"));
        };
        let done = py.detach(|| pending.result(stream_of(stream)));
        if matches!(done, Err(Error::Timeout { .. })) {
            std::mem::forget(tensor);
        }
        done.map_err(errors::nvcodec)
    }

    /// Gives the blob up and waits until nothing is written for it.
    fn abandon(&self, py: Python<'_>) {
        if let Some(waiting) = lock(&self.waiting).take() {
            py.detach(|| waiting.abandon());
        }
    }
}

impl Drop for VideoPending {
    fn drop(&mut self) {
        if let Some(waiting) = lock(&self.waiting).take() {
            // Without the interpreter's lock where there still is an interpreter.
            let mut left = Some(waiting);
            let _ = Python::try_attach(|py| {
                let waiting = left.take();
                py.detach(|| waiting.map(Waiting::abandon))
            });
            if let Some(left) = left {
                left.abandon();
            }
        }
    }
}

/// The encoding engines of a device.
#[pyclass(frozen, module = "tenfold._native")]
pub struct VideoSessions {
    /// None once closed.
    open: Mutex<Option<Encoder>>,
}

#[pymethods]
impl VideoSessions {
    /// Opens the engines; raises why there are none.
    #[new]
    fn new(py: Python<'_>, device: &CudaDevice) -> PyResult<VideoSessions> {
        let device = device.device();
        let encoder = py.detach(|| Encoder::new(device)).map_err(errors::nvcodec)?;
        Ok(VideoSessions { open: Mutex::new(Some(encoder)) })
    }

    /// Codecs of the blobs that they make.
    #[getter]
    fn codecs(&self) -> PyResult<Vec<&'static str>> {
        Ok(self.get()?.encodes().iter().map(|e| name_of(e.standard)).collect())
    }

    /// Encodes a tensor of the host's into a blob, whose pictures the engines code; `lanes` check them. Waits.
    #[allow(clippy::too_many_arguments)] // engines, a tensor, and what callers choose
    #[pyo3(signature = (lanes, tensor, dtype, options, codec, depth=None, qp=None, scale="tensor"))]
    fn encode<'py>(
        &self,
        py: Python<'py>,
        lanes: &VideoLanes,
        tensor: &Bound<'py, PyAny>,
        dtype: &str,
        options: &EncodeOptions,
        codec: &str,
        depth: Option<u8>,
        qp: Option<u32>,
        scale: &str,
    ) -> PyResult<Bound<'py, PyBytes>> {
        // What is process-wide there: which engines code pictures.
        static TURN: Mutex<()> = Mutex::new(());
        let (encoder, decoder) = (self.get()?, lanes.get()?);
        let input = Input::from_object(tensor, Some(dtype))?;
        let mut video = tenfold_video::VideoOptions::new(parse_standard(codec)?)
            .with_encoder("nvenc")
            .with_hardware(Hardware::Nvdec)
            .with_scaling(parse_scaling(scale)?);
        video.depth = depth;
        video.quality = qp.map(Quality::Qp);
        let options = options.0.clone();
        let options = options.clone().with_threads(limit_threads(options.threads));
        let made = py.detach(|| {
            let _turn = lock(&TURN);
            tenfold_nvcodec::register();
            use_engines(Some(decoder), Some(encoder));
            let made = input
                .view()
                .map_err(tenfold_video::Error::from)
                .and_then(|view| tenfold_video::encode(&view, &options, &video));
            use_engines(None, None);
            made
        });
        Ok(PyBytes::new(py, &made.map_err(errors::video)?))
    }

    /// Closes the sessions. Waits.
    fn close(&self, py: Python<'_>) {
        let encoder = lock(&self.open).take();
        py.detach(|| drop(encoder));
    }
}

impl VideoSessions {
    fn get(&self) -> PyResult<Encoder> {
        lock(&self.open)
            .clone()
            .ok_or_else(|| ArgumentError::new_err("the video encoder is closed; open another"))
    }
}

/// What callers name it, as on the command line.
fn name_of(standard: Standard) -> &'static str {
    match standard {
        Standard::H264 => "h264",
        Standard::H265 => "h265",
        Standard::Av1 => "av1",
    }
}

fn parse_standard(codec: &str) -> PyResult<Standard> {
    [Standard::H264, Standard::H265, Standard::Av1].into_iter().find(|s| name_of(*s) == codec).ok_or_else(
        || ArgumentError::new_err(format!("codec must be \"h264\", \"h265\" or \"av1\", not {codec:?}")),
    )
}

fn parse_scaling(scale: &str) -> PyResult<Scaling> {
    let rows = scale.strip_prefix("rows=").and_then(|rows| rows.parse().ok());
    match (scale, rows) {
        ("tensor", _) => Ok(Scaling::Tensor),
        ("columns", _) => Ok(Scaling::Columns),
        (_, Some(rows @ 1..)) => Ok(Scaling::Rows(rows)),
        _ => Err(ArgumentError::new_err(format!(
            "scale must be \"tensor\", \"columns\" or \"rows=N\", not {scale:?}"
        ))),
    }
}

/// Whether blobs of a codec hold pictures, which video engines decode.
#[pyfunction]
pub fn holds_pictures(info: &crate::codec::BlobInfo) -> bool {
    use tenfold::format::Codec;
    matches!(info.0.codec, Codec::H264 | Codec::H265 | Codec::Av1)
}

//! One tensor to one blob and back.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tenfold::engine::{self, Cpu, Engine, Limits, Stop};
use tenfold::prepare::{Preparation, Transform, Weights};
use tenfold::{DecodeOptions, Dtype, Effort, EncodePlan, Goal, format};

use crate::attend::{self, LONG_DECODE, LONG_ENCODE};
use crate::calibrated::Curvature;
use crate::errors::{self, ArgumentError, DtypeError};
use crate::tensors::{Blob, Input, Output, make_bytes, parse_dtype, python_name, shape_text};
use crate::threads::limit_threads;

/// How to encode: a goal, an effort, threads. Checked when it is made.
#[pyclass(frozen, module = "tenfold._native")]
pub struct EncodeOptions(pub tenfold::EncodeOptions);

#[pymethods]
impl EncodeOptions {
    /// `goal` is the name of a goal, `value` its number (none for `lossless`); `importance` has a number for each column,
    /// `prepare` names transforms, `residual` has the goal of each further layer, `format` is the newest that readers know,
    /// `curvature` is that of a linear layer.
    #[new]
    #[pyo3(signature = (goal, value=None, effort="balanced", threads=0, lane_values=0, importance=None, prepare=None, residual=None, format=None, curvature=None))]
    #[allow(clippy::too_many_arguments, reason = "one for each of Python's")]
    fn new(
        goal: &str,
        value: Option<f64>,
        effort: &str,
        threads: usize,
        lane_values: u32,
        importance: Option<Vec<f64>>,
        prepare: Option<&str>,
        residual: Option<Vec<(String, Option<f64>)>>,
        format: Option<&str>,
        curvature: Option<&Curvature>,
    ) -> PyResult<EncodeOptions> {
        let prepare =
            prepare.map(str::parse::<Preparation>).transpose().map_err(errors::codec)?.unwrap_or_default();
        let mut options = tenfold::EncodeOptions::new(parse_goal(goal, value)?)
            .with_effort(parse_effort(effort)?)
            .with_threads(threads)
            .with_lane_values(lane_values);
        if prepare.is_asked() && (importance.is_some() || options.goal.bounds_each_value()) {
            return Err(ArgumentError::new_err(
                "prepare goes neither with importance nor with max_error nor with round_bits",
            ));
        }
        options.prepare = prepare;
        if let Some(importance) = importance {
            let weights = Weights::from_importance(&importance).map_err(errors::codec)?;
            options = options.with_transforms(vec![Transform::Weights(weights)]);
        }
        for (goal, value) in residual.unwrap_or_default() {
            options = options.with_residual(parse_goal(&goal, value)?);
        }
        if let Some(version) = format {
            options = options.with_minor(tenfold::format::parse_version(version).map_err(errors::codec)?);
        }
        options.curvature = curvature.map(|curvature| curvature.0.clone());
        options.validate().map_err(errors::codec)?;
        Ok(EncodeOptions(options))
    }

    /// The same options with a plan for tensors like this one.
    #[pyo3(signature = (tensor, dtype=None))]
    fn settle(
        &self,
        py: Python<'_>,
        tensor: &Bound<'_, PyAny>,
        dtype: Option<&str>,
    ) -> PyResult<EncodeOptions> {
        let input = Input::from_object(tensor, dtype)?;
        let plan = attend::run(py, input.data().len() >= LONG_ENCODE, |stop| {
            EncodePlan::new(&input.view()?, &self.with_stop(stop))
        })?;
        let options = self.0.clone().with_plan(plan.map_err(errors::codec)?);
        options.validate().map_err(errors::codec)?;
        Ok(EncodeOptions(options))
    }

    /// The same options with another goal.
    #[pyo3(signature = (goal, value=None))]
    fn with_goal(&self, goal: &str, value: Option<f64>) -> PyResult<EncodeOptions> {
        let mut options = self.0.clone();
        options.goal = parse_goal(goal, value)?;
        options.validate().map_err(errors::codec)?;
        Ok(EncodeOptions(options))
    }

    /// The goal: its name, and its number where it takes one.
    #[getter]
    fn goal(&self) -> (&'static str, Option<f64>) {
        (self.0.goal.name(), self.0.goal.number())
    }
}

impl EncodeOptions {
    /// The options with the threads there are, for work that `stop` may end.
    pub fn with_stop(&self, stop: &Stop) -> tenfold::EncodeOptions {
        let options = self.0.clone();
        let threads = limit_threads(options.threads);
        options.with_threads(threads).with_stop(stop.clone())
    }
}

/// The goal of a name and a number.
pub fn parse_goal(name: &str, number: Option<f64>) -> PyResult<Goal> {
    Goal::from_name(name, number).map_err(errors::codec)
}

/// The effort of a name.
pub fn parse_effort(effort: &str) -> PyResult<Effort> {
    let all = [Effort::Fast, Effort::Balanced, Effort::Best];
    all.into_iter().find(|e| e.name() == effort).ok_or_else(|| {
        ArgumentError::new_err(format!("effort must be \"fast\", \"balanced\" or \"best\", not {effort:?}"))
    })
}

/// Options for decoding.
pub fn decode_options(threads: usize, max_bytes: Option<u64>) -> DecodeOptions {
    let mut limits = Limits::default();
    if let Some(bytes) = max_bytes {
        limits = limits.with_max_bytes(bytes);
    }
    DecodeOptions::default().with_threads(limit_threads(threads)).with_limits(limits)
}

/// Encodes a numpy array or a DLPack tensor.
#[pyfunction]
#[pyo3(signature = (tensor, options, dtype=None))]
pub fn encode<'py>(
    py: Python<'py>,
    tensor: &Bound<'py, PyAny>,
    options: &EncodeOptions,
    dtype: Option<&str>,
) -> PyResult<Bound<'py, PyBytes>> {
    let input = Input::from_object(tensor, dtype)?;
    let parts = attend::run(py, input.data().len() >= LONG_ENCODE, |stop| {
        Cpu.encode_parts(&input.view()?, &options.with_stop(stop))
    })?;
    make_bytes(py, parts.map_err(errors::codec)?)
}

/// Encodes into a writable array of bytes and returns how many were written.
#[pyfunction]
#[pyo3(signature = (tensor, options, out, dtype=None))]
pub fn encode_into(
    py: Python<'_>,
    tensor: &Bound<'_, PyAny>,
    options: &EncodeOptions,
    out: &Bound<'_, PyAny>,
    dtype: Option<&str>,
) -> PyResult<usize> {
    let input = Input::from_object(tensor, dtype)?;
    let mut out = Output::from_object(out)?;
    if out.dtype() != Dtype::U8 {
        return Err(DtypeError::new_err("a blob must be bytes; pass a buffer of bytes or an array of uint8"));
    }
    let out = out.data();
    if overlap(input.data(), out) {
        return Err(ArgumentError::new_err("out and the tensor share memory; encode into another buffer"));
    }
    let written = attend::run(py, input.data().len() >= LONG_ENCODE, |stop| {
        Cpu.encode_into(&input.view()?, &options.with_stop(stop), out)
    })?;
    written.map_err(errors::codec)
}

/// Decodes a blob, or some of its rows, into an array or a DLPack tensor of their dtype and shape. `layers` of 0 are all.
#[pyfunction]
#[pyo3(signature = (blob, out, rows=None, threads=0, max_bytes=None, layers=0))]
pub fn decode_into(
    py: Python<'_>,
    blob: &Bound<'_, PyAny>,
    out: &Bound<'_, PyAny>,
    rows: Option<(usize, usize)>,
    threads: usize,
    max_bytes: Option<u64>,
    layers: usize,
) -> PyResult<()> {
    let blob = Blob::from_object(blob)?;
    let info = tenfold::inspect(blob.data()).map_err(errors::codec)?;
    let mut out = Output::from_object(out)?;
    out.check(info.dtype, &info.shape, rows)?;
    let (from, to) = (blob.data(), out.data());
    if overlap(from, to) {
        return Err(ArgumentError::new_err("out and the blob share memory; decode into another array"));
    }
    let options = decode_options(threads, max_bytes).with_layers(layers);
    let result = attend::run(py, to.len() >= LONG_DECODE, |stop| {
        let options = options.with_stop(stop.clone());
        match rows {
            Some((start, end)) => Cpu.decode_rows_into(from, start..end, &options, to),
            None => Cpu.decode_into(from, &options, to),
        }
    })?;
    result.map_err(errors::codec)
}

/// Whether two slices have a byte in common.
fn overlap(a: &[u8], b: &[u8]) -> bool {
    let (a, b) = (a.as_ptr_range(), b.as_ptr_range());
    a.start < b.end && b.start < a.end
}

/// Checks every checksum and decodes everything, without keeping the result.
#[pyfunction]
#[pyo3(signature = (blob, threads=0, max_bytes=None))]
pub fn verify(
    py: Python<'_>,
    blob: &Bound<'_, PyAny>,
    threads: usize,
    max_bytes: Option<u64>,
) -> PyResult<()> {
    let blob = Blob::from_object(blob)?;
    let options = decode_options(threads, max_bytes);
    let data = blob.data();
    attend::run(py, true, |stop| Cpu.verify(data, &options.with_stop(stop.clone())))?.map_err(errors::codec)
}

/// Reads a blob's header.
#[pyfunction]
pub fn inspect(blob: &Bound<'_, PyAny>) -> PyResult<BlobInfo> {
    tenfold::inspect(Blob::from_object(blob)?.data()).map(BlobInfo).map_err(errors::codec)
}

/// Bytes that a blob of this dtype and shape, and of so many layers, never exceeds.
#[pyfunction]
#[pyo3(signature = (dtype, shape, layers=1))]
pub fn max_encoded_len(dtype: &str, shape: Vec<usize>, layers: usize) -> PyResult<usize> {
    let dtype = parse_dtype(dtype)?;
    match layers {
        1 => format::max_encoded_len(dtype, &shape),
        _ => format::max_layered_len(dtype, &shape, layers),
    }
    .map_err(errors::codec)
}

/// What an engine can do.
#[pyclass(frozen, module = "tenfold")]
pub struct Capabilities(engine::Capabilities);

#[pymethods]
impl Capabilities {
    /// Codecs of the blobs that it makes: "lossy", "lossless", "layered".
    #[getter]
    fn encodes(&self) -> Vec<&'static str> {
        self.0.encodes.iter().map(|codec| codec.name()).collect()
    }

    /// Codecs of the blobs that it decodes.
    #[getter]
    fn decodes(&self) -> Vec<&'static str> {
        self.0.decodes.iter().map(|codec| codec.name()).collect()
    }

    /// Element types of the tensors that it encodes.
    #[getter]
    fn dtypes(&self) -> Vec<&'static str> {
        self.0.dtypes.iter().map(|&dtype| python_name(dtype)).collect()
    }

    /// Goals that it meets.
    #[getter]
    fn goals(&self) -> Vec<&'static str> {
        self.0.goals.clone()
    }

    /// Transforms that it does before it encodes.
    #[getter]
    fn does(&self) -> Vec<&'static str> {
        self.0.does.clone()
    }

    /// Transforms that it undoes when it decodes.
    #[getter]
    fn undoes(&self) -> Vec<&'static str> {
        self.0.undoes.clone()
    }

    fn __repr__(&self) -> String {
        let list = |names: Vec<&str>| names.join(", ");
        format!(
            "<Capabilities encodes {}; decodes {}; goals {}; does {}; undoes {}>",
            list(self.encodes()),
            list(self.decodes()),
            list(self.goals()),
            list(self.does()),
            list(self.undoes())
        )
    }
}

/// What an engine can do, by its name; `waits` counts in what needs the host to wait for a device.
#[pyfunction]
pub fn capabilities(engine: &str, waits: bool) -> PyResult<Capabilities> {
    match (engine, waits) {
        ("cpu", _) => Ok(Capabilities(Cpu.capabilities())),
        ("cuda", true) => Ok(Capabilities(engine::Capabilities::native())),
        ("cuda", false) => Ok(Capabilities(tenfold_cuda::capabilities())),
        (other, _) => Err(ArgumentError::new_err(format!("an engine is \"cpu\" or \"cuda\", not {other:?}"))),
    }
}

/// What a blob says of itself, read from its header alone.
#[pyclass(frozen, module = "tenfold")]
pub struct BlobInfo(pub tenfold::format::BlobInfo);

#[pymethods]
impl BlobInfo {
    /// Format version.
    #[getter]
    fn version(&self) -> u8 {
        self.0.version
    }

    /// How values are coded: "lossy", "lossless", "layered", or the name of a video standard.
    #[getter]
    fn codec(&self) -> &'static str {
        self.0.codec.name()
    }

    /// Element type, by its name in numpy, ml_dtypes and torch.
    #[getter]
    fn dtype(&self) -> &'static str {
        python_name(self.0.dtype)
    }

    /// Shape of the tensor.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyTuple>> {
        pyo3::types::PyTuple::new(py, &self.0.shape)
    }

    /// Number of values.
    #[getter]
    fn size(&self) -> u64 {
        self.0.values
    }

    /// Bytes of the tensor.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.0.values.saturating_mul(self.0.dtype.size() as u64)
    }

    /// Rows of the two-dimensional view: the product of all dimensions but the last.
    #[getter]
    fn rows(&self) -> u64 {
        self.0.rows()
    }

    /// Bytes of the whole blob.
    #[getter]
    fn blob_bytes(&self) -> u64 {
        self.0.blob_bytes
    }

    /// Bytes before the first tile.
    #[getter]
    fn header_bytes(&self) -> u64 {
        self.0.header_bytes
    }

    /// Bits a value, every byte of the blob counted; 0 for an empty tensor.
    #[getter]
    fn bits_per_value(&self) -> f64 {
        self.0.bits_per_value()
    }

    /// Bytes of the tensor over bytes of the blob.
    #[getter]
    fn ratio(&self) -> f64 {
        self.0.ratio()
    }

    /// Independent tiles.
    #[getter]
    fn tiles(&self) -> u64 {
        self.0.tiles
    }

    /// Bytes of each layer; none if the blob is not layered.
    #[getter]
    fn layers(&self) -> Vec<u64> {
        self.0.layers.clone()
    }

    /// Values of a full tile.
    #[getter]
    fn tile_values(&self) -> u64 {
        self.0.tile_values
    }

    /// Lanes of a tile.
    #[getter]
    fn lanes(&self) -> u32 {
        self.0.lanes
    }

    /// Step of the quantiser; None if lossless.
    #[getter]
    fn step(&self) -> Option<f64> {
        self.0.step
    }

    /// States of the trellis, 1 for a scalar quantiser; None if lossless.
    #[getter]
    fn states(&self) -> Option<u32> {
        self.0.states
    }

    /// Classes of statistics; None if lossless.
    #[getter]
    fn classes(&self) -> Option<u32> {
        self.0.classes
    }

    /// Raw low bits of a level, at most; None if lossless.
    #[getter]
    fn low_bits(&self) -> Option<u32> {
        self.0.low_bits
    }

    /// Whether its values are coded column by column.
    #[getter]
    fn transposed(&self) -> bool {
        self.0.is_transposed()
    }

    /// What was done to the values before they were coded, in this order.
    #[getter]
    fn transforms(&self) -> Vec<&'static str> {
        self.0.transforms.iter().map(Transform::name).collect()
    }

    fn __repr__(&self) -> String {
        let info = &self.0;
        let mut text = format!(
            "<BlobInfo {} {}, {}: {} bytes, {:.3} bits a value, ratio {:.2}, {} {}",
            python_name(info.dtype),
            shape_text(&info.shape),
            info.codec.name(),
            info.blob_bytes,
            info.bits_per_value(),
            info.ratio(),
            info.tiles,
            if info.layers.is_empty() { "tiles" } else { "layers" }
        );
        if let (Some(step), Some(states), Some(classes)) = (info.step, info.states, info.classes) {
            text += &format!(", step {step:.4e}, {states} states, {classes} classes");
        }
        for transform in &info.transforms {
            text += &format!(", {}", transform.name());
        }
        text + ">"
    }
}

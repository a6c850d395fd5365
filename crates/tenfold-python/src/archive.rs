//! Model files, opened lazily.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::attend::{self, LONG_DECODE};
use crate::codec::{BlobInfo, decode_options};
use crate::errors::{self, ArgumentError};
use crate::tensors::{Output, python_name, shape_text};

/// A model file, compressed or not.
#[pyclass(frozen, module = "tenfold._native")]
pub struct Archive(tenfold_archive::Archive);

#[pymethods]
impl Archive {
    /// Opens a file, an index of shards or a folder.
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Archive> {
        py.detach(|| tenfold_archive::Archive::open(&path)).map(Archive).map_err(errors::archive)
    }

    /// Names of the tensors, in the order of the file.
    fn names(&self) -> Vec<&str> {
        self.0.tensors().iter().map(|tensor| tensor.name.as_str()).collect()
    }

    /// Number of the tensor with this name.
    fn find(&self, name: &str) -> Option<usize> {
        self.0.find(name)
    }

    /// The metadata of the file, without tenfold's own.
    fn metadata(&self) -> BTreeMap<String, String> {
        self.0.metadata().clone()
    }

    /// Whether tenfold has compressed the model.
    fn is_compressed(&self) -> bool {
        self.0.is_compressed()
    }

    /// What the file says of a tensor.
    fn info(&self, index: usize) -> PyResult<TensorInfo> {
        let blob = self.0.blob_info(index).map_err(errors::archive)?;
        let tensor = self.0.tensors().get(index).cloned();
        let tensor =
            tensor.ok_or_else(|| ArgumentError::new_err(format!("tensor {index} does not exist")))?;
        Ok(TensorInfo { tensor, blob })
    }

    /// Reads a tensor, or some rows of it, into an array or a DLPack tensor of their dtype and shape.
    #[pyo3(signature = (index, out, rows=None, threads=0, max_bytes=None))]
    fn read_into(
        &self,
        py: Python<'_>,
        index: usize,
        out: &Bound<'_, PyAny>,
        rows: Option<(usize, usize)>,
        threads: usize,
        max_bytes: Option<u64>,
    ) -> PyResult<()> {
        let mut out = Output::from_object(out)?;
        // Of a dtype that the codec does not have the archive says that it cannot be read.
        if let Some(tensor) = self.0.tensors().get(index)
            && let Some(dtype) = tensor.dtype
        {
            out.check(dtype, &tensor.shape, rows)?;
        }
        let options = decode_options(threads, max_bytes);
        let (rows, out) = (rows.map(|(start, end)| start..end), out.data());
        let result = attend::run(py, out.len() >= LONG_DECODE, |stop| {
            self.0.read_into(index, rows, &options.with_stop(stop.clone()), out)
        })?;
        result.map_err(errors::archive)
    }

    /// Checks all checksums of a tensor and decodes it.
    #[pyo3(signature = (index, threads=0))]
    fn verify(&self, py: Python<'_>, index: usize, threads: usize) -> PyResult<()> {
        let options = decode_options(threads, None);
        let result = attend::run(py, true, |stop| self.0.verify(index, &options.with_stop(stop.clone())))?;
        result.map_err(errors::archive)
    }
}

/// What a model file says of one tensor.
#[pyclass(frozen, module = "tenfold")]
pub struct TensorInfo {
    tensor: tenfold_archive::ArchiveTensor,
    blob: Option<tenfold::format::BlobInfo>,
}

#[pymethods]
impl TensorInfo {
    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.tensor.name
    }

    /// Element type, by its name in numpy, ml_dtypes and torch.
    #[getter]
    fn dtype(&self) -> &str {
        match self.tensor.dtype {
            Some(dtype) => python_name(dtype),
            None => &self.tensor.dtype_name,
        }
    }

    /// Shape, outermost dimension first.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.tensor.shape)
    }

    /// Bytes of the tensor.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.tensor.bytes
    }

    /// Bytes in the file.
    #[getter]
    fn stored_bytes(&self) -> u64 {
        self.tensor.stored_bytes
    }

    /// Whether it is stored as a blob.
    #[getter]
    fn compressed(&self) -> bool {
        self.tensor.compressed
    }

    /// Name of the file that holds it.
    #[getter]
    fn file(&self) -> &str {
        &self.tensor.file
    }

    /// What its blob says; None for a tensor that is stored as it was.
    #[getter]
    fn blob(&self) -> Option<BlobInfo> {
        self.blob.clone().map(BlobInfo)
    }

    fn __repr__(&self) -> String {
        let how = match &self.blob {
            Some(blob) => format!("{}, {:.3} bits a value", blob.codec.name(), blob.bits_per_value()),
            None => "unchanged".into(),
        };
        let shape = shape_text(&self.tensor.shape);
        format!("<TensorInfo {:?} {} {shape}, {how}>", self.tensor.name, self.dtype())
    }
}

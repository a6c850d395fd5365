//! Tensors and blobs of Python as slices, without a copy.
//!
//! Two kinds of object have their memory read here: numpy arrays, and what offers DLPack (torch, JAX, CuPy …). Anything with
//! the buffer protocol comes as a numpy array, which the Python side makes around it: the stable ABI of Python 3.10 has no
//! buffers.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::slice;

use numpy::npyffi::flags::NPY_ARRAY_WRITEABLE;
use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tenfold::engine::Parts;
use tenfold::{Dtype, TensorView};

use crate::dlpack;
use crate::errors::{self, ArgumentError, DtypeError};

/// Memory of a Python object, which is kept alive with it.
///
/// Python code on another thread may write to the memory while the interpreter's lock is released, as with any function of
/// numpy. What is read then is some mixture of old and new bytes; the codec is sound for any bytes.
pub struct Input {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    data: NonNull<u8>,
    bytes: usize,
    /// The array or the capsule whose memory this is.
    _owner: Py<PyAny>,
}

// SAFETY: the memory belongs to `_owner`, which may be dropped on any thread (`Py` sees to that), and is only read.
unsafe impl Send for Input {}
// SAFETY: as above.
unsafe impl Sync for Input {}

impl Input {
    /// The tensor in an array or a DLPack object. `dtype` names the true element type of a raw view.
    pub fn from_object(object: &Bound<'_, PyAny>, dtype: Option<&str>) -> PyResult<Input> {
        let mut input = match object.cast::<PyUntypedArray>() {
            Ok(array) => Input::from_array(array, dtype.is_some())?,
            Err(_) => dlpack::input(object)?,
        };
        if let Some(name) = dtype {
            let dtype = parse_dtype(name)?;
            if dtype.size() != input.dtype.size() {
                return Err(DtypeError::new_err(format!(
                    "the elements have {} bytes, but those of {name} have {}",
                    input.dtype.size(),
                    dtype.size()
                )));
            }
            input.dtype = dtype;
        }
        Ok(input)
    }

    /// `raw` says that the caller states the dtype, so that structured bytes of its size will do.
    fn from_array(array: &Bound<'_, PyUntypedArray>, raw: bool) -> PyResult<Input> {
        let dtype = array_dtype(array, raw)?;
        check_contiguous(array)?;
        let shape = array.shape().to_vec();
        // SAFETY: the array is alive, and its first element lies where numpy says.
        let data = unsafe { (*array.as_array_ptr()).fields.data.cast::<u8>() };
        // SAFETY: a C-contiguous array of this shape and dtype spans as many bytes, and is owned by the array.
        unsafe { Input::new(dtype, shape, data, array.clone().into_any().unbind()) }
    }

    /// # Safety
    ///
    /// `data` points to the bytes of a row-major tensor of this dtype and shape, which stay there while `owner` lives; it
    /// may be null if there are none.
    pub unsafe fn new(dtype: Dtype, shape: Vec<usize>, data: *mut u8, owner: Py<PyAny>) -> PyResult<Input> {
        let bytes = match shape.contains(&0) {
            true => Some(0),
            false => shape.iter().try_fold(dtype.size(), |n, &d| n.checked_mul(d)),
        };
        let bytes = bytes.filter(|&n| isize::try_from(n).is_ok());
        let bytes = bytes.ok_or_else(|| ArgumentError::new_err(format!("shape {shape:?} is too large")))?;
        let data = match NonNull::new(data) {
            Some(data) => data,
            None if bytes == 0 => NonNull::dangling(),
            None => return Err(ArgumentError::new_err("the tensor has no memory")),
        };
        Ok(Input { dtype, shape, data, bytes, _owner: owner })
    }

    /// The bytes.
    pub fn data(&self) -> &[u8] {
        // SAFETY: `new` was promised that many bytes for as long as the owner lives, which this value holds.
        unsafe { slice::from_raw_parts(self.data.as_ptr(), self.bytes) }
    }

    /// The tensor as the codec sees it.
    pub fn view(&self) -> tenfold::engine::Result<TensorView<'_>> {
        TensorView::new(self.dtype, &self.shape, self.data())
    }
}

/// The bytes of a blob: a `bytes` object, or a one-dimensional array of bytes.
pub enum Blob<'py> {
    /// Immutable, so it can be borrowed as it is.
    Bytes(Bound<'py, PyBytes>),
    /// The Python side wraps every other buffer so.
    Array(Input),
}

impl<'py> Blob<'py> {
    pub fn from_object(object: &Bound<'py, PyAny>) -> PyResult<Blob<'py>> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Blob::Bytes(bytes.clone()));
        }
        let array = object.cast::<PyUntypedArray>().map_err(|_| {
            let kind = object.get_type();
            DtypeError::new_err(format!("a blob must be bytes or a buffer of bytes, not {kind}"))
        })?;
        let input = Input::from_array(array, false)?;
        if input.dtype != Dtype::U8 {
            return Err(DtypeError::new_err("a blob must be bytes; view the array as uint8"));
        }
        Ok(Blob::Array(input))
    }

    pub fn data(&self) -> &[u8] {
        match self {
            Blob::Bytes(bytes) => bytes.as_bytes(),
            Blob::Array(input) => input.data(),
        }
    }
}

/// A new `bytes` object with a blob. Pages of a long one are touched for the first time here, which takes as long as copying:
/// the interpreter need not wait for that.
pub fn make_bytes(py: Python<'_>, blob: Parts) -> PyResult<Bound<'_, PyBytes>> {
    let bytes = blob.blob_len();
    let len = bytes.try_into().map_err(|_| PyMemoryError::new_err("the size in bytes overflows"))?;
    // SAFETY: Python makes an object of so many bytes, or sets an exception and returns null.
    let object =
        unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(std::ptr::null(), len))? };
    // SAFETY: the object is a `bytes`; its memory stays where it is while it lives.
    let room = unsafe { ffi::PyBytes_AsString(object.as_ptr()) }.cast::<MaybeUninit<u8>>();
    // SAFETY: there are that many bytes, not yet set, and nobody but us has seen the object.
    let room = unsafe { slice::from_raw_parts_mut(room, bytes) };
    py.detach(|| {
        use_large_pages(room);
        // Sets every byte, or the object is dropped with nobody having seen it.
        blob.write_uninit(room)
    })
    .map_err(errors::codec)?;
    Ok(object.cast_into::<PyBytes>()?)
}

/// Asks for large pages under memory that is not yet touched, as numpy does for its arrays: finding small ones takes longer
/// than filling them. Where the system has none to give, nothing changes.
fn use_large_pages(room: &mut [MaybeUninit<u8>]) {
    /// From here on numpy asks too.
    const LARGE: usize = 4 << 20;
    const PAGE: usize = 4096;
    #[cfg(target_os = "linux")]
    if room.len() >= LARGE {
        let start = room.as_ptr().addr().next_multiple_of(PAGE);
        let end = room.as_ptr_range().end.addr() / PAGE * PAGE;
        let from = room.as_mut_ptr().with_addr(start).cast();
        // SAFETY: whole pages within memory of ours; the advice changes none of their contents.
        unsafe { libc::madvise(from, end - start, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (room, LARGE, PAGE);
}

/// Memory of a Python object that results are written to.
pub struct Output(Input);

impl Output {
    /// The memory of an array or a DLPack object, which must be contiguous and say that it may be written to.
    pub fn from_object(object: &Bound<'_, PyAny>) -> PyResult<Output> {
        let Ok(array) = object.cast::<PyUntypedArray>() else { return dlpack::output(object).map(Output) };
        let input = Input::from_array(array, true)?;
        // SAFETY: the array is alive.
        let flags = unsafe { (*array.as_array_ptr()).fields.flags };
        if flags & NPY_ARRAY_WRITEABLE == 0 {
            return Err(ArgumentError::new_err("out is read-only; pass a writable array"));
        }
        Ok(Output(input))
    }

    /// Refuses memory that is not of the dtype (or, for dtypes that numpy lacks, of unsigned integers of its size) and the
    /// shape of a tensor, or of some rows of it. A flat array of as many bytes will do for any tensor.
    pub fn check(&self, dtype: Dtype, shape: &[usize], rows: Option<(usize, usize)>) -> PyResult<()> {
        let wanted = match rows {
            Some((start, end)) => vec![end.saturating_sub(start), shape.last().copied().unwrap_or(1)],
            None => shape.to_vec(),
        };
        self.check_fits(&self.0.shape, dtype, wanted)
    }

    /// Refuses memory that, seen as of shape `seen`, is not of the dtype and shape that are wanted.
    fn check_fits(&self, seen: &[usize], dtype: Dtype, wanted: Vec<usize>) -> PyResult<()> {
        let bits = match dtype {
            Dtype::Bf16 => Dtype::U16,
            Dtype::F8E4M3 | Dtype::F8E5M2 => Dtype::U8,
            own => own,
        };
        let Output(out) = self;
        if out.dtype == Dtype::U8
            && let &[bytes] = &out.shape[..]
            && wanted.iter().try_fold(dtype.size(), |n, &d| n.checked_mul(d)) == Some(bytes)
        {
            return Ok(());
        }
        if out.dtype != dtype && out.dtype != bits {
            let (out, own) = (python_name(out.dtype), python_name(dtype));
            return Err(DtypeError::new_err(format!("out has dtype {out}, but the tensor has {own}")));
        }
        if seen != wanted {
            let (out, own) = (shape_text(&out.shape), shape_text(&wanted));
            return Err(ArgumentError::new_err(format!("out has shape {out}, but the tensor has {own}")));
        }
        Ok(())
    }

    /// The same for rows of a tensor of two dimensions; further dimensions of the memory may part its columns.
    pub fn check_rows(&self, dtype: Dtype, shape: &[usize]) -> PyResult<()> {
        match self.0.shape.split_first() {
            Some((&rows, rest)) if !rest.is_empty() => {
                self.check_fits(&[rows, rest.iter().product()], dtype, shape.to_vec())
            }
            _ => self.check(dtype, shape, None),
        }
    }

    /// Element type.
    pub fn dtype(&self) -> Dtype {
        self.0.dtype
    }

    /// The bytes to write.
    pub fn data(&mut self) -> &mut [u8] {
        // SAFETY: writable, contiguous memory of so many bytes, which the owner within keeps. That no other thread uses it
        // meanwhile is what a caller of any function with `out=` has to see to.
        unsafe { slice::from_raw_parts_mut(self.0.data.as_ptr(), self.0.bytes) }
    }
}

/// A shape as Python writes it.
pub fn shape_text(shape: &[usize]) -> String {
    match shape {
        [one] => format!("({one},)"),
        _ => format!("({})", shape.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// Name of a dtype in numpy, ml_dtypes and torch.
pub fn python_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Bool => "bool",
        Dtype::U8 => "uint8",
        Dtype::I8 => "int8",
        Dtype::U16 => "uint16",
        Dtype::I16 => "int16",
        Dtype::U32 => "uint32",
        Dtype::I32 => "int32",
        Dtype::U64 => "uint64",
        Dtype::I64 => "int64",
        Dtype::F8E4M3 => "float8_e4m3fn",
        Dtype::F8E5M2 => "float8_e5m2",
        Dtype::F16 => "float16",
        Dtype::Bf16 => "bfloat16",
        Dtype::F32 => "float32",
        Dtype::F64 => "float64",
        // The core may gain dtypes before this module does.
        other => other.name(),
    }
}

/// The dtype of a name, that of Python or that of the command line.
fn find_dtype(name: &str) -> Option<Dtype> {
    Dtype::ALL.into_iter().find(|&dtype| python_name(dtype) == name || dtype.name() == name)
}

/// The dtype of a name, or the exception that lists them.
pub fn parse_dtype(name: &str) -> PyResult<Dtype> {
    find_dtype(name).ok_or_else(|| unknown_dtype(name))
}

fn unknown_dtype(name: &str) -> PyErr {
    let known: Vec<_> = Dtype::ALL.into_iter().map(python_name).collect();
    DtypeError::new_err(format!("tenfold does not store dtype {name}; it stores {}", known.join(", ")))
}

fn array_dtype(array: &Bound<'_, PyUntypedArray>, raw: bool) -> PyResult<Dtype> {
    let descr = array.dtype();
    if descr.getattr("byteorder")?.extract::<String>()? == ">" {
        return Err(DtypeError::new_err(
            "the array is big-endian; convert it with x.astype(x.dtype.newbyteorder('<'))",
        ));
    }
    let name: String = descr.getattr("name")?.extract()?;
    match (find_dtype(&name), raw, descr.itemsize()) {
        (Some(dtype), ..) => Ok(dtype),
        // Files of bfloat16 that numpy loads without ml_dtypes come as plain two-byte records.
        (None, true, 1) if name == "void8" => Ok(Dtype::U8),
        (None, true, 2) if name == "void16" => Ok(Dtype::U16),
        (None, ..) => Err(unknown_dtype(&name)),
    }
}

fn check_contiguous(array: &Bound<'_, PyUntypedArray>) -> PyResult<()> {
    if array.is_c_contiguous() {
        return Ok(());
    }
    Err(ArgumentError::new_err(format!(
        "the array is not contiguous (shape {:?}, strides {:?}); pass np.ascontiguousarray(x)",
        array.shape(),
        array.strides()
    )))
}

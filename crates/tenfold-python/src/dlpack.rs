//! Tensors that other libraries offer through DLPack, read in place.
//!
//! The structures are those of `dlpack.h`, versions 0.8 and 1.x. The capsule is left as it came: its own destructor gives the
//! tensor back to its maker once we drop the capsule, so nothing has to be taken over.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use tenfold::Dtype;

use crate::errors::{ArgumentError, DtypeError, UnsupportedError};
use crate::tensors::Input;

/// `kDLCPU`, `kDLCUDAHost`, `kDLROCMHost`: memory that a CPU reads.
const HOST_DEVICES: [i32; 3] = [1, 3, 11];
const PLAIN: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
/// More dimensions than any library has.
const MAX_DIMS: i32 = 64;

/// `DLTensor`.
#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    /// Null where the tensor is row-major without gaps.
    strides: *const i64,
    byte_offset: u64,
}

/// `DLManagedTensorVersioned`, as far as its major version 1 goes; `DLManagedTensor` begins with the tensor.
#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    manager: *mut c_void,
    deleter: *mut c_void,
    flags: u64,
    tensor: DlTensor,
}

/// `DLPACK_FLAG_BITMASK_READ_ONLY`.
const READ_ONLY: u64 = 1;

/// The tensor of an object that has `__dlpack__`, to be read.
pub fn input(object: &Bound<'_, PyAny>) -> PyResult<Input> {
    borrow(object).map(|(input, _)| input)
}

/// The tensor of an object that has `__dlpack__`, to be written. Only capsules of version 1 say whether that is allowed:
/// arrays of some libraries never change.
pub fn output(object: &Bound<'_, PyAny>) -> PyResult<Input> {
    match borrow(object)? {
        (output, Some(flags)) if flags & READ_ONLY == 0 => Ok(output),
        (_, Some(_)) => Err(ArgumentError::new_err("out is read-only; pass a writable tensor")),
        (_, None) => Err(UnsupportedError::new_err(format!(
            "{} does not say whether it is writable (its DLPack is older than version 1); pass a numpy array over its memory \
             as out, such as x.numpy()",
            object.get_type()
        ))),
    }
}

/// The tensor, and the flags of its capsule if that has any.
fn borrow(object: &Bound<'_, PyAny>) -> PyResult<(Input, Option<u64>)> {
    let py = object.py();
    if !object.hasattr("__dlpack__")? || !object.hasattr("__dlpack_device__")? {
        return Err(DtypeError::new_err(format!(
            "{} is not a tensor: pass a numpy array, a buffer, or an object with __dlpack__ (torch, JAX …)",
            object.get_type()
        )));
    }
    let refused = |error: PyErr| {
        let text = format!(
            "the tensor's memory cannot be shared: {}; pass a dense, contiguous tensor on the CPU without gradient, such \
             as x.detach().to_dense().cpu()",
            error.value(py)
        );
        ArgumentError::new_err(text)
    };
    let device = object.call_method0("__dlpack_device__").map_err(refused)?;
    let (device, _): (i32, i32) = device.extract()?;
    if !HOST_DEVICES.contains(&device) {
        return Err(UnsupportedError::new_err(format!(
            "the tensor lies on a device (DLPack type {device}); move it to the CPU first, such as with x.cpu()"
        )));
    }
    let options = PyDict::new(py);
    options.set_item("max_version", (1, 0))?;
    let capsule = match object.call_method("__dlpack__", (), Some(&options)) {
        // Makers older than version 1 do not know the argument.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => object.call_method0("__dlpack__"),
        result => result,
    };
    let capsule = capsule.map_err(refused)?;
    let capsule =
        capsule.cast::<PyCapsule>().map_err(|_| DtypeError::new_err("__dlpack__ returned no capsule"))?;
    let (tensor, flags) = if capsule.is_valid_checked(Some(VERSIONED)) {
        let managed = capsule.pointer_checked(Some(VERSIONED))?.cast::<Versioned>();
        // SAFETY: a capsule of this name points to this structure; the version comes first in all of its versions.
        let major = unsafe { managed.as_ref().major };
        if major != 1 {
            return Err(UnsupportedError::new_err(format!("DLPack version {major} is not supported")));
        }
        // SAFETY: as above, and version 1 has the layout that `Versioned` states.
        let managed = unsafe { managed.as_ref() };
        (&managed.tensor, Some(managed.flags))
    } else {
        let plain = capsule.pointer_checked(Some(PLAIN)).map_err(refused)?;
        // SAFETY: a capsule of this name points to a `DLManagedTensor`, which begins with its tensor.
        (unsafe { plain.cast::<DlTensor>().as_ref() }, None)
    };
    if !HOST_DEVICES.contains(&tensor.device_type) {
        return Err(UnsupportedError::new_err("the tensor lies on a device; move it to the CPU first"));
    }
    let dtype = dtype(tensor.code, tensor.bits, tensor.lanes)?;
    let shape = shape(tensor)?;
    // A tensor without values may have no memory to offset into; that one with values has none is said below.
    let data = if shape.contains(&0) || tensor.data.is_null() {
        std::ptr::null_mut()
    } else {
        // SAFETY: the tensor's first element lies there, by DLPack's definition.
        unsafe { tensor.data.cast::<u8>().add(tensor.byte_offset as usize) }
    };
    // SAFETY: `shape` found a row-major tensor without gaps; its memory lives as long as the capsule.
    let input = unsafe { Input::new(dtype, shape, data, capsule.clone().into_any().unbind()) }?;
    Ok((input, flags))
}

fn dtype(code: u8, bits: u8, lanes: u16) -> PyResult<Dtype> {
    match (code, bits, lanes) {
        (0, 8, 1) => Ok(Dtype::I8),
        (0, 16, 1) => Ok(Dtype::I16),
        (0, 32, 1) => Ok(Dtype::I32),
        (0, 64, 1) => Ok(Dtype::I64),
        (1, 8, 1) => Ok(Dtype::U8),
        (1, 16, 1) => Ok(Dtype::U16),
        (1, 32, 1) => Ok(Dtype::U32),
        (1, 64, 1) => Ok(Dtype::U64),
        (2, 16, 1) => Ok(Dtype::F16),
        (2, 32, 1) => Ok(Dtype::F32),
        (2, 64, 1) => Ok(Dtype::F64),
        (4, 16, 1) => Ok(Dtype::Bf16),
        (6, 8, 1) => Ok(Dtype::Bool),
        (10, 8, 1) => Ok(Dtype::F8E4M3),
        (12, 8, 1) => Ok(Dtype::F8E5M2),
        _ => Err(DtypeError::new_err(format!(
            "tenfold does not store elements of DLPack type {code} with {bits} bits and {lanes} lanes"
        ))),
    }
}

/// The shape, after a check that the elements lie in row-major order without gaps.
fn shape(tensor: &DlTensor) -> PyResult<Vec<usize>> {
    if !(0..=MAX_DIMS).contains(&tensor.ndim) || (tensor.ndim > 0 && tensor.shape.is_null()) {
        return Err(ArgumentError::new_err(format!(
            "a tensor of {} dimensions is not supported",
            tensor.ndim
        )));
    }
    let dims = tensor.ndim as usize;
    // SAFETY: `shape` has `ndim` entries, by DLPack's definition; a scalar may have none.
    let list =
        |at: *const i64| if dims == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(at, dims) } };
    let shape: Result<Vec<usize>, _> = list(tensor.shape).iter().map(|&d| usize::try_from(d)).collect();
    let shape = shape.map_err(|_| ArgumentError::new_err("the tensor has a negative dimension"))?;
    if !tensor.strides.is_null() && !shape.contains(&0) {
        let mut step = 1i64;
        for (&size, &stride) in shape.iter().zip(list(tensor.strides)).rev() {
            if size != 1 && stride != step {
                return Err(ArgumentError::new_err(format!(
                    "the tensor is not contiguous (shape {shape:?}, strides {:?}); pass x.contiguous() or \
                     np.ascontiguousarray(x)",
                    list(tensor.strides)
                )));
            }
            step = step.saturating_mul(size as i64);
        }
    }
    Ok(shape)
}

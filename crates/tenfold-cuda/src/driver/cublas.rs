//! cuBLAS, loaded when a product is first asked for: nothing of it is needed to build, and only a basis needs it to run.

use std::ffi::{c_int, c_void};

use libloading::Library;

use super::{Matrix, Product, Stream};
use crate::error::{Error, Result};

/// What the library is called, the newest first.
const NAMES: [&str; 6] = [
    "libcublas.so.13",
    "libcublas.so.12",
    "libcublas.so.11",
    "libcublas.so",
    "cublas64_13.dll",
    "cublas64_12.dll",
];

/// Numbers of cuBLAS's header.
const NO_TRANSPOSE: c_int = 0;
const R_32F: c_int = 0;
const R_16BF: c_int = 14;
const COMPUTE_32F: c_int = 68;
const ALGORITHM: c_int = -1;

type Handle = *mut c_void;
type Gemm = unsafe extern "C" fn(
    Handle,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const c_void,
    *const c_void,
    c_int,
    c_int,
    *const c_void,
    c_int,
    c_int,
    *const c_void,
    *mut c_void,
    c_int,
    c_int,
    c_int,
    c_int,
) -> c_int;

/// A handle of the library. One caller at a time.
pub(crate) struct Cublas {
    handle: Handle,
    destroy: unsafe extern "C" fn(Handle) -> c_int,
    set_stream: unsafe extern "C" fn(Handle, *mut c_void) -> c_int,
    set_workspace: unsafe extern "C" fn(Handle, *mut c_void, usize) -> c_int,
    gemm: Gemm,
    /// Keeps the functions where they are.
    _library: Library,
}

// SAFETY: a handle may be used from any thread, by one at a time.
unsafe impl Send for Cublas {}

fn check(what: &'static str, code: c_int) -> Result<()> {
    match code {
        0 => Ok(()),
        _ => Err(Error::Driver { what, reason: format!("cuBLAS says {code}") }),
    }
}

impl Cublas {
    /// Loads the library; the device's context is current.
    pub(crate) fn open() -> Result<Cublas> {
        // SAFETY: cuBLAS, whose initialisers do no harm.
        let library = NAMES.into_iter().find_map(|name| unsafe { Library::new(name) }.ok());
        let library = library.ok_or_else(|| {
            Error::NoDevice("a basis needs cuBLAS, which is not installed: no libcublas.so.13 or .12".into())
        })?;
        fn symbol<T: Copy>(library: &Library, name: &str) -> Result<T> {
            // SAFETY: `T` is the function's type in cublas_v2.h.
            let found = unsafe { library.get::<T>(name.as_bytes()) };
            found.map(|s| *s).map_err(|e| Error::NoDevice(format!("cuBLAS has no {name}: {e}")))
        }
        let create: unsafe extern "C" fn(*mut Handle) -> c_int = symbol(&library, "cublasCreate_v2")?;
        let mut cublas = Cublas {
            handle: std::ptr::null_mut(),
            destroy: symbol(&library, "cublasDestroy_v2")?,
            set_stream: symbol(&library, "cublasSetStream_v2")?,
            set_workspace: symbol(&library, "cublasSetWorkspace_v2")?,
            gemm: symbol(&library, "cublasGemmEx")?,
            _library: library,
        };
        // SAFETY: a place for a handle.
        check("opening cuBLAS", unsafe { create(&mut cublas.handle) })?;
        Ok(cublas)
    }

    /// Queues a product.
    ///
    /// # Safety
    /// As for [`super::Driver::multiply`]; the context is current.
    pub(crate) unsafe fn multiply(&mut self, product: &Product, stream: Stream) -> Result<()> {
        let size = |n: usize| {
            c_int::try_from(n).map_err(|_| Error::InvalidArgument("a product too large for cuBLAS".into()))
        };
        let (rows, inner, columns) = (size(product.rows)?, size(product.inner)?, size(product.columns)?);
        let (alpha, beta) = (1f32, if product.add { 1f32 } else { 0f32 });
        let kind = match product.out {
            Matrix::Bf16 => R_16BF,
            Matrix::F32 => R_32F,
        };
        let (scratch, len) = (product.workspace.address as *mut c_void, product.workspace.len);
        // SAFETY: the caller's. cuBLAS counts by columns, so that all is transposed: the right matrix comes first.
        unsafe {
            check("giving cuBLAS a stream", (self.set_stream)(self.handle, stream.0))?;
            check("giving cuBLAS a workspace", (self.set_workspace)(self.handle, scratch, len))?;
            let code = (self.gemm)(
                self.handle,
                NO_TRANSPOSE,
                NO_TRANSPOSE,
                columns,
                rows,
                inner,
                (&raw const alpha).cast(),
                product.right as *const c_void,
                R_16BF,
                columns,
                product.left as *const c_void,
                R_16BF,
                inner,
                (&raw const beta).cast(),
                product.to as *mut c_void,
                kind,
                columns,
                COMPUTE_32F,
                ALGORITHM,
            );
            check("a product", code)
        }
    }
}

impl Drop for Cublas {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: made by `open`. Errors have nowhere to go.
            unsafe { (self.destroy)(self.handle) };
        }
    }
}

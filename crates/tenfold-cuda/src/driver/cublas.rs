//! cuBLASLt, loaded for the first product: the build does not need it, and at run time only bases and curvatures do.

use std::ffi::{c_int, c_void};

use libloading::Library;

use super::{Matrix, Product, Stream, Strides};
use crate::error::{Error, Result};

/// What the library is called, the newest first.
const NAMES: [&str; 6] = [
    "libcublasLt.so.13",
    "libcublasLt.so.12",
    "libcublasLt.so.11",
    "libcublasLt.so",
    "cublasLt64_13.dll",
    "cublasLt64_12.dll",
];

/// Numbers of the library's header.
const R_32F: c_int = 0;
const R_64F: c_int = 1;
const R_16F: c_int = 2;
const R_16BF: c_int = 14;
const COMPUTE_32F: c_int = 68;
const COMPUTE_64F: c_int = 70;
const DESCRIPTION_TRANSPOSE_FIRST: c_int = 3;
const TRANSPOSE: c_int = 1;
const DESCRIPTION_EPILOGUE: c_int = 7;
const DESCRIPTION_BIAS: c_int = 8;
const EPILOGUE_BIAS: c_int = 4;
const PREFERENCE_WORKSPACE: c_int = 1;
const PREFERENCE_ALIGNMENTS: [c_int; 4] = [5, 6, 7, 8];

/// What matrices start at multiples of, at the most that is told.
const ALIGNMENT: u64 = 16;

/// Ways to make a product that are remembered.
const REMEMBERED: usize = 16;

type Opaque = *mut c_void;
type Set = unsafe extern "C" fn(Opaque, c_int, *const c_void, usize) -> c_int;
type Destroy = unsafe extern "C" fn(Opaque) -> c_int;

/// A way to make products of one shape, as the library found it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Found {
    algorithm: [u64; 8],
    workspace: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

type Matmul = unsafe extern "C" fn(
    Opaque,
    Opaque,
    *const c_void,
    *const c_void,
    Opaque,
    *const c_void,
    Opaque,
    *const c_void,
    *const c_void,
    Opaque,
    *mut c_void,
    Opaque,
    *const [u64; 8],
    *mut c_void,
    usize,
    Opaque,
) -> c_int;

/// What a way to make a product depends on.
#[derive(Clone, Copy, PartialEq)]
struct Kind {
    size: (usize, usize, usize),
    of: (Matrix, Matrix),
    bias: bool,
    workspace: usize,
    strides: Strides,
    turned: bool,
    adds: bool,
    /// What the matrices start at multiples of: the right one, the left one, and what comes of them.
    alignments: [u32; 3],
}

impl Kind {
    fn new(p: &Product) -> Kind {
        // A power of two.
        let alignment = |address: u64| (1u64 << address.trailing_zeros().min(31)).min(ALIGNMENT) as u32;
        Kind {
            size: (p.rows, p.inner, p.columns),
            of: (p.of, p.out),
            bias: p.bias != 0,
            workspace: p.workspace.len,
            strides: p.strides(),
            turned: p.turned,
            adds: p.added.is_some(),
            alignments: [p.right, p.left, p.to].map(alignment),
        }
    }
}

/// The library's functions.
struct Functions {
    describe: unsafe extern "C" fn(*mut Opaque, c_int, c_int) -> c_int,
    describe_more: Set,
    forget_description: Destroy,
    layout: unsafe extern "C" fn(*mut Opaque, c_int, u64, u64, i64) -> c_int,
    forget_layout: Destroy,
    prefer: unsafe extern "C" fn(*mut Opaque) -> c_int,
    prefer_more: Set,
    forget_preference: Destroy,
    find: unsafe extern "C" fn(
        Opaque,
        Opaque,
        Opaque,
        Opaque,
        Opaque,
        Opaque,
        Opaque,
        c_int,
        *mut Found,
        *mut c_int,
    ) -> c_int,
    multiply: Matmul,
    destroy: Destroy,
}

/// A handle of the library. One caller at a time.
pub(crate) struct Cublas {
    handle: Opaque,
    functions: Functions,
    known: Vec<(Kind, Found)>,
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

/// Something that the library made, given back when dropped.
struct Made {
    what: Opaque,
    forget: Destroy,
}

impl Made {
    fn new(name: &'static str, forget: Destroy, make: impl FnOnce(*mut Opaque) -> c_int) -> Result<Made> {
        let mut what = std::ptr::null_mut();
        check(name, make(&mut what))?;
        Ok(Made { what, forget })
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // SAFETY: made by the library. Errors have nowhere to go.
        unsafe { (self.forget)(self.what) };
    }
}

fn number(kind: Matrix) -> c_int {
    match kind {
        Matrix::Bf16 => R_16BF,
        Matrix::F16 => R_16F,
        Matrix::F32 => R_32F,
        Matrix::F64 => R_64F,
    }
}

/// How a product is added up, and the kind of what it is multiplied by.
fn precision(p: &Product) -> (c_int, c_int) {
    if p.of == Matrix::F64 { (COMPUTE_64F, R_64F) } else { (COMPUTE_32F, R_32F) }
}

/// A product as the library is told of it. It counts by columns, so that all is transposed: the right matrix comes first.
struct Described {
    description: Made,
    right: Made,
    left: Made,
    out: Made,
}

impl Described {
    fn new(f: &Functions, p: &Product) -> Result<Described> {
        let (rows, inner, columns) = (p.rows as u64, p.inner as u64, p.columns as u64);
        let (compute, scale) = precision(p);
        // SAFETY: places for what is made; attributes are of the sizes that the library expects.
        unsafe {
            let description = Made::new("describing a product", f.forget_description, |to| {
                (f.describe)(to, compute, scale)
            })?;
            let set = |what: c_int, from: *const c_void, len: usize| {
                check("describing a product", (f.describe_more)(description.what, what, from, len))
            };
            if p.bias != 0 {
                let epilogue = EPILOGUE_BIAS;
                set(DESCRIPTION_EPILOGUE, (&raw const epilogue).cast(), size_of::<c_int>())?;
                set(DESCRIPTION_BIAS, (&raw const p.bias).cast(), size_of::<u64>())?;
            }
            if p.turned {
                let transpose = TRANSPOSE;
                set(DESCRIPTION_TRANSPOSE_FIRST, (&raw const transpose).cast(), size_of::<c_int>())?;
            }
            let layout = |kind: Matrix, long: u64, wide: u64, stride: usize| {
                Made::new("describing a matrix", f.forget_layout, |to| {
                    (f.layout)(to, number(kind), long, wide, stride as i64)
                })
            };
            let strides = p.strides();
            let (long, wide) = if p.turned { (inner, columns) } else { (columns, inner) };
            let right = layout(p.of, long, wide, strides.right)?;
            let left = layout(p.of, inner, rows, strides.left)?;
            let out = layout(p.out, columns, rows, strides.to)?;
            Ok(Described { description, right, left, out })
        }
    }
}

impl Cublas {
    /// Loads the library; the device's context is current.
    pub(crate) fn open() -> Result<Cublas> {
        // SAFETY: cuBLASLt, whose initialisers do no harm.
        let library = NAMES.into_iter().find_map(|name| unsafe { Library::new(name) }.ok());
        let library = library.ok_or_else(|| {
            Error::NoDevice("bases and curvatures need cuBLAS: install libcublasLt.so.13 or .12".into())
        })?;
        fn symbol<T: Copy>(library: &Library, name: &str) -> Result<T> {
            // SAFETY: `T` is the function's type in cublasLt.h.
            let found = unsafe { library.get::<T>(name.as_bytes()) };
            found.map(|s| *s).map_err(|e| Error::NoDevice(format!("cuBLAS has no {name}: {e}")))
        }
        let create: unsafe extern "C" fn(*mut Opaque) -> c_int = symbol(&library, "cublasLtCreate")?;
        let functions = Functions {
            describe: symbol(&library, "cublasLtMatmulDescCreate")?,
            describe_more: symbol(&library, "cublasLtMatmulDescSetAttribute")?,
            forget_description: symbol(&library, "cublasLtMatmulDescDestroy")?,
            layout: symbol(&library, "cublasLtMatrixLayoutCreate")?,
            forget_layout: symbol(&library, "cublasLtMatrixLayoutDestroy")?,
            prefer: symbol(&library, "cublasLtMatmulPreferenceCreate")?,
            prefer_more: symbol(&library, "cublasLtMatmulPreferenceSetAttribute")?,
            forget_preference: symbol(&library, "cublasLtMatmulPreferenceDestroy")?,
            find: symbol(&library, "cublasLtMatmulAlgoGetHeuristic")?,
            multiply: symbol(&library, "cublasLtMatmul")?,
            destroy: symbol(&library, "cublasLtDestroy")?,
        };
        let mut handle = std::ptr::null_mut();
        // SAFETY: a place for a handle.
        check("opening cuBLAS", unsafe { create(&mut handle) })?;
        Ok(Cublas { handle, functions, known: Vec::new(), _library: library })
    }

    /// The way to make a product: the one of last time, or what the library thinks best.
    fn find_algorithm(&mut self, p: &Product, described: &Described) -> Result<Found> {
        let kind = Kind::new(p);
        if let Some((_, found)) = self.known.iter().find(|(k, _)| *k == kind) {
            return Ok(*found);
        }
        let f = &self.functions;
        let room = p.workspace.len as u64;
        // What is there and what comes of it are one matrix.
        let [right, left, to] = kind.alignments;
        let mut found = Found { algorithm: [0; 8], workspace: 0, state: 0, waves: 0.0, reserved: [0; 4] };
        let mut count = 0;
        // SAFETY: places for what is made and found, one of the latter.
        unsafe {
            let preference = Made::new("asking for a product", f.forget_preference, |to| (f.prefer)(to))?;
            let set = |what: c_int, from: *const c_void, len: usize| {
                check("asking for a product", (f.prefer_more)(preference.what, what, from, len))
            };
            set(PREFERENCE_WORKSPACE, (&raw const room).cast(), size_of::<u64>())?;
            for (what, alignment) in PREFERENCE_ALIGNMENTS.into_iter().zip([right, left, to, to]) {
                set(what, (&raw const alignment).cast(), size_of::<u32>())?;
            }
            let code = (f.find)(
                self.handle,
                described.description.what,
                described.right.what,
                described.left.what,
                described.out.what,
                described.out.what,
                preference.what,
                1,
                &mut found,
                &mut count,
            );
            check("choosing an algorithm for a product", code)?;
        }
        if count == 0 || found.state != 0 || found.workspace > p.workspace.len {
            let reason = format!("cuBLAS has no algorithm for {} × {} × {}", p.rows, p.inner, p.columns);
            return Err(Error::Driver { what: "a product", reason });
        }
        if self.known.len() == REMEMBERED {
            self.known.remove(0);
        }
        self.known.push((kind, found));
        Ok(found)
    }

    /// Queues a product.
    ///
    /// # Safety
    /// As for [`super::Driver::multiply`]; the context is current.
    pub(crate) unsafe fn multiply(&mut self, p: &Product, stream: Stream) -> Result<()> {
        let described = Described::new(&self.functions, p)?;
        let found = self.find_algorithm(p, &described)?;
        let (alpha, beta) = (p.added.unwrap_or(1.0), if p.added.is_some() { 1f32 } else { 0f32 });
        let wide = [f64::from(alpha), f64::from(beta)];
        let (alpha, beta): (*const c_void, *const c_void) = match p.of {
            Matrix::F64 => ((&raw const wide[0]).cast(), (&raw const wide[1]).cast()),
            _ => ((&raw const alpha).cast(), (&raw const beta).cast()),
        };
        // SAFETY: the caller's.
        let code = unsafe {
            (self.functions.multiply)(
                self.handle,
                described.description.what,
                alpha,
                p.right as *const c_void,
                described.right.what,
                p.left as *const c_void,
                described.left.what,
                beta,
                p.to as *const c_void,
                described.out.what,
                p.to as *mut c_void,
                described.out.what,
                &found.algorithm,
                p.workspace.address as *mut c_void,
                p.workspace.len,
                stream.0,
            )
        };
        check("a product", code)
    }
}

impl Drop for Cublas {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: made by `open`. Errors have nowhere to go.
            unsafe { (self.functions.destroy)(self.handle) };
        }
    }
}

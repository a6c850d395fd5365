//! How many engines for JPEG a GPU has, which nvJPEG alone says. It comes with CUDA's toolkit, not with the driver; tenfold has no blobs
//! of such pictures.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;

use tenfold_cuda::Device;

use crate::error::{Error, Result};
use crate::library::{Library, NVJPEG};

/// The engines that decode JPEG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JpegEngines {
    /// Engines; 0 where a GPU decodes on its multiprocessors alone.
    pub engines: u32,
    /// Cores of each.
    pub cores: u32,
}

type Create = unsafe extern "C" fn(*mut *mut c_void) -> c_int;
type Info = unsafe extern "C" fn(*mut c_void, *mut c_uint, *mut c_uint) -> c_int;
type Destroy = unsafe extern "C" fn(*mut c_void) -> c_int;

struct NvJpeg {
    create: Create,
    info: Info,
    destroy: Destroy,
    _library: Library,
}

impl NvJpeg {
    /// The library, loaded once and kept.
    fn get() -> Result<&'static NvJpeg> {
        static LOADED: OnceLock<NvJpeg> = OnceLock::new();
        if let Some(loaded) = LOADED.get() {
            return Ok(loaded);
        }
        let library = Library::open(NVJPEG)?;
        // SAFETY: the types are those of NVIDIA's header; the library lives as long as the pointers.
        let bound = unsafe {
            NvJpeg {
                create: library.function("nvjpegCreateSimple")?,
                info: library.function("nvjpegGetHardwareDecoderInfo")?,
                destroy: library.function("nvjpegDestroy")?,
                _library: library,
            }
        };
        Ok(LOADED.get_or_init(|| bound))
    }
}

fn check(call: &'static str, code: c_int) -> Result<()> {
    let name = match code {
        0 => return Ok(()),
        1 => "NVJPEG_STATUS_NOT_INITIALIZED",
        2 => "NVJPEG_STATUS_INVALID_PARAMETER",
        5 => "NVJPEG_STATUS_ALLOCATOR_FAILURE",
        6 => "NVJPEG_STATUS_EXECUTION_FAILED",
        7 => "NVJPEG_STATUS_ARCH_MISMATCH",
        8 => "NVJPEG_STATUS_INTERNAL_ERROR",
        9 => "NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED",
        _ => "an unknown status of nvJPEG",
    };
    Err(Error::Call { call, code: code.unsigned_abs(), name })
}

/// Asks nvJPEG for a device's engines. Fails with [`Error::LibraryMissing`] where CUDA's toolkit is not installed.
pub fn jpeg_engines(device: &Device) -> Result<JpegEngines> {
    let api = NvJpeg::get()?;
    device.make_current()?;
    let mut handle = ptr::null_mut();
    // SAFETY: the place lives through the call.
    check("nvjpegCreateSimple", unsafe { (api.create)(&mut handle) })?;
    let (mut engines, mut cores) = (0, 0);
    // SAFETY: the handle is open; both places live through the call.
    let answer =
        check("nvjpegGetHardwareDecoderInfo", unsafe { (api.info)(handle, &mut engines, &mut cores) });
    // SAFETY: opened above.
    check("nvjpegDestroy", unsafe { (api.destroy)(handle) })?;
    answer.map(|()| JpegEngines { engines, cores })
}

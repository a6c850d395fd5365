//! As much of nvJPEG as says how many engines there are.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::control::violation;
use crate::faults::{self, Fault};

const SUCCESS: c_int = 0;
const INVALID_PARAMETER: c_int = 2;

/// Whether a handle is open; there is one at a time.
static OPEN: AtomicBool = AtomicBool::new(false);

fn handle() -> *mut c_void {
    (&raw const OPEN).cast_mut().cast()
}

/// # Safety
/// The place can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvjpegCreateSimple(to: *mut *mut c_void) -> c_int {
    if OPEN.swap(true, Ordering::AcqRel) {
        violation("nvjpegCreateSimple: a handle was left open");
    }
    // SAFETY: the caller's promise.
    unsafe { to.write(handle()) };
    SUCCESS
}

/// # Safety
/// Both places can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvjpegGetHardwareDecoderInfo(
    of: *mut c_void,
    engines: *mut c_uint,
    cores: *mut c_uint,
) -> c_int {
    if of != handle() || !OPEN.load(Ordering::Acquire) {
        violation("nvjpegGetHardwareDecoderInfo: no such handle");
        return INVALID_PARAMETER;
    }
    // SAFETY: the caller's promise.
    unsafe {
        engines.write(faults::get(Fault::JpegEngines) as c_uint);
        cores.write(1);
    }
    SUCCESS
}

/// # Safety
/// The handle is that of `nvjpegCreateSimple`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvjpegDestroy(of: *mut c_void) -> c_int {
    if of != handle() || !OPEN.swap(false, Ordering::AcqRel) {
        violation("nvjpegDestroy: no such handle");
        return INVALID_PARAMETER;
    }
    SUCCESS
}

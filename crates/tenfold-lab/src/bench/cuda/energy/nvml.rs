//! The driver's management library, bound when it is needed: the energy that a device has taken since the driver was loaded.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};

use anyhow::Result;
use libloading::Library;
use thiserror::Error;

use super::Meter;

const FILE: &str = "libnvidia-ml.so.1";
const SUCCESS: c_int = 0;

type Handle = *mut c_void;
type Init = unsafe extern "C" fn() -> c_int;
type ByIndex = unsafe extern "C" fn(c_uint, *mut Handle) -> c_int;
type Name = unsafe extern "C" fn(Handle, *mut c_char, c_uint) -> c_int;
type Energy = unsafe extern "C" fn(Handle, *mut c_ulonglong) -> c_int;
type Text = unsafe extern "C" fn(c_int) -> *const c_char;

/// Why a device's energy cannot be read.
#[derive(Debug, Error)]
pub enum NvmlError {
    /// The library is not there.
    #[error("no energy counter: {FILE} does not load ({0}); it comes with NVIDIA's driver")]
    Load(String),
    /// The library lacks a function.
    #[error("no energy counter: {FILE} has no {0}; it needs a newer driver")]
    Missing(&'static str),
    /// The library refused.
    #[error("no energy counter: {call}: {reason}")]
    Call {
        /// What was asked.
        call: &'static str,
        /// What it reported.
        reason: String,
    },
    /// Its devices are numbered otherwise.
    #[error("device {number} is {found:?} to {FILE} and {expected:?} to CUDA; make only one visible to both")]
    OtherDevice {
        /// Its number.
        number: u32,
        /// What the management library says.
        found: String,
        /// What CUDA says.
        expected: String,
    },
}

/// The counter of one device.
pub(in crate::bench) struct Nvml {
    handle: Handle,
    energy: Energy,
    text: Text,
}

impl Nvml {
    /// Opens the counter of the device with this number, which CUDA knows by this name.
    pub fn open(number: u32, expected: &str) -> Result<Nvml, NvmlError> {
        // SAFETY: runs the initialisers of the driver's own library.
        let library = unsafe { Library::new(FILE) }.map_err(|e| NvmlError::Load(e.to_string()))?;
        // Never unloaded: the functions below live as long as the process.
        let library: &'static Library = Box::leak(Box::new(library));
        // SAFETY: types as NVML's header has them, unchanged since these functions exist.
        let (init, by_index, name, energy, text) = unsafe {
            (
                find::<Init>(library, "nvmlInit_v2")?,
                find::<ByIndex>(library, "nvmlDeviceGetHandleByIndex_v2")?,
                find::<Name>(library, "nvmlDeviceGetName")?,
                find::<Energy>(library, "nvmlDeviceGetTotalEnergyConsumption")?,
                find::<Text>(library, "nvmlErrorString")?,
            )
        };
        let mut nvml = Nvml { handle: std::ptr::null_mut(), energy, text };
        // SAFETY: takes nothing; may be called more than once.
        nvml.check("nvmlInit_v2", unsafe { init() })?;
        // SAFETY: writes one handle.
        let status = unsafe { by_index(number, &mut nvml.handle) };
        nvml.check("nvmlDeviceGetHandleByIndex_v2", status)?;
        let mut buffer: [c_char; 96] = [0; 96];
        // SAFETY: writes at most so many characters, a zero among them.
        let status = unsafe { name(nvml.handle, buffer.as_mut_ptr(), buffer.len() as c_uint) };
        nvml.check("nvmlDeviceGetName", status)?;
        buffer[buffer.len() - 1] = 0;
        // SAFETY: ends in a zero within the buffer.
        let found = unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_string_lossy().into_owned();
        if found != expected {
            return Err(NvmlError::OtherDevice { number, found, expected: expected.to_owned() });
        }
        Ok(nvml)
    }

    fn check(&self, call: &'static str, status: c_int) -> Result<(), NvmlError> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: returns a string of the library's own for any number.
        let text = unsafe { (self.text)(status) };
        let reason = if text.is_null() {
            format!("status {status}")
        } else {
            // SAFETY: not null, and ends in a zero, as its documentation says.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        Err(NvmlError::Call { call, reason })
    }
}

impl Meter for Nvml {
    fn millijoules(&self) -> Result<u64> {
        let mut value: c_ulonglong = 0;
        // SAFETY: the handle is this library's; writes one number.
        let status = unsafe { (self.energy)(self.handle, &mut value) };
        self.check("nvmlDeviceGetTotalEnergyConsumption", status)?;
        Ok(value)
    }
}

/// A function of the library.
///
/// # Safety
/// It has this type.
unsafe fn find<T: Copy>(library: &'static Library, name: &'static str) -> Result<T, NvmlError> {
    // SAFETY: the caller knows the type.
    let symbol = unsafe { library.get::<T>(name.as_bytes()) };
    symbol.map(|symbol| *symbol).map_err(|_| NvmlError::Missing(name))
}

//! The functions of the table: pointers checked, sessions found, the rest elsewhere.
//!
//! All are unsafe as NVIDIA's are: structures are of their types, lists as long as they say.

use std::ffi::{c_char, c_int, c_void};

use tenfold_nvcodec::nvenc::abi::{
    CapsParam, CreateBitstreamBuffer, Guid, InitializeParams, LockBitstream, MapInputResource,
    OpenSessionParams, PicParams, PresetConfig, ReconfigureParams, RegisterResource, SequenceParamPayload,
    status,
};

use super::limits::{CODECS, limits};
use super::session::{self, Session, hold};
use super::{check_version, coding, setup};
use crate::control::violation;
use crate::faults::{self, Fault};

fn code(answer: Result<(), i32>) -> i32 {
    match answer {
        Ok(()) => status::SUCCESS,
        Err(code) => code,
    }
}

/// Finds the session and calls.
fn with(encoder: *mut c_void, call: &str, act: impl FnOnce(&mut Session) -> Result<(), i32>) -> i32 {
    code(session::find(encoder as u64, call).and_then(|session| act(&mut hold(&session))))
}

/// The same with a structure.
unsafe fn with_mut<T>(
    encoder: *mut c_void,
    params: *mut T,
    call: &str,
    act: impl FnOnce(&mut Session, &mut T) -> Result<(), i32>,
) -> i32 {
    // SAFETY: the caller's promise.
    match unsafe { params.as_mut() } {
        Some(params) => with(encoder, call, |session| act(session, params)),
        None => status::INVALID_PTR,
    }
}

pub(super) unsafe extern "C" fn open(params: *mut OpenSessionParams, encoder: *mut *mut c_void) -> i32 {
    const CALL: &str = "NvEncOpenEncodeSessionEx";
    // SAFETY: the caller's promise.
    let (Some(params), Some(encoder)) = (unsafe { (params.as_ref(), encoder.as_mut()) }) else {
        return status::INVALID_PTR;
    };
    *encoder = std::ptr::null_mut();
    if let Err(code) = check_version::<OpenSessionParams>(CALL, params.version) {
        return code;
    }
    let supported = faults::get(Fault::ApiVersion) as u32;
    let asked = (params.api_version & 0xff) << 4 | params.api_version >> 24;
    if asked > supported {
        return status::INVALID_VERSION;
    }
    if params.device_type != OpenSessionParams::CUDA || params.device.is_null() {
        violation(format!("{CALL}: no CUDA context"));
        return status::INVALID_DEVICE;
    }
    if faults::happens(Fault::NoEncoder) {
        return status::UNSUPPORTED_DEVICE;
    }
    match session::open() {
        Ok(handle) => {
            *encoder = handle as *mut c_void;
            status::SUCCESS
        }
        Err(code) => code,
    }
}

pub(super) unsafe extern "C" fn destroy(encoder: *mut c_void) -> i32 {
    code(session::destroy(encoder as u64))
}

pub(super) unsafe extern "C" fn guid_count(encoder: *mut c_void, count: *mut u32) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        with_mut(encoder, count, "NvEncGetEncodeGUIDCount", |_, count| {
            *count = CODECS.len() as u32;
            Ok(())
        })
    }
}

pub(super) unsafe extern "C" fn guids(
    encoder: *mut c_void,
    out: *mut Guid,
    room: u32,
    count: *mut u32,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        with_mut(encoder, count, "NvEncGetEncodeGUIDs", |_, count| {
            if out.is_null() {
                return Err(status::INVALID_PTR);
            }
            let n = CODECS.len().min(room as usize);
            std::ptr::copy_nonoverlapping(CODECS.as_ptr(), out, n);
            *count = n as u32;
            Ok(())
        })
    }
}

pub(super) unsafe extern "C" fn caps(
    encoder: *mut c_void,
    codec: Guid,
    params: *mut CapsParam,
    value: *mut c_int,
) -> i32 {
    const CALL: &str = "NvEncGetEncodeCaps";
    // SAFETY: the caller's promise.
    unsafe {
        with_mut(encoder, params, CALL, |_, params| {
            check_version::<CapsParam>(CALL, params.version)?;
            let limits = limits(codec).ok_or(status::INVALID_PARAM)?;
            *value.as_mut().ok_or(status::INVALID_PTR)? = limits.value(params.query) as c_int;
            Ok(())
        })
    }
}

pub(super) unsafe extern "C" fn preset(
    encoder: *mut c_void,
    codec: Guid,
    preset: Guid,
    tuning: u32,
    out: *mut PresetConfig,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        with_mut(encoder, out, "NvEncGetEncodePresetConfigEx", |_, out| {
            setup::fill_preset(codec, preset, tuning, out)
        })
    }
}

pub(super) unsafe extern "C" fn initialize(encoder: *mut c_void, params: *mut InitializeParams) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        with_mut(encoder, params, "NvEncInitializeEncoder", |session, params| {
            setup::initialize(session, params)
        })
    }
}

pub(super) unsafe extern "C" fn reconfigure(encoder: *mut c_void, params: *mut ReconfigureParams) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        with_mut(encoder, params, "NvEncReconfigureEncoder", |session, params| {
            setup::reconfigure(session, params)
        })
    }
}

pub(super) unsafe extern "C" fn sequence_params(
    encoder: *mut c_void,
    params: *mut SequenceParamPayload,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        with_mut(encoder, params, "NvEncGetSequenceParams", |session, params| {
            coding::sequence_params(session, params)
        })
    }
}

pub(super) unsafe extern "C" fn create_buffer(
    encoder: *mut c_void,
    params: *mut CreateBitstreamBuffer,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { with_mut(encoder, params, "NvEncCreateBitstreamBuffer", Session::create_buffer) }
}

pub(super) unsafe extern "C" fn destroy_buffer(encoder: *mut c_void, buffer: *mut c_void) -> i32 {
    with(encoder, "NvEncDestroyBitstreamBuffer", |session| session.destroy_buffer(buffer as u64))
}

pub(super) unsafe extern "C" fn register(encoder: *mut c_void, params: *mut RegisterResource) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { with_mut(encoder, params, "NvEncRegisterResource", Session::register) }
}

pub(super) unsafe extern "C" fn unregister(encoder: *mut c_void, resource: *mut c_void) -> i32 {
    with(encoder, "NvEncUnregisterResource", |session| session.unregister(resource as u64))
}

pub(super) unsafe extern "C" fn map(encoder: *mut c_void, params: *mut MapInputResource) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { with_mut(encoder, params, "NvEncMapInputResource", Session::map) }
}

pub(super) unsafe extern "C" fn unmap(encoder: *mut c_void, input: *mut c_void) -> i32 {
    with(encoder, "NvEncUnmapInputResource", |session| session.unmap(input as u64))
}

pub(super) unsafe extern "C" fn encode(encoder: *mut c_void, params: *mut PicParams) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { with_mut(encoder, params, "NvEncEncodePicture", |session, params| session.encode(params)) }
}

pub(super) unsafe extern "C" fn lock(encoder: *mut c_void, params: *mut LockBitstream) -> i32 {
    // SAFETY: the caller's promise.
    let Some(params) = (unsafe { params.as_mut() }) else { return status::INVALID_PTR };
    // Other threads may use the session meanwhile.
    code(
        session::find(encoder as u64, "NvEncLockBitstream")
            .and_then(|session| coding::lock(&session, params)),
    )
}

pub(super) unsafe extern "C" fn unlock(encoder: *mut c_void, buffer: *mut c_void) -> i32 {
    with(encoder, "NvEncUnlockBitstream", |session| session.unlock(buffer as u64))
}

pub(super) unsafe extern "C" fn set_streams(
    encoder: *mut c_void,
    input: *mut c_void,
    output: *mut c_void,
) -> i32 {
    const CALL: &str = "NvEncSetIOCudaStreams";
    with(encoder, CALL, |session| {
        session.setup(CALL)?;
        if input.is_null() || output.is_null() {
            return Err(session.refuse(status::INVALID_PTR, &format!("{CALL}: no pointers to streams")));
        }
        Ok(())
    })
}

pub(super) unsafe extern "C" fn last_error(encoder: *mut c_void) -> *const c_char {
    match session::find(encoder as u64, "NvEncGetLastErrorString") {
        // Good until the next error of the session, as NVIDIA's is.
        Ok(session) => hold(&session).error.as_ptr(),
        Err(_) => c"".as_ptr(),
    }
}

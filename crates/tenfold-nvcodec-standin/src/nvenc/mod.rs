//! What `libnvidia-encode` exports: a version, and a table of functions.

mod calls;
mod coding;
mod limits;
mod resources;
mod session;
mod setup;

use tenfold_nvcodec::nvenc::abi::{FunctionList, Versioned, status};

use crate::control::{Counts, violation};
use crate::faults::{self, Fault};

pub(crate) fn count(counts: &mut Counts) {
    session::count(counts);
}

/// Holds a structure's version word against the one of the interface.
fn check_version<T: Versioned>(call: &str, version: u32) -> Result<(), i32> {
    if version == T::VERSION {
        return Ok(());
    }
    violation(format!("{call}: version word {version:#x} in place of {:#x}", T::VERSION));
    Err(status::INVALID_VERSION)
}

/// # Safety
/// As NVIDIA's: `version` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn NvEncodeAPIGetMaxSupportedVersion(version: *mut u32) -> i32 {
    // SAFETY: the caller's promise.
    match unsafe { version.as_mut() } {
        Some(version) => {
            *version = faults::get(Fault::ApiVersion) as u32;
            status::SUCCESS
        }
        None => status::INVALID_PTR,
    }
}

/// # Safety
/// As NVIDIA's: `list` is a structure of that type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn NvEncodeAPICreateInstance(list: *mut FunctionList) -> i32 {
    // SAFETY: the caller's promise.
    let Some(list) = (unsafe { list.as_mut() }) else { return status::INVALID_PTR };
    if let Err(code) = check_version::<FunctionList>("NvEncodeAPICreateInstance", list.version) {
        return code;
    }
    *list = FunctionList {
        open_encode_session_ex: Some(calls::open),
        get_encode_guid_count: Some(calls::guid_count),
        get_encode_guids: Some(calls::guids),
        get_encode_caps: Some(calls::caps),
        get_encode_preset_config_ex: Some(calls::preset),
        initialize_encoder: Some(calls::initialize),
        reconfigure_encoder: Some(calls::reconfigure),
        get_sequence_params: Some(calls::sequence_params),
        create_bitstream_buffer: Some(calls::create_buffer),
        destroy_bitstream_buffer: Some(calls::destroy_buffer),
        register_resource: Some(calls::register),
        unregister_resource: Some(calls::unregister),
        map_input_resource: Some(calls::map),
        unmap_input_resource: Some(calls::unmap),
        encode_picture: Some(calls::encode),
        lock_bitstream: Some(calls::lock),
        unlock_bitstream: Some(calls::unlock),
        set_io_cuda_streams: Some(calls::set_streams),
        get_last_error_string: Some(calls::last_error),
        destroy_encoder: Some(calls::destroy),
        ..FunctionList::versioned()
    };
    status::SUCCESS
}

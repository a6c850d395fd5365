//! The table of functions that the library fills in.

use std::ffi::{c_char, c_int, c_void};

use super::{
    CapsParam, CreateBitstreamBuffer, Guid, InitializeParams, LockBitstream, MapInputResource,
    OpenSessionParams, PicParams, PresetConfig, ReconfigureParams, RegisterResource, SequenceParamPayload,
    version, versioned,
};

type Unused = *mut c_void;
type Count = unsafe extern "C" fn(*mut c_void, *mut u32) -> i32;
type List = unsafe extern "C" fn(*mut c_void, *mut Guid, u32, *mut u32) -> i32;
type WithHandle = unsafe extern "C" fn(*mut c_void, *mut c_void) -> i32;
type With<T> = unsafe extern "C" fn(*mut c_void, *mut T) -> i32;

/// Tells what went wrong last in a session.
pub type GetLastErrorString = unsafe extern "C" fn(*mut c_void) -> *const c_char;

/// NVIDIA's functions; those that are not called here are left without a type.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct FunctionList {
    pub version: u32,
    pub reserved: u32,
    pub open_encode_session: Unused,
    pub get_encode_guid_count: Option<Count>,
    pub get_encode_profile_guid_count: Unused,
    pub get_encode_profile_guids: Unused,
    pub get_encode_guids: Option<List>,
    pub get_input_format_count: Unused,
    pub get_input_formats: Unused,
    pub get_encode_caps: Option<unsafe extern "C" fn(*mut c_void, Guid, *mut CapsParam, *mut c_int) -> i32>,
    pub get_encode_preset_count: Unused,
    pub get_encode_preset_guids: Unused,
    pub get_encode_preset_config: Unused,
    pub initialize_encoder: Option<With<InitializeParams>>,
    pub create_input_buffer: Unused,
    pub destroy_input_buffer: Unused,
    pub create_bitstream_buffer: Option<With<CreateBitstreamBuffer>>,
    pub destroy_bitstream_buffer: Option<WithHandle>,
    pub encode_picture: Option<With<PicParams>>,
    pub lock_bitstream: Option<With<LockBitstream>>,
    pub unlock_bitstream: Option<WithHandle>,
    pub lock_input_buffer: Unused,
    pub unlock_input_buffer: Unused,
    pub get_encode_stats: Unused,
    pub get_sequence_params: Option<With<SequenceParamPayload>>,
    pub register_async_event: Unused,
    pub unregister_async_event: Unused,
    pub map_input_resource: Option<With<MapInputResource>>,
    pub unmap_input_resource: Option<WithHandle>,
    pub destroy_encoder: Option<unsafe extern "C" fn(*mut c_void) -> i32>,
    pub invalidate_ref_frames: Unused,
    pub open_encode_session_ex: Option<unsafe extern "C" fn(*mut OpenSessionParams, *mut *mut c_void) -> i32>,
    pub register_resource: Option<With<RegisterResource>>,
    pub unregister_resource: Option<WithHandle>,
    pub reconfigure_encoder: Option<With<ReconfigureParams>>,
    pub reserved1: Unused,
    pub create_mv_buffer: Unused,
    pub destroy_mv_buffer: Unused,
    pub run_motion_estimation_only: Unused,
    pub get_last_error_string: Option<GetLastErrorString>,
    pub set_io_cuda_streams: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void) -> i32>,
    pub get_encode_preset_config_ex:
        Option<unsafe extern "C" fn(*mut c_void, Guid, Guid, u32, *mut PresetConfig) -> i32>,
    pub get_sequence_param_ex: Unused,
    pub restore_encoder_state: Unused,
    pub lookahead_picture: Unused,
    pub reserved2: [Unused; 275],
}

versioned! { FunctionList = version(2) }

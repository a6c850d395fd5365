//! What is said of sessions, buffers and pictures.

use std::ffi::c_void;

use super::{version, version_marked, versioned};

/// Whose encoder is asked for.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct OpenSessionParams {
    pub version: u32,
    /// 1: CUDA.
    pub device_type: u32,
    /// The CUDA context.
    pub device: *mut c_void,
    pub reserved: *mut c_void,
    pub api_version: u32,
    pub reserved1: [u32; 253],
    pub reserved2: [*mut c_void; 64],
}

impl OpenSessionParams {
    pub const CUDA: u32 = 1;
}

/// Which ability is asked for.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CapsParam {
    pub version: u32,
    pub query: u32,
    pub reserved: [u32; 62],
}

/// A buffer for coded pictures.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CreateBitstreamBuffer {
    pub version: u32,
    pub size: u32,
    pub memory_heap: u32,
    pub reserved: u32,
    pub bitstream_buffer: *mut c_void,
    pub bitstream_buffer_ptr: *mut c_void,
    pub reserved1: [u32; 58],
    pub reserved2: [*mut c_void; 64],
}

/// Device memory that pictures are read from.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct RegisterResource {
    pub version: u32,
    /// 1: a CUDA address.
    pub resource_type: u32,
    pub width: u32,
    pub height: u32,
    /// Bytes from row to row.
    pub pitch: u32,
    pub sub_resource_index: u32,
    pub resource: *mut c_void,
    pub registered: *mut c_void,
    pub buffer_format: u32,
    /// 0: an input picture.
    pub buffer_usage: u32,
    pub input_fence_point: *mut c_void,
    pub chroma_offset: [u32; 2],
    pub reserved1: [u32; 245],
    pub reserved2: [*mut c_void; 61],
}

impl RegisterResource {
    pub const CUDA_ADDRESS: u32 = 1;
}

/// Registered memory, lent to the encoder for a picture.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct MapInputResource {
    pub version: u32,
    pub sub_resource_index: u32,
    pub input_resource: *mut c_void,
    pub registered: *mut c_void,
    pub mapped: *mut c_void,
    pub mapped_format: u32,
    pub reserved1: [u32; 251],
    pub reserved2: [*mut c_void; 63],
}

/// One picture.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct PicParams {
    pub version: u32,
    pub width: u32,
    pub height: u32,
    pub pitch: u32,
    /// See [`pic_flag`].
    pub flags: u32,
    pub frame_idx: u32,
    pub time_stamp: u64,
    pub duration: u64,
    pub input: *mut c_void,
    pub output: *mut c_void,
    pub completion_event: *mut c_void,
    pub format: u32,
    /// 1: a frame.
    pub structure: u32,
    pub picture_type: u32,
    /// The codec's own words of a picture; none are used.
    pub codec: [u64; 194],
    pub me_hint_counts_per_block: [[u32; 4]; 2],
    pub me_external_hints: *mut c_void,
    pub reserved1: [u32; 6],
    pub reserved2: [*mut c_void; 2],
    pub qp_delta_map: *mut i8,
    pub qp_delta_map_size: u32,
    pub reserved_bit_fields: u32,
    pub me_hint_ref_pic_dist: [u16; 2],
    pub alpha_buffer: *mut c_void,
    pub me_external_sb_hints: *mut c_void,
    pub me_sb_hints_count: u32,
    pub state_buffer_idx: u32,
    pub output_recon_buffer: *mut c_void,
    pub reserved3: [u32; 284],
    pub reserved4: [*mut c_void; 57],
}

/// Bits of [`PicParams::flags`].
pub mod pic_flag {
    pub const FORCE_IDR: u32 = 2;
    pub const END_OF_STREAM: u32 = 8;
}

/// A coded picture, lent to the caller.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct LockBitstream {
    pub version: u32,
    /// 1: do not wait.
    pub flags: u32,
    pub output: *mut c_void,
    pub slice_offsets: *mut u32,
    pub frame_idx: u32,
    pub hw_encode_status: u32,
    pub num_slices: u32,
    pub size: u32,
    pub time_stamp: u64,
    pub duration: u64,
    pub data: *mut c_void,
    pub picture_type: u32,
    pub structure: u32,
    pub frame_avg_qp: u32,
    pub frame_satd: u32,
    pub ltr_frame_idx: u32,
    pub ltr_frame_bitmap: u32,
    pub temporal_id: u32,
    pub intra_mb_count: u32,
    pub inter_mb_count: u32,
    pub average_mvx: i32,
    pub average_mvy: i32,
    pub alpha_layer_size: u32,
    pub output_stats_ptr_size: u32,
    pub output_stats_ptr: *mut c_void,
    pub frame_idx_display: u32,
    pub reserved1: [u32; 220],
    pub reserved2: [*mut c_void; 63],
    pub reserved_internal: [u32; 8],
}

impl LockBitstream {
    pub const DO_NOT_WAIT: u32 = 1;
}

/// Where parameter sets go.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct SequenceParamPayload {
    pub version: u32,
    pub buffer_size: u32,
    pub sps_id: u32,
    pub pps_id: u32,
    pub buffer: *mut c_void,
    pub size: *mut u32,
    pub reserved: [u32; 250],
    pub reserved2: [*mut c_void; 64],
}

versioned! {
    OpenSessionParams = version(1),
    CapsParam = version(1),
    CreateBitstreamBuffer = version(1),
    RegisterResource = version(4),
    MapInputResource = version(4),
    PicParams = version_marked(6),
    LockBitstream = version_marked(1),
    SequenceParamPayload = version(1),
}

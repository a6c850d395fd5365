//! How a session is set up: rate control, the codec's own options, size.

use std::ffi::c_void;

use super::{Guid, plain, version, version_marked, versioned};

/// Quantisers of predicted, twice predicted and intra pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Qp {
    pub inter_p: u32,
    pub inter_b: u32,
    pub intra: u32,
}

/// Rate control.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct RcParams {
    pub version: u32,
    /// 0 is a constant quantiser.
    pub rate_control_mode: u32,
    pub const_qp: Qp,
    pub average_bit_rate: u32,
    pub max_bit_rate: u32,
    pub vbv_buffer_size: u32,
    pub vbv_initial_delay: u32,
    /// Bits: limits of the quantiser, adaptive quantisers, lookahead.
    pub flags: u32,
    pub min_qp: Qp,
    pub max_qp: Qp,
    pub initial_rc_qp: Qp,
    pub temporal_layer_idx_mask: u32,
    pub temporal_layer_qp: [u8; 8],
    pub target_quality: u8,
    pub target_quality_lsb: u8,
    pub lookahead_depth: u16,
    pub low_delay_key_frame_scale: u8,
    pub y_dc_qp_index_offset: i8,
    pub u_dc_qp_index_offset: i8,
    pub v_dc_qp_index_offset: i8,
    pub qp_map_mode: u32,
    pub multi_pass: u32,
    pub alpha_layer_bitrate_ratio: u32,
    pub cb_qp_index_offset: i8,
    pub cr_qp_index_offset: i8,
    pub reserved2: u16,
    pub reserved: [u32; 4],
}

/// Options of H.264.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct H264Config {
    /// See [`h264`].
    pub flags: u32,
    pub level: u32,
    pub idr_period: u32,
    pub separate_colour_plane_flag: u32,
    /// 1 turns the deblocking filter off.
    pub disable_deblocking_filter_idc: u32,
    pub num_temporal_layers: u32,
    pub sps_id: u32,
    pub pps_id: u32,
    pub adaptive_transform_mode: u32,
    pub fmo_mode: u32,
    pub bdirect_mode: u32,
    /// 1 is CABAC.
    pub entropy_coding_mode: u32,
    pub stereo_mode: u32,
    pub intra_refresh_period: u32,
    pub intra_refresh_cnt: u32,
    pub max_num_ref_frames: u32,
    pub slice_mode: u32,
    pub slice_mode_data: u32,
    pub vui: [u32; 28],
    pub ltr_num_frames: u32,
    pub ltr_trust_mode: u32,
    /// 1 is 4:2:0.
    pub chroma_format_idc: u32,
    pub max_temporal_layers: u32,
    pub use_b_frames_as_ref: u32,
    pub num_ref_l0: u32,
    pub num_ref_l1: u32,
    pub reserved1: [u32; 267],
    pub reserved2: [*mut c_void; 64],
}

/// Bits of [`H264Config::flags`].
pub mod h264 {
    pub const OUTPUT_AUD: u32 = 1 << 6;
    pub const REPEAT_SETS: u32 = 1 << 12;
    /// At a quantiser of 0 samples are coded without a transform, and so without loss.
    pub const TRANSFORM_BYPASS: u32 = 1 << 15;
}

/// Options of HEVC.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct HevcConfig {
    pub level: u32,
    pub tier: u32,
    pub min_cu_size: u32,
    pub max_cu_size: u32,
    /// See [`hevc`].
    pub flags: u32,
    pub idr_period: u32,
    pub intra_refresh_period: u32,
    pub intra_refresh_cnt: u32,
    pub max_num_ref_frames_in_dpb: u32,
    pub ltr_num_frames: u32,
    pub vps_id: u32,
    pub sps_id: u32,
    pub pps_id: u32,
    pub slice_mode: u32,
    pub slice_mode_data: u32,
    pub max_temporal_layers_minus1: u32,
    pub vui: [u32; 28],
    pub ltr_trust_mode: u32,
    pub use_b_frames_as_ref: u32,
    pub num_ref_l0: u32,
    pub num_ref_l1: u32,
    pub reserved1: [u32; 214],
    pub reserved2: [*mut c_void; 64],
}

/// Bits of [`HevcConfig::flags`].
pub mod hevc {
    pub const OUTPUT_AUD: u32 = 1 << 4;
    pub const REPEAT_SETS: u32 = 1 << 7;
    pub const CHROMA_FORMAT: u32 = 3 << 9;
    pub const CHROMA_420: u32 = 1 << 9;
    pub const DEPTH: u32 = 7 << 11;
    pub const DEPTH_10: u32 = 2 << 11;
}

/// Options of AV1.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Av1Config {
    pub level: u32,
    pub tier: u32,
    pub min_part_size: u32,
    pub max_part_size: u32,
    /// See [`av1`].
    pub flags: u32,
    pub idr_period: u32,
    pub intra_refresh_period: u32,
    pub intra_refresh_cnt: u32,
    pub max_num_ref_frames_in_dpb: u32,
    pub num_tile_columns: u32,
    pub num_tile_rows: u32,
    pub tile_widths: *mut u32,
    pub tile_heights: *mut u32,
    pub max_temporal_layers_minus1: u32,
    pub color_primaries: u32,
    pub transfer_characteristics: u32,
    pub matrix_coefficients: u32,
    /// 1 is the full range.
    pub color_range: u32,
    pub chroma_sample_position: u32,
    pub use_b_frames_as_ref: u32,
    pub film_grain_params: *mut c_void,
    pub num_fwd_refs: u32,
    pub num_bwd_refs: u32,
    pub reserved1: [u32; 235],
    pub reserved2: [*mut c_void; 62],
}

/// Bits of [`Av1Config::flags`].
pub mod av1 {
    pub const ANNEX_B: u32 = 1;
    pub const REPEAT_HEADER: u32 = 1 << 5;
    pub const CHROMA_FORMAT: u32 = 3 << 7;
    pub const CHROMA_420: u32 = 1 << 7;
    pub const INPUT_DEPTH: u32 = 7 << 12;
    pub const INPUT_DEPTH_10: u32 = 2 << 12;
    pub const DEPTH: u32 = 7 << 15;
    pub const DEPTH_10: u32 = 2 << 15;
}

/// Options of the codec that a session is for.
#[derive(Clone, Copy)]
#[repr(C)]
pub union CodecConfig {
    pub h264: H264Config,
    pub hevc: HevcConfig,
    pub av1: Av1Config,
    pub reserved: [u32; 320],
}

/// All about coding; a preset fills it in.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Config {
    pub version: u32,
    pub profile: Guid,
    pub gop_length: u32,
    /// 0: intra pictures alone.
    pub frame_interval_p: i32,
    pub monochrome_encoding: u32,
    /// 1: frames.
    pub frame_field_mode: u32,
    pub mv_precision: u32,
    pub rc: RcParams,
    pub codec: CodecConfig,
    pub reserved: [u32; 278],
    pub reserved2: [*mut c_void; 64],
}

/// A preset's values.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct PresetConfig {
    pub version: u32,
    pub config: Config,
    pub reserved1: [u32; 255],
    pub reserved2: [*mut c_void; 64],
}

/// What a session is initialised with.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct InitializeParams {
    pub version: u32,
    pub codec: Guid,
    pub preset: Guid,
    pub width: u32,
    pub height: u32,
    pub dar_width: u32,
    pub dar_height: u32,
    pub frame_rate_num: u32,
    pub frame_rate_den: u32,
    pub enable_encode_async: u32,
    /// The library decides on types of pictures.
    pub enable_ptd: u32,
    pub flags: u32,
    pub priv_data_size: u32,
    pub priv_data: *mut c_void,
    pub config: *mut Config,
    pub max_width: u32,
    pub max_height: u32,
    pub max_me_hint_counts_per_block: [[u32; 4]; 2],
    /// 1 is high quality, 4 lossless.
    pub tuning: u32,
    pub buffer_format: u32,
    pub num_state_buffers: u32,
    pub output_stats_level: u32,
    pub reserved: [u32; 285],
    pub reserved2: [*mut c_void; 64],
}

impl InitializeParams {
    /// No frame is split among engines: each picture is one piece of work.
    pub const SPLIT_DISABLED: u32 = 15 << 5;
    pub const HIGH_QUALITY: u32 = 1;
    pub const LOSSLESS: u32 = 4;
}

/// What a session is changed to.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ReconfigureParams {
    pub version: u32,
    pub init: InitializeParams,
    /// 1: forget what came before; 2: the next picture is an IDR picture.
    pub flags: u32,
}

plain!(Qp, H264Config, HevcConfig, Av1Config, CodecConfig);
versioned! {
    RcParams = version(1),
    Config = version_marked(8),
    PresetConfig = version_marked(4),
    InitializeParams = version_marked(6),
    ReconfigureParams = version_marked(1),
}

//! Sizes, offsets and versions as a C compiler has them from NVIDIA's header of version 12.1 on x86-64 Linux.

use std::mem::offset_of;

use super::*;

#[test]
fn sizes_are_those_of_c() {
    assert_eq!((size_of::<Guid>(), align_of::<Guid>()), (16, 4));
    assert_eq!(size_of::<CapsParam>(), 256);
    assert_eq!(size_of::<CreateBitstreamBuffer>(), 776);
    assert_eq!(size_of::<RcParams>(), 128);
    assert_eq!(size_of::<H264Config>(), 1792);
    assert_eq!(size_of::<HevcConfig>(), 1560);
    assert_eq!(size_of::<Av1Config>(), 1552);
    assert_eq!(size_of::<CodecConfig>(), 1792);
    assert_eq!(size_of::<Config>(), 3584);
    assert_eq!(size_of::<InitializeParams>(), 1808);
    assert_eq!(size_of::<ReconfigureParams>(), 1824);
    assert_eq!(size_of::<PresetConfig>(), 5128);
    assert_eq!(size_of::<PicParams>(), 3360);
    assert_eq!(size_of::<LockBitstream>(), 1552);
    assert_eq!(size_of::<MapInputResource>(), 1544);
    assert_eq!(size_of::<RegisterResource>(), 1536);
    assert_eq!(size_of::<SequenceParamPayload>(), 1544);
    assert_eq!(size_of::<OpenSessionParams>(), 1552);
    assert_eq!(size_of::<FunctionList>(), 2552);
}

#[test]
fn offsets_of_settings_are_those_of_c() {
    assert_eq!(offset_of!(RcParams, const_qp), 8);
    assert_eq!(offset_of!(RcParams, average_bit_rate), 20);
    assert_eq!(offset_of!(RcParams, min_qp), 40);
    assert_eq!(offset_of!(RcParams, temporal_layer_qp), 80);
    assert_eq!(offset_of!(RcParams, lookahead_depth), 90);
    assert_eq!(offset_of!(RcParams, qp_map_mode), 96);
    assert_eq!(offset_of!(RcParams, multi_pass), 100);
    assert_eq!(offset_of!(RcParams, cb_qp_index_offset), 108);
    assert_eq!(offset_of!(H264Config, idr_period), 8);
    assert_eq!(offset_of!(H264Config, disable_deblocking_filter_idc), 16);
    assert_eq!(offset_of!(H264Config, entropy_coding_mode), 44);
    assert_eq!(offset_of!(H264Config, slice_mode), 64);
    assert_eq!(offset_of!(H264Config, vui), 72);
    assert_eq!(offset_of!(H264Config, chroma_format_idc), 192);
    assert_eq!(offset_of!(H264Config, num_ref_l1), 208);
    assert_eq!(offset_of!(HevcConfig, idr_period), 20);
    assert_eq!(offset_of!(HevcConfig, slice_mode), 52);
    assert_eq!(offset_of!(HevcConfig, vui), 64);
    assert_eq!(offset_of!(HevcConfig, num_ref_l1), 188);
    assert_eq!(offset_of!(Av1Config, idr_period), 20);
    assert_eq!(offset_of!(Av1Config, tile_widths), 48);
    assert_eq!(offset_of!(Av1Config, color_primaries), 68);
    assert_eq!(offset_of!(Av1Config, color_range), 80);
    assert_eq!(offset_of!(Av1Config, film_grain_params), 96);
    assert_eq!(offset_of!(Av1Config, num_bwd_refs), 108);
    assert_eq!(offset_of!(Config, gop_length), 20);
    assert_eq!(offset_of!(Config, monochrome_encoding), 28);
    assert_eq!(offset_of!(Config, rc), 40);
    assert_eq!(offset_of!(Config, codec), 168);
    assert_eq!(offset_of!(Config, reserved), 1960);
    assert_eq!(offset_of!(PresetConfig, config), 8);
    assert_eq!(offset_of!(PresetConfig, reserved1), 3592);
    assert_eq!(offset_of!(InitializeParams, width), 36);
    assert_eq!(offset_of!(InitializeParams, enable_ptd), 64);
    assert_eq!(offset_of!(InitializeParams, priv_data), 80);
    assert_eq!(offset_of!(InitializeParams, config), 88);
    assert_eq!(offset_of!(InitializeParams, max_me_hint_counts_per_block), 104);
    assert_eq!(offset_of!(InitializeParams, tuning), 136);
    assert_eq!(offset_of!(InitializeParams, reserved), 152);
    assert_eq!(offset_of!(ReconfigureParams, init), 8);
    assert_eq!(offset_of!(ReconfigureParams, flags), 1816);
}

#[test]
fn offsets_of_pictures_are_those_of_c() {
    assert_eq!(offset_of!(CreateBitstreamBuffer, bitstream_buffer), 16);
    assert_eq!(offset_of!(PicParams, time_stamp), 24);
    assert_eq!(offset_of!(PicParams, input), 40);
    assert_eq!(offset_of!(PicParams, format), 64);
    assert_eq!(offset_of!(PicParams, codec), 80);
    assert_eq!(offset_of!(PicParams, me_hint_counts_per_block), 1632);
    assert_eq!(offset_of!(PicParams, qp_delta_map), 1712);
    assert_eq!(offset_of!(PicParams, alpha_buffer), 1736);
    assert_eq!(offset_of!(PicParams, output_recon_buffer), 1760);
    assert_eq!(offset_of!(PicParams, reserved3), 1768);
    assert_eq!(offset_of!(LockBitstream, output), 8);
    assert_eq!(offset_of!(LockBitstream, size), 36);
    assert_eq!(offset_of!(LockBitstream, data), 56);
    assert_eq!(offset_of!(LockBitstream, picture_type), 64);
    assert_eq!(offset_of!(LockBitstream, output_stats_ptr), 120);
    assert_eq!(offset_of!(LockBitstream, frame_idx_display), 128);
    assert_eq!(offset_of!(LockBitstream, reserved_internal), 1520);
    assert_eq!(offset_of!(MapInputResource, registered), 16);
    assert_eq!(offset_of!(MapInputResource, mapped), 24);
    assert_eq!(offset_of!(RegisterResource, resource), 24);
    assert_eq!(offset_of!(RegisterResource, buffer_format), 40);
    assert_eq!(offset_of!(RegisterResource, input_fence_point), 48);
    assert_eq!(offset_of!(RegisterResource, reserved2), 1048);
    assert_eq!(offset_of!(SequenceParamPayload, buffer), 16);
    assert_eq!(offset_of!(SequenceParamPayload, size), 24);
    assert_eq!(offset_of!(OpenSessionParams, device), 8);
    assert_eq!(offset_of!(OpenSessionParams, api_version), 24);
}

#[test]
fn functions_are_where_c_has_them() {
    assert_eq!(offset_of!(FunctionList, initialize_encoder), 96);
    assert_eq!(offset_of!(FunctionList, encode_picture), 136);
    assert_eq!(offset_of!(FunctionList, destroy_encoder), 224);
    assert_eq!(offset_of!(FunctionList, open_encode_session_ex), 240);
    assert_eq!(offset_of!(FunctionList, reconfigure_encoder), 264);
    assert_eq!(offset_of!(FunctionList, get_last_error_string), 304);
    assert_eq!(offset_of!(FunctionList, set_io_cuda_streams), 312);
    assert_eq!(offset_of!(FunctionList, get_encode_preset_config_ex), 320);
    assert_eq!(offset_of!(FunctionList, lookahead_picture), 344);
}

#[test]
fn versions_are_those_of_c() {
    assert_eq!(API_VERSION, 0x0100_000c);
    assert_eq!(CapsParam::versioned().version, 0x7101_000c);
    assert_eq!(Config::versioned().version, 0xf108_000c);
    assert_eq!(InitializeParams::versioned().version, 0xf106_000c);
    assert_eq!(ReconfigureParams::versioned().version, 0xf101_000c);
    assert_eq!(PresetConfig::versioned().version, 0xf104_000c);
    assert_eq!(PicParams::versioned().version, 0xf106_000c);
    assert_eq!(LockBitstream::versioned().version, 0xf101_000c);
    assert_eq!(MapInputResource::versioned().version, 0x7104_000c);
    assert_eq!(RegisterResource::versioned().version, 0x7104_000c);
    assert_eq!(SequenceParamPayload::versioned().version, 0x7101_000c);
    assert_eq!(OpenSessionParams::versioned().version, 0x7101_000c);
    assert_eq!(FunctionList::versioned().version, 0x7102_000c);
    assert_eq!(CreateBitstreamBuffer::versioned().version, 0x7101_000c);
    assert_eq!(RcParams::versioned().version, 0x7101_000c);
}

#[test]
fn every_status_has_a_name() {
    assert_eq!(status::name(status::UNSUPPORTED_DEVICE), "NV_ENC_ERR_UNSUPPORTED_DEVICE");
    assert_eq!(status::name(status::RESOURCE_NOT_MAPPED), "NV_ENC_ERR_RESOURCE_NOT_MAPPED");
    assert_eq!(status::name(26), "NV_ENC_ERR_NEED_MORE_OUTPUT");
    assert_eq!(status::name(27), status::name(-1));
}

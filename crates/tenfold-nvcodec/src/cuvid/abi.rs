//! What `libnvcuvid` takes and gives, as C lays it out on 64-bit machines. Only what this crate uses has a name; a test
//! holds sizes and offsets against those that a C compiler has.

use std::ffi::{c_int, c_longlong, c_short, c_uchar, c_uint, c_ulong, c_ulonglong, c_ushort, c_void};

/// `cudaVideoCodec_H264`.
pub const CODEC_H264: c_int = 4;
/// `cudaVideoCodec_HEVC`.
pub const CODEC_HEVC: c_int = 8;
/// `cudaVideoCodec_VP9`.
pub const CODEC_VP9: c_int = 10;
/// `cudaVideoCodec_AV1`.
pub const CODEC_AV1: c_int = 11;
/// `cudaVideoCodec_JPEG`.
pub const CODEC_JPEG: c_int = 5;

/// `cudaVideoChromaFormat_Monochrome`; 4:2:0, 4:2:2 and 4:4:4 follow it.
pub const CHROMA_MONOCHROME: c_int = 0;
/// `cudaVideoChromaFormat_420`.
pub const CHROMA_420: c_int = 1;

/// `cudaVideoSurfaceFormat_NV12`: a byte a sample.
pub const SURFACE_NV12: c_int = 0;
/// `cudaVideoSurfaceFormat_P016`: two bytes a sample, whose low bits are zero.
pub const SURFACE_P016: c_int = 1;

/// `cudaVideoCreate_PreferCUVID`: the video engines and nothing else.
pub const CREATE_PREFER_CUVID: c_ulong = 4;

/// `cuvidDecodeStatus_Error`.
pub const STATUS_ERROR: c_int = 8;
/// `cuvidDecodeStatus_Error_Concealed`.
pub const STATUS_CONCEALED: c_int = 9;

/// `CUVID_PKT_ENDOFSTREAM`.
pub const PACKET_END_OF_STREAM: c_ulong = 1;
/// `CUVID_PKT_TIMESTAMP`.
pub const PACKET_TIMESTAMP: c_ulong = 2;
/// `CUVID_PKT_ENDOFPICTURE`: the packet is one whole picture.
pub const PACKET_END_OF_PICTURE: c_ulong = 8;

/// `CUvideodecoder`.
pub type DecoderHandle = *mut c_void;
/// `CUvideoparser`.
pub type ParserHandle = *mut c_void;
/// `CUresult`.
pub type CuResult = c_int;

/// Declares structures of C that are all bits zero where nothing is said.
macro_rules! structs {
    ($($(#[doc = $doc:literal])* $name:ident { $($field:ident: $type:ty,)* })*) => {$(
        $(#[doc = $doc])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        #[allow(missing_docs)] // as NVIDIA documents them
        pub struct $name { $(pub $field: $type,)* }

        impl Default for $name {
            fn default() -> Self {
                // SAFETY: numbers, pointers and optional functions, for all of which all bits zero are a value.
                unsafe { std::mem::zeroed() }
            }
        }
    )*};
}

structs! {
    /// `CUVIDDECODECAPS`.
    DecodeCaps {
        codec: c_int,
        chroma: c_int,
        depth_minus8: c_uint,
        reserved1: [c_uint; 3],
        supported: c_uchar,
        engines: c_uchar,
        outputs: c_ushort,
        max_width: c_uint,
        max_height: c_uint,
        max_blocks: c_uint,
        min_width: c_ushort,
        min_height: c_ushort,
        histogram: c_uchar,
        counter_depth: c_uchar,
        histogram_bins: c_ushort,
        reserved3: [c_uint; 10],
    }

    /// A rectangle of 16-bit numbers.
    Area {
        left: c_short,
        top: c_short,
        right: c_short,
        bottom: c_short,
    }

    /// `CUVIDDECODECREATEINFO`.
    CreateInfo {
        width: c_ulong,
        height: c_ulong,
        decode_surfaces: c_ulong,
        codec: c_int,
        chroma: c_int,
        flags: c_ulong,
        depth_minus8: c_ulong,
        intra_only: c_ulong,
        max_width: c_ulong,
        max_height: c_ulong,
        reserved1: c_ulong,
        display: Area,
        output: c_int,
        deinterlace: c_int,
        target_width: c_ulong,
        target_height: c_ulong,
        output_surfaces: c_ulong,
        lock: *mut c_void,
        target: Area,
        histogram: c_ulong,
        reserved2: [c_ulong; 4],
    }

    /// `CUVIDRECONFIGUREDECODERINFO`.
    ReconfigureInfo {
        width: c_uint,
        height: c_uint,
        target_width: c_uint,
        target_height: c_uint,
        decode_surfaces: c_uint,
        reserved1: [c_uint; 12],
        display: Area,
        target: Area,
        reserved2: [c_uint; 11],
    }

    /// `CUVIDPICPARAMS`. What the standard adds is between the parser and the decoder.
    PicParams {
        width_in_blocks: c_int,
        height_in_blocks: c_int,
        index: c_int,
        field: c_int,
        bottom_field: c_int,
        second_field: c_int,
        stream_len: c_uint,
        stream: *const c_uchar,
        slices: c_uint,
        slice_offsets: *const c_uint,
        reference: c_int,
        intra: c_int,
        reserved: [c_uint; 30],
        of_codec: CodecParams,
    }

    /// `CUVIDPROCPARAMS`.
    ProcParams {
        progressive: c_int,
        second_field: c_int,
        top_field_first: c_int,
        unpaired_field: c_int,
        reserved_flags: c_uint,
        reserved_zero: c_uint,
        raw_input: c_ulonglong,
        raw_input_pitch: c_uint,
        raw_input_format: c_uint,
        raw_output: c_ulonglong,
        raw_output_pitch: c_uint,
        reserved1: c_uint,
        stream: *mut c_void,
        reserved: [c_uint; 46],
        histogram: *mut c_ulonglong,
        reserved2: [*mut c_void; 1],
    }

    /// `CUVIDGETDECODESTATUS`.
    DecodeStatus {
        status: c_int,
        reserved: [c_uint; 31],
        reserved_pointers: [*mut c_void; 8],
    }

    /// A rectangle of 32-bit numbers.
    Rect {
        left: c_int,
        top: c_int,
        right: c_int,
        bottom: c_int,
    }

    /// `CUVIDEOFORMAT`.
    VideoFormat {
        codec: c_int,
        frame_rate: [c_uint; 2],
        progressive: c_uchar,
        luma_depth_minus8: c_uchar,
        chroma_depth_minus8: c_uchar,
        min_surfaces: c_uchar,
        coded_width: c_uint,
        coded_height: c_uint,
        display: Rect,
        chroma: c_int,
        bitrate: c_uint,
        aspect: [c_int; 2],
        signal: [c_uchar; 4],
        header_len: c_uint,
    }

    /// `CUVIDSOURCEDATAPACKET`.
    Packet {
        flags: c_ulong,
        len: c_ulong,
        data: *const c_uchar,
        timestamp: c_longlong,
    }

    /// `CUVIDPARSERPARAMS`. The fields of one bit after the delay are in one number.
    ParserParams {
        codec: c_int,
        max_surfaces: c_uint,
        clock_rate: c_uint,
        error_threshold: c_uint,
        max_display_delay: c_uint,
        annex_b: c_uint,
        reserved1: [c_uint; 4],
        user: *mut c_void,
        on_sequence: Option<unsafe extern "system" fn(*mut c_void, *mut VideoFormat) -> c_int>,
        on_decode: Option<unsafe extern "system" fn(*mut c_void, *mut PicParams) -> c_int>,
        on_display: Option<unsafe extern "system" fn(*mut c_void, *mut c_void) -> c_int>,
        on_operating_point: Option<unsafe extern "system" fn(*mut c_void, *mut c_void) -> c_int>,
        reserved2: [*mut c_void; 6],
        extended: *mut c_void,
    }
}

/// What a standard adds to [`PicParams`].
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct CodecParams(pub [c_uint; 1024]);

#[cfg(all(test, target_os = "linux", target_pointer_width = "64"))]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// Compares sizes and offsets with what a C program says that includes NVIDIA's headers, version 11.1.
    macro_rules! layouts {
        ($($name:ident $size:literal { $($field:ident $at:literal),* })*) => {$(
            assert_eq!(size_of::<$name>(), $size, stringify!($name));
            $(assert_eq!(offset_of!($name, $field), $at, concat!(stringify!($name), ".", stringify!($field)));)*
        )*};
    }

    #[test]
    fn structures_are_laid_out_as_c_has_them() {
        layouts! {
            DecodeCaps 88 {
                supported 24, engines 25, outputs 26, max_width 28, max_blocks 36, min_width 40, histogram 44,
                histogram_bins 46, reserved3 48
            }
            CreateInfo 176 {
                codec 24, flags 32, intra_only 48, reserved1 72, display 80, output 88, target_width 96,
                output_surfaces 112, lock 120, target 128, histogram 136, reserved2 144
            }
            ReconfigureInfo 128 { decode_surfaces 16, reserved1 20, display 68, target 76, reserved2 84 }
            PicParams 4280 {
                index 8, stream_len 24, stream 32, slices 40, slice_offsets 48, reference 56, intra 60, reserved 64,
                of_codec 184
            }
            ProcParams 264 {
                reserved_flags 16, raw_input 24, raw_output 40, stream 56, reserved 64, histogram 248, reserved2 256
            }
            DecodeStatus 192 { reserved 4, reserved_pointers 128 }
            VideoFormat 64 {
                frame_rate 4, progressive 12, luma_depth_minus8 13, min_surfaces 15, coded_width 16, display 24,
                chroma 40, bitrate 44, aspect 48, signal 56, header_len 60
            }
            Packet 32 { len 8, data 16, timestamp 24 }
            ParserParams 136 {
                max_surfaces 4, error_threshold 12, max_display_delay 16, reserved1 24, user 40, on_sequence 48,
                on_operating_point 72, reserved2 80, extended 128
            }
        }
    }
}

//! Numbers that name codecs, presets, formats, abilities and outcomes.

/// A Windows identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Guid(pub u32, pub u16, pub u16, pub [u8; 8]);

/// Codecs.
pub mod codec {
    use super::Guid;
    pub const H264: Guid =
        Guid(0x6bc8_2762, 0x4e63, 0x4ca4, [0xaa, 0x85, 0x1e, 0x50, 0xf3, 0x21, 0xf6, 0xbf]);
    pub const HEVC: Guid =
        Guid(0x790c_dc88, 0x4522, 0x4d7b, [0x94, 0x25, 0xbd, 0xa9, 0x97, 0x5f, 0x76, 0x03]);
    pub const AV1: Guid = Guid(0x0a35_2289, 0x0aa7, 0x4759, [0x86, 0x2d, 0x5d, 0x15, 0xcd, 0x16, 0xd2, 0x54]);
}

/// Profiles of codecs.
pub mod profile {
    use super::Guid;
    pub const H264_HIGH: Guid =
        Guid(0xe7cb_c309, 0x4f7a, 0x4b89, [0xaf, 0x2a, 0xd5, 0x37, 0xc9, 0x2b, 0xe3, 0x10]);
    pub const H264_HIGH_444: Guid =
        Guid(0x7ac6_63cb, 0xa598, 0x4960, [0xb8, 0x44, 0x33, 0x9b, 0x26, 0x1a, 0x7d, 0x52]);
    pub const HEVC_MAIN: Guid =
        Guid(0xb514_c39a, 0xb55b, 0x40fa, [0x87, 0x8f, 0xf1, 0x25, 0x3b, 0x4d, 0xfd, 0xec]);
    pub const HEVC_MAIN10: Guid =
        Guid(0xfa4d_2b6c, 0x3a5b, 0x411a, [0x80, 0x18, 0x0a, 0x3f, 0x5e, 0x3c, 0x9b, 0xe5]);
    pub const AV1_MAIN: Guid =
        Guid(0x5f2a_39f5, 0xf14e, 0x4f95, [0x9a, 0x9e, 0xb7, 0x6d, 0x56, 0x8f, 0xcf, 0x97]);
}

/// Presets: P1 is the fastest, P7 searches most.
pub mod preset {
    use super::Guid;
    pub const P1: Guid = Guid(0xfc0a_8d3e, 0x45f8, 0x4cf8, [0x80, 0xc7, 0x29, 0x88, 0x71, 0x59, 0x0e, 0xbf]);
    pub const P4: Guid = Guid(0x90a7_b826, 0xdf06, 0x4862, [0xb9, 0xd2, 0xcd, 0x6d, 0x73, 0xa0, 0x86, 0x81]);
    pub const P7: Guid = Guid(0x8484_8c12, 0x6f71, 0x4c13, [0x93, 0x1b, 0x53, 0xe2, 0x83, 0xf5, 0x79, 0x74]);
}

/// Abilities that a session can be asked for.
pub mod caps {
    pub const MONOCHROME: u32 = 3;
    pub const WIDTH_MAX: u32 = 16;
    pub const HEIGHT_MAX: u32 = 17;
    pub const LOSSLESS: u32 = 34;
    pub const TEN_BITS: u32 = 39;
    pub const WIDTH_MIN: u32 = 45;
    pub const HEIGHT_MIN: u32 = 46;
    pub const ENGINES: u32 = 49;
}

/// Layouts of an input picture.
pub mod format {
    /// 8 bits: luma, then a plane of half the height with both chroma samples side by side.
    pub const NV12: u32 = 1;
    /// The same in 16 bits, of which the upper ten count.
    pub const P010: u32 = 0x1_0000;
}

/// What calls return.
pub mod status {
    pub const SUCCESS: i32 = 0;
    pub const NO_ENCODE_DEVICE: i32 = 1;
    pub const UNSUPPORTED_DEVICE: i32 = 2;
    pub const INVALID_ENCODERDEVICE: i32 = 3;
    pub const INVALID_DEVICE: i32 = 4;
    pub const DEVICE_NOT_EXIST: i32 = 5;
    pub const INVALID_PTR: i32 = 6;
    pub const INVALID_PARAM: i32 = 8;
    pub const INVALID_CALL: i32 = 9;
    pub const OUT_OF_MEMORY: i32 = 10;
    pub const ENCODER_NOT_INITIALIZED: i32 = 11;
    pub const UNSUPPORTED_PARAM: i32 = 12;
    pub const LOCK_BUSY: i32 = 13;
    pub const NOT_ENOUGH_BUFFER: i32 = 14;
    pub const INVALID_VERSION: i32 = 15;
    pub const MAP_FAILED: i32 = 16;
    pub const NEED_MORE_INPUT: i32 = 17;
    pub const ENCODER_BUSY: i32 = 18;
    pub const GENERIC: i32 = 20;
    pub const INCOMPATIBLE_CLIENT_KEY: i32 = 21;
    pub const RESOURCE_REGISTER_FAILED: i32 = 23;
    pub const RESOURCE_NOT_REGISTERED: i32 = 24;
    pub const RESOURCE_NOT_MAPPED: i32 = 25;

    /// NVIDIA's name of a number.
    pub fn name(code: i32) -> &'static str {
        const NAMES: [&str; 27] = [
            "NV_ENC_SUCCESS",
            "NV_ENC_ERR_NO_ENCODE_DEVICE",
            "NV_ENC_ERR_UNSUPPORTED_DEVICE",
            "NV_ENC_ERR_INVALID_ENCODERDEVICE",
            "NV_ENC_ERR_INVALID_DEVICE",
            "NV_ENC_ERR_DEVICE_NOT_EXIST",
            "NV_ENC_ERR_INVALID_PTR",
            "NV_ENC_ERR_INVALID_EVENT",
            "NV_ENC_ERR_INVALID_PARAM",
            "NV_ENC_ERR_INVALID_CALL",
            "NV_ENC_ERR_OUT_OF_MEMORY",
            "NV_ENC_ERR_ENCODER_NOT_INITIALIZED",
            "NV_ENC_ERR_UNSUPPORTED_PARAM",
            "NV_ENC_ERR_LOCK_BUSY",
            "NV_ENC_ERR_NOT_ENOUGH_BUFFER",
            "NV_ENC_ERR_INVALID_VERSION",
            "NV_ENC_ERR_MAP_FAILED",
            "NV_ENC_ERR_NEED_MORE_INPUT",
            "NV_ENC_ERR_ENCODER_BUSY",
            "NV_ENC_ERR_EVENT_NOT_REGISTERD",
            "NV_ENC_ERR_GENERIC",
            "NV_ENC_ERR_INCOMPATIBLE_CLIENT_KEY",
            "NV_ENC_ERR_UNIMPLEMENTED",
            "NV_ENC_ERR_RESOURCE_REGISTER_FAILED",
            "NV_ENC_ERR_RESOURCE_NOT_REGISTERED",
            "NV_ENC_ERR_RESOURCE_NOT_MAPPED",
            "NV_ENC_ERR_NEED_MORE_OUTPUT",
        ];
        usize::try_from(code).ok().and_then(|i| NAMES.get(i)).copied().unwrap_or("an unknown NVENC status")
    }
}

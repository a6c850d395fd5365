//! The interface of `libnvidia-encode.so.1`, as much of it as is used: version 12.1, the oldest with AV1 that this crate was checked
//! against. Newer drivers accept it, since every structure carries its version.
//!
//! Names of fields follow NVIDIA's; sizes and offsets are held against a C compiler's in the tests.

mod config;
mod functions;
mod ids;
mod picture;
#[cfg(test)]
mod tests;

pub use config::{
    Av1Config, CodecConfig, Config, H264Config, HevcConfig, InitializeParams, PresetConfig, Qp, RcParams,
    ReconfigureParams, av1, h264, hevc,
};
pub use functions::{FunctionList, GetLastErrorString};
pub use ids::{Guid, caps, codec, format, preset, profile, status};
pub use picture::{
    CapsParam, CreateBitstreamBuffer, LockBitstream, MapInputResource, OpenSessionParams, PicParams,
    RegisterResource, SequenceParamPayload, pic_flag,
};

/// Version of the interface: major, minor.
pub const API: (u32, u32) = (12, 1);
/// The same as sessions are told it.
pub const API_VERSION: u32 = API.0 | API.1 << 24;

/// Version word of a structure.
const fn version(of: u32) -> u32 {
    API_VERSION | of << 16 | 7 << 28
}

/// Version word of a structure that newer interfaces read differently.
const fn version_marked(of: u32) -> u32 {
    version(of) | 1 << 31
}

/// Structures of C that are valid when every byte is zero.
///
/// # Safety
/// All fields are integers, raw pointers, optional functions, or such structures.
pub unsafe trait Plain: Sized {
    /// Nothing set.
    fn zeroed() -> Self {
        // SAFETY: the trait's promise.
        unsafe { std::mem::MaybeUninit::zeroed().assume_init() }
    }
}

/// Structures that say which version they are.
pub trait Versioned: Plain {
    /// What the first field must be.
    const VERSION: u32;

    /// Nothing set but the version, which is the first field of each.
    fn versioned() -> Self {
        let mut new = Self::zeroed();
        // SAFETY: every implementor is `repr(C)` and starts with a `u32`, as the tests check.
        unsafe { (&raw mut new).cast::<u32>().write(Self::VERSION) };
        new
    }
}

macro_rules! plain {
    ($($name:ty),+) => { $(
        // SAFETY: integers, pointers and optional functions alone.
        unsafe impl $crate::nvenc::abi::Plain for $name {}
    )+ };
}
macro_rules! versioned {
    ($($name:ty = $version:expr),+ $(,)?) => { $(
        // SAFETY: as of `plain`.
        unsafe impl $crate::nvenc::abi::Plain for $name {}
        impl $crate::nvenc::abi::Versioned for $name {
            const VERSION: u32 = $version;
        }
    )+ };
}
use {plain, versioned};

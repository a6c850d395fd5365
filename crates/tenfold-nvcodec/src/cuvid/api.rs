//! The functions of `libnvcuvid`, bound to a loaded library.

use std::ffi::{c_int, c_uint, c_ulonglong};
use std::sync::OnceLock;

use super::abi::{
    CreateInfo, CuResult, DecodeCaps, DecodeStatus, DecoderHandle, Packet, ParserHandle, ParserParams,
    PicParams, ProcParams, ReconfigureInfo,
};
use crate::error::Result;
use crate::library::{Library, NVCUVID};

/// Binds functions by their names; one that a library lacks is an error.
macro_rules! functions {
    ($($field:ident = $symbol:literal: fn($($arg:ty),*);)*) => {
        /// The library and its functions.
        pub(crate) struct Cuvid {
            $(pub(crate) $field: unsafe extern "system" fn($($arg),*) -> CuResult,)*
            /// Nothing for a driver that is part of the tests.
            pub(crate) _library: Option<Library>,
        }

        impl Cuvid {
            fn bind(library: Library) -> Result<Cuvid> {
                // SAFETY: the types are those of NVIDIA's headers; the library lives as long as the pointers.
                unsafe {
                    Ok(Cuvid { $($field: library.function($symbol)?,)* _library: Some(library) })
                }
            }
        }
    };
}

functions! {
    caps = "cuvidGetDecoderCaps": fn(*mut DecodeCaps);
    create = "cuvidCreateDecoder": fn(*mut DecoderHandle, *mut CreateInfo);
    destroy = "cuvidDestroyDecoder": fn(DecoderHandle);
    decode = "cuvidDecodePicture": fn(DecoderHandle, *mut PicParams);
    status = "cuvidGetDecodeStatus": fn(DecoderHandle, c_int, *mut DecodeStatus);
    reconfigure = "cuvidReconfigureDecoder": fn(DecoderHandle, *mut ReconfigureInfo);
    map = "cuvidMapVideoFrame64": fn(DecoderHandle, c_int, *mut c_ulonglong, *mut c_uint, *mut ProcParams);
    unmap = "cuvidUnmapVideoFrame64": fn(DecoderHandle, c_ulonglong);
    create_parser = "cuvidCreateVideoParser": fn(*mut ParserHandle, *mut ParserParams);
    parse = "cuvidParseVideoData": fn(ParserHandle, *mut Packet);
    destroy_parser = "cuvidDestroyVideoParser": fn(ParserHandle);
}

impl Cuvid {
    /// The library, loaded the first time it is asked for and kept: the driver does not like to be unloaded.
    pub(crate) fn get() -> Result<&'static Cuvid> {
        static LOADED: OnceLock<Cuvid> = OnceLock::new();
        if let Some(loaded) = LOADED.get() {
            return Ok(loaded);
        }
        let bound = Cuvid::bind(Library::open(NVCUVID)?)?;
        Ok(LOADED.get_or_init(|| bound))
    }
}

impl std::fmt::Debug for Cuvid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cuvid").finish_non_exhaustive()
    }
}

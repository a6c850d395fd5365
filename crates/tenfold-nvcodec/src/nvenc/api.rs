//! `libnvidia-encode` bound to a loaded library: its version first, then its table of functions.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

use super::abi::{API, FunctionList, Versioned, status};
use crate::error::{Error, Result};
use crate::library::{Library, NVENC};

/// The functions that are called; a library that lacks one is an error.
macro_rules! functions {
    ($($name:ident: fn($($arg:ty),*),)*) => {
        /// The library and its functions.
        pub(super) struct Nvenc {
            $(pub(super) $name: unsafe extern "C" fn($($arg),*) -> i32,)*
            last_error: super::abi::GetLastErrorString,
            /// Newest version of the interface that the driver has: major, minor.
            pub(super) version: (u32, u32),
            _library: Library,
        }

        impl Nvenc {
            fn bind(list: &FunctionList, version: (u32, u32), library: Library) -> Result<Nvenc> {
                let missing = |symbol| Error::SymbolMissing { library: library.file().to_string(), symbol };
                Ok(Nvenc {
                    $($name: list.$name.ok_or_else(|| missing(stringify!($name)))?,)*
                    last_error: list.get_last_error_string.ok_or_else(|| missing("get_last_error_string"))?,
                    version,
                    _library: library,
                })
            }
        }
    };
}

use super::abi::{
    CapsParam, CreateBitstreamBuffer, Guid, InitializeParams, LockBitstream, MapInputResource,
    OpenSessionParams, PicParams, PresetConfig, ReconfigureParams, RegisterResource, SequenceParamPayload,
};

functions! {
    open_encode_session_ex: fn(*mut OpenSessionParams, *mut *mut c_void),
    destroy_encoder: fn(*mut c_void),
    get_encode_guid_count: fn(*mut c_void, *mut u32),
    get_encode_guids: fn(*mut c_void, *mut Guid, u32, *mut u32),
    get_encode_caps: fn(*mut c_void, Guid, *mut CapsParam, *mut i32),
    get_encode_preset_config_ex: fn(*mut c_void, Guid, Guid, u32, *mut PresetConfig),
    initialize_encoder: fn(*mut c_void, *mut InitializeParams),
    reconfigure_encoder: fn(*mut c_void, *mut ReconfigureParams),
    get_sequence_params: fn(*mut c_void, *mut SequenceParamPayload),
    create_bitstream_buffer: fn(*mut c_void, *mut CreateBitstreamBuffer),
    destroy_bitstream_buffer: fn(*mut c_void, *mut c_void),
    register_resource: fn(*mut c_void, *mut RegisterResource),
    unregister_resource: fn(*mut c_void, *mut c_void),
    map_input_resource: fn(*mut c_void, *mut MapInputResource),
    unmap_input_resource: fn(*mut c_void, *mut c_void),
    encode_picture: fn(*mut c_void, *mut PicParams),
    lock_bitstream: fn(*mut c_void, *mut LockBitstream),
    unlock_bitstream: fn(*mut c_void, *mut c_void),
    set_io_cuda_streams: fn(*mut c_void, *mut c_void, *mut c_void),
}

/// Turns a return code into an error with NVIDIA's name.
pub(super) fn check(call: &'static str, code: i32) -> Result<()> {
    match code {
        status::SUCCESS => Ok(()),
        code => Err(Error::Call { call, code: code.unsigned_abs(), name: status::name(code) }),
    }
}

impl Nvenc {
    /// The library, loaded the first time it is asked for and kept: the driver does not like to be unloaded.
    pub(super) fn get() -> Result<&'static Nvenc> {
        static LOADED: OnceLock<Nvenc> = OnceLock::new();
        if let Some(loaded) = LOADED.get() {
            return Ok(loaded);
        }
        let loaded = Nvenc::open()?;
        Ok(LOADED.get_or_init(|| loaded))
    }

    fn open() -> Result<Nvenc> {
        type GetVersion = unsafe extern "C" fn(*mut u32) -> i32;
        type Create = unsafe extern "C" fn(*mut FunctionList) -> i32;
        let library = Library::open(NVENC)?;
        // 1. The version.
        // SAFETY: the type is NVIDIA's; the library lives through the call.
        let get_version = unsafe { library.function::<GetVersion>("NvEncodeAPIGetMaxSupportedVersion")? };
        let mut found = 0;
        // SAFETY: the place lives through the call.
        check("NvEncodeAPIGetMaxSupportedVersion", unsafe { get_version(&mut found) })?;
        let version = (found >> 4, found & 15);
        if version < API {
            let text = |(major, minor)| format!("{major}.{minor}");
            return Err(Error::Version {
                library: library.file().to_string(),
                needed: format!("{} (driver 530 or newer)", text(API)),
                found: text(version),
            });
        }
        // 2. The functions.
        // SAFETY: as above.
        let create = unsafe { library.function::<Create>("NvEncodeAPICreateInstance")? };
        let mut list = FunctionList::versioned();
        // SAFETY: as above.
        check("NvEncodeAPICreateInstance", unsafe { create(&mut list) })?;
        Nvenc::bind(&list, version, library)
    }

    /// The same as [`check`], with what the session says of it.
    ///
    /// # Safety
    /// The session is open.
    pub(super) unsafe fn check(&self, session: *mut c_void, call: &'static str, code: i32) -> Result<()> {
        if code == status::SUCCESS {
            return Ok(());
        }
        if code == status::DEVICE_NOT_EXIST || code == status::INVALID_DEVICE {
            let reason = format!("{call}: {} ({code})", status::name(code));
            return Err(tenfold_cuda::Error::DeviceLost(reason).into());
        }
        // SAFETY: the caller's promise.
        let text = unsafe { (self.last_error)(session) };
        let detail = match text.is_null() {
            true => String::new(),
            // SAFETY: NVIDIA's string, which lasts until the session's next error.
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_string(),
        };
        if detail.is_empty() {
            return check(call, code);
        }
        Err(Error::Session { call, code: code.unsigned_abs(), name: status::name(code), detail })
    }
}

impl std::fmt::Debug for Nvenc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nvenc").field("version", &self.version).finish_non_exhaustive()
    }
}

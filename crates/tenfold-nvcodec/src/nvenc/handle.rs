//! An open session of the driver's, before anything is made in it.

use std::ffi::c_void;
use std::ptr;

use tenfold_cuda::Device;

use super::abi::{CapsParam, Guid, OpenSessionParams, Versioned, status};
use super::api::{Nvenc, check};
use crate::error::{Error, Result};

/// A session; closed when dropped.
pub(super) struct Handle {
    pub(super) api: &'static Nvenc,
    pub(super) device: Device,
    pub(super) raw: *mut c_void,
}

// SAFETY: NVIDIA allows pictures to be submitted by one thread and taken by another; nothing is bound to a thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// What opening a session came to, where it is no error of the machine.
pub(super) enum Opened {
    Open(Handle),
    /// As many sessions are open as the driver allows.
    NoneFree,
}

impl Handle {
    /// Opens a session on a device.
    pub(super) fn open(api: &'static Nvenc, device: &Device) -> Result<Opened> {
        const CALL: &str = "NvEncOpenEncodeSessionEx";
        device.make_current()?;
        let mut params = OpenSessionParams {
            device_type: OpenSessionParams::CUDA,
            device: device.context(),
            api_version: super::abi::API_VERSION,
            ..OpenSessionParams::versioned()
        };
        let mut raw = ptr::null_mut();
        // SAFETY: both places live through the call, and the context as long as the device.
        let code = unsafe { (api.open_encode_session_ex)(&mut params, &mut raw) };
        let handle = Handle { api, device: device.clone(), raw };
        match code {
            status::SUCCESS if !raw.is_null() => Ok(Opened::Open(handle)),
            status::SUCCESS | status::NO_ENCODE_DEVICE | status::UNSUPPORTED_DEVICE => {
                let name = &device.properties().name;
                let why =
                    if code == status::SUCCESS { "no encoder was returned" } else { status::name(code) };
                Err(Error::NoEngine(format!("{name} has no NVENC engine: {why} ({code})")))
            }
            // Both are what drivers say at their limit.
            status::OUT_OF_MEMORY | status::INCOMPATIBLE_CLIENT_KEY => Ok(Opened::NoneFree),
            code => check(CALL, code).map(|()| Opened::NoneFree),
        }
    }

    /// Sorts an answer of the session's.
    pub(super) fn check(&self, call: &'static str, code: i32) -> Result<()> {
        // SAFETY: the session is open as long as `self` is there.
        unsafe { self.api.check(self.raw, call, code) }
    }

    /// The codecs that the device encodes.
    pub(super) fn codecs(&self) -> Result<Vec<Guid>> {
        let mut count = 0;
        // SAFETY: the place lives through the call.
        let code = unsafe { (self.api.get_encode_guid_count)(self.raw, &mut count) };
        self.check("NvEncGetEncodeGUIDCount", code)?;
        let mut codecs = vec![Guid::default(); count.min(64) as usize];
        let (room, mut found) = (codecs.len() as u32, 0);
        // SAFETY: as above; the list is as long as stated.
        let code = unsafe { (self.api.get_encode_guids)(self.raw, codecs.as_mut_ptr(), room, &mut found) };
        self.check("NvEncGetEncodeGUIDs", code)?;
        codecs.truncate(found as usize);
        Ok(codecs)
    }

    /// The value of an ability.
    pub(super) fn ask(&self, codec: Guid, ability: u32) -> Result<u32> {
        let mut params = CapsParam { query: ability, ..CapsParam::versioned() };
        let mut value = 0;
        // SAFETY: both live through the call.
        let code = unsafe { (self.api.get_encode_caps)(self.raw, codec, &mut params, &mut value) };
        self.check("NvEncGetEncodeCaps", code)?;
        Ok(u32::try_from(value).unwrap_or(0))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.raw.is_null() && self.device.make_current().is_ok() {
            // SAFETY: opened in `open`, and nothing is left in it. Errors have nowhere to go.
            unsafe { (self.api.destroy_encoder)(self.raw) };
        }
    }
}

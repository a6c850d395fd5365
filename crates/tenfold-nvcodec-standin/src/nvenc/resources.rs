//! Memory of a session: registered, mapped, and buffers for what comes out.

use tenfold_nvcodec::nvenc::abi::{
    CreateBitstreamBuffer, MapInputResource, RegisterResource, format, status,
};

use super::check_version;
use super::session::{Output, Registered, Session, new_handle};
use crate::faults::{self, Fault};

impl Session {
    pub(super) fn create_buffer(&mut self, params: &mut CreateBitstreamBuffer) -> Result<(), i32> {
        const CALL: &str = "NvEncCreateBitstreamBuffer";
        check_version::<CreateBitstreamBuffer>(CALL, params.version)?;
        self.setup(CALL)?;
        let handle = new_handle();
        self.outputs.insert(handle, Output::Free);
        params.bitstream_buffer = handle as *mut _;
        Ok(())
    }

    pub(super) fn destroy_buffer(&mut self, handle: u64) -> Result<(), i32> {
        const CALL: &str = "NvEncDestroyBitstreamBuffer";
        match self.outputs.remove(&handle) {
            None => Err(self.refuse(status::INVALID_PARAM, &format!("{CALL}: no such buffer"))),
            Some(Output::Free) => Ok(()),
            Some(_) => {
                self.order.retain(|o| *o != handle);
                Err(self.refuse(status::INVALID_CALL, &format!("{CALL}: a picture is in it")))
            }
        }
    }

    pub(super) fn register(&mut self, params: &mut RegisterResource) -> Result<(), i32> {
        const CALL: &str = "NvEncRegisterResource";
        check_version::<RegisterResource>(CALL, params.version)?;
        let setup = self.setup(CALL)?;
        if faults::happens(Fault::RegisterFails) {
            return Err(self.fail(status::RESOURCE_REGISTER_FAILED, "the memory cannot be registered"));
        }
        let picture = setup.settings.format;
        let bytes = if setup.format == format::NV12 { 1 } else { 2 };
        let pitch = params.pitch as usize;
        let wrong = if params.resource_type != RegisterResource::CUDA_ADDRESS || params.buffer_usage != 0 {
            "not a picture in CUDA's memory"
        } else if (params.width as usize, params.height as usize) != (picture.width, picture.height) {
            "another size than the session's"
        } else if params.buffer_format != setup.format {
            "another format than the session's"
        } else if !pitch.is_multiple_of(4) || pitch < picture.width * bytes {
            "rows that are too short, or not a multiple of 4 bytes"
        } else if params.resource.is_null() {
            "no memory"
        } else {
            let handle = new_handle();
            let address = params.resource as u64;
            self.registered.insert(handle, Registered { address, pitch, mapped: 0 });
            params.registered = handle as *mut _;
            return Ok(());
        };
        Err(self.refuse(status::INVALID_PARAM, &format!("{CALL}: {wrong}")))
    }

    pub(super) fn unregister(&mut self, handle: u64) -> Result<(), i32> {
        const CALL: &str = "NvEncUnregisterResource";
        match self.registered.remove(&handle) {
            None => {
                Err(self.refuse(status::RESOURCE_NOT_REGISTERED, &format!("{CALL}: it is not registered")))
            }
            Some(r) if r.mapped != 0 => {
                Err(self.refuse(status::INVALID_CALL, &format!("{CALL}: it is still mapped")))
            }
            Some(_) => Ok(()),
        }
    }

    pub(super) fn map(&mut self, params: &mut MapInputResource) -> Result<(), i32> {
        const CALL: &str = "NvEncMapInputResource";
        check_version::<MapInputResource>(CALL, params.version)?;
        let setup = self.setup(CALL)?;
        match self.registered.get_mut(&(params.registered as u64)) {
            None => {
                Err(self.refuse(status::RESOURCE_NOT_REGISTERED, &format!("{CALL}: it is not registered")))
            }
            Some(r) if r.mapped != 0 => {
                Err(self.refuse(status::MAP_FAILED, &format!("{CALL}: it is mapped already")))
            }
            Some(r) => {
                r.mapped = new_handle();
                (params.mapped, params.mapped_format) = (r.mapped as *mut _, setup.format);
                Ok(())
            }
        }
    }

    pub(super) fn unmap(&mut self, handle: u64) -> Result<(), i32> {
        const CALL: &str = "NvEncUnmapInputResource";
        let waits = |o: &Output| matches!(o, Output::Waiting(w) if w.input == handle);
        if self.outputs.values().any(waits) {
            return Err(self.refuse(status::INVALID_CALL, &format!("{CALL}: a picture of it waits")));
        }
        match self.registered.values_mut().find(|r| r.mapped == handle && handle != 0) {
            None => Err(self.refuse(status::RESOURCE_NOT_MAPPED, &format!("{CALL}: it is not mapped"))),
            Some(r) => {
                r.mapped = 0;
                Ok(())
            }
        }
    }
}

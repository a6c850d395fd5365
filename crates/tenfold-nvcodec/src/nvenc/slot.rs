//! One place of a session's ring: memory for a picture, registered, and a buffer for what comes of it.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use tenfold_cuda::{Buffer, Device, DeviceSlice, Pinned, Stream};
use tenfold_video::codec::Format;

use super::abi::{CreateBitstreamBuffer, LockBitstream, MapInputResource, RegisterResource, Versioned};
use super::handle::Handle;
use super::setup::layout;
use crate::error::{Error, Result};

/// How a picture lies in memory: luma, then chroma side by side, rows a multiple of 4 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plane {
    pub format: Format,
    /// Bytes of a row that hold samples.
    pub row: usize,
    /// Bytes from row to row.
    pub pitch: usize,
}

impl Plane {
    pub(super) fn new(format: Format) -> Plane {
        let row = format.width * if format.depth == 8 { 1 } else { 2 };
        Plane { format, row, pitch: row.next_multiple_of(4) }
    }

    fn luma(&self) -> usize {
        self.pitch * self.format.height
    }

    fn len(&self) -> usize {
        self.pitch * (self.format.height + self.format.height.div_ceil(2))
    }

    /// Writes samples as the engine wants them: of 10 bits the upper ones of two bytes.
    fn pack(&self, samples: &[u16], out: &mut [u8]) {
        for (row, to) in samples.chunks_exact(self.format.width).zip(out.chunks_exact_mut(self.pitch)) {
            if self.format.depth == 8 {
                to.iter_mut().zip(row).for_each(|(to, &s)| *to = s as u8);
            } else {
                let shift = 16 - u32::from(self.format.depth);
                let to = to.as_chunks_mut::<2>().0.iter_mut();
                to.zip(row).for_each(|(to, &s)| *to = (s << shift).to_le_bytes());
            }
        }
    }
}

/// A place of the ring.
pub(super) struct Slot {
    memory: Buffer,
    /// Where samples of the host are packed.
    staging: Mutex<Option<Pinned>>,
    registered: *mut c_void,
    /// The input while the encoder has it.
    mapped: AtomicPtr<c_void>,
    output: *mut c_void,
}

// SAFETY: handles of the driver, which are bound to no thread; one thread at a time uses a place.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl Slot {
    /// Memory with constant chroma. Nothing is known to the session yet, so that it can be dropped.
    pub(super) fn new(device: &Device, plane: &Plane) -> Result<Slot> {
        let memory = Buffer::new(device, plane.len())?;
        let mut bytes = vec![0x80; plane.len()];
        if plane.format.depth > 8 {
            bytes.as_chunks_mut::<2>().0.fill([0, 0x80]);
        }
        memory.write(&bytes, Stream::DEFAULT)?;
        let mapped = AtomicPtr::default();
        Ok(Slot { memory, staging: Mutex::default(), registered: null_mut(), mapped, output: null_mut() })
    }

    /// Makes it known to the session.
    pub(super) fn register(&mut self, handle: &Handle, plane: &Plane) -> Result<()> {
        let mut params = RegisterResource {
            resource_type: RegisterResource::CUDA_ADDRESS,
            width: plane.format.width as u32,
            height: plane.format.height as u32,
            pitch: plane.pitch as u32,
            resource: self.memory.slice().address as *mut c_void,
            buffer_format: layout(plane.format.depth),
            ..RegisterResource::versioned()
        };
        // SAFETY: the structure lives through the call; the memory is freed after it is unregistered.
        let code = unsafe { (handle.api.register_resource)(handle.raw, &mut params) };
        handle.check("NvEncRegisterResource", code)?;
        self.registered = params.registered;
        let mut params = CreateBitstreamBuffer::versioned();
        // SAFETY: the structure lives through the call.
        let code = unsafe { (handle.api.create_bitstream_buffer)(handle.raw, &mut params) };
        handle.check("NvEncCreateBitstreamBuffer", code)?;
        self.output = params.bitstream_buffer;
        Ok(())
    }

    /// Makes the session forget it. Errors have nowhere to go: the session is about to be closed.
    pub(super) fn release(&mut self, handle: &Handle) {
        self.unmap(handle).ok();
        // SAFETY: made in `register`, and not used afterwards.
        unsafe {
            if !self.registered.is_null() {
                (handle.api.unregister_resource)(handle.raw, self.registered);
            }
            if !self.output.is_null() {
                (handle.api.destroy_bitstream_buffer)(handle.raw, self.output);
            }
        }
        (self.registered, self.output) = (null_mut(), null_mut());
    }

    /// Queues samples of the host.
    pub(super) fn upload(
        &self,
        device: &Device,
        plane: &Plane,
        samples: &[u16],
        stream: Stream,
    ) -> Result<()> {
        let to = self.memory.slice().part(0, plane.luma())?;
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        let staging = match &mut *staging {
            Some(staging) => staging,
            none => none.insert(Pinned::new(device, plane.luma())?),
        };
        plane.pack(samples, staging);
        // SAFETY: both are ours, as long, and left alone until the picture is coded.
        unsafe { device.copy_in(to, staging, stream)? };
        Ok(())
    }

    /// Queues a copy of samples of the device, row after row without gaps.
    ///
    /// # Safety
    /// `luma` is memory of the device and stays until the stream has passed this.
    pub(super) unsafe fn copy(
        &self,
        device: &Device,
        plane: &Plane,
        luma: DeviceSlice,
        stream: Stream,
    ) -> Result<()> {
        if luma.len != plane.row * plane.format.height {
            let (have, need) = (luma.len, plane.row * plane.format.height);
            return Err(Error::InvalidArgument(format!("{have} bytes of luma in place of {need}")));
        }
        let to = self.memory.slice();
        // Rows without gaps on both sides are one copy.
        let lines = if plane.row == plane.pitch { 1 } else { plane.format.height };
        let len = luma.len / lines.max(1);
        for line in 0..lines {
            let (to, from) = (to.part(line * plane.pitch, len)?, luma.part(line * len, len)?);
            // SAFETY: `to` is ours, `from` the caller's promise.
            unsafe { device.copy(to, from, stream)? };
        }
        Ok(())
    }

    /// Lends the memory to the encoder: what a picture's input and output are.
    pub(super) fn map(&self, handle: &Handle) -> Result<(*mut c_void, *mut c_void)> {
        let mut params = MapInputResource { registered: self.registered, ..MapInputResource::versioned() };
        // SAFETY: the structure lives through the call.
        let code = unsafe { (handle.api.map_input_resource)(handle.raw, &mut params) };
        handle.check("NvEncMapInputResource", code)?;
        self.mapped.store(params.mapped, Ordering::Release);
        Ok((params.mapped, self.output))
    }

    /// Takes the memory back.
    pub(super) fn unmap(&self, handle: &Handle) -> Result<()> {
        let mapped = self.mapped.swap(null_mut(), Ordering::AcqRel);
        if mapped.is_null() {
            return Ok(());
        }
        // SAFETY: mapped by `map`, and taken out of its place by no one else.
        let code = unsafe { (handle.api.unmap_input_resource)(handle.raw, mapped) };
        handle.check("NvEncUnmapInputResource", code)
    }

    /// Waits for the coded picture, copies it, and takes the memory back.
    pub(super) fn receive(&self, handle: &Handle) -> Result<Vec<u8>> {
        let mut params = LockBitstream { output: self.output, ..LockBitstream::versioned() };
        // SAFETY: the structure lives through the call.
        let code = unsafe { (handle.api.lock_bitstream)(handle.raw, &mut params) };
        if let Err(error) = handle.check("NvEncLockBitstream", code) {
            self.unmap(handle).ok();
            return Err(error);
        }
        let coded = match params.data.is_null() {
            true => Vec::new(),
            // SAFETY: the library lends so many bytes until the buffer is unlocked.
            false => {
                unsafe { std::slice::from_raw_parts(params.data.cast::<u8>(), params.size as usize) }.to_vec()
            }
        };
        // SAFETY: locked above.
        let code = unsafe { (handle.api.unlock_bitstream)(handle.raw, self.output) };
        let unlocked = handle.check("NvEncUnlockBitstream", code);
        unlocked.and(self.unmap(handle))?;
        if coded.is_empty() {
            return Err(Error::NoEngine("the encoder gave an empty picture".into()));
        }
        Ok(coded)
    }
}

//! Streams for callers that have none of their own, and copies queued on any stream.

use crate::device::{Device, DeviceSlice};
use crate::driver::Stream;
use crate::error::{Error, Result};

/// A stream that is destroyed with its owner. It does not wait for the default stream, nor that for it.
#[derive(Debug)]
pub struct OwnedStream {
    device: Device,
    pub(crate) stream: Stream,
}

impl OwnedStream {
    /// A new stream of a device.
    pub fn new(device: &Device) -> Result<OwnedStream> {
        Ok(OwnedStream { device: device.clone(), stream: device.driver.create_stream(false)? })
    }

    /// A stream whose kernels go before those of ordinary streams wherever both wait for room on the device: for short ones that
    /// something else waits for.
    pub fn urgent(device: &Device) -> Result<OwnedStream> {
        Ok(OwnedStream { device: device.clone(), stream: device.driver.create_stream(true)? })
    }

    /// The handle that calls take; good as long as this lives.
    pub fn stream(&self) -> Stream {
        self.stream
    }
}

impl Drop for OwnedStream {
    fn drop(&mut self) {
        // SAFETY: made in `new`; the driver lets queued work finish.
        unsafe { self.device.driver.destroy_stream(self.stream) }
    }
}

impl Device {
    /// Queues a copy of host memory to the start of `to`. From pinned memory the device fetches it by itself; from
    /// any other the driver may make the caller wait.
    ///
    /// # Safety
    /// `to` is memory of this device. Neither side is freed or written otherwise until the stream has passed this.
    pub unsafe fn copy_in(&self, to: DeviceSlice, from: &[u8], stream: Stream) -> Result<()> {
        let to = to.part(0, from.len())?;
        // SAFETY: the caller's promise; `to` was just held against the length.
        unsafe { self.driver.copy_in(to.address, from.as_ptr(), from.len(), stream) }
    }

    /// Queues a copy of the start of `from` to host memory.
    ///
    /// # Safety
    /// `from` is memory of this device. Neither side is freed or written otherwise until the stream has passed this.
    pub unsafe fn copy_out(&self, to: &mut [u8], from: DeviceSlice, stream: Stream) -> Result<()> {
        let from = from.part(0, to.len())?;
        // SAFETY: the caller's promise; `from` was just held against the length.
        unsafe { self.driver.copy_out(to.as_mut_ptr(), from.address, to.len(), stream) }
    }

    /// Queues a copy on the device; both sides have the same length.
    ///
    /// # Safety
    /// Both are memory of this device, do not overlap, and are not freed until the stream has passed this.
    pub unsafe fn copy(&self, to: DeviceSlice, from: DeviceSlice, stream: Stream) -> Result<()> {
        if to.len != from.len {
            let (to, from) = (to.len, from.len);
            return Err(Error::InvalidArgument(format!("cannot copy {from} bytes into {to}")));
        }
        // SAFETY: the caller's promise.
        unsafe { self.driver.copy(to.address, from.address, to.len, stream) }
    }
}

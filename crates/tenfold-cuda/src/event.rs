//! Points in a stream's work that others wait for, or that tell the time.

use crate::device::Device;
use crate::driver::{Event, Stream};
use crate::error::Result;

/// An event that is destroyed with its owner.
pub struct OwnedEvent {
    device: Device,
    event: Event,
}

// SAFETY: events are handles that the driver's functions take from any thread.
unsafe impl Send for OwnedEvent {}
// SAFETY: as above.
unsafe impl Sync for OwnedEvent {}

impl OwnedEvent {
    /// An event of a device; `timed` ones know when they happened.
    pub fn new(device: &Device, timed: bool) -> Result<OwnedEvent> {
        Ok(OwnedEvent { device: device.clone(), event: device.driver.create_event(timed)? })
    }

    /// Happens after what the stream has queued so far.
    pub fn record(&self, stream: Stream) -> Result<()> {
        self.device.driver.record(self.event, stream)
    }

    /// Makes a stream wait for it.
    pub fn hold(&self, stream: Stream) -> Result<()> {
        self.device.driver.wait(stream, self.event)
    }

    /// Makes the caller wait for it.
    pub fn wait(&self) -> Result<()> {
        self.device.driver.block_on(self.event)
    }

    /// Milliseconds since `from`; both are timed and have happened.
    pub(crate) fn milliseconds_since(&self, from: &OwnedEvent) -> Result<f32> {
        self.device.driver.elapsed(from.event, self.event)
    }
}

impl Drop for OwnedEvent {
    fn drop(&mut self) {
        // SAFETY: made in `new`; the driver keeps what a stream still has to pass.
        unsafe { self.device.driver.destroy_event(self.event) }
    }
}

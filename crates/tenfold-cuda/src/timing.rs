//! Time that a device spends, by its own clock: what a host sees includes its own delays.

use crate::device::Device;
use crate::driver::Stream;
use crate::error::Result;
use crate::event::OwnedEvent;

/// Two points in a stream's work, and the time between them.
///
/// Several timers can be queued before the first is asked, so that a device never waits for its host.
pub struct Timer {
    device: Device,
    from: OwnedEvent,
    to: OwnedEvent,
}

impl Timer {
    /// A timer of a device.
    pub fn new(device: &Device) -> Result<Timer> {
        let (from, to) = (OwnedEvent::new(device, true)?, OwnedEvent::new(device, true)?);
        Ok(Timer { device: device.clone(), from, to })
    }

    /// Marks the start, after what the stream has queued so far.
    pub fn start(&self, stream: Stream) -> Result<()> {
        self.from.record(stream)
    }

    /// Marks the end, likewise.
    pub fn stop(&self, stream: Stream) -> Result<()> {
        self.to.record(stream)
    }

    /// Waits for the end; milliseconds since the start.
    pub fn milliseconds(&self) -> Result<f32> {
        self.to.wait()?;
        self.to.milliseconds_since(&self.from)
    }
}

impl std::fmt::Debug for Timer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Timer").field("device", &self.device).finish_non_exhaustive()
    }
}

impl Device {
    /// Milliseconds that the device takes for what `queue` puts on the stream. Waits for it.
    pub fn time(&self, stream: Stream, queue: impl FnOnce() -> Result<()>) -> Result<f32> {
        let timer = Timer::new(self)?;
        timer.start(stream)?;
        queue()?;
        timer.stop(stream)?;
        timer.milliseconds()
    }
}

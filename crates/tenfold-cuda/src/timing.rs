//! Time that a device spends, by its own clock: what a host sees includes its own delays.

use crate::device::Device;
use crate::driver::{Event, Stream};
use crate::error::Result;

/// Two points in a stream's work, and the time between them.
///
/// Several timers can be queued before the first is asked, so that a device never waits for its host.
pub struct Timer {
    device: Device,
    from: Event,
    to: Event,
}

// SAFETY: events are handles that the driver's functions take from any thread.
unsafe impl Send for Timer {}

impl Timer {
    /// A timer of a device.
    pub fn new(device: &Device) -> Result<Timer> {
        let from = device.driver.event(true)?;
        let to = device.driver.event(true).inspect_err(|_| {
            // SAFETY: made above and known to nobody else.
            unsafe { device.driver.destroy_event(from) }
        })?;
        Ok(Timer { device: device.clone(), from, to })
    }

    /// Marks the start, after what the stream has queued so far.
    pub fn start(&self, stream: Stream) -> Result<()> {
        self.device.driver.record(self.from, stream)
    }

    /// Marks the end, likewise.
    pub fn stop(&self, stream: Stream) -> Result<()> {
        self.device.driver.record(self.to, stream)
    }

    /// Waits for the end; milliseconds since the start.
    pub fn milliseconds(&self) -> Result<f32> {
        self.device.driver.wait_here(self.to)?;
        self.device.driver.elapsed(self.from, self.to)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: made in `new`; the driver keeps what a stream still has to pass.
        unsafe {
            self.device.driver.destroy_event(self.from);
            self.device.driver.destroy_event(self.to);
        }
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

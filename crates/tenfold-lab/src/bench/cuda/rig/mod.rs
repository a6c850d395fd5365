//! Memory on a device and calls on it, timed. Here and in `nvcomp`, and nowhere else in this crate, addresses are
//! handed to a device.
#![allow(unsafe_code)]

mod decoding;
mod deltas;
mod encoding;
mod pages;
mod pipeline;

use anyhow::Result;
use tenfold_cuda::{Buffer, Device, DeviceSlice, OwnedStream, Status, Stream, Timer};

pub(super) use decoding::Decoding;
pub(super) use deltas::{Change, Deltas};
pub(super) use encoding::Encoding;
pub(super) use pages::Paging;
pub(super) use pipeline::Pipeline;

use crate::metrics::median;

/// Calls before the first that counts: kernels are loaded, clocks are up.
pub(super) const WARM: usize = 3;

/// A device and how often to measure on it.
pub(super) struct Rig {
    pub device: Device,
    pub stream: OwnedStream,
    pub repeats: usize,
    /// Bytes that calls rotate over, several times the largest cache.
    pub rotate: usize,
}

/// Milliseconds of each call that counts.
#[derive(Clone)]
pub(super) struct Times(pub Vec<f64>);

impl Times {
    /// The middle one; never zero, so that it can be divided by.
    pub fn median(&self) -> f64 {
        median(&self.0).max(1e-6)
    }
}

impl Rig {
    pub fn new(device: Device, repeats: usize, rotate: usize) -> Result<Rig> {
        let stream = OwnedStream::new(&device)?;
        Ok(Rig { device, stream, repeats, rotate })
    }

    /// Copies of a case of so many bytes that calls rotate over; more than there are calls would be idle.
    pub fn sets(&self, bytes: usize) -> usize {
        (self.rotate / bytes.max(1)).clamp(2, self.repeats.max(2))
    }

    /// Times calls. `queue` puts call `i` on the stream and does not wait: all are queued before the first is asked
    /// for its time, so the device never waits for the host.
    pub fn time(&self, mut queue: impl FnMut(usize, Stream) -> Result<()>) -> Result<Times> {
        let stream = self.stream.stream();
        for i in 0..WARM.min(self.repeats) {
            queue(i, stream)?;
        }
        self.device.synchronize(stream)?;
        let timers: Vec<Timer> =
            (0..self.repeats).map(|_| Timer::new(&self.device)).collect::<tenfold_cuda::Result<_>>()?;
        for (i, timer) in timers.iter().enumerate() {
            timer.start(stream)?;
            queue(i, stream)?;
            timer.stop(stream)?;
        }
        let times: tenfold_cuda::Result<Vec<f64>> =
            timers.iter().map(|t| t.milliseconds().map(f64::from)).collect();
        Ok(Times(times?))
    }

    /// Times copies on the device of so many bytes.
    pub fn time_copy(&self, bytes: usize) -> Result<Times> {
        let from = Buffer::from_slice(&self.device, &vec![0x5a; bytes])?;
        let to = Buffer::new(&self.device, bytes)?;
        self.time(|_, stream| {
            // SAFETY: both are ours, of the same length, and live until `time` has waited.
            unsafe { self.device.copy(to.slice(), from.slice(), stream)? };
            Ok(())
        })
    }

    /// Times copies of host memory, which should be pinned, to the device.
    pub fn time_copy_in(&self, from: &[u8]) -> Result<Times> {
        let to = Buffer::new(&self.device, from.len())?;
        self.time(|_, stream| {
            // SAFETY: `to` is ours and as long; both live until `time` has waited.
            unsafe { self.device.copy_in(to.slice(), from, stream)? };
            Ok(())
        })
    }
}

/// What the device says of a call that is over.
fn read_status(status: &Buffer) -> Result<Status> {
    let mut bytes = [0u8; size_of::<Status>()];
    status.read(&mut bytes, Stream::DEFAULT)?;
    let status = Status::from_bytes(bytes);
    status.check()?;
    Ok(status)
}

/// Bytes over and over, made on the device: the host has them once.
pub(super) fn repeat(device: &Device, once: &[u8], times: usize) -> Result<Buffer> {
    let buffer = Buffer::new(device, once.len() * times)?;
    buffer.write(once, Stream::DEFAULT)?;
    let DeviceSlice { address, len } = buffer.slice();
    let mut done = once.len();
    while done < len {
        let n = done.min(len - done);
        let to = DeviceSlice::new(address + done as u64, n);
        // SAFETY: both parts lie in the buffer, the second after the first, and it lives until the wait below.
        unsafe { device.copy(to, DeviceSlice::new(address, n), Stream::DEFAULT)? };
        done += n;
    }
    device.synchronize(Stream::DEFAULT)?;
    Ok(buffer)
}

/// Whether a buffer is `once` over and over, to the last bit.
pub(super) fn is_repeated(out: &Buffer, once: &[u8]) -> Result<bool> {
    let mut found = vec![0u8; out.slice().len];
    out.read(&mut found, Stream::DEFAULT)?;
    Ok(!once.is_empty() && found.chunks(once.len()).all(|c| c == once))
}

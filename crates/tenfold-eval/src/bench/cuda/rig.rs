//! Memory on a device and calls on it, timed: the one place of this crate that hands addresses to a device.
#![allow(unsafe_code)]

use anyhow::{Result, ensure};
use tenfold::Dtype;
use tenfold_cuda::{
    Buffer, DecodeRequest, DecodeSettings, Device, DeviceSlice, OwnedStream, Status, Stream, Timer, decode,
    decode_workspace_len,
};

use crate::metrics::median;

/// Calls before the first that counts: kernels are loaded, clocks are up.
const WARM: usize = 3;
/// Most copies of one case.
const SETS: usize = 16;

/// A device and how often to measure on it.
pub(super) struct Rig {
    pub device: Device,
    pub stream: OwnedStream,
    pub repeats: usize,
    /// Bytes that calls rotate over, several times the largest cache.
    pub rotate: usize,
}

/// Milliseconds of each call that counts.
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

    /// Copies of a case of so many bytes that calls rotate over.
    pub fn sets(&self, bytes: usize) -> usize {
        (self.rotate / bytes.max(1)).clamp(2, SETS)
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

/// One blob on the device, as often as calls rotate over, with room for what it decodes to.
pub(super) struct Decoding<'a> {
    rig: &'a Rig,
    /// Blob, output, status.
    sets: Vec<[Buffer; 3]>,
    workspace: Buffer,
    dtype: Dtype,
}

impl<'a> Decoding<'a> {
    pub fn new(rig: &'a Rig, blob: &[u8], dtype: Dtype, out: usize) -> Result<Decoding<'a>> {
        let device = &rig.device;
        let set = || -> tenfold_cuda::Result<[Buffer; 3]> {
            let status = Buffer::from_slice(device, &[0xff; size_of::<Status>()])?;
            Ok([Buffer::from_slice(device, blob)?, Buffer::new(device, out)?, status])
        };
        let sets: Vec<_> =
            (0..rig.sets(blob.len() + out)).map(|_| set()).collect::<tenfold_cuda::Result<_>>()?;
        let request = request(&sets[0], dtype);
        let workspace = Buffer::new(device, decode_workspace_len(&[request]))?;
        Ok(Decoding { rig, sets, workspace, dtype })
    }

    /// Decodes call after call, each to an output of its own in turn.
    pub fn time(&self) -> Result<Times> {
        self.rig.time(|i, stream| {
            let set = &self.sets[i % self.sets.len()];
            queue(&self.rig.device, request(set, self.dtype), set[2].slice(), self.workspace.slice(), stream)
        })
    }

    /// Fails unless each output that was written is `once` over and over, to the last bit.
    pub fn check(&self, once: &[u8]) -> Result<()> {
        for [_, out, status] in self.sets.iter().take(self.rig.repeats) {
            said(status)?;
            is_repeated(out, once)?;
        }
        Ok(())
    }
}

fn request(set: &[Buffer; 3], dtype: Dtype) -> DecodeRequest {
    DecodeRequest::new(set[0].slice(), set[1].slice(), dtype)
}

/// What the device says of a call that is over.
fn said(status: &Buffer) -> Result<()> {
    let mut bytes = [0u8; size_of::<Status>()];
    status.read(&mut bytes, Stream::DEFAULT)?;
    Ok(Status::from_bytes(bytes).check()?)
}

fn is_repeated(out: &Buffer, once: &[u8]) -> Result<()> {
    let mut found = vec![0u8; out.slice().len];
    out.read(&mut found, Stream::DEFAULT)?;
    ensure!(
        !once.is_empty() && found.chunks(once.len()).all(|c| c == once),
        "decoded to other values than on the CPU"
    );
    Ok(())
}

fn queue(
    device: &Device,
    request: DecodeRequest,
    status: DeviceSlice,
    workspace: DeviceSlice,
    stream: Stream,
) -> Result<()> {
    let settings = DecodeSettings::default();
    // SAFETY: callers pass memory of buffers that they own and drop only after they waited for the stream; calls that
    // share a workspace share a stream.
    unsafe { decode(device, &[request], &settings, status, workspace, stream)? };
    Ok(())
}

/// A stream with a place for one blob on its way, and what decoding it there needs.
struct Lane {
    stream: OwnedStream,
    blob: Buffer,
    status: Buffer,
    workspace: Buffer,
}

/// Blobs in host memory that go to the device and are decoded there, copies and kernels side by side.
pub(super) struct Pipeline<'a> {
    rig: &'a Rig,
    lanes: Vec<Lane>,
    outs: Vec<Buffer>,
    dtype: Dtype,
}

impl<'a> Pipeline<'a> {
    /// Room for `count` tensors of `out` bytes that come as blobs of `blob` bytes, over `lanes` streams.
    pub fn new(
        rig: &'a Rig,
        lanes: usize,
        count: usize,
        blob: usize,
        dtype: Dtype,
        out: usize,
    ) -> Result<Pipeline<'a>> {
        let device = &rig.device;
        let outs: Vec<Buffer> =
            (0..count).map(|_| Buffer::new(device, out)).collect::<tenfold_cuda::Result<_>>()?;
        let lane = || -> tenfold_cuda::Result<Lane> {
            let blob = Buffer::new(device, blob)?;
            let request = DecodeRequest::new(blob.slice(), DeviceSlice::new(0, out), dtype);
            Ok(Lane {
                stream: OwnedStream::new(device)?,
                workspace: Buffer::new(device, decode_workspace_len(&[request]))?,
                status: Buffer::from_slice(device, &[0xff; size_of::<Status>()])?,
                blob,
            })
        };
        let lanes = (0..lanes).map(|_| lane()).collect::<tenfold_cuda::Result<_>>()?;
        Ok(Pipeline { rig, lanes, outs, dtype })
    }

    /// Sends and decodes all blobs, one an output, and waits. While one lane copies, the others decode.
    pub fn run(&self, blobs: &[&[u8]]) -> Result<()> {
        let device = &self.rig.device;
        for (i, (blob, out)) in blobs.iter().zip(&self.outs).enumerate() {
            let lane = &self.lanes[i % self.lanes.len()];
            let stream = lane.stream.stream();
            // SAFETY: the lane's memory is used by its own stream alone, in order; all is waited for below.
            unsafe { device.copy_in(lane.blob.slice(), blob, stream)? };
            let request = DecodeRequest::new(lane.blob.slice(), out.slice(), self.dtype);
            queue(device, request, lane.status.slice(), lane.workspace.slice(), stream)?;
        }
        for lane in &self.lanes {
            device.synchronize(lane.stream.stream())?;
        }
        Ok(())
    }

    /// Fails unless every output is `once` over and over.
    pub fn check(&self, once: &[u8]) -> Result<()> {
        self.lanes.iter().take(self.outs.len()).try_for_each(|lane| said(&lane.status))?;
        self.outs.iter().try_for_each(|out| is_repeated(out, once))
    }
}

//! Blobs of the host, on their way and decoded at the same time.

use anyhow::Result;
use tenfold::Dtype;
use tenfold_cuda::{Buffer, DecodeRequest, DeviceSlice, OwnedStream, Status, decode_workspace_len};

use super::decoding::queue;
use super::{Rig, is_repeated, said};

/// A stream with a place for one blob on its way, and what decoding it there needs.
struct Lane {
    stream: OwnedStream,
    blob: Buffer,
    status: Buffer,
    workspace: Buffer,
}

/// Blobs in host memory that go to the device and are decoded there, copies and kernels side by side.
pub(in crate::bench::cuda) struct Pipeline<'a> {
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
        self.lanes.iter().take(self.outs.len()).try_for_each(|lane| said(&lane.status).map(|_| ()))?;
        self.outs.iter().try_for_each(|out| is_repeated(out, once))
    }
}

//! Decoding on the device, call after call.

use anyhow::Result;
use tenfold::Dtype;
use tenfold_cuda::{
    Buffer, DecodeRequest, DecodeSettings, Device, DeviceSlice, Status, Stream, decode, decode_workspace_len,
};

use super::{Rig, Times, is_repeated, said};

/// One blob on the device, as often as calls rotate over, with room for what it decodes to.
pub(in crate::bench::cuda) struct Decoding<'a> {
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

/// Queues one decoding.
pub(super) fn queue(
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

//! Encoding on the device, call after call.

use anyhow::{Result, ensure};
use tenfold::{EncodeOptions, Tensor};
use tenfold_cuda::{Buffer, EncodeRequest, Status, Stream, encode, encode_workspace_len};

use super::{Rig, Times, read_status, repeat};

/// One tensor on the device, as often as calls rotate over, and room for its blob.
pub(in crate::bench::cuda) struct Encoding<'a> {
    rig: &'a Rig,
    /// Memory that the requests speak of.
    _tensors: Vec<Buffer>,
    requests: Vec<EncodeRequest>,
    out: Buffer,
    status: Buffer,
    workspace: Buffer,
}

impl<'a> Encoding<'a> {
    /// `once`, stacked `times` times along its first dimension.
    pub fn new(rig: &'a Rig, once: &Tensor, times: usize, options: EncodeOptions) -> Result<Encoding<'a>> {
        let device = &rig.device;
        let mut shape = once.shape.clone();
        shape[0] *= times;
        let bytes = once.data.len() * times;
        let tensors: Vec<Buffer> =
            (0..rig.sets(bytes)).map(|_| repeat(device, &once.data, times)).collect::<Result<_>>()?;
        let out = Buffer::new(device, tenfold::format::max_encoded_len(once.dtype, &shape)?)?;
        let request = |tensor: &Buffer| {
            EncodeRequest::new(tensor.slice(), once.dtype, &shape, out.slice(), options.clone())
        };
        let requests: Vec<EncodeRequest> = tensors.iter().map(request).collect();
        let workspace = Buffer::new(device, encode_workspace_len(device, &requests[0])?)?;
        let status = Buffer::from_slice(device, &[0xff; size_of::<Status>()])?;
        Ok(Encoding { rig, _tensors: tensors, requests, out, status, workspace })
    }

    /// Encodes call after call, each another copy of the tensor in turn.
    pub fn time(&self) -> Result<Times> {
        self.rig.time(|i, stream| {
            let request = &self.requests[i % self.requests.len()];
            let (status, workspace) = (self.status.slice(), self.workspace.slice());
            // SAFETY: all of it is ours, used by one stream alone, and lives until `time` has waited.
            unsafe { encode(&self.rig.device, request, status, workspace, stream)? };
            Ok(())
        })
    }

    /// The blob of the last call.
    pub fn blob(&self) -> Result<Vec<u8>> {
        let len = usize::try_from(read_status(&self.status)?.size)?;
        ensure!(len <= self.out.slice().len, "a blob of {len} bytes, more than it had room for");
        let mut blob = vec![0u8; len];
        self.out.read(&mut blob, Stream::DEFAULT)?;
        Ok(blob)
    }
}

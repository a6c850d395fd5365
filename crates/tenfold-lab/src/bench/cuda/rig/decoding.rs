//! Decoding on the device, call after call.

use anyhow::{Result, ensure};
use tenfold::format::BlobInfo;
use tenfold::{Dtype, inspect};
use tenfold_cuda::{Buffer, DecodeRequest, DecodeSettings, Order, Status, decode, decode_workspace_len};

use super::{Rig, Times, is_repeated, read_status};

/// One blob on the device, as often as calls rotate over, with room for what it decodes to.
pub(in crate::bench::cuda) struct Decoding<'a> {
    rig: &'a Rig,
    /// Blob, output, status.
    sets: Vec<[Buffer; 3]>,
    workspace: Buffer,
    wanted: (Dtype, Order),
    info: BlobInfo,
    settings: DecodeSettings,
}

impl<'a> Decoding<'a> {
    /// Room for a tensor of a dtype and so many bytes, whose values are wanted in this order.
    pub fn new(
        rig: &'a Rig,
        blob: &[u8],
        (dtype, order, out): (Dtype, Order, usize),
        settings: DecodeSettings,
    ) -> Result<Decoding<'a>> {
        let device = &rig.device;
        let set = || -> tenfold_cuda::Result<[Buffer; 3]> {
            let status = Buffer::from_slice(device, &[0xff; size_of::<Status>()])?;
            Ok([Buffer::from_slice(device, blob)?, Buffer::new(device, out)?, status])
        };
        let sets: Vec<_> =
            (0..rig.sets(blob.len() + out)).map(|_| set()).collect::<tenfold_cuda::Result<_>>()?;
        let info = inspect(blob)?;
        let wanted = (dtype, order);
        let request = request(&sets[0], wanted, &info);
        let workspace = Buffer::new(device, decode_workspace_len(&[request]))?;
        Ok(Decoding { rig, sets, workspace, wanted, info, settings })
    }

    /// Decodes call after call, each to an output of its own in turn.
    pub fn time(&self) -> Result<Times> {
        self.rig.time(|i, stream| {
            let set = &self.sets[i % self.sets.len()];
            let (request, device) = (request(set, self.wanted, &self.info), &self.rig.device);
            let (status, workspace) = (set[2].slice(), self.workspace.slice());
            // SAFETY: all of it is ours, used by one stream alone, and lives until `time` has waited.
            unsafe { decode(device, &[request], &self.settings, status, workspace, stream)? };
            Ok(())
        })
    }

    /// Fails unless each output that was written is `once` over and over, to the last bit.
    pub fn check(&self, once: &[u8]) -> Result<()> {
        for [_, out, status] in self.sets.iter().take(self.rig.repeats) {
            read_status(status)?;
            ensure!(is_repeated(out, once)?, "decoded to other values than on the CPU");
        }
        Ok(())
    }
}

/// Whoever has a blob in Python or as a file has read its header.
fn request(set: &[Buffer; 3], (dtype, order): (Dtype, Order), info: &BlobInfo) -> DecodeRequest {
    DecodeRequest::new(set[0].slice(), set[1].slice(), dtype).with_info(info).with_order(order)
}

//! A blob of the host, on its way and decoded at the same time.

use anyhow::{Result, ensure};
use tenfold::Dtype;
use tenfold_cuda::{Buffer, DecodeSettings, Pinned, Upload};

use super::{Rig, Times, is_repeated};

/// One blob in pinned memory, again and again to a tensor on the device.
pub(in crate::bench::cuda) struct Pipeline<'a> {
    rig: &'a Rig,
    blob: Pinned,
    out: Buffer,
    dtype: Dtype,
}

impl<'a> Pipeline<'a> {
    /// Room for a tensor of `out` bytes.
    pub fn new(rig: &'a Rig, blob: &[u8], dtype: Dtype, out: usize) -> Result<Pipeline<'a>> {
        let mut pinned = Pinned::new(&rig.device, blob.len())?;
        pinned.copy_from_slice(blob);
        Ok(Pipeline { rig, blob: pinned, out: Buffer::new(&rig.device, out)?, dtype })
    }

    /// Times whole ways: the first byte leaves the host after the start, the last value is there before the end.
    pub fn time(&self) -> Result<Times> {
        let mut upload = Upload::new(&self.rig.device)?;
        let settings = DecodeSettings::default();
        let times = self.rig.time(|_, stream| {
            // SAFETY: the blob and the output are ours and live until `time` has waited; one call follows the other
            // on one stream.
            unsafe {
                upload.queue(&self.blob, self.blob.len(), self.out.slice(), self.dtype, &settings, stream)?;
            }
            Ok(())
        })?;
        upload.check(self.rig.stream.stream())?;
        Ok(times)
    }

    /// Fails unless the output is `once` over and over.
    pub fn check(&self, once: &[u8]) -> Result<()> {
        ensure!(is_repeated(&self.out, once)?, "decoded to other values than on the CPU");
        Ok(())
    }
}

//! Who gets the pictures of a tensor: kernels, on the lane's stream, that write elements and checksums.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenfold_cuda::{
    Device, DeviceSlice, OwnedEvent, PictureValues, Samples, Stream as CudaStream, store_picture,
};
use tenfold_video::Standard;

use super::plan::Plan;
use super::scratch::{Lent, Scratch};
use crate::error::{Error, Result};
use crate::nvdec::{Frame, Receiver};

/// Checksums of the samples that were decoded.
pub(super) struct Checks {
    lent: Mutex<Lent>,
    count: usize,
}

impl Checks {
    /// Queues zeros for so many pictures.
    pub(super) fn new(scratch: &Arc<Scratch>, count: usize, stream: CudaStream) -> Result<Arc<Checks>> {
        let lent = scratch.lend(count)?;
        if let Some(words) = &lent.words {
            let zeros = &words.host[..count * 4];
            // SAFETY: both live as long as the checks, and the caller's stream passes this before lanes start.
            unsafe { scratch.device().copy_in(words.device.slice(), zeros, stream)? };
        }
        Ok(Arc::new(Checks { lent: Mutex::new(lent), count }))
    }

    fn lock(&self) -> MutexGuard<'_, Lent> {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the checksum of a picture is made.
    fn word(&self, number: usize) -> Result<DeviceSlice> {
        let lent = self.lock();
        let words = lent.words.as_ref().ok_or_else(gone)?;
        Ok(words.device.slice().part(number * 4, 4)?)
    }

    /// Queues the copy of a checksum to the host.
    fn fetch(&self, device: &Device, number: usize, stream: CudaStream) -> Result<()> {
        let mut lent = self.lock();
        let words = lent.words.as_mut().ok_or_else(gone)?;
        let from = words.device.slice().part(number * 4, 4)?;
        let to = words.host.get_mut(number * 4..number * 4 + 4).ok_or_else(gone)?;
        // SAFETY: pinned memory, which goes back only once the lanes are done with the stream.
        unsafe { device.copy_out(to, from, stream)? };
        Ok(())
    }

    /// Holds them against what the blob says.
    pub(super) fn compare(&self, standard: Standard, said: &[u32]) -> Result<()> {
        let lent = self.lock();
        let words = lent.words.as_ref().ok_or_else(gone)?;
        let found = words.host.as_chunks::<4>().0.iter().take(self.count).map(|b| u32::from_le_bytes(*b));
        for (i, (found, &said)) in found.zip(said).enumerate() {
            if found != said {
                let reason = format!("picture {i} decodes to other samples than were written");
                return Err(Error::Stream { standard, reason });
            }
        }
        Ok(())
    }
}

fn gone() -> Error {
    Error::InvalidArgument("the room for checksums is gone".into())
}

/// Turns the pictures of one blob into values.
pub(super) struct TensorReceiver {
    device: Device,
    samples: Samples,
    values: usize,
    picture: usize,
    to: DeviceSlice,
    dtype: tenfold::Dtype,
    checks: Arc<Checks>,
    /// What the caller had queued before.
    before: OwnedEvent,
}

impl TensorReceiver {
    pub(super) fn new(
        device: &Device,
        plan: &Plan,
        checks: &Arc<Checks>,
        stream: CudaStream,
    ) -> Result<TensorReceiver> {
        let before = OwnedEvent::new(device, false)?;
        before.record(stream)?;
        Ok(TensorReceiver {
            device: device.clone(),
            samples: plan.samples,
            values: plan.values,
            picture: plan.params.format.samples(),
            to: plan.to,
            dtype: plan.dtype,
            checks: checks.clone(),
            before,
        })
    }
}

impl Receiver for TensorReceiver {
    fn start(&self, stream: CudaStream) -> Result<()> {
        Ok(self.before.hold(stream)?)
    }

    fn take(&self, number: usize, frame: &Frame, stream: CudaStream) -> Result<()> {
        let first = number.saturating_mul(self.picture).min(self.values);
        let count = self.picture.min(self.values - first);
        let size = self.dtype.size();
        let values = PictureValues {
            first: first as u64,
            skip: 0,
            count: u32::try_from(count)
                .map_err(|_| Error::Unsupported("pictures of so many samples".into()))?,
            dtype: self.dtype,
            to: self.to.part(first * size, count * size)?,
        };
        let check = self.checks.word(number)?;
        // SAFETY: the engine's picture, which stays mapped until the stream has passed this, and the tensor, which the caller
        // of `submit` leaves to us.
        unsafe { store_picture(&self.device, &frame.luma, &self.samples, &values, check, stream)? };
        self.checks.fetch(&self.device, number, stream)
    }
}

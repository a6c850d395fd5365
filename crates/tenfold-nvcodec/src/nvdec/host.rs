//! Pictures to host memory, for callers that have no device memory.

use std::sync::{Arc, Mutex, PoisonError};

use tenfold_cuda::{Device, DeviceSlice, Stream as CudaStream};

use super::stream::{Frame, Receiver};
use crate::error::Result;

/// Room for the samples of pictures of one size.
pub(crate) struct HostPictures {
    device: Device,
    samples: Arc<Mutex<Vec<u16>>>,
    each: usize,
}

impl HostPictures {
    /// A receiver, and where it puts samples.
    pub(crate) fn new(device: &Device, each: usize, count: usize) -> (HostPictures, Arc<Mutex<Vec<u16>>>) {
        let samples = Arc::new(Mutex::new(vec![0; each * count]));
        (HostPictures { device: device.clone(), samples: samples.clone(), each }, samples)
    }
}

impl Receiver for HostPictures {
    fn start(&self, _: CudaStream) -> Result<()> {
        Ok(())
    }

    fn take(&self, number: usize, frame: &Frame, stream: CudaStream) -> Result<()> {
        let luma = &frame.luma;
        let (width, height, pitch) = (luma.width as usize, luma.height as usize, luma.pitch as usize);
        let size = if luma.depth > 8 { 2 } else { 1 };
        let len = pitch * height.saturating_sub(1) + width * size;
        let mut bytes = vec![0u8; len];
        // SAFETY: the engine's picture, whose lines are so far apart; the wait comes before either is gone.
        unsafe { self.device.copy_out(&mut bytes, DeviceSlice::new(luma.address, len), stream)? };
        self.device.synchronize(stream)?;
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let picture = samples.chunks_exact_mut(self.each.max(1)).nth(number).unwrap_or_default();
        for (line, out) in bytes.chunks(pitch).zip(picture.chunks_exact_mut(width)) {
            if size == 1 {
                out.iter_mut().zip(line).for_each(|(o, &s)| *o = u16::from(s));
            } else {
                let shift = 16 - luma.depth;
                out.iter_mut()
                    .zip(line.as_chunks::<2>().0)
                    .for_each(|(o, s)| *o = u16::from_le_bytes(*s) >> shift);
            }
        }
        Ok(())
    }
}

//! Blobs of pictures into tensors on the device, without a detour by the host.
//!
//! A blob's header and checksums are read on the host, and its pictures go to the lanes. As each is decoded, a kernel on the lane's
//! stream turns its samples into elements in their place, and another makes the checksum of the samples, which the host compares
//! with the blob's. What concerns the tensor as a whole, transforms and elements that no sample holds, is queued on the caller's
//! stream at the end.

mod plan;
mod receiver;
mod scratch;

use std::sync::Arc;

use tenfold::{DecodeOptions, Dtype, Tensor};
use tenfold_cuda::{Buffer, Device, DeviceSlice, OwnedStream, Stream};

use self::plan::Plan;
use self::receiver::{Checks, TensorReceiver};
use self::scratch::Scratch;
use crate::cuvid::Cuvid;
use crate::error::{Error, Result};
use crate::nvdec::{self, Caps, Counters, HostPictures, LaneSettings, Lanes, Submitted};

/// Decodes blobs of H.264, H.265 and AV1 on a GPU's engines. It keeps threads for the engines, and decoders for the next blob:
/// make one and keep it. All functions may be called from several threads at once.
pub struct Decoder {
    device: Device,
    lanes: Lanes,
    scratch: Arc<Scratch>,
}

/// Where the tensor of a blob goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Output {
    /// Memory for exactly the tensor's elements, at a multiple of 16.
    pub memory: DeviceSlice,
    /// Their dtype: that of the blob, or for floats of up to 32 bits any such.
    pub dtype: Dtype,
}

/// A blob that is being decoded. Dropping it gives it up, and waits until nothing is written for it any more. It may outlive its
/// [`Decoder`], which decodes what it was given before it closes.
#[must_use]
pub struct Pending {
    device: Device,
    plan: Plan,
    output: Output,
    submitted: Option<Submitted>,
    checks: Arc<Checks>,
}

impl Decoder {
    /// Opens the engines of a device. Fails with [`Error::LibraryMissing`] where the driver has no library for them, and with
    /// [`Error::NoEngine`] where the device has none.
    pub fn new(device: &Device) -> Result<Decoder> {
        Decoder::with_settings(device, LaneSettings::default())
    }

    /// The same with other settings.
    pub fn with_settings(device: &Device, settings: LaneSettings) -> Result<Decoder> {
        Decoder::with_api(Cuvid::get()?, device, settings)
    }

    pub(crate) fn with_api(api: &'static Cuvid, device: &Device, settings: LaneSettings) -> Result<Decoder> {
        let engines = count_engines(api, device)?;
        let lanes = Lanes::start(api, device, settings, engines)?;
        let scratch = Arc::new(Scratch::new(device));
        Ok(Decoder { device: device.clone(), lanes, scratch })
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// What was done so far, and how many decoders are open.
    pub fn counters(&self) -> Counters {
        self.lanes.counters()
    }

    /// Starts decoding a blob into device memory. Work that is on the stream now comes before anything is written. The blob is
    /// checked before this returns: its header and every checksum, and that its streams are what it says.
    ///
    /// # Safety
    /// `output` is memory of this device that nobody reads or writes, other than work that is on the stream already, until
    /// [`Pending::result`] has returned or the value was dropped. A value that is forgotten in place of dropped never lets go.
    pub unsafe fn submit(
        &self,
        blob: &[u8],
        output: Output,
        options: &DecodeOptions,
        stream: Stream,
    ) -> Result<Pending> {
        let (plan, pictures) = Plan::read(&self.device, blob, output, options)?;
        let checks = Checks::new(&self.scratch, pictures.len(), stream)?;
        // A tensor without values has no pictures, and no parameter sets either.
        let submitted = match pictures.is_empty() {
            true => None,
            false => {
                let receiver = TensorReceiver::new(&self.device, &plan, &checks, stream)?;
                let (sets, receiver) = (plan.params.parameter_sets.clone(), Box::new(receiver));
                let stream = nvdec::Stream::new(plan.standard, plan.params.format, sets, pictures, receiver)?;
                Some(self.lanes.submit(&stream)?)
            }
        };
        Ok(Pending { device: self.device.clone(), plan, output, submitted, checks })
    }

    /// Decodes a blob into device memory: [`Decoder::submit`] and [`Pending::result`] at once.
    ///
    /// # Safety
    /// As for [`Decoder::submit`]; the memory is left alone until the stream has passed this call.
    pub unsafe fn decode_into(
        &self,
        blob: &[u8],
        output: Output,
        options: &DecodeOptions,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.submit(blob, output, options, stream)?.result(stream) }
    }

    /// Decodes a blob into a new tensor of the host's, by way of device memory.
    pub fn decode(&self, blob: &[u8], options: &DecodeOptions) -> Result<Tensor> {
        let info = tenfold::inspect(blob)?;
        let len = plan::tensor_len(blob, options)?;
        let stream = OwnedStream::new(&self.device)?;
        let memory = Buffer::new(&self.device, len.max(16))?;
        let output = Output { memory: memory.slice().part(0, len)?, dtype: info.dtype };
        let mut data = vec![0; len];
        // SAFETY: the memory is ours, and is read only behind the decoding.
        unsafe { self.decode_into(blob, output, options, stream.stream())? };
        memory.read(&mut data, stream.stream())?;
        Ok(Tensor { dtype: info.dtype, shape: info.shape, data })
    }

    /// Decodes pictures of a format to host memory.
    pub(crate) fn decode_samples(
        &self,
        standard: tenfold_video::Standard,
        format: &tenfold_video::codec::Format,
        parameter_sets: &[u8],
        pictures: &[&[u8]],
        out: &mut [u16],
    ) -> Result<()> {
        if out.len() != format.samples().saturating_mul(pictures.len()) {
            let reason = format!("{} samples for {} pictures", out.len(), pictures.len());
            return Err(Error::Stream { standard, reason });
        }
        if pictures.is_empty() {
            return Ok(());
        }
        let (receiver, samples) = HostPictures::new(&self.device, format.samples(), pictures.len());
        let pictures = pictures.iter().map(|p| p.to_vec()).collect();
        let stream =
            nvdec::Stream::new(standard, *format, parameter_sets.to_vec(), pictures, Box::new(receiver))?;
        self.lanes.submit(&stream)?.wait()?;
        out.copy_from_slice(&samples.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        Ok(())
    }
}

/// Engines of a device that decode anything of ours.
fn count_engines(api: &'static Cuvid, device: &Device) -> Result<usize> {
    use crate::cuvid::abi;
    let mut most = 0;
    for codec in [abi::CODEC_HEVC, abi::CODEC_H264, abi::CODEC_AV1] {
        if let Some(caps) = Caps::ask(api, device, (codec, abi::CHROMA_420, 8))? {
            most = most.max(caps.engines as usize);
        }
    }
    match most {
        0 => {
            let name = &device.properties().name;
            Err(Error::NoEngine(format!("{name} has no engine that decodes H.264, H.265 or AV1")))
        }
        count => Ok(count),
    }
}

impl Pending {
    /// Whether [`Pending::result`] would return without waiting for an engine.
    pub fn is_ready(&self) -> bool {
        self.submitted.as_ref().is_none_or(Submitted::is_done)
    }

    /// Waits for the pictures, compares their checksums, and queues what concerns the whole tensor on the stream: once the
    /// stream has passed this, the tensor is there. After an error the memory's content means nothing; after [`Error::Timeout`] the
    /// device may still write to it.
    pub fn result(mut self, stream: Stream) -> Result<()> {
        if let Some(submitted) = &self.submitted {
            submitted.wait()?;
            self.checks.compare(self.plan.standard, &self.plan.checks)?;
        }
        // Nothing is left to be given up.
        self.submitted = None;
        // SAFETY: the promise of `submit`.
        unsafe { self.plan.finish(&self.device, self.output, stream) }
    }

    /// Gives it up, as dropping does, and says whether nothing is written any more. Where an engine does not answer that is unknown,
    /// and the memory must not be used for anything else.
    pub fn abandon(mut self) -> bool {
        self.submitted.take().is_none_or(|submitted| submitted.abandon())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(submitted) = self.submitted.take() {
            submitted.abandon();
        }
    }
}

//! NVENC as one encoder of `tenfold-video` among others.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tenfold_cuda::Device;
use tenfold_video::codec::{Abilities, Coded, Settings};
use tenfold_video::{Chroma, Error as VideoError, Standard};

use super::api::Nvenc;
use super::encoder::Encoder;
use super::setup::max_qp;
use crate::error::{Error, Result};

const NAME: &str = "nvenc";

/// The engines of the first device, for a standard.
struct Engine(Standard);

static ALL: [Engine; 3] = [Engine(Standard::H264), Engine(Standard::H265), Engine(Standard::Av1)];

/// Makes NVENC known to `tenfold-video`; called once in a process.
pub(crate) fn register() {
    tenfold_video::add_encoders(&ALL.each_ref().map(|e| e as &dyn tenfold_video::codec::Encoder));
}

static SHARED: Mutex<Option<Encoder>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<Encoder>> {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The encoder that all pictures of the host's go through: opened when first needed and kept.
fn shared() -> Result<Encoder> {
    let mut shared = lock();
    if let Some(open) = &*shared {
        return Ok(open.clone());
    }
    // The library first: it is quicker to miss than a device.
    Nvenc::get()?;
    let open = Encoder::new(&Device::open(0)?)?;
    *shared = Some(open.clone());
    Ok(open)
}

/// Makes pictures of the host's go through the engines of this device: tests have one that the driver does not list. Without a
/// device sessions are closed, and the first device is opened when it is needed.
pub fn use_device(device: Option<&Device>) -> Result<()> {
    use_encoder(device.map(Encoder::new).transpose()?);
    Ok(())
}

/// The same with an encoder that is open.
pub(crate) fn use_encoder(encoder: Option<Encoder>) {
    let before = std::mem::replace(&mut *lock(), encoder);
    // Closing waits; not under the lock.
    drop(before);
}

fn missing(error: Error) -> VideoError {
    let text = error.to_string();
    // The error around it says so already.
    let reason = text.trim_start_matches("not available: ").to_string();
    VideoError::NotAvailable { name: NAME.into(), reason }
}

/// An error in `tenfold-video`'s words.
fn translate(error: Error) -> VideoError {
    match error {
        Error::Video(e) => e,
        Error::LibraryMissing { .. }
        | Error::SymbolMissing { .. }
        | Error::Version { .. }
        | Error::NoEngine(_)
        | Error::NoSession => missing(error),
        Error::Cuda(e @ tenfold_cuda::Error::OutOfMemory { .. }) => VideoError::Tensor(e.into()),
        other => VideoError::Codec { name: NAME.into(), reason: other.to_string() },
    }
}

impl tenfold_video::codec::Encoder for Engine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn standard(&self) -> Standard {
        self.0
    }

    fn abilities(&self) -> tenfold_video::Result<Abilities> {
        let encoder = shared().map_err(missing)?;
        let can = encoder.can(self.0).map_err(missing)?;
        // NVDEC reads no picture without chroma, so that it comes second even where it can be written.
        let mut chroma = vec![Chroma::Constant];
        chroma.extend(can.monochrome.then_some(Chroma::None));
        Ok(Abilities {
            depths: if can.ten_bits { vec![8, 10] } else { vec![8] },
            chroma,
            qp: 0..=max_qp(self.0),
            lossless: can.lossless,
            // Even, as pictures with chroma must be.
            min_side: can.min.0.max(can.min.1).next_multiple_of(2) as usize,
            max_side: can.max.0.min(can.max.1) as usize,
        })
    }

    fn encode(&self, settings: &Settings, pictures: &[&[u16]]) -> tenfold_video::Result<Coded> {
        let encoder = shared().map_err(missing)?;
        encoder.encode(self.0, settings, pictures).map_err(translate)
    }
}

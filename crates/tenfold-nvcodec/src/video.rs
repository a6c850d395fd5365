//! NVDEC as one decoder of `tenfold-video` among others.

use std::sync::{Arc, Mutex, Once, PoisonError};

use tenfold_cuda::Device;
use tenfold_video::codec::{Format, stream};
use tenfold_video::{Chroma, Standard};

use crate::decode::Decoder;
use crate::error::{Error, Result};
use crate::nvenc::Encoder;

/// The engines of the first device, for a standard.
struct Nvdec(Standard);

static ALL: [Nvdec; 3] = [Nvdec(Standard::H264), Nvdec(Standard::H265), Nvdec(Standard::Av1)];

/// Makes NVDEC and NVENC known to `tenfold-video` under the names `nvdec` and `nvenc`, once in a process. Costs nothing where there
/// is none.
pub fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        crate::nvenc::register();
        tenfold_video::add_decoders(&ALL.each_ref().map(|d| d as &dyn tenfold_video::codec::Decoder));
    });
}

static SHARED: Mutex<Option<Arc<Decoder>>> = Mutex::new(None);

/// Makes pictures of the host's go through these engines; none opens those of the first device when they are needed. Whoever
/// works with several devices sees to it that nobody else calls this meanwhile.
pub fn use_engines(decoder: Option<Arc<Decoder>>, encoder: Option<Encoder>) {
    crate::nvenc::use_encoder(encoder);
    let before = std::mem::replace(&mut *SHARED.lock().unwrap_or_else(PoisonError::into_inner), decoder);
    // Closing waits; not under the lock.
    drop(before);
}

/// The decoder that all pictures of the host's go through: opened when first needed and kept.
fn shared() -> Result<Arc<Decoder>> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(open) = &*shared {
        return Ok(open.clone());
    }
    // The library first: it is quicker to miss than a device.
    crate::cuvid::Cuvid::get()?;
    let open = Arc::new(Decoder::new(&Device::open(0)?)?);
    *shared = Some(open.clone());
    Ok(open)
}

fn missing(error: Error) -> tenfold_video::Error {
    tenfold_video::Error::NotAvailable { name: "nvdec".into(), reason: error.to_string() }
}

impl tenfold_video::codec::Decoder for Nvdec {
    fn name(&self) -> &'static str {
        "nvdec"
    }

    fn standard(&self) -> Standard {
        self.0
    }

    /// That a driver lists an engine says little: it decodes a picture of middle gray.
    fn probe(&self) -> tenfold_video::Result<()> {
        let decoder = shared().map_err(missing)?;
        let format = Format { width: 256, height: 256, depth: 8, chroma: Chroma::Constant };
        let split = stream::split(self.0, stream::gray(self.0));
        let (sets, picture) = split.map_err(|reason| missing(Error::Stream { standard: self.0, reason }))?;
        let mut out = vec![0; format.samples()];
        decoder.decode_samples(self.0, &format, &sets, &[&picture], &mut out).map_err(missing)?;
        match out.iter().all(|&s| s == 128) {
            true => Ok(()),
            false => Err(missing(Error::Unsupported("a test picture decodes to wrong samples".into()))),
        }
    }

    fn decode(
        &self,
        format: &Format,
        parameter_sets: &[u8],
        pictures: &[&[u8]],
        out: &mut [u16],
    ) -> tenfold_video::Result<()> {
        let decoder = shared().map_err(missing)?;
        Ok(decoder.decode_samples(self.0, format, parameter_sets, pictures, out)?)
    }
}

impl From<Error> for tenfold_video::Error {
    fn from(error: Error) -> tenfold_video::Error {
        use tenfold_video::Error as Video;
        let name = || "nvdec".to_string();
        match error {
            Error::Video(e) => e,
            Error::Stream { standard, reason } => Video::Stream { standard, reason },
            Error::Unsupported(reason) => Video::Refused { name: name(), reason },
            Error::LibraryMissing { .. }
            | Error::SymbolMissing { .. }
            | Error::Version { .. }
            | Error::NoEngine(_) => Video::NotAvailable { name: name(), reason: error.to_string() },
            Error::Cuda(e @ tenfold_cuda::Error::OutOfMemory { .. }) => Video::Tensor(e.into()),
            other => Video::Codec { name: name(), reason: other.to_string() },
        }
    }
}

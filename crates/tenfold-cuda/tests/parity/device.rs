//! The devices under test.

use std::sync::{Arc, OnceLock};

use tenfold::{DecodeOptions, Dtype};
use tenfold_cuda::{
    Buffer, CudaEngine, DecodeRequest, DecodeSettings, Device, Status, Stream, decode, decode_workspace_len,
};

/// A device that may not be there.
#[derive(Clone)]
pub struct Subject {
    name: &'static str,
    make: fn() -> tenfold_cuda::Result<Device>,
    engine: Arc<OnceLock<tenfold_cuda::Result<CudaEngine>>>,
}

pub fn subjects() -> Vec<Subject> {
    let subject = |name, make| Subject { name, make, engine: Arc::default() };
    vec![
        #[cfg(feature = "emulator")]
        subject("emulator", || Ok(Device::emulated(4 << 30))),
        subject("cuda", || Device::open(0)),
    ]
}

impl Subject {
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Real devices take larger cases.
    pub fn is_real(&self) -> bool {
        self.name == "cuda"
    }

    pub fn open(&self) -> Result<&CudaEngine, String> {
        let made = self.engine.get_or_init(|| CudaEngine::new((self.make)()?));
        made.as_ref().map_err(|e| match e {
            tenfold_cuda::Error::NoDevice(_) => "no CUDA device".to_string(),
            other => other.to_string(),
        })
    }

    pub fn engine(&self) -> &CudaEngine {
        self.open().unwrap()
    }

    pub fn device(&self) -> &Device {
        self.engine().device()
    }

    /// Decodes `count` values of a blob as the device alone sees it: no header is read on the host.
    pub fn decode_raw(
        &self,
        blob: &[u8],
        dtype: Dtype,
        first: u64,
        count: Option<u64>,
        len: usize,
    ) -> tenfold::engine::Result<Vec<u8>> {
        let settings = DecodeSettings::default().with_limits(DecodeOptions::default().limits);
        self.decode_by(blob, dtype, len, &settings, |mut request| {
            request.values = (first, count);
            request
        })
    }

    /// The same by a request as `change` makes it.
    pub fn decode_by(
        &self,
        blob: &[u8],
        dtype: Dtype,
        len: usize,
        settings: &DecodeSettings,
        change: impl FnOnce(DecodeRequest) -> DecodeRequest,
    ) -> tenfold::engine::Result<Vec<u8>> {
        let device = self.device();
        let on_device = Buffer::from_slice(device, blob).unwrap();
        let out = Buffer::from_slice(device, &vec![0xa5; len]).unwrap();
        let status = Buffer::new(device, 16).unwrap();
        let request = change(DecodeRequest::new(on_device.slice(), out.slice(), dtype));
        let workspace = Buffer::new(device, decode_workspace_len(&[request])).unwrap();
        // SAFETY: all of it is ours and lives to the end of this function.
        unsafe {
            decode(device, &[request], settings, status.slice(), workspace.slice(), Stream::DEFAULT).unwrap();
        }
        let mut said = [0; 16];
        status.read(&mut said, Stream::DEFAULT).unwrap();
        Status::from_bytes(said).check()?;
        let mut bytes = vec![0; len];
        out.read(&mut bytes, Stream::DEFAULT).unwrap();
        Ok(bytes)
    }
}

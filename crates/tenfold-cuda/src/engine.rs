//! The owned form: [`tenfold::engine::Engine`] for host tensors and host blobs.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tenfold::calibrated::{Calibrated, Curvature};
use tenfold::engine::{Capabilities, Elements, Engine, Layered, Scratch};
use tenfold::format::BlobInfo;
use tenfold::{DecodeOptions, EncodeOptions, Tensor, TensorView};

use crate::codec::DeviceCodec;
use crate::decode::{DecodeSettings, can_decode};
use crate::device::{Device, DeviceSlice};
use crate::error::Result;
use crate::memory::{FromPool, Pool, Pooled, Taken};
use crate::stream::OwnedStream;
use crate::upload::Upload;

/// A device as an engine. It keeps the memory of earlier calls for the next, and does one call at a time.
pub struct CudaEngine {
    device: Device,
    stream: OwnedStream,
    pool: Pool,
    /// Blobs on their way to the device; locked while a call goes on.
    upload: Mutex<Option<Upload>>,
}

impl CudaEngine {
    /// Opens a device by its number.
    pub fn open(ordinal: u32) -> Result<CudaEngine> {
        CudaEngine::new(Device::open(ordinal)?)
    }

    /// An engine on a device.
    pub fn new(device: Device) -> Result<CudaEngine> {
        let stream = OwnedStream::new(&device)?;
        Ok(CudaEngine { device, stream, pool: Pool::default(), upload: Mutex::default() })
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Encodes the matrix of a linear layer with the curvature of its options, and predicts what that costs the model, as
    /// [`tenfold::calibrated::encode`] does.
    pub fn encode_calibrated(
        &self,
        view: &TensorView<'_>,
        options: &EncodeOptions,
    ) -> tenfold::engine::Result<Calibrated> {
        options.validate()?;
        let _turn = self.lock();
        let memory = FromPool(&self.device, &self.pool);
        let tensor = self.copy_in(&memory, view.data())?;
        // SAFETY: all memory is ours, and the turn is too.
        let codec = unsafe { DeviceCodec::new(&self.device, &memory, self.stream.stream) };
        let slice = tensor.slice();
        let elements = Elements { dtype: view.dtype(), shape: view.shape(), bytes: &slice };
        let coded = codec.with_twin(slice, view.data()).encode_calibrated(&elements, options)?;
        let mut blob = vec![0; coded.blob.slice().len];
        self.copy_out(&[coded.blob.slice()], &mut blob)?;
        Ok(coded.map(|_| blob))
    }

    /// What to multiply a step by so that one number serves a whole model: [`DeviceCodec::curvature_unit`].
    pub fn curvature_unit(&self, curvature: &Curvature) -> tenfold::engine::Result<f64> {
        let _turn = self.lock();
        let memory = FromPool(&self.device, &self.pool);
        // SAFETY: as above.
        unsafe { DeviceCodec::new(&self.device, &memory, self.stream.stream) }.curvature_unit(curvature)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Upload>> {
        self.upload.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of the host on the device; the copy is queued.
    fn copy_in(&self, memory: &FromPool<'_>, bytes: &[u8]) -> Result<Taken<Pooled>> {
        let taken = Taken::new(memory, bytes.len())?;
        let (to, stream) = (taken.slice().address, self.stream.stream);
        // SAFETY: memory of ours; callers keep the bytes until they have waited for what comes of them.
        unsafe { self.device.driver.copy_in(to, bytes.as_ptr(), bytes.len(), stream)? };
        Ok(taken)
    }

    /// Copies pieces of the device's memory to the host, one after the other, and waits for them.
    fn copy_out(&self, pieces: &[DeviceSlice], out: &mut [u8]) -> Result<()> {
        let mut rest = out;
        for piece in pieces {
            let (to, later) = rest.split_at_mut(piece.len);
            rest = later;
            // SAFETY: memory of ours, and as much of the host, which outlives the wait.
            unsafe {
                self.device.driver.copy_out(to.as_mut_ptr(), piece.address, piece.len, self.stream.stream)?;
            }
        }
        self.device.driver.synchronize(self.stream.stream)
    }

    /// Decodes a whole blob, piece by piece on its way.
    fn whole(&self, blob: &[u8], info: &BlobInfo, options: &DecodeOptions) -> Result<Vec<u8>> {
        let mut upload = self.lock();
        let mut data = vec![0u8; bytes_of(info)?];
        let out = Taken::new(&FromPool(&self.device, &self.pool), data.len())?;
        let upload = match &mut *upload {
            Some(upload) => upload,
            none => none.insert(Upload::new(&self.device)?),
        };
        let settings = DecodeSettings::default().with_limits(options.limits.clone());
        // SAFETY: the memory is ours, and the call waits for the stream.
        unsafe { upload.decode(blob, out.slice(), info.dtype, &settings, self.stream.stream)? };
        self.copy_out(&[out.slice()], &mut data)?;
        Ok(data)
    }

    /// Decodes a blob, or some of its rows, whatever it has: layers, transforms that take a chain.
    fn read(
        &self,
        blob: &[u8],
        rows: Option<Range<usize>>,
        options: &DecodeOptions,
    ) -> tenfold::engine::Result<Tensor> {
        let _turn = self.lock();
        let memory = FromPool(&self.device, &self.pool);
        let on_device = self.copy_in(&memory, blob)?;
        let settings = DecodeSettings::default().with_limits(options.limits.clone());
        // SAFETY: all memory is ours, and the turn is too.
        let codec = unsafe { DeviceCodec::new(&self.device, &memory, self.stream.stream) };
        let engine = Layered(codec.with_settings(settings).with_twin(on_device.slice(), blob));
        let opened = engine.open(&on_device.slice(), options)?;
        let (values, shape) = match rows {
            Some(rows) => opened.rows(rows)?,
            None => (0..opened.values, opened.shape.clone()),
        };
        if values.len() == opened.values {
            opened.check_layers()?;
        }
        let mut data = vec![0u8; values.len() * opened.dtype.size()];
        let out = Taken::new(&memory, data.len())?;
        engine.decode(&opened, &on_device.slice(), values, &mut out.slice(), &mut Scratch::default())?;
        self.copy_out(&[out.slice()], &mut data)?;
        Ok(Tensor { dtype: opened.dtype, shape, data })
    }
}

/// Bytes of a tensor.
fn bytes_of(info: &BlobInfo) -> Result<usize> {
    usize::try_from(info.values * info.dtype.size() as u64).map_err(|_| crate::pieces::too_large())
}

impl Engine for CudaEngine {
    fn name(&self) -> String {
        format!("cuda ({})", self.device.properties().name)
    }

    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::native();
        can.does.retain(|transform| *transform != "transposed");
        can.takes_turns = true;
        can
    }

    fn encode(&self, view: &TensorView<'_>, options: &EncodeOptions) -> tenfold::engine::Result<Vec<u8>> {
        options.validate()?;
        let _turn = self.lock();
        let memory = FromPool(&self.device, &self.pool);
        let tensor = self.copy_in(&memory, view.data())?;
        // SAFETY: all memory is ours, and the turn is too.
        let codec = unsafe { DeviceCodec::new(&self.device, &memory, self.stream.stream) };
        let slice = tensor.slice();
        let elements = Elements { dtype: view.dtype(), shape: view.shape(), bytes: &slice };
        let pieces = Layered(codec.with_twin(slice, view.data())).encode(&elements, options)?;
        let layers: Vec<DeviceSlice> = pieces.layers.iter().map(Taken::slice).collect();
        let mut blob = pieces.header;
        let header = blob.len();
        blob.resize(header + layers.iter().map(|layer| layer.len).sum::<usize>(), 0);
        self.copy_out(&layers, &mut blob[header..])?;
        Ok(blob)
    }

    fn decode(&self, blob: &[u8], options: &DecodeOptions) -> tenfold::engine::Result<Tensor> {
        let info = BlobInfo::read_native(blob, &options.limits)?;
        if can_decode(&info).is_err() {
            return self.read(blob, None, options);
        }
        let data = self.whole(blob, &info, options)?;
        Ok(Tensor { dtype: info.dtype, shape: info.shape, data })
    }

    fn decode_rows(
        &self,
        blob: &[u8],
        rows: Range<usize>,
        options: &DecodeOptions,
    ) -> tenfold::engine::Result<Tensor> {
        // Nothing is uploaded that has no header.
        BlobInfo::read_native(blob, &options.limits)?;
        self.read(blob, Some(rows), options)
    }
}

//! The owned form: host tensors and host blobs, one call, behind [`tenfold::Engine`].

use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use tenfold::{BlobInfo, DecodeOptions, EncodeOptions, Engine, Goal, Outcome, Tensor, TensorView};

use crate::decode::{DecodeRequest, DecodeSettings, decode, decode_workspace_len};
use crate::device::Device;
use crate::encode::{EncodeRequest, check_options, encode, encode_workspace_len};
use crate::error::{Error, Result};
use crate::memory::{Buffer, room};
use crate::status::Status;
use crate::stream::OwnedStream;
use crate::upload::Upload;

/// A device behind the interface of every engine. Keeps the memory of its last call for the next.
pub struct CudaEngine {
    device: Device,
    stream: OwnedStream,
    memory: Mutex<Memory>,
}

/// Device memory by what it is for.
#[derive(Default)]
struct Memory {
    blob: Option<Buffer>,
    tensor: Option<Buffer>,
    workspace: Option<Buffer>,
    status: Option<Buffer>,
    upload: Option<Upload>,
}

impl CudaEngine {
    /// Opens a device by its number.
    pub fn open(ordinal: u32) -> Result<CudaEngine> {
        CudaEngine::new(Device::open(ordinal)?)
    }

    /// An engine on a device.
    pub fn new(device: Device) -> Result<CudaEngine> {
        let stream = OwnedStream::new(&device)?;
        Ok(CudaEngine { device, stream, memory: Mutex::default() })
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Decodes `count` values from `first` on.
    fn values(
        &self,
        blob: &[u8],
        info: &BlobInfo,
        first: u64,
        count: u64,
        options: &DecodeOptions,
    ) -> Result<Vec<u8>> {
        let stream = self.stream.stream;
        let driver = &self.device.driver;
        let mut memory = self.memory();
        let len = usize::try_from(count * info.dtype.size() as u64)
            .map_err(|_| Error::InvalidArgument("more bytes than there are addresses".into()))?;
        let on_device = room(&self.device, &mut memory.blob, blob.len())?;
        let out = room(&self.device, &mut memory.tensor, len)?;
        let status = room(&self.device, &mut memory.status, size_of::<Status>())?;
        let requests =
            [DecodeRequest::new(on_device, out, info.dtype).with_values(first, count).with_codec(info.codec)];
        let workspace = room(&self.device, &mut memory.workspace, decode_workspace_len(&requests))?;
        let settings = DecodeSettings::default().with_limits(options.limits.clone());
        let mut data = vec![0u8; len];
        let mut said = [0u8; size_of::<Status>()];
        // SAFETY: the memory is ours and locked; the host's side outlives the wait at the end.
        unsafe {
            driver.copy_in(on_device.address, blob.as_ptr(), blob.len(), stream)?;
            decode(&self.device, &requests, &settings, status, workspace, stream)?;
            driver.copy_out(said.as_mut_ptr(), status.address, said.len(), stream)?;
            driver.copy_out(data.as_mut_ptr(), out.address, len, stream)?;
        }
        driver.synchronize(stream)?;
        Status::from_bytes(said).check_for(blob.len(), &options.limits)?;
        Ok(data)
    }

    /// Decodes a whole blob, piece by piece on its way.
    fn whole(&self, blob: &[u8], info: &BlobInfo, options: &DecodeOptions) -> Result<Vec<u8>> {
        let stream = self.stream.stream;
        let mut memory = self.memory();
        let len = usize::try_from(info.values * info.dtype.size() as u64)
            .map_err(|_| Error::InvalidArgument("more bytes than there are addresses".into()))?;
        let out = room(&self.device, &mut memory.tensor, len)?;
        if memory.upload.is_none() {
            memory.upload = Some(Upload::new(&self.device)?);
        }
        let settings = DecodeSettings::default().with_limits(options.limits.clone());
        let mut data = vec![0u8; len];
        if let Some(upload) = &mut memory.upload {
            // SAFETY: the memory is ours and locked; both calls wait for the stream.
            unsafe {
                upload.decode(blob, out, info.dtype, &settings, stream)?;
                self.device.driver.copy_out(data.as_mut_ptr(), out.address, len, stream)?;
            }
        }
        self.device.driver.synchronize(stream)?;
        Ok(data)
    }

    /// Encodes a tensor.
    fn blob(&self, view: &TensorView<'_>, options: &EncodeOptions) -> Result<Vec<u8>> {
        let stream = self.stream.stream;
        let driver = &self.device.driver;
        let data = view.data();
        let most = tenfold::max_encoded_len(view.dtype(), view.shape())?;
        let mut memory = self.memory();
        let tensor = room(&self.device, &mut memory.tensor, data.len())?;
        let out = room(&self.device, &mut memory.blob, most)?;
        let status = room(&self.device, &mut memory.status, size_of::<Status>())?;
        let request = EncodeRequest::new(tensor, view.dtype(), view.shape(), out, options.clone());
        let len = encode_workspace_len(&self.device, &request)?;
        let workspace = room(&self.device, &mut memory.workspace, len)?;
        let mut said = [0u8; size_of::<Status>()];
        // SAFETY: the memory is ours and locked; the host's side outlives the wait.
        unsafe {
            driver.copy_in(tensor.address, data.as_ptr(), data.len(), stream)?;
            encode(&self.device, &request, status, workspace, stream)?;
            driver.copy_out(said.as_mut_ptr(), status.address, said.len(), stream)?;
        }
        driver.synchronize(stream)?;
        let said = Status::from_bytes(said);
        said.check()?;
        let written = out.part(0, usize::try_from(said.size).unwrap_or(usize::MAX))?;
        let mut blob = vec![0u8; written.len];
        // SAFETY: as above.
        unsafe { driver.copy_out(blob.as_mut_ptr(), written.address, written.len, stream)? };
        driver.synchronize(stream)?;
        Ok(blob)
    }
}

impl Engine for CudaEngine {
    fn name(&self) -> String {
        format!("cuda ({})", self.device.properties().name)
    }

    fn encode(&self, view: &TensorView<'_>, options: &EncodeOptions) -> tenfold::Result<Vec<u8>> {
        check_options(options)?;
        let mut exactly = options.clone();
        exactly.goal = Goal::Lossless;
        tenfold::meet_goal(
            view.dtype(),
            view.len(),
            options,
            || Ok(self.blob(view, &exactly)?),
            || match self.blob(view, options) {
                Ok(blob) => Ok(Outcome::Blob(blob)),
                Err(Error::Codec(tenfold::Error::DoesNotFit { need, .. })) => {
                    Ok(Outcome::Failed(usize::try_from(need).ok()))
                }
                // Larger than any lossless blob would be.
                Err(Error::Codec(tenfold::Error::BufferTooSmall { .. })) => Ok(Outcome::Failed(None)),
                Err(error) => Err(error.into()),
            },
        )
    }

    fn decode(&self, blob: &[u8], options: &DecodeOptions) -> tenfold::Result<Tensor> {
        let info = tenfold::inspect_native(blob, &options.limits)?;
        let data = self.whole(blob, &info, options)?;
        Ok(Tensor { dtype: info.dtype, shape: info.shape, data })
    }

    fn decode_rows(
        &self,
        blob: &[u8],
        rows: Range<usize>,
        options: &DecodeOptions,
    ) -> tenfold::Result<Tensor> {
        let info = tenfold::inspect_native(blob, &options.limits)?;
        let cols = info.shape.last().copied().unwrap_or(1);
        let all = info.rows();
        if rows.start > rows.end || rows.end as u64 > all {
            let (start, end) = (rows.start, rows.end);
            return Err(tenfold::Error::InvalidArgument(format!(
                "rows {start}..{end} of a tensor with {all} rows"
            )));
        }
        let at = |row: usize| (row as u64).saturating_mul(cols as u64).min(info.values);
        let data = self.values(blob, &info, at(rows.start), at(rows.end) - at(rows.start), options)?;
        Ok(Tensor { dtype: info.dtype, shape: vec![rows.len(), cols], data })
    }
}

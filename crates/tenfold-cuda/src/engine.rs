//! The owned form: host tensors and host blobs, one call, behind [`tenfold::engine::Engine`].

use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use tenfold::engine::{Engine, Outcome};
use tenfold::format::BlobInfo;
use tenfold::prepare::{Axis, Kept, Transform};
use tenfold::{DecodeOptions, EncodeOptions, Goal, Tensor, TensorView, format};

use crate::decode::{DecodeRequest, DecodeSettings, decode, decode_workspace_len, inspect};
use crate::device::{Device, DeviceSlice};
use crate::encode::{EncodeRequest, check_layers, encode, encode_workspace_len};
use crate::error::{Error, Result};
use crate::memory::{Buffer, room};
use crate::prepare::{
    DeviceChain, decode_prepared, decode_prepared_workspace_len, encode_prepared_workspace_len,
};
use crate::status::{Code, Status};
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

    /// Decodes values: `queue` does it, given a request for them, status and workspace, of which `work` says how much it
    /// takes.
    fn decoded(
        &self,
        blob: &[u8],
        info: &BlobInfo,
        (first, count): (u64, u64),
        options: &DecodeOptions,
        work: impl FnOnce(&DecodeRequest) -> Result<usize>,
        queue: impl FnOnce(&DecodeRequest, &DecodeSettings, DeviceSlice, DeviceSlice) -> Result<()>,
    ) -> Result<Vec<u8>> {
        let stream = self.stream.stream;
        let driver = &self.device.driver;
        let mut memory = self.memory();
        let len = usize::try_from(count * info.dtype.size() as u64)
            .map_err(|_| Error::InvalidArgument("more bytes than there are addresses".into()))?;
        let on_device = room(&self.device, &mut memory.blob, blob.len())?;
        let out = room(&self.device, &mut memory.tensor, len)?;
        let status = room(&self.device, &mut memory.status, size_of::<Status>())?;
        let request =
            DecodeRequest::new(on_device, out, info.dtype).with_values(first, count).with_codec(info.codec);
        let workspace = room(&self.device, &mut memory.workspace, work(&request)?)?;
        let settings = DecodeSettings::default().with_limits(options.limits.clone());
        let mut data = vec![0u8; len];
        let mut said = [0u8; size_of::<Status>()];
        // SAFETY: the memory is ours and locked; the host's side outlives the wait at the end.
        unsafe {
            driver.copy_in(on_device.address, blob.as_ptr(), blob.len(), stream)?;
            queue(&request, &settings, status, workspace)?;
            driver.copy_out(said.as_mut_ptr(), status.address, said.len(), stream)?;
            driver.copy_out(data.as_mut_ptr(), out.address, len, stream)?;
        }
        driver.synchronize(stream)?;
        Status::from_bytes(said).check_for(blob.len(), &options.limits)?;
        Ok(data)
    }

    /// Decodes `count` values from `first` on.
    fn values(
        &self,
        blob: &[u8],
        info: &BlobInfo,
        (first, count): (u64, u64),
        options: &DecodeOptions,
    ) -> Result<Vec<u8>> {
        let stream = self.stream.stream;
        let work = |request: &DecodeRequest| Ok(decode_workspace_len(std::slice::from_ref(request)));
        self.decoded(blob, info, (first, count), options, work, |request, settings, status, workspace| {
            let requests = std::slice::from_ref(request);
            // SAFETY: memory of the engine, which waits.
            unsafe { decode(&self.device, requests, settings, status, workspace, stream) }
        })
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

    /// Decodes some values behind transforms that are not undone on the way.
    fn behind(
        &self,
        blob: &[u8],
        info: &BlobInfo,
        values: (u64, u64),
        options: &DecodeOptions,
    ) -> Result<Vec<u8>> {
        let stream = self.stream.stream;
        let columns = info.shape.last().copied().unwrap_or(1);
        let transforms = format::resolve_transforms(info.transforms.clone(), &options.bases, columns)?;
        let chain = DeviceChain::new(&self.device, info.dtype, &info.shape, &transforms)?;
        let work = |request: &DecodeRequest| decode_prepared_workspace_len(&chain, request);
        self.decoded(blob, info, values, options, work, |request, settings, status, workspace| {
            // SAFETY: memory of the engine, which waits; the chain lives as long.
            unsafe { decode_prepared(&chain, request, settings, status, workspace, stream) }
        })
    }

    /// Encodes a tensor behind the transforms of the options, to a lossy blob.
    fn prepared(&self, view: &TensorView<'_>, options: &EncodeOptions) -> Result<Outcome<Vec<u8>>> {
        if view.is_empty() {
            return Ok(Outcome::Failed(None));
        }
        let mut transforms = options.transforms.clone();
        match self.attempt(view, options, &transforms)? {
            Some(outcome) => return Ok(outcome),
            // What is not finite is found only where there is some.
            None => match Kept::of(view) {
                Some(kept) => transforms.insert(0, Transform::Kept(kept)),
                None => return Ok(Outcome::Failed(None)),
            },
        }
        Ok(self.attempt(view, options, &transforms)?.unwrap_or(Outcome::Failed(None)))
    }

    /// The same with these transforms; nothing if a working value is not finite.
    fn attempt(
        &self,
        view: &TensorView<'_>,
        options: &EncodeOptions,
        transforms: &[Transform],
    ) -> Result<Option<Outcome<Vec<u8>>>> {
        let stream = self.stream.stream;
        let driver = &self.device.driver;
        let data = view.data();
        let chain = DeviceChain::new(&self.device, view.dtype(), view.shape(), transforms)?;
        let mut memory = self.memory();
        let tensor = room(&self.device, &mut memory.tensor, data.len())?;
        let most = tenfold::format::max_encoded_len(view.dtype(), view.shape())?;
        let out = room(&self.device, &mut memory.blob, most)?;
        // What a basis leaves out matters to goals that are errors.
        let measured = matches!(options.goal, Goal::Mse(_) | Goal::Nmse(_));
        let mut powers = vec![0u8; if measured { chain.powers_len() } else { 0 }];
        let status = room(&self.device, &mut memory.status, size_of::<Status>() + powers.len())?;
        let (status, sums) =
            (status.part(0, size_of::<Status>())?, status.part(size_of::<Status>(), powers.len())?);
        let mut options = options.clone();
        options.transforms.clear();
        let request = EncodeRequest::new(tensor, view.dtype(), view.shape(), out, options);
        let len = encode_prepared_workspace_len(&chain, &request)?;
        let workspace = room(&self.device, &mut memory.workspace, len)?;
        let mut said = [0u8; size_of::<Status>()];
        // SAFETY: the memory is ours and locked; the host's side and the chain outlive the wait.
        unsafe {
            driver.copy_in(tensor.address, data.as_ptr(), data.len(), stream)?;
            let (mut inner, rest) =
                chain.prepare(&request, (!powers.is_empty()).then_some(sums), workspace, stream)?;
            if !powers.is_empty() {
                driver.copy_out(powers.as_mut_ptr(), sums.address, powers.len(), stream)?;
                driver.synchronize(stream)?;
            }
            let lost = DeviceChain::lost(&powers);
            match chain.goal(request.options.goal, lost, || format::variance(view))? {
                Some(goal) => inner.options.goal = goal,
                None => {
                    driver.synchronize(stream)?;
                    return Ok(Some(Outcome::Failed(None)));
                }
            }
            encode(&self.device, &inner, status, rest, stream)?;
            driver.copy_out(said.as_mut_ptr(), status.address, said.len(), stream)?;
        }
        driver.synchronize(stream)?;
        let said = Status::from_bytes(said);
        if said.code == Code::NotFinite as u32 {
            return Ok(None);
        }
        let made = said.check().map_err(Error::from).and_then(|()| self.fetch(out, said.size));
        outcome(made).map(Some)
    }

    /// Copies a blob of so many bytes to the host.
    fn fetch(&self, out: DeviceSlice, size: u64) -> Result<Vec<u8>> {
        let stream = self.stream.stream;
        let written = out.part(0, usize::try_from(size).unwrap_or(usize::MAX))?;
        let mut blob = vec![0u8; written.len];
        // SAFETY: memory of ours, which the caller has locked; the wait is below.
        unsafe { self.device.driver.copy_out(blob.as_mut_ptr(), written.address, written.len, stream)? };
        self.device.driver.synchronize(stream)?;
        Ok(blob)
    }

    /// Encodes a tensor.
    fn blob(&self, view: &TensorView<'_>, options: &EncodeOptions) -> Result<Vec<u8>> {
        let stream = self.stream.stream;
        let driver = &self.device.driver;
        let data = view.data();
        let most = tenfold::format::max_encoded_len(view.dtype(), view.shape())?;
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
        self.fetch(out, said.size)
    }
}

/// How an attempt at a lossy goal ended.
fn outcome(made: Result<Vec<u8>>) -> Result<Outcome<Vec<u8>>> {
    match made {
        Ok(blob) => Ok(Outcome::Blob(blob)),
        Err(Error::Codec(tenfold::Error::DoesNotFit { need, .. })) => {
            Ok(Outcome::Failed(usize::try_from(need).ok()))
        }
        // Larger than any lossless blob would be.
        Err(Error::Codec(tenfold::Error::BufferTooSmall { .. })) => Ok(Outcome::Failed(None)),
        Err(error) => Err(error),
    }
}

/// Whether transforms are undone where levels are decoded, on the way: weights of columns and rows, kept elements.
fn on_the_way(transforms: &[Transform]) -> bool {
    let of = |axis: Axis| {
        transforms.iter().filter(|s| matches!(s, Transform::Weights(w) if w.axis() == axis)).count()
    };
    let others = transforms.iter().any(|s| !matches!(s, Transform::Weights(_) | Transform::Kept(_)));
    !others && of(Axis::Columns) <= 1 && of(Axis::Rows) <= 1
}

impl Engine for CudaEngine {
    fn name(&self) -> String {
        format!("cuda ({})", self.device.properties().name)
    }

    fn encode(&self, view: &TensorView<'_>, options: &EncodeOptions) -> tenfold::engine::Result<Vec<u8>> {
        options.validate()?;
        let mut options = options.clone();
        options.goal = format::plain_goal(view, options.goal)?;
        let options = &options;
        check_layers(options)?;
        format::check_encode_transforms(&options.transforms, view.rows(), view.cols())?;
        let mut exactly = options.clone();
        exactly.goal = Goal::Lossless;
        exactly.transforms.clear();
        tenfold::engine::meet_goal(
            view.dtype(),
            view.len(),
            options,
            || Ok(self.blob(view, &exactly)?),
            || match options.transforms.is_empty() {
                true => Ok(outcome(self.blob(view, options))?),
                false => Ok(self.prepared(view, options)?),
            },
        )
    }

    fn decode(&self, blob: &[u8], options: &DecodeOptions) -> tenfold::engine::Result<Tensor> {
        let info = inspect(blob, &options.limits)?;
        let data = match on_the_way(&info.transforms) {
            true => self.whole(blob, &info, options)?,
            false => self.behind(blob, &info, (0, info.values), options)?,
        };
        Ok(Tensor { dtype: info.dtype, shape: info.shape, data })
    }

    fn decode_rows(
        &self,
        blob: &[u8],
        rows: Range<usize>,
        options: &DecodeOptions,
    ) -> tenfold::engine::Result<Tensor> {
        let info = inspect(blob, &options.limits)?;
        let cols = info.shape.last().copied().unwrap_or(1);
        let all = info.rows();
        if rows.start > rows.end || rows.end as u64 > all {
            let (start, end) = (rows.start, rows.end);
            return Err(tenfold::Error::InvalidArgument(format!(
                "rows {start}..{end} of a tensor with {all} rows"
            )));
        }
        let at = |row: usize| (row as u64).saturating_mul(cols as u64).min(info.values);
        let (first, count) = (at(rows.start), at(rows.end) - at(rows.start));
        let data = match on_the_way(&info.transforms) {
            true => self.values(blob, &info, (first, count), options)?,
            false => self.behind(blob, &info, (first, count), options)?,
        };
        Ok(Tensor { dtype: info.dtype, shape: vec![rows.len(), cols], data })
    }
}

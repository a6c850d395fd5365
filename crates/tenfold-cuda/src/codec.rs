//! Tensors and blobs in memory of a device, one at a time and with waiting: goals are met, chains of transforms are made, and
//! [`Layered`](tenfold::engine::Layered) adds layers with it.

use std::borrow::{BorrowMut, Cow};
use std::cell::Cell;
use std::ops::Range;

use tenfold::engine::{Coded, Elements, Layer, Outcome, Pieces, Single, meet_goal};
use tenfold::format::Look;
use tenfold::prepare::{Kept, Preparation, Runs, Transform};
use tenfold::{Dtype, EncodeOptions, Goal, TensorView, format};

use crate::abi::CType;
use crate::decode::{DecodeRequest, DecodeSettings, can_decode, decode, decode_workspace_len};
use crate::device::{Device, DeviceSlice};
use crate::driver::Stream;
use crate::encode::{EncodeRequest, encode_waiting, encode_workspace_len};
use crate::error::{Error, Result};
use crate::layers::{Operation, queue};
use crate::memory::{Memory, Taken};
use crate::prepare::{
    DeviceChain, decode_prepared, decode_prepared_workspace_len, encode_prepared_workspace_len, gather,
};
use crate::status::{Code, Status};

pub(crate) const STATUS: usize = size_of::<Status>();
const NOTHING: DeviceSlice = DeviceSlice { address: 0, len: 0 };

/// The codec of single blobs on a device and a stream of it, with memory from wherever the caller has it.
pub struct DeviceCodec<'a, M> {
    pub(crate) device: &'a Device,
    memory: &'a M,
    pub(crate) stream: Stream,
    settings: DecodeSettings,
    /// A tensor or a blob on the device that the host has too.
    twin: Option<(DeviceSlice, &'a [u8])>,
}

impl<P> Coded for Taken<P> {
    fn coded_len(&self) -> usize {
        self.slice().len
    }
}

/// The verdict of the device on a call.
type Said = [u8; STATUS];

impl<'a, M: Memory> DeviceCodec<'a, M> {
    /// A codec on a stream.
    ///
    /// # Safety
    /// Every [`DeviceSlice`] that the codec is given is memory of this device, is as long as it says, and is neither freed nor used
    /// otherwise until the call returns.
    pub unsafe fn new(device: &'a Device, memory: &'a M, stream: Stream) -> Self {
        DeviceCodec { device, memory, stream, settings: DecodeSettings::default(), twin: None }
    }

    /// Sets limits, and whether to check the checksums of tiles.
    pub fn with_settings(mut self, settings: DecodeSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Says that the host has the bytes of a tensor or a blob too, so that they need not be fetched.
    pub fn with_twin(mut self, slice: DeviceSlice, bytes: &'a [u8]) -> Self {
        self.twin = Some((slice, bytes));
        self
    }

    /// Puts the pieces of a blob into one place. The copies are queued, but for that of the header, which is waited for.
    pub fn join(&self, pieces: Pieces<Taken<M::Piece>>) -> Result<Taken<M::Piece>> {
        let Pieces { header, mut layers } = pieces;
        if header.is_empty() && layers.len() == 1 {
            return Ok(layers.remove(0));
        }
        let lens = layers.iter().map(|layer| layer.slice().len);
        let blob = self.take(header.len() + lens.sum::<usize>())?;
        let mut at = header.len();
        for layer in &layers {
            self.copy(layer.slice(), blob.slice().part(at, layer.slice().len)?)?;
            at += layer.slice().len;
        }
        // SAFETY: memory of the codec; the header outlives the wait.
        unsafe {
            self.device.driver.copy_in(blob.slice().address, header.as_ptr(), header.len(), self.stream)?;
        }
        self.device.driver.synchronize(self.stream)?;
        Ok(blob)
    }

    /// The same codec, for nothing that the host has too.
    pub(crate) fn again(&self) -> Self {
        let DeviceCodec { device, memory, stream, .. } = *self;
        DeviceCodec { device, memory, stream, settings: self.settings.clone(), twin: None }
    }

    pub(crate) fn take(&self, len: usize) -> Result<Taken<M::Piece>> {
        Taken::new(self.memory, len)
    }

    /// Bytes of the host, on the device. Waits for the copy.
    pub(crate) fn upload(&self, bytes: &[u8]) -> Result<Taken<M::Piece>> {
        self.upload_values(bytes)
    }

    /// The same for values as kernels have them.
    pub(crate) fn upload_values<T: CType>(&self, values: &[T]) -> Result<Taken<M::Piece>> {
        let taken = self.take(size_of_val(values))?;
        let (to, len) = (taken.slice().address, taken.slice().len);
        // SAFETY: memory of ours, as long; the values outlive the wait.
        unsafe { self.device.driver.copy_in(to, values.as_ptr().cast(), len, self.stream)? };
        self.device.driver.synchronize(self.stream)?;
        Ok(taken)
    }

    /// Copies bytes to the host, once the stream has come so far.
    pub(crate) fn read(&self, from: DeviceSlice) -> Result<Vec<u8>> {
        let mut bytes = vec![0u8; from.len];
        // SAFETY: memory of the codec or its caller; the host's side outlives the wait.
        unsafe { self.device.driver.copy_out(bytes.as_mut_ptr(), from.address, from.len, self.stream)? };
        self.device.driver.synchronize(self.stream)?;
        Ok(bytes)
    }

    /// Copies bytes from one place of the device to another.
    fn copy(&self, from: DeviceSlice, to: DeviceSlice) -> Result<()> {
        let to = to.part(0, from.len)?;
        // SAFETY: memory of the codec or its caller, as long as it says.
        unsafe { self.device.driver.copy(to.address, from.address, from.len, self.stream) }
    }

    fn said(&self, status: &Taken<M::Piece>) -> Result<Status> {
        let mut said: Said = [0; STATUS];
        said.copy_from_slice(&self.read(status.slice().part(0, STATUS)?)?);
        Ok(Status::from_bytes(said))
    }

    fn queue(&self, operation: Operation, dtype: Dtype, slices: [DeviceSlice; 3]) -> Result<()> {
        // SAFETY: memory of the codec or its caller, who was promised to leave it alone; see `new`.
        unsafe { queue(self.device, operation, dtype, slices, self.stream) }
    }

    /// A goal that says all by itself: the range of a tensor is found on the device.
    fn plain_goal(&self, tensor: &Elements<'_, DeviceSlice>, goal: Goal) -> Result<Goal> {
        if !matches!(goal, Goal::RoundToNearest { .. }) || !tensor.dtype.is_float() {
            return Ok(goal);
        }
        let most = self.take(8)?;
        let zeros = [0u8; 8];
        // SAFETY: memory of ours; the zeros outlive the wait in `read`.
        unsafe { self.device.driver.copy_in(most.slice().address, zeros.as_ptr(), 8, self.stream)? };
        let queued = self.queue(Operation::Largest, tensor.dtype, [*tensor.bytes, NOTHING, most.slice()]);
        let mut bits = [0u8; 8];
        bits.copy_from_slice(&self.read(most.slice())?);
        queued?;
        let bits = u64::from_le_bytes(bits);
        let largest = match tensor.dtype {
            Dtype::F64 => f64::from_bits(bits),
            // The upper half is 0.
            _ => f64::from(f32::from_bits(bits as u32)),
        };
        Ok(format::plain_goal_within(largest, goal))
    }

    /// Encodes a tensor as it is; the blob comes in memory of its own length.
    fn attempt(
        &self,
        tensor: &Elements<'_, DeviceSlice>,
        options: &EncodeOptions,
    ) -> Result<Taken<M::Piece>> {
        let most = format::max_encoded_len(tensor.dtype, tensor.shape)?;
        let (room, status) = (self.take(most)?, self.take(STATUS)?);
        let request =
            EncodeRequest::new(*tensor.bytes, tensor.dtype, tensor.shape, room.slice(), options.clone());
        let workspace = self.take(encode_workspace_len(self.device, &request)?)?;
        // SAFETY: memory of the codec or its caller.
        let said = unsafe { self.encode(&request, &status, workspace.slice())? };
        self.fitted(&room, said)
    }

    /// Encodes and waits.
    ///
    /// # Safety
    /// As for [`encode_waiting`], but that this waits.
    unsafe fn encode(
        &self,
        request: &EncodeRequest,
        status: &Taken<M::Piece>,
        workspace: DeviceSlice,
    ) -> Result<Status> {
        // SAFETY: the caller's; all of it is kept until the last wait.
        self.wait_for(status, |more| unsafe {
            encode_waiting(self.device, request, status.slice(), workspace, self.stream, more)
        })
    }

    /// Encodes by a function that queues passes, one at a time, and waits for the last. The function is given one that waits for a
    /// pass and says whether another is wanted.
    pub(crate) fn wait_for(
        &self,
        status: &Taken<M::Piece>,
        encode: impl FnOnce(&dyn Fn() -> Result<bool>) -> Result<()>,
    ) -> Result<Status> {
        let last = Cell::new(None);
        let wants_more = || {
            let said = self.said(status)?;
            let more = said.code == Code::Ok as u32 && said.detail != 0;
            last.set((!more).then_some(said));
            Ok(more)
        };
        encode(&wants_more)?;
        match last.take() {
            Some(said) => Ok(said),
            None => self.said(status),
        }
    }

    /// A blob that was made in a large room, in memory of its own length.
    pub(crate) fn fitted(&self, room: &Taken<M::Piece>, said: Status) -> Result<Taken<M::Piece>> {
        said.check()?;
        let written = room.slice().part(0, usize::try_from(said.size).unwrap_or(usize::MAX))?;
        let blob = self.take(written.len)?;
        self.copy(written, blob.slice())?;
        Ok(blob)
    }

    /// Encodes a tensor with transforms into a lossy blob. Transforms that the caller did not state are dropped if they
    /// miss the goal.
    fn prepared(
        &self,
        tensor: &Elements<'_, DeviceSlice>,
        options: &EncodeOptions,
        transforms: &[Transform],
    ) -> Result<Outcome<Taken<M::Piece>>> {
        if tensor.bytes.len == 0 {
            return Ok(Outcome::Failed(None));
        }
        let stated = matches!(options.prepare, Preparation::Chain(_));
        match self.attempt_prepared(tensor, options, transforms)? {
            Some(Outcome::Failed(_)) | None if !stated => {
                let plain = options.clone().with_prepare(Preparation::None);
                return outcome(self.attempt(tensor, &plain));
            }
            Some(outcome) => return Ok(outcome),
            None => {}
        }
        // What is not finite is found only where there is some.
        let bytes = self.fetch(tensor.bytes, 0..tensor.bytes.len)?;
        let Some(kept) = Kept::find(&TensorView::new(tensor.dtype, tensor.shape, &bytes)?) else {
            return Ok(Outcome::Failed(None));
        };
        let transforms = [&[Transform::Kept(kept)], transforms].concat();
        Ok(self.attempt_prepared(tensor, options, &transforms)?.unwrap_or(Outcome::Failed(None)))
    }

    /// The same with these transforms; nothing if a working value is not finite.
    fn attempt_prepared(
        &self,
        tensor: &Elements<'_, DeviceSlice>,
        options: &EncodeOptions,
        transforms: &[Transform],
    ) -> Result<Option<Outcome<Taken<M::Piece>>>> {
        let (device, stream) = (self.device, self.stream);
        let chain = DeviceChain::new(device, tensor.dtype, tensor.shape, transforms)?;
        let most = format::max_encoded_len(tensor.dtype, tensor.shape)?;
        let (room, status) = (self.take(most)?, self.take(STATUS)?);
        // What a basis leaves out matters to goals that are errors.
        let measured = matches!(options.goal, Goal::Mse(_) | Goal::Nmse(_)) && chain.powers_len() > 0;
        let powers = if measured { Some(self.take(chain.powers_len())?) } else { None };
        let options = options.clone().with_prepare(Preparation::None);
        let request = EncodeRequest::new(*tensor.bytes, tensor.dtype, tensor.shape, room.slice(), options);
        let workspace = self.take(encode_prepared_workspace_len(&chain, &request)?)?;
        let sums = powers.as_ref().map(Taken::slice);
        // SAFETY: memory of the codec or its caller; it and the chain are kept until the waits below.
        let (mut inner, rest) = unsafe { chain.prepare(&request, sums, workspace.slice(), stream)? };
        let lost = match sums {
            Some(sums) => DeviceChain::sum_lost(&self.read(sums)?),
            None => 0.0,
        };
        let goal = chain.goal(request.options.goal, lost, || self.look(tensor));
        let Some(goal) = goal? else { return Ok(Some(Outcome::Failed(None))) };
        inner.options.goal = goal;
        // SAFETY: as above.
        let said = unsafe { self.encode(&inner, &status, rest)? };
        if said.code == Code::NotFinite as u32 {
            return Ok(None);
        }
        outcome(self.fitted(&room, said)).map(Some)
    }

    /// Elements of some rows and columns of a tensor, on the host.
    fn gather(
        &self,
        tensor: &Elements<'_, DeviceSlice>,
        rows: Runs,
        cols: Runs,
    ) -> tenfold::engine::Result<Vec<u8>> {
        let (columns, size) = (tensor.shape.last().copied().unwrap_or(1), tensor.dtype.size());
        let len = rows.count() * cols.count() * size;
        if len == tensor.bytes.len {
            return Ok(self.fetch(tensor.bytes, 0..len)?.into_owned());
        }
        let together = self.take(len)?;
        // SAFETY: memory of the codec or its caller; the copy waits for the kernel.
        unsafe {
            gather(self.device, *tensor.bytes, (columns, size), (rows, cols), together.slice(), self.stream)?;
        }
        Ok(self.read(together.slice())?)
    }

    fn look(&self, tensor: &Elements<'_, DeviceSlice>) -> tenfold::engine::Result<Option<Look>> {
        let bytes = self.fetch(tensor.bytes, 0..tensor.bytes.len)?;
        Look::new(&TensorView::new(tensor.dtype, tensor.shape, &bytes)?).map(Some)
    }
}

/// How an attempt at a lossy goal ended.
pub(crate) fn outcome<B>(made: Result<B>) -> Result<Outcome<B>> {
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

impl<M: Memory> Single for DeviceCodec<'_, M> {
    type Bytes = DeviceSlice;
    type Room = Taken<M::Piece>;

    fn len_of(&self, bytes: &DeviceSlice) -> usize {
        bytes.len
    }

    fn fetch<'b>(
        &'b self,
        bytes: &'b DeviceSlice,
        range: Range<usize>,
    ) -> tenfold::engine::Result<Cow<'b, [u8]>> {
        let part = bytes.part(range.start, range.len())?;
        let there = self.twin.and_then(|(slice, twin)| {
            let at = usize::try_from(part.address.checked_sub(slice.address)?).ok()?;
            twin.get(at..at.checked_add(part.len)?)
        });
        match there {
            Some(bytes) => Ok(Cow::Borrowed(bytes)),
            None => Ok(Cow::Owned(self.read(part)?)),
        }
    }

    fn make_room<'r>(
        &self,
        room: &'r mut Option<Taken<M::Piece>>,
        len: usize,
    ) -> tenfold::engine::Result<&'r mut DeviceSlice> {
        let taken = match room.take().filter(|taken| taken.slice().len == len) {
            Some(taken) => taken,
            None => self.take(len)?,
        };
        Ok(room.insert(taken).borrow_mut())
    }

    fn encode_one(
        &self,
        tensor: &Elements<'_, DeviceSlice>,
        options: &EncodeOptions,
    ) -> tenfold::engine::Result<Taken<M::Piece>> {
        if options.curvature.is_some() {
            return Ok(self.encode_calibrated(tensor, options)?.blob);
        }
        let values = tensor.bytes.len / tensor.dtype.size();
        let transforms = options
            .remote_transforms(tensor.dtype, tensor.shape, |rows, cols| self.gather(tensor, rows, cols))?;
        let mut options = options.clone();
        options.goal = self.plain_goal(tensor, options.goal)?;
        let plain = options.clone().with_prepare(Preparation::None);
        let mut exactly = plain.clone();
        exactly.goal = Goal::Lossless;
        meet_goal(
            tensor.dtype,
            values,
            &options,
            || Ok(self.attempt(tensor, &exactly)?),
            || match transforms.is_empty() {
                true => Ok(outcome(self.attempt(tensor, &plain))?),
                false => Ok(self.prepared(tensor, &options, &transforms)?),
            },
        )
    }

    fn decode_one(
        &self,
        layer: &Layer,
        blob: &DeviceSlice,
        values: Range<usize>,
        out: &mut DeviceSlice,
    ) -> tenfold::engine::Result<()> {
        if values.is_empty() {
            return Ok(());
        }
        let (info, bytes) = (layer.info(), layer.bytes());
        let mut part = blob.part(bytes.start, bytes.len())?;
        // Kernels read whole words, wherever a layer starts.
        let moved = match part.address.is_multiple_of(16) {
            true => None,
            false => Some(self.take(part.len)?),
        };
        if let Some(moved) = &moved {
            self.copy(part, moved.slice())?;
            part = moved.slice();
        }
        let status = self.take(STATUS)?;
        let mut request = DecodeRequest::new(part, *out, info.dtype).with_info(&info);
        if values.len() as u64 != info.values {
            request = request.with_values(values.start as u64, values.len() as u64);
        }
        let (settings, stream) = (&self.settings, self.stream);
        // Some rows of a transposed tensor need all of its tiles, and are left to a chain.
        let rows = info.is_transposed() && values.len() as u64 != info.values;
        let said = if can_decode(&info).is_ok() && !rows {
            let requests = [request];
            let workspace = self.take(decode_workspace_len(&requests))?;
            // SAFETY: memory of the codec or its caller, kept until the wait in `said`.
            unsafe {
                decode(self.device, &requests, settings, status.slice(), workspace.slice(), stream)?;
            }
            self.said(&status)?
        } else {
            let chain = DeviceChain::new(self.device, info.dtype, &info.shape, &info.transforms)?;
            let workspace = self.take(decode_prepared_workspace_len(&chain, &request)?)?;
            // SAFETY: as above; so is the chain.
            unsafe {
                decode_prepared(&chain, &request, settings, status.slice(), workspace.slice(), stream)?;
            }
            self.said(&status)?
        };
        said.check_for(part.len, &settings.limits)
    }

    fn widen(
        &self,
        dtype: Dtype,
        elements: &DeviceSlice,
        out: &mut DeviceSlice,
    ) -> tenfold::engine::Result<()> {
        Ok(self.queue(Operation::Widen, dtype, [*elements, NOTHING, *out])?)
    }

    fn round(
        &self,
        dtype: Dtype,
        values: &DeviceSlice,
        out: &mut DeviceSlice,
    ) -> tenfold::engine::Result<()> {
        Ok(self.queue(Operation::Round, dtype, [*values, NOTHING, *out])?)
    }

    fn add(&self, dtype: Dtype, sum: &mut DeviceSlice, next: &DeviceSlice) -> tenfold::engine::Result<()> {
        Ok(self.queue(Operation::Add, dtype, [*sum, *next, *sum])?)
    }

    fn subtract(
        &self,
        dtype: Dtype,
        whole: &DeviceSlice,
        sum: &DeviceSlice,
        out: &mut DeviceSlice,
    ) -> tenfold::engine::Result<()> {
        Ok(self.queue(Operation::Subtract, dtype, [*whole, *sum, *out])?)
    }
}

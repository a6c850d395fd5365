//! Tensors to blobs through a chain of transforms, and back.

use tenfold::engine::ErrorKind;
use tenfold::format::{Codec, Look};
use tenfold::{Dtype, Goal, format};

use super::chain::DeviceChain;
use super::link::Link;
use super::transforms::POWERS;
use crate::abi::{self, CType, ChainArgs, OpenBasis, TRANSFORMS_KNOWN};
use crate::decode::{DecodeRequest, DecodeSettings, decode_with, decode_workspace_len};
use crate::device::DeviceSlice;
use crate::driver::Stream;
use crate::encode::{Behind, EncodeRequest, encode, encode_workspace_len};
use crate::error::{Error, Result};
use crate::pieces::{ALIGN, Pieces, bytes_of};

impl DeviceChain {
    /// Bytes that what a basis leaves out is measured in.
    pub(crate) fn powers_len(&self) -> usize {
        let measured = |(_, link): &&(usize, Link)| matches!(link, Link::Basis { measured: true, .. });
        self.links.iter().filter(measured).count() * 2 * POWERS as usize * 8
    }

    /// The squared error that no codec can make good, by sums of squares as [`DeviceChain::prepare`] leaves them.
    pub(crate) fn sum_lost(powers: &[u8]) -> f64 {
        let half = POWERS as usize * 8;
        let sum = |bytes: &[u8]| bytes.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).sum::<f64>();
        powers.chunks_exact(2 * half).map(|p| (sum(&p[..half]) - sum(&p[half..])).max(0.0)).sum()
    }

    /// The goal for the working values, as of [`format::goal_behind`].
    pub(crate) fn goal(
        &self,
        goal: Goal,
        lost: f64,
        look: impl FnOnce() -> tenfold::engine::Result<Option<Look>>,
    ) -> Result<Option<Goal>> {
        Ok(format::goal_behind(&self.transforms, goal, (self.rows, self.columns), lost, look)?)
    }

    /// The request for the working values, which lie at an address.
    fn request(&self, request: &EncodeRequest, at: u64) -> Result<EncodeRequest> {
        if self.transposed {
            let reason =
                "a device does not do the transform \"transposed\" before it encodes; use the CPU".into();
            return Err(tenfold::Error::Engine { kind: ErrorKind::Unsupported, reason }.into());
        }
        if request.dtype != self.dtype || request.shape != self.shape || self.rows == 0 || self.columns == 0 {
            return Err(Error::InvalidArgument(format!(
                "the chain is for {} tensors of shape {:?} that have values",
                self.dtype, self.shape
            )));
        }
        let need = bytes_of(self.rows, self.columns, self.dtype.size())?;
        if request.tensor.len != need || !request.tensor.address.is_multiple_of(16) {
            return Err(Error::InvalidArgument(format!(
                "{need} bytes of a tensor at a multiple of 16 are needed, {} given",
                request.tensor.len
            )));
        }
        let mut shape = self.shape.clone();
        if let Some(last) = shape.last_mut() {
            *last = self.width;
        }
        let working = self.working_dtype();
        let tensor = DeviceSlice::new(at, bytes_of(self.rows, self.width, working.size())?);
        let options = request.options.clone();
        let mut inner = EncodeRequest::new(tensor, working, &shape, request.out, options);
        inner.behind = Some(Behind {
            dtype: self.dtype,
            columns: self.columns,
            shape: None,
            transforms: self.stored.slice(),
            scales: self.scales.as_ref().map_or(0, |s| s.1.slice().address),
            positions: None,
        });
        Ok(inner)
    }

    /// Queues the transforms on a tensor and returns what remains to be encoded: the request for the working values and
    /// the workspace for it.
    ///
    /// # Safety
    /// As for [`encode_prepared`].
    pub(crate) unsafe fn prepare(
        &self,
        request: &EncodeRequest,
        powers: Option<DeviceSlice>,
        workspace: DeviceSlice,
        stream: Stream,
    ) -> Result<(EncodeRequest, DeviceSlice)> {
        // Says what is wrong before anything is queued.
        self.request(request, 0)?;
        let workspace = align(workspace)?;
        let mut pieces = Pieces::default();
        let room = self.split_workspace(workspace, &mut pieces, self.rows, true)?;
        let args = ChainArgs {
            from: request.tensor.into(),
            to: room.here.into(),
            rows: self.rows as u64,
            columns: self.columns as u32,
            kind: self.dtype.id() as u32,
            by: self.kept.is_some() as u32,
            ..ChainArgs::ZERO
        };
        // SAFETY: the caller's; the pieces of the workspace do not overlap.
        let at = unsafe {
            self.launch(abi::chain_load, &args, stream)?;
            self.forward(room, powers, stream)?
        };
        let rest = workspace.part(pieces.at.min(workspace.len), workspace.len.saturating_sub(pieces.at))?;
        Ok((self.request(request, at)?, rest))
    }

    /// Rows that must be undone for some values: the first and how many.
    fn rows_of(&self, first: u64, count: u64) -> Result<(usize, usize)> {
        let values = (self.rows * self.columns) as u64;
        if first > values || count > values - first {
            return Err(Error::InvalidArgument(format!(
                "values {first} to {} of a tensor with {values}",
                first.saturating_add(count)
            )));
        }
        if count == 0 {
            return Ok((0, 0));
        }
        if self.transposed {
            // Every row of the tensor has a value in each of these.
            return Ok((0, self.rows));
        }
        let end = (first + count).div_ceil(self.columns as u64) as usize;
        let start = first as usize / self.columns / self.group * self.group;
        Ok((start, end - start))
    }

    /// The values that a request is for.
    fn value_range(&self, request: &DecodeRequest) -> Result<(u64, u64)> {
        let all = (self.rows * self.columns) as u64;
        let (first, count) = request.values;
        let count = count.unwrap_or(all.saturating_sub(first));
        let floats = request.dtype == self.dtype
            || (request.dtype.is_float() && request.dtype.size() <= 4 && self.dtype != Dtype::F64);
        let need = count.saturating_mul(request.dtype.size() as u64);
        if !floats || request.out.len as u64 != need || !request.out.address.is_multiple_of(16) {
            return Err(Error::InvalidArgument(format!(
                "{need} bytes of {} at a multiple of 16 are decoded, {} of {} given",
                self.dtype, request.out.len, request.dtype
            )));
        }
        Ok((first, count))
    }

    /// Queues the storing of values as elements: of tensor row `start` the working values lie at `at`; `count` values from number
    /// `first` on are wanted.
    unsafe fn store(
        &self,
        at: u64,
        start: usize,
        (first, count): (u64, u64),
        out: DeviceSlice,
        dtype: Dtype,
        stream: Stream,
    ) -> Result<()> {
        // As one row of all values that are wanted.
        let args = ChainArgs {
            from: at.into(),
            to: out.into(),
            rows: count,
            first,
            columns: 1,
            kind: dtype.id() as u32,
            ..ChainArgs::ZERO
        };
        // SAFETY: the caller's.
        unsafe {
            if self.transposed {
                let (columns, count) = (self.rows as u32, self.columns as u32);
                self.launch(abi::chain_transpose, &ChainArgs { columns, count, ..args }, stream)?;
            } else {
                let skipped = first - (start * self.columns) as u64;
                let from = (at + skipped * self.working_dtype().size() as u64).into();
                self.launch(abi::chain_store, &ChainArgs { from, ..args }, stream)?;
            }
            if let Some((runs, count)) = &self.kept {
                let (kind, by) = (self.dtype.id() as u32, dtype.id() as u32);
                let args = ChainArgs { table: runs.slice().into(), kind, by, count: *count, ..args };
                self.launch_one(abi::chain_keep, &args, stream)?;
            }
        }
        Ok(())
    }

    /// The request for working values of some rows.
    fn inner_request(&self, request: &DecodeRequest, at: u64, first: usize, rows: usize) -> DecodeRequest {
        let working = self.working_dtype();
        let out = DeviceSlice::new(at, rows * self.width * working.size());
        DecodeRequest::new(request.blob, out, working)
            .with_values((first * self.width) as u64, (rows * self.width) as u64)
            .with_codec(Codec::Levels)
    }
}

/// What of a workspace pieces are dealt out of.
fn align(workspace: DeviceSlice) -> Result<DeviceSlice> {
    let skipped = workspace.address.next_multiple_of(ALIGN as u64) - workspace.address;
    workspace.part(skipped as usize, workspace.len.saturating_sub(skipped as usize))
}

/// Bytes of workspace that [`encode_prepared`] needs.
pub fn encode_prepared_workspace_len(chain: &DeviceChain, request: &EncodeRequest) -> Result<usize> {
    let mut pieces = Pieces::default();
    for len in chain.room_len(chain.rows, true)? {
        pieces.take(len);
    }
    let inner = chain.request(request, 0)?;
    pieces.take(encode_workspace_len(&chain.device, &inner)?);
    Ok(pieces.at + ALIGN)
}

/// Queues the encoding of a tensor behind a chain of transforms: as [`encode`] does it, for lossy goals. Goals that are errors
/// must not depend on what only a look at the tensor tells: relative to its variance they are for chains with weights, whose errors
/// are relative anyway, and with a basis that leaves something out they are not for a device. A tensor with values that are not finite
/// is refused in its status, unless the chain keeps these.
///
/// # Safety
/// As for [`encode`]; so is the chain.
pub unsafe fn encode_prepared(
    chain: &DeviceChain,
    request: &EncodeRequest,
    status: DeviceSlice,
    workspace: DeviceSlice,
    stream: Stream,
) -> Result<()> {
    if chain.powers_len() > 0 && matches!(request.options.goal, Goal::Mse(_) | Goal::Nmse(_)) {
        let why = "what a basis leaves out is not known before the device has seen the tensor: ask for bytes or a step";
        return Err(Error::InvalidArgument(why.into()));
    }
    let Some(goal) = chain.goal(request.options.goal, 0.0, || Ok(None))? else {
        return Err(Error::InvalidArgument("an error of nothing is for a lossless blob".into()));
    };
    // SAFETY: the caller's.
    unsafe {
        let (mut inner, rest) = chain.prepare(request, None, workspace, stream)?;
        inner.options.goal = goal;
        encode(&chain.device, &inner, status, rest, stream)
    }
}

/// Bytes of workspace that [`undo_chain`] needs.
pub fn undo_chain_workspace_len(chain: &DeviceChain) -> Result<usize> {
    let mut pieces = Pieces::default();
    for len in chain.room_len(chain.rows, false)? {
        pieces.take(len);
    }
    Ok(pieces.at + ALIGN)
}

/// Where in its workspace [`undo_chain`] finds the working values, rows × the columns behind all transforms; and their dtype:
/// f64 for tensors of f64, f32 for all others.
pub fn undo_chain_input(chain: &DeviceChain, workspace: DeviceSlice) -> Result<(DeviceSlice, Dtype)> {
    let room = chain.split_workspace(align(workspace)?, &mut Pieces::default(), chain.rows, false)?;
    let working = chain.working_dtype();
    Ok((room.here.part(0, bytes_of(chain.rows, chain.width, working.size())?)?, working))
}

/// Queues the undoing of a chain's transforms: from working values of a whole tensor, which lie where [`undo_chain_input`] says, to
/// elements of a dtype.
///
/// # Safety
/// As for [`decode_prepared`], but for the blob.
pub unsafe fn undo_chain(
    chain: &DeviceChain,
    out: DeviceSlice,
    dtype: Dtype,
    workspace: DeviceSlice,
    stream: Stream,
) -> Result<()> {
    let floats = dtype == chain.dtype || (dtype.is_float() && dtype.size() <= 4 && chain.dtype != Dtype::F64);
    let need = bytes_of(chain.rows, chain.columns, dtype.size())?;
    if !floats || out.len != need || !out.address.is_multiple_of(16) {
        return Err(Error::InvalidArgument(format!(
            "{need} bytes of {} at a multiple of 16 are decoded, {} of {dtype} given",
            chain.dtype, out.len
        )));
    }
    if need == 0 {
        return Ok(());
    }
    let room = chain.split_workspace(align(workspace)?, &mut Pieces::default(), chain.rows, false)?;
    // SAFETY: the caller's; the pieces of the workspace do not overlap.
    unsafe {
        let at = chain.inverse(room, chain.rows, 0, stream)?;
        chain.store(at, 0, (0, (chain.rows * chain.columns) as u64), out, dtype, stream)
    }
}

/// Bytes of workspace that [`decode_prepared`] needs.
pub fn decode_prepared_workspace_len(chain: &DeviceChain, request: &DecodeRequest) -> Result<usize> {
    let (first, count) = chain.value_range(request)?;
    let (start, rows) = chain.rows_of(first, count)?;
    let mut pieces = Pieces::default();
    for len in chain.room_len(rows, false)? {
        pieces.take(len);
    }
    pieces.take(decode_workspace_len(&[chain.inner_request(request, 0, start, rows)]));
    Ok(pieces.at + ALIGN)
}

/// Queues the decoding of a blob that has exactly the transforms of a chain, for a tensor of the chain's dtype and shape: as
/// [`decode`](crate::decode()) does it for others.
///
/// # Safety
/// As for [`decode`](crate::decode()); so is the chain.
pub unsafe fn decode_prepared(
    chain: &DeviceChain,
    request: &DecodeRequest,
    settings: &DecodeSettings,
    status: DeviceSlice,
    workspace: DeviceSlice,
    stream: Stream,
) -> Result<()> {
    let (first, count) = chain.value_range(request)?;
    let (start, rows) = chain.rows_of(first, count)?;
    let workspace = align(workspace)?;
    let mut pieces = Pieces::default();
    let room = chain.split_workspace(workspace, &mut pieces, rows, false)?;
    let requests = [chain.inner_request(request, room.here.address, start, rows)];
    let work = workspace.part(pieces.at, decode_workspace_len(&requests))?;
    // The tensor's own columns, and those of what is coded: as many values, if it is transposed.
    let (columns, rank) =
        if chain.transposed { (chain.rows, chain.rows) } else { (chain.columns, chain.width) };
    let opened = OpenBasis {
        columns: columns as u32,
        rank: rank as u32,
        scales: chain.scales.as_ref().map_or(0, |s| s.0.slice().address),
        before: TRANSFORMS_KNOWN,
        known: chain.stored.slice().into(),
        known_len: chain.stored.slice().len as u64,
        ..OpenBasis::ZERO
    };
    // SAFETY: the caller's; the pieces of the workspace do not overlap.
    unsafe {
        decode_with(&chain.device, &requests, &opened, settings, status, work, stream)?;
        if count == 0 {
            return Ok(());
        }
        let at = chain.inverse(room, rows, start, stream)?;
        chain.store(at, start, (first, count), request.out, request.dtype, stream)
    }
}

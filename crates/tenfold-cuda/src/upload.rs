//! Blobs of the host to tensors on the device: while one piece of a blob is on its way, the one before it is decoded.
//!
//! A piece is a run of tiles. Each is decoded by a call of its own on the part of the tensor that it holds; the header
//! goes first and lies on the device for all of them.

use tenfold::format::BlobInfo;
use tenfold::{Dtype, format};

use crate::abi::Item;
use crate::decode::{
    DecodeRequest, DecodeSettings, Decoded, Order, can_decode, decode, decode_workspace_len, transpose,
};
use crate::device::{Device, DeviceSlice};
use crate::driver::Stream;
use crate::error::{Error, Result};
use crate::event::OwnedEvent;
use crate::memory::{Buffer, Pinned, reserve};
use crate::status::Status;
use crate::stream::OwnedStream;

/// Bytes of a piece, about: long enough for a copy to reach its speed, short enough for the last one to be
/// decoded soon after it has come.
const PIECE: usize = 4 << 20;
/// Most pieces of a blob: each costs a look at the header.
const PIECES: usize = 16;
/// Bytes that come over a fast link while a warp decodes a step. A piece takes as long as its longest lane, so shorter
/// copies than that of all its steps would only make a queue of decoders.
const BYTES_A_STEP: usize = 7 << 10;
/// Pinned buffers for blobs that are not in pinned memory: one is filled while the other is on its way.
const STAGES: usize = 2;

/// Decodes blobs that lie in host memory. Holds its own stream for copies, device memory for one blob and its
/// workspace, and pinned memory for blobs that are not pinned; all of it grows as needed and is kept.
pub struct Upload {
    device: Device,
    copies: OwnedStream,
    blob: Option<Buffer>,
    workspace: Option<Buffer>,
    status: Option<Buffer>,
    /// Values of a transposed blob, until all have come.
    turned: Option<Buffer>,
    stages: Vec<Stage>,
    /// One a piece: it has come.
    arrived: Vec<OwnedEvent>,
    /// The last blob was decoded: its memory may be written again.
    done: OwnedEvent,
    /// Pieces of the last blob, and the least bytes of one.
    pieces: usize,
    piece: usize,
}

struct Stage {
    memory: Pinned,
    /// Its content has left.
    sent: OwnedEvent,
}

/// Device memory for one blob.
struct Room {
    blob: DeviceSlice,
    workspace: DeviceSlice,
    status: DeviceSlice,
}

/// A run of tiles: its bytes in the blob, its values in the tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    bytes: std::ops::Range<usize>,
    first: u64,
    count: u64,
}

/// Cuts a blob into pieces; the first has the header too.
fn pieces(starts: &[usize], tile_values: u64, values: u64, piece: usize) -> Vec<Piece> {
    let len = starts.last().copied().unwrap_or(0);
    let most = piece.max(len.div_ceil(PIECES));
    let mut out: Vec<Piece> = Vec::new();
    let mut from = 0;
    for (i, w) in starts.windows(2).enumerate() {
        let last = i + 2 == starts.len();
        if w[1] - from >= most || last {
            let first = out.last().map_or(0, |p: &Piece| p.first + p.count);
            let end = (tile_values * (i as u64 + 1)).min(values);
            out.push(Piece { bytes: from..w[1], first, count: end - first });
            from = w[1];
        }
    }
    if out.is_empty() {
        out.push(Piece { bytes: 0..len, first: 0, count: values });
    }
    out
}

impl Upload {
    /// For one blob after the other to a device.
    pub fn new(device: &Device) -> Result<Upload> {
        Ok(Upload {
            device: device.clone(),
            copies: OwnedStream::new(device)?,
            blob: None,
            workspace: None,
            status: None,
            turned: None,
            stages: Vec::new(),
            arrived: Vec::new(),
            done: OwnedEvent::new(device, false)?,
            pieces: 0,
            piece: PIECE,
        })
    }

    /// Sets the bytes of a piece, about: 4 MiB unless told otherwise. Shorter ones start sooner and cost more.
    pub fn with_piece(mut self, bytes: usize) -> Self {
        self.piece = bytes.max(1);
        self
    }

    /// Queues copy and decoding of a blob in pinned memory: the whole tensor goes to `out`, which has exactly its
    /// bytes. Nobody waits, except for memory where this blob is larger than any before; [`Upload::check`] says what
    /// came of it.
    ///
    /// # Safety
    /// `out` is memory of this device, and neither it nor the blob is freed or used otherwise until the stream has
    /// passed this call.
    pub unsafe fn queue(
        &mut self,
        blob: &Pinned,
        len: usize,
        out: DeviceSlice,
        dtype: Dtype,
        settings: &DecodeSettings,
        stream: Stream,
    ) -> Result<()> {
        let bytes = blob.get(..len).ok_or_else(|| {
            Error::InvalidArgument(format!(
                "a blob of {len} bytes does not fit into {} bytes of pinned memory",
                blob.len()
            ))
        })?;
        // SAFETY: the caller's promise.
        unsafe { self.send(bytes, true, out, dtype, settings, stream) }
    }

    /// Decodes a blob of ordinary memory and waits for it.
    ///
    /// # Safety
    /// `out` is memory of this device that nothing else uses meanwhile.
    pub unsafe fn decode(
        &mut self,
        blob: &[u8],
        out: DeviceSlice,
        dtype: Dtype,
        settings: &DecodeSettings,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: the caller's promise, and the blob outlives the wait.
        unsafe { self.send(blob, false, out, dtype, settings, stream)? };
        self.check(stream)
    }

    /// Waits for the stream and says what came of the last blob.
    pub fn check(&self, stream: Stream) -> Result<()> {
        let Some(status) = &self.status else { return Ok(()) };
        let mut said = vec![0u8; self.pieces * size_of::<Status>()];
        status.read(&mut said, stream)?;
        for s in said.as_chunks().0 {
            Status::from_bytes(*s).check()?;
        }
        Ok(())
    }

    unsafe fn send(
        &mut self,
        blob: &[u8],
        pinned: bool,
        out: DeviceSlice,
        dtype: Dtype,
        settings: &DecodeSettings,
        stream: Stream,
    ) -> Result<()> {
        let info = BlobInfo::read_native(blob, &settings.limits)?;
        can_decode(&info)?;
        let starts = format::tile_starts(blob, &settings.limits)?;
        let need = starts.last().copied().unwrap_or(0);
        if need != blob.len() {
            let (need, have) = (need as u64, blob.len() as u64);
            let error = match need > have {
                true => tenfold::Error::Truncated { need, have },
                false => tenfold::Error::Corrupt("bytes after the last tile"),
            };
            return Err(error.into());
        }
        let bytes = info.values * dtype.size() as u64;
        if out.len as u64 != bytes {
            return Err(tenfold::Error::BufferTooSmall { need: bytes, have: out.len as u64 }.into());
        }
        let steps = info.tile_values as usize / info.lanes.max(1) as usize;
        let piece = self.piece.max(if pinned { steps * BYTES_A_STEP } else { 0 });
        let pieces = pieces(&starts, info.tile_values, info.values, piece);
        let turned = info.is_transposed() && out.len > 0;
        let place = if turned { reserve(&self.device, &mut self.turned, out.len)? } else { out };
        let request = |p: &Piece, blob: DeviceSlice| -> Result<DecodeRequest> {
            let at = usize::try_from(p.first).unwrap_or(usize::MAX).saturating_mul(dtype.size());
            let len = usize::try_from(p.count).unwrap_or(usize::MAX).saturating_mul(dtype.size());
            let part = place.part(at, len)?;
            let request = DecodeRequest::new(blob, part, dtype).with_values(p.first, p.count);
            Ok(request.with_info(&info).with_order(Order::Coded))
        };
        let Room { blob: on_device, workspace, status } = self.reserve(pieces.len(), blob.len())?;
        // What the last call left is still being decoded, perhaps on another stream.
        self.done.hold(self.copies.stream())?;
        for (i, piece) in pieces.iter().enumerate() {
            // SAFETY: within `blob` and its copy, as the header says; ordered by events.
            unsafe { self.copy(blob, piece, on_device, pinned)? };
            self.arrived[i].record(self.copies.stream())?;
            self.arrived[i].hold(stream)?;
            let requests = [request(piece, on_device)?];
            // One workspace for all: the stream takes them one after the other.
            let status = status.part(i * size_of::<Status>(), size_of::<Status>())?;
            // SAFETY: the blob's header and this piece have come; the rest is the caller's promise.
            unsafe { decode(&self.device, &requests, settings, status, workspace, stream)? };
        }
        if turned {
            // The last piece's item, which knows the shape; a piece that is bad makes the whole tensor so.
            let item = workspace.part(0, size_of::<Item>())?;
            let said = status.part((pieces.len() - 1) * size_of::<Status>(), size_of::<Status>())?;
            let values = place.part(0, out.len)?;
            // SAFETY: as above.
            unsafe { transpose(&self.device, &Decoded { item, status: said, values }, out, dtype, stream)? };
        }
        self.pieces = pieces.len();
        self.done.record(stream)
    }

    /// Memory and events for a blob.
    fn reserve(&mut self, pieces: usize, blob: usize) -> Result<Room> {
        let nothing = DeviceSlice::new(0, 0);
        let request = DecodeRequest::new(DeviceSlice::new(0, blob), nothing, Dtype::F32);
        while self.arrived.len() < pieces {
            self.arrived.push(OwnedEvent::new(&self.device, false)?);
        }
        Ok(Room {
            workspace: reserve(&self.device, &mut self.workspace, decode_workspace_len(&[request]))?,
            status: reserve(&self.device, &mut self.status, pieces * size_of::<Status>())?,
            blob: reserve(&self.device, &mut self.blob, blob)?,
        })
    }

    /// Queues the copy of a piece, from where it is or through a pinned buffer.
    unsafe fn copy(&mut self, blob: &[u8], piece: &Piece, to: DeviceSlice, pinned: bool) -> Result<()> {
        let stream = self.copies.stream();
        let driver = self.device.driver.clone();
        if pinned {
            let (to, from) = (to.part(piece.bytes.start, piece.bytes.len())?, &blob[piece.bytes.clone()]);
            // SAFETY: the caller's; lengths agree.
            return unsafe { driver.copy_in(to.address, from.as_ptr(), from.len(), stream) };
        }
        for (i, from) in blob[piece.bytes.clone()].chunks(PIECE).enumerate() {
            let turn = (piece.bytes.start / PIECE + i) % STAGES;
            while self.stages.len() <= turn {
                let (memory, sent) =
                    (Pinned::new(&self.device, PIECE)?, OwnedEvent::new(&self.device, false)?);
                self.stages.push(Stage { memory, sent });
            }
            let stage = &mut self.stages[turn];
            stage.sent.wait()?;
            stage.memory[..from.len()].copy_from_slice(from);
            let to = to.part(piece.bytes.start + i * PIECE, from.len())?;
            // SAFETY: the stage is not written again before `sent` has happened.
            unsafe { driver.copy_in(to.address, stage.memory.as_ptr(), from.len(), stream)? };
            stage.sent.record(stream)?;
        }
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // Copies from our pinned memory and kernels on our device memory must end first. Errors have nowhere to go.
        let _ = self.device.driver.synchronize(self.copies.stream());
        let _ = self.done.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_blob_and_its_values_once() {
        let starts: Vec<usize> = (0..=100).map(|i| 1000 + i * 700).collect();
        for piece in [1, 5000, 1 << 20] {
            let all = pieces(&starts, 64, 6390, piece);
            assert!(all.len() <= PIECES + 1);
            assert_eq!((all[0].bytes.start, all[0].first), (0, 0));
            for w in all.windows(2) {
                assert_eq!(w[0].bytes.end, w[1].bytes.start);
                assert_eq!(w[0].first + w[0].count, w[1].first);
                assert_eq!(w[1].first % 64, 0);
            }
            let last = all.last().unwrap();
            assert_eq!((last.bytes.end, last.first + last.count), (71_000, 6390));
        }
        assert_eq!(pieces(&[400], 64, 0, 10), [Piece { bytes: 0..400, first: 0, count: 0 }]);
    }
}

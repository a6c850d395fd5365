//! Putting a blob together on the device: what every encoder does before and after its tiles.
//!
//! An encoder stages its header, finds the lengths of its tiles, calls [`layout`], writes each tile where that says
//! and its checksum into the directory, and calls [`seal`].

use crate::constants::PACK_RING;
use crate::device::{Device, DeviceSlice};
use crate::driver::{Shape, Stream};
use crate::error::{Error, Result};

/// Memory of each tensor of a batch, as the kernels have it: the first one's address, and how many bytes lie between
/// one and the next.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Each {
    pub first: u64,
    pub apart: u64,
}

impl Each {
    /// Memory of a tensor that is alone.
    pub(crate) fn one(first: u64) -> Each {
        Each { first, apart: 0 }
    }

    /// Memory that lies `by` bytes further on.
    pub(crate) fn plus(self, by: usize) -> Each {
        Each { first: self.first + by as u64, apart: self.apart }
    }
}

/// Both kernels are one block a tensor: lengths have to be added up from the first to the last. Few tiles need few
/// threads, which leave room for others.
fn one_block(assembly: &Assembly, batch: u32) -> Shape {
    let threads = if assembly.tiles <= 64 && batch > 1 { 256 } else { 1024 };
    Shape { grid: 1, block: threads, shared: 0, batch }
}

/// As the kernels have it; addresses on the device.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Assembly {
    pub status: Each,
    /// The header up to the padding before the directory, and where its length in bytes is.
    pub staged: Each,
    pub staged_len: Each,
    /// A u32 a tile: its bytes.
    pub lengths: Each,
    /// A u64 a tile: where it starts.
    pub offsets: Each,
    pub tiles: u64,
    pub out: Each,
    pub out_len: u64,
}

/// Queues the sum of the tiles' lengths, the header and the directory. If the blob does not fit, the status says so
/// and later kernels do nothing.
///
/// # Safety
/// The addresses are good for what `Assembly` says of them.
pub(crate) unsafe fn layout(device: &Device, assembly: &Assembly, batch: u32, stream: Stream) -> Result<()> {
    // SAFETY: the caller's.
    unsafe { device.launch("assemble_layout", one_block(assembly, batch), assembly, stream) }
}

/// Queues the checksum of the header.
///
/// # Safety
/// As for [`layout`].
pub(crate) unsafe fn seal(device: &Device, assembly: &Assembly, batch: u32, stream: Stream) -> Result<()> {
    // SAFETY: the caller's.
    unsafe { device.launch("assemble_seal", one_block(assembly, batch), assembly, stream) }
}

/// Words of a slot that holds a stream of `most` words: they leave a coder in chunks, and it needs one more to notice
/// that it has run out of room.
pub(crate) fn slot_words(most: usize) -> usize {
    const CHUNK: usize = PACK_RING / 2;
    most.next_multiple_of(CHUNK) + CHUNK
}

/// Refuses more tiles than a header has room for beside `staged` bytes: an entry of its directory takes eight bytes,
/// and its length is a u32.
pub(crate) fn check_tiles(tiles: usize, staged: usize) -> Result<()> {
    match tiles > (u32::MAX as usize - staged) / 8 {
        true => Err(Error::InvalidArgument("the header would be larger than 4 GiB".into())),
        false => Ok(()),
    }
}

/// Lays out a workspace, piece by piece.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    len: usize,
    overflow: bool,
}

impl Pieces {
    /// Where a piece of `count` entries of `size` bytes starts; always a multiple of 16.
    pub(crate) fn take(&mut self, count: usize, size: usize) -> usize {
        let at = self.len;
        let end = count.checked_mul(size).and_then(|n| n.checked_next_multiple_of(16)?.checked_add(at));
        self.overflow |= end.is_none();
        self.len = end.unwrap_or(at);
        at
    }

    /// Bytes of all pieces.
    pub(crate) fn len(&self) -> Result<usize> {
        match self.overflow {
            false => Ok(self.len),
            true => Err(Error::InvalidArgument("more bytes than there are addresses".into())),
        }
    }

    /// The part of the caller's workspace that they take.
    pub(crate) fn within(&self, workspace: DeviceSlice) -> Result<DeviceSlice> {
        workspace.part(0, self.len()?)
    }
}

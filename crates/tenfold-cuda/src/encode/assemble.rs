//! Putting a blob together on the device: what every encoder does before and after its tiles.
//!
//! An encoder stages its header, finds the lengths of its tiles, calls [`layout`], writes each tile where that says
//! and its checksum into the directory, and calls [`seal`].

use crate::abi::{self, ASSEMBLE_THREADS, Assembly, Each, PACK_RING};
use crate::device::Device;
use crate::driver::{Shape, Stream};
use crate::error::{Error, Result};

/// Both kernels are one block a tensor: lengths have to be added up from the first to the last. Few tiles need few
/// threads, which leave room for others.
fn one_block(assembly: &Assembly, batch: u32) -> Shape {
    let threads = if assembly.tiles <= 64 && batch > 1 { 256 } else { ASSEMBLE_THREADS };
    Shape { grid: 1, block: threads, shared: 0, batch }
}

/// Queues the sum of the tiles' lengths, the header and the directory. If the blob does not fit, the status says so
/// and later kernels do nothing.
///
/// # Safety
/// The addresses are good for what `Assembly` says of them.
pub(crate) unsafe fn queue_layout(
    device: &Device,
    assembly: &Assembly,
    batch: u32,
    stream: Stream,
) -> Result<()> {
    // SAFETY: the caller's.
    unsafe { device.launch(abi::assemble_layout, one_block(assembly, batch), assembly, stream) }
}

/// Queues the checksum of the header.
///
/// # Safety
/// As for [`layout`].
pub(crate) unsafe fn queue_seal(
    device: &Device,
    assembly: &Assembly,
    batch: u32,
    stream: Stream,
) -> Result<()> {
    // SAFETY: the caller's.
    unsafe { device.launch(abi::assemble_seal, one_block(assembly, batch), assembly, stream) }
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

/// Lays out the workspaces of a batch, piece by piece.
pub(crate) struct Pieces {
    base: Each<u8>,
    len: usize,
    overflow: bool,
}

impl Pieces {
    /// For workspaces that start there.
    pub(crate) fn new(base: Each<u8>) -> Pieces {
        Pieces { base, len: 0, overflow: false }
    }

    /// A piece of `count` times `each` entries; it starts at a multiple of 16.
    pub(crate) fn take<T>(&mut self, count: usize, each: usize) -> Each<T> {
        const { assert!(size_of::<T>() > 0, "a type that the host does not look into") };
        let at = self.len;
        let bytes = count.checked_mul(each * size_of::<T>());
        let end = bytes.and_then(|n| n.checked_next_multiple_of(16)?.checked_add(at));
        self.overflow |= end.is_none();
        self.len = end.unwrap_or(at);
        self.base.plus(at)
    }

    /// Bytes of all pieces.
    pub(crate) fn len(&self) -> Result<usize> {
        match self.overflow {
            false => Ok(self.len),
            true => Err(Error::InvalidArgument("the size in bytes overflows".into())),
        }
    }
}

//! A blob whose parts are ready but lie apart: the last step of encoding is to copy them, once, to where the blob
//! shall be.

use std::fmt;
use std::mem::MaybeUninit;

use crate::engine::Coded;
use crate::error::{Error, Result};
use crate::workers::Workers;

/// Shorter blobs are copied by the calling thread: waking others would take longer.
const SHARED_FROM: usize = 1 << 20;

/// A tile's bytes with their checksum, which whoever wrote them computes while they are at hand.
pub(crate) struct Sealed {
    pub(super) bytes: Vec<u8>,
    pub(super) crc: u32,
}

impl Sealed {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Sealed { crc: crc32fast::hash(&bytes), bytes }
    }
}

/// An encoded tensor whose blob is not yet in one piece, from [`Cpu::encode_parts`](crate::engine::Cpu::encode_parts).
///
/// For callers who can only provide memory once they know how much: an object of another language, a region of a file.
/// The bytes are copied once, by as many threads as encoded them.
///
/// ```
/// use tenfold::engine::Cpu;
/// use tenfold::{EncodeOptions, Goal, TensorView};
/// let values: Vec<f32> = (0..4096).map(|i| i as f32).collect();
/// let view = TensorView::from_slice(&values, &[64, 64])?;
/// let options = EncodeOptions::new(Goal::Lossless);
/// let parts = Cpu.encode_parts(&view, &options)?;
/// let mut message = vec![0; 16 + parts.blob_len()];
/// parts.write(&mut message[16..])?;
/// assert_eq!(message[16..], tenfold::encode(&view, &options)?);
/// # Ok::<(), tenfold::Error>(())
/// ```
pub struct Parts {
    /// Everything before the first tile.
    header: Vec<u8>,
    tiles: Vec<Vec<u8>>,
    blob_len: usize,
    workers: Workers,
}

impl Parts {
    pub(crate) fn new(header: Vec<u8>, tiles: Vec<Vec<u8>>, workers: &Workers) -> Parts {
        let blob_len = header.len() + tiles.iter().map(Vec::len).sum::<usize>();
        Parts { header, tiles, blob_len, workers: workers.clone() }
    }

    /// Bytes of the blob.
    pub fn blob_len(&self) -> usize {
        self.blob_len
    }

    /// Puts the blob at the start of `out` and returns its length.
    pub fn write(self, out: &mut [u8]) -> Result<usize> {
        self.copy(out, <[u8]>::copy_from_slice)
    }

    /// Puts the blob into memory that nothing has been written to. Where this succeeds, as many bytes as it returns are
    /// initialised, from the start of `out` on.
    pub fn write_uninit(self, out: &mut [MaybeUninit<u8>]) -> Result<usize> {
        self.copy(out, |room, bytes| {
            room.iter_mut().zip(bytes).for_each(|(room, &byte)| {
                room.write(byte);
            });
        })
    }

    /// Puts the blob into new memory.
    pub(crate) fn into_blob(self) -> Result<Vec<u8>> {
        // Large vectors of zeros come from the system as they are: nothing is written twice.
        let mut blob = vec![0; self.blob_len];
        self.write(&mut blob)?;
        Ok(blob)
    }

    /// `put` fills a slice from one of the same length.
    fn copy<T: Send>(self, out: &mut [T], put: impl Fn(&mut [T], &[u8]) + Sync + Send) -> Result<usize> {
        let (need, have) = (self.blob_len, out.len());
        let out =
            out.get_mut(..need).ok_or(Error::BufferTooSmall { need: need as u64, have: have as u64 })?;
        let (header, mut rest) = out.split_at_mut(self.header.len());
        put(header, &self.header);
        let mut pieces = Vec::with_capacity(self.tiles.len());
        for tile in self.tiles {
            let (piece, later) = rest.split_at_mut(tile.len());
            pieces.push((piece, tile));
            rest = later;
        }
        let workers = if need < SHARED_FROM { self.workers.alone() } else { self.workers };
        // A tile's memory goes back once it is copied: the tiles and the blob are never both there in full.
        workers.for_pieces(
            pieces,
            || (),
            |(), _, (piece, tile)| {
                put(piece, &tile);
                Ok(())
            },
        )?;
        Ok(need)
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("blob_len", &self.blob_len).finish_non_exhaustive()
    }
}

impl Coded for Parts {
    fn coded_len(&self) -> usize {
        self.blob_len
    }
}

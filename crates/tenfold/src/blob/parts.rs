//! A blob in separate parts: encoding ends by copying them once to their destination.

use std::fmt;
use std::mem::MaybeUninit;

use crate::engine::Coded;
use crate::error::{Error, Result};
use crate::workers::Workers;

/// Shorter blobs are copied by the calling thread: waking others would take longer.
const SHARED_FROM: usize = 1 << 20;

/// A tile's bytes with their checksum, computed while they are still in the cache.
pub(crate) struct Sealed {
    pub(super) bytes: Vec<u8>,
    pub(super) crc: u32,
}

impl Sealed {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Sealed { crc: crc32fast::hash(&bytes), bytes }
    }
}

/// An encoded tensor whose blob is still in parts, from [`Cpu::encode_parts`](crate::engine::Cpu::encode_parts).
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

    /// Puts the blob into uninitialised memory. On success it has initialised the first bytes of `out`, as many as it
    /// returns.
    pub fn write_uninit(self, out: &mut [MaybeUninit<u8>]) -> Result<usize> {
        self.copy(out, |room, bytes| {
            room.iter_mut().zip(bytes).for_each(|(room, &byte)| {
                room.write(byte);
            });
        })
    }

    /// Puts the blob into new memory.
    pub(crate) fn into_blob(self) -> Result<Vec<u8>> {
        // The system provides large vectors of zeros without writing them.
        let mut blob = vec![0; self.blob_len];
        self.write(&mut blob)?;
        Ok(blob)
    }

    /// A copy of the blob, for a look at what it decodes to.
    pub(crate) fn to_blob(&self) -> Vec<u8> {
        let mut blob = Vec::with_capacity(self.blob_len);
        blob.extend_from_slice(&self.header);
        self.tiles.iter().for_each(|tile| blob.extend_from_slice(tile));
        blob
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
        let workers = if need < SHARED_FROM { self.workers.into_current_thread() } else { self.workers };
        // A tile's memory is freed once it is copied, so tiles and blob never take full memory at the same time.
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

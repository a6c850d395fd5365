//! One safetensors file, opened for reading.
//!
//! Streaming work reads tensors into buffers of its own, so that a file cut short by someone else gives
//! an error and memory stays at one tensor. Random access goes through a memory map, made when first asked.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use memmap2::Mmap;

use super::header::{Entry, Header};
use crate::error::{Error, Result};
use crate::pread::{allocate, read_exact_at};

/// Longest header that is read; the same cap as in the `safetensors` crate.
pub(crate) const MAX_HEADER: u64 = 100_000_000;
/// Bytes of the header's length.
pub(crate) const PREFIX: u64 = 8;

/// An open file and its checked header.
#[derive(Debug)]
pub(crate) struct SafetensorsFile {
    pub path: PathBuf,
    pub header: Header,
    file: File,
    data_start: u64,
    map: OnceLock<Mmap>,
}

impl SafetensorsFile {
    /// Opens a file and checks its header; reads no tensor.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(Error::io(path))?;
        let meta = file.metadata().map_err(Error::io(path))?;
        if !meta.is_file() {
            return Err(Error::malformed(path, "not a regular file"));
        }
        let size = meta.len();
        if size < PREFIX {
            return Err(Error::malformed(path, format!("{size} bytes are too few for a safetensors file")));
        }
        let mut prefix = [0; PREFIX as usize];
        read_exact_at(&file, path, &mut prefix, 0).map_err(Error::io(path))?;
        let header_len = u64::from_le_bytes(prefix);
        if header_len > MAX_HEADER {
            return Err(Error::malformed(
                path,
                format!("not safetensors: a header of {header_len} bytes exceeds the format's {MAX_HEADER}"),
            ));
        }
        if header_len > size - PREFIX {
            return Err(Error::malformed(
                path,
                format!("truncated: the header takes {header_len} bytes, but only {} follow", size - PREFIX),
            ));
        }
        // At most 100 MB: fits.
        let mut json = vec![0; header_len as usize];
        read_exact_at(&file, path, &mut json, PREFIX).map_err(Error::io(path))?;
        let data_start = PREFIX + header_len;
        let header =
            Header::parse(&json, size - data_start).map_err(|reason| Error::malformed(path, reason))?;
        Ok(SafetensorsFile { path: path.to_owned(), header, file, data_start, map: OnceLock::new() })
    }

    /// Reads the bytes of entry `index` into memory of their own.
    pub fn read(&self, index: usize) -> Result<Vec<u8>> {
        let bytes = self.entry(index)?.bytes();
        self.read_part(index, 0..bytes)
    }

    /// Reads some of the bytes of entry `index` into memory of their own.
    pub fn read_part(&self, index: usize, part: Range<u64>) -> Result<Vec<u8>> {
        let entry = self.entry(index)?;
        if part.start > part.end || part.end > entry.bytes() {
            return Err(Error::InvalidArgument(format!("tensor {:?} has no bytes {part:?}", entry.name)));
        }
        let len = usize::try_from(part.end - part.start)
            .map_err(|_| Error::io(&self.path)(std::io::ErrorKind::OutOfMemory.into()))?;
        let mut out = allocate(len).map_err(Error::io(&self.path))?;
        self.read_into(index, part.start, &mut out)?;
        Ok(out)
    }

    /// Fills `out` with the bytes of entry `index` from `start` on.
    pub fn read_into(&self, index: usize, start: u64, out: &mut [u8]) -> Result<()> {
        let entry = self.entry(index)?;
        if start.checked_add(out.len() as u64).is_none_or(|end| end > entry.bytes()) {
            let (name, len) = (&entry.name, out.len());
            return Err(Error::InvalidArgument(format!("tensor {name:?} has no {len} bytes at {start}")));
        }
        read_exact_at(&self.file, &self.path, out, self.data_start + entry.begin + start)
            .map_err(Error::io(&self.path))
    }

    /// The bytes of entry `index` as a slice of the memory map; only pages that are touched get read.
    pub fn map_tensor(&self, index: usize) -> Result<&[u8]> {
        let entry = self.entry(index)?;
        if entry.bytes() == 0 {
            return Ok(&[]);
        }
        let map = match self.map.get() {
            Some(map) => map,
            None => {
                let map = map_file(&self.file).map_err(Error::io(&self.path))?;
                self.map.get_or_init(|| map)
            }
        };
        let (begin, end) = (self.data_start + entry.begin, self.data_start + entry.end);
        usize::try_from(begin)
            .ok()
            .zip(usize::try_from(end).ok())
            .and_then(|(begin, end)| map.get(begin..end))
            .ok_or_else(|| Error::malformed(&self.path, "the file became shorter after it was opened"))
    }

    fn entry(&self, index: usize) -> Result<&Entry> {
        self.header.entries.get(index).ok_or_else(|| Error::InvalidArgument(format!("no tensor {index}")))
    }
}

#[allow(unsafe_code)]
fn map_file(file: &File) -> std::io::Result<Mmap> {
    // SAFETY: the map is read-only and private to this reader. Its bytes are never trusted: every length
    // in them is checked by whoever parses them. What the type system cannot rule out is another process
    // cutting the file short while it is mapped, which ends in SIGBUS; whoever opens a model for random
    // access accepts that, as with every loader of this format. Streaming work does not come here.
    unsafe { Mmap::map(file) }
}

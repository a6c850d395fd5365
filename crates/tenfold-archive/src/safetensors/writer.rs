//! Writes one safetensors file in a stream, though sizes of blobs are only known once they exist.
//!
//! The header comes first in the file, so room for the longest header possible is kept free, tensors are
//! appended as they come, and the header is written last into its place, padded with spaces as the format
//! allows. This saves the second copy of the data that a temporary payload file would need.

use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::StoredDtype;
use super::header::{Entry, Header};
use crate::error::{Error, Result};

/// Bytes after which the system is asked to begin to write them to the disk. Otherwise it keeps most of a file in memory until the
/// end, when nothing is left to do meanwhile.
const BEGIN_BYTES: u64 = 16 << 20;
/// Longest header that readers accept.
const MAX_HEADER: usize = 100_000_000;

/// A tensor to come.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub name: String,
    pub dtype: StoredDtype,
    /// `None` for a blob: its shape is its number of bytes.
    pub shape: Option<Vec<usize>>,
    /// Bytes that it will not exceed; the exact number unless it is a blob.
    pub max_bytes: usize,
}

/// A file being written: slots in the header's order, filled in an order stated at the start.
#[derive(Debug)]
pub(crate) struct ShardWriter {
    out: BufWriter<File>,
    /// Path to name in errors: the file that the user asked for, not the temporary one.
    label: PathBuf,
    header: Header,
    /// Slots yet to be filled, the next one last.
    pending: Vec<usize>,
    is_blob: Vec<bool>,
    reserved: usize,
    at: u64,
    /// Bytes of the tensors that the system was asked to write.
    begun: u64,
}

impl ShardWriter {
    /// Starts a file at `path` with room for its header. `order` lists every slot once, as it will be filled.
    pub fn create(
        path: &Path,
        label: &Path,
        metadata: Vec<(String, String)>,
        slots: Vec<Slot>,
        order: &[usize],
    ) -> Result<Self> {
        let is_blob: Vec<bool> = slots.iter().map(|slot| slot.shape.is_none()).collect();
        let max_bytes: Vec<u64> = slots.iter().map(|slot| slot.max_bytes as u64).collect();
        let entries = slots
            .into_iter()
            .map(|slot| {
                let shape = slot.shape.unwrap_or_else(|| vec![slot.max_bytes]);
                Entry { name: slot.name, dtype: slot.dtype, shape, begin: 0, end: 0 }
            })
            .collect();
        let mut header = Header { metadata, entries };
        // With every blob at its largest no number can have more digits, so no header can be longer.
        let mut at = 0u64;
        for &slot in order {
            let entry = &mut header.entries[slot];
            entry.begin = at;
            at = at.saturating_add(max_bytes[slot]);
            entry.end = at;
        }
        let reserved = json(&header, label)?.len().next_multiple_of(8);
        if reserved > MAX_HEADER {
            let reason = format!(
                "the header would take {reserved} bytes, but the format allows {MAX_HEADER}; write fewer tensors a file"
            );
            return Err(Error::malformed(label, reason));
        }
        let file = File::create(path).map_err(Error::io(label))?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        out.seek(SeekFrom::Start(8 + reserved as u64)).map_err(Error::io(label))?;
        let pending = order.iter().rev().copied().collect();
        Ok(ShardWriter { out, label: label.to_owned(), header, pending, is_blob, reserved, at: 0, begun: 0 })
    }

    /// Fills the next slot.
    pub fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let slot = self.pending.pop().ok_or_else(|| self.internal("more tensors than slots"))?;
        let entry = &mut self.header.entries[slot];
        let fits = if self.is_blob[slot] {
            bytes.len() as u64 <= entry.bytes()
        } else {
            bytes.len() as u64 == entry.bytes()
        };
        if !fits {
            let reason =
                format!("tensor {:?} has {} bytes instead of {}", entry.name, bytes.len(), entry.bytes());
            return Err(self.internal(&reason));
        }
        if self.is_blob[slot] {
            entry.shape = vec![bytes.len()];
        }
        entry.begin = self.at;
        entry.end = self.at + bytes.len() as u64;
        bytes
            .chunks(BEGIN_BYTES as usize)
            .try_for_each(|part| self.write(part))
            .map_err(Error::io(&self.label))
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.out.write_all(bytes)?;
        self.at += bytes.len() as u64;
        if self.at - self.begun >= BEGIN_BYTES {
            begin_writing(self.out.get_ref(), 8 + self.reserved as u64 + self.begun, self.at - self.begun);
            self.begun = self.at;
        }
        Ok(())
    }

    /// The header as it will be written, once every slot is filled. What is changed in it must not make it longer.
    pub fn header_mut(&mut self) -> &mut Header {
        &mut self.header
    }

    /// Writes the header and makes sure that everything is on the disk. Returns the bytes of the tensors.
    pub fn finish(mut self) -> Result<u64> {
        if !self.pending.is_empty() {
            return Err(self.internal("a slot was left empty"));
        }
        let mut text = json(&self.header, &self.label)?;
        if text.len() > self.reserved {
            return Err(self.internal("the header outgrew its room"));
        }
        text.resize(self.reserved, b' ');
        self.write_header(&text).map_err(Error::io(&self.label))?;
        Ok(self.at)
    }

    fn write_header(&mut self, text: &[u8]) -> std::io::Result<()> {
        self.out.seek(SeekFrom::Start(0))?; // flushes first
        self.out.write_all(&(text.len() as u64).to_le_bytes())?;
        self.out.write_all(text)?;
        self.out.flush()?;
        self.out.get_ref().sync_all()
    }

    /// A mistake of this crate, reported rather than panicked on.
    fn internal(&self, reason: &str) -> Error {
        Error::InvalidArgument(format!("{}: {reason}", self.label.display()))
    }
}

/// Asks the system to write a part of a file to the disk, and does not wait. That may fail: all of it is synced in the end.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn begin_writing(file: &File, start: u64, bytes: u64) {
    use std::os::fd::AsRawFd;
    let (Ok(start), Ok(bytes)) = (start.try_into(), bytes.try_into()) else { return };
    // SAFETY: the descriptor is open, as the file is borrowed; the call takes no memory of ours.
    unsafe { libc::sync_file_range(file.as_raw_fd(), start, bytes, libc::SYNC_FILE_RANGE_WRITE) };
}

/// Other systems decide themselves when to write.
#[cfg(not(target_os = "linux"))]
fn begin_writing(_: &File, _: u64, _: u64) {}

fn json(header: &Header, label: &Path) -> Result<Vec<u8>> {
    header.to_json().map_err(|e| Error::malformed(label, format!("the header cannot be written: {e}")))
}

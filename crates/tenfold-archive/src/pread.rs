//! Reading at a position without a shared cursor, so that several threads may read one source.

use std::fs::File;
use std::io;
use std::path::Path;

/// Fills `buf` from byte `offset` of the file.
#[cfg(unix)]
pub(crate) fn read_exact_at(file: &File, _path: &Path, buf: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buf, offset)
}

/// Fills `buf` from byte `offset` of the file. Opens it again: handles of one file share a cursor here.
#[cfg(not(unix))]
pub(crate) fn read_exact_at(_file: &File, path: &Path, buf: &mut [u8], offset: u64) -> io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    let mut own = File::open(path)?;
    own.seek(SeekFrom::Start(offset))?;
    own.read_exact(buf)
}

/// A zeroed buffer of `len` bytes, or an error where the machine cannot give that much: sizes come from
/// files, and a sparse file may claim more than there is memory.
pub(crate) fn allocate(len: usize) -> io::Result<Vec<u8>> {
    let mut buf = Vec::new();
    buf.try_reserve_exact(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
    buf.resize(len, 0);
    Ok(buf)
}

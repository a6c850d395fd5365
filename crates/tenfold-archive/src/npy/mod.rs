//! A `.npy` file as input: one array, named after the file. The header is parsed in `header`; arrays in
//! Fortran order come out in row-major order, Python objects are never unpickled.

mod header;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::pread;
use crate::source::{Source, TensorInfo};

/// A `.npy` file, opened and checked.
pub struct NpySource {
    path: PathBuf,
    file: File,
    /// Always one entry; a vector because a source hands out a slice.
    tensors: Vec<TensorInfo>,
    metadata: BTreeMap<String, String>,
    data_offset: u64,
    fortran: bool,
}

impl NpySource {
    /// Opens a file and checks its header against its length.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_owned();
        let io = |source| Error::Io { path: path.clone(), source };
        let file = File::open(&path).map_err(io)?;
        let file_len = file.metadata().map_err(io)?.len();
        let header = header::read(&file, &path)?;
        let bad = |reason: String| Error::Malformed { path: path.clone(), reason };

        let size = header.dtype.size();
        let bytes = match header.shape.contains(&0) {
            true => Some(0),
            false => header.shape.iter().try_fold(size, |n, &d| n.checked_mul(d)),
        };
        let bytes = bytes.filter(|&n| isize::try_from(n).is_ok());
        let bytes = bytes.ok_or_else(|| bad(format!("shape {:?} is too large", header.shape)))? as u64;
        let there = file_len.saturating_sub(header.data_offset);
        if there != bytes {
            let shape = &header.shape;
            return Err(bad(format!("shape {shape:?} takes {bytes} bytes, but the file has {there}")));
        }
        let name = path.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
        let info = TensorInfo { name, dtype: header.dtype, shape: header.shape, bytes };
        Ok(NpySource {
            file,
            tensors: vec![info],
            metadata: BTreeMap::new(),
            data_offset: header.data_offset,
            fortran: header.fortran,
            path,
        })
    }
}

impl Source for NpySource {
    fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    fn read(&self, index: usize) -> Result<Cow<'_, [u8]>> {
        let Some(info) = self.tensors.get(index) else {
            return Err(Error::InvalidArgument(format!("tensor {index} does not exist: the file has one")));
        };
        let io = |source| Error::Io { path: self.path.clone(), source };
        // `open` checked that this fits.
        let len = info.bytes as usize;
        let mut data = pread::allocate(len).map_err(io)?;
        pread::read_exact_at(&self.file, &self.path, &mut data, self.data_offset).map_err(io)?;
        if self.fortran && info.shape.len() > 1 && len > 0 {
            let mut out = pread::allocate(len).map_err(io)?;
            to_row_major(&data, &info.shape, info.dtype.size(), &mut out);
            data = out;
        }
        Ok(Cow::Owned(data))
    }
}

/// Copies an array whose first index runs fastest into one whose last index does.
fn to_row_major(data: &[u8], shape: &[usize], size: usize, out: &mut [u8]) {
    // Step of each index in the input, in elements.
    let mut strides = Vec::with_capacity(shape.len());
    let mut step = 1;
    for &d in shape {
        strides.push(step);
        step *= d;
    }
    let mut index = vec![0; shape.len()];
    let mut from = 0;
    for room in out.chunks_exact_mut(size) {
        room.copy_from_slice(&data[from * size..][..size]);
        // Count up, the last index first.
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            from += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            from -= strides[axis] * shape[axis];
            index[axis] = 0;
        }
    }
}

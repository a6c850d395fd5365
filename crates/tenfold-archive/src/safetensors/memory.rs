//! A safetensors file whose bytes are in memory.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::codec_dtype;
use super::file::{MAX_HEADER, PREFIX};
use super::header::Header;
use crate::error::{Error, Result};
use crate::source::{Source, TensorInfo};

/// The bytes and their checked header.
#[derive(Debug)]
pub(crate) struct MemoryFile {
    label: PathBuf,
    bytes: Vec<u8>,
    tensors: Vec<TensorInfo>,
    places: Vec<Range<usize>>,
    metadata: BTreeMap<String, String>,
    /// The tensors in the order of their bytes.
    pub data_order: Vec<usize>,
}

impl MemoryFile {
    /// Checks the header. Types that the codec does not have are refused.
    pub fn parse(bytes: Vec<u8>, label: &Path) -> Result<Self> {
        let (prefix, rest) = bytes.split_first_chunk::<{ PREFIX as usize }>().ok_or_else(|| {
            Error::malformed(label, format!("{} bytes are too few for a safetensors file", bytes.len()))
        })?;
        let length = u64::from_le_bytes(*prefix);
        if length > MAX_HEADER || length > rest.len() as u64 {
            let reason = format!("not safetensors, or truncated: the header claims {length} bytes");
            return Err(Error::malformed(label, reason));
        }
        // At most 100 MB: fits.
        let (json, data) = rest.split_at(length as usize);
        let header =
            Header::parse(json, data.len() as u64).map_err(|reason| Error::malformed(label, reason))?;
        let data_order = header.data_order();
        let start = PREFIX as usize + json.len();
        let mut tensors = Vec::with_capacity(header.entries.len());
        let mut places = Vec::with_capacity(header.entries.len());
        for entry in header.entries {
            let dtype = codec_dtype(entry.dtype).ok_or_else(|| Error::Unsupported {
                path: label.to_owned(),
                what: format!("tensor {:?} of dtype {}", entry.name, entry.dtype),
            })?;
            // The header was checked against the bytes that are there.
            places.push(start + entry.begin as usize..start + entry.end as usize);
            let bytes = entry.bytes();
            tensors.push(TensorInfo { name: entry.name, dtype, shape: entry.shape, bytes });
        }
        let metadata = header.metadata.into_iter().collect();
        Ok(MemoryFile { label: label.to_owned(), bytes, tensors, places, metadata, data_order })
    }
}

impl Source for MemoryFile {
    fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    fn read(&self, index: usize) -> Result<Cow<'_, [u8]>> {
        let part = self.places.get(index).and_then(|place| self.bytes.get(place.clone()));
        part.map(Cow::Borrowed).ok_or_else(|| Error::malformed(&self.label, format!("no tensor {index}")))
    }
}

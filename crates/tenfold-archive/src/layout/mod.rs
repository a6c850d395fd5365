//! A safetensors file told from its header alone, for readers who do not have the rest: where each tensor lies, what it was, how
//! its bytes are checked, and where each goes in a file that is made of it.
//!
//! [`Archive`](crate::Archive) reads files that are there. This reads files that are on their way.

mod written;

use std::ops::Range;
use std::path::{Path, PathBuf};

use tenfold::format::BlobInfo;

use crate::archive::ArchiveTensor;
use crate::error::{Error, Result};
use crate::model::{Item, Shard};
use crate::output::config;
use crate::safetensors::{Header, MAX_HEADER, PREFIX, ShardIndex};
use crate::tags::{self, Tags};

pub use written::{Pick, Written};

/// What a safetensors file holds.
#[derive(Debug)]
pub struct Layout {
    label: PathBuf,
    header: Header,
    tags: Option<Tags>,
    tensors: Vec<LayoutTensor>,
    head_len: u64,
    is_delta: bool,
}

/// A tensor of a [`Layout`].
#[derive(Debug, Clone)]
pub struct LayoutTensor {
    /// What it is; of a compressed tensor, what it was.
    pub info: ArchiveTensor,
    /// Where its stored bytes lie in the file.
    pub stored: Range<u64>,
}

impl Layout {
    /// Bytes at the start of a file that say how long its header is.
    pub const PREFIX: usize = PREFIX as usize;

    /// Bytes of a file up to its first tensor, from its first [`Layout::PREFIX`]. `label` names the file in errors.
    pub fn head_len(prefix: [u8; Layout::PREFIX], file_len: u64, label: &Path) -> Result<u64> {
        let header_len = u64::from_le_bytes(prefix);
        if file_len < PREFIX {
            let reason = format!("{file_len} bytes are too few for a safetensors file");
            return Err(Error::malformed(label, reason));
        }
        if header_len > MAX_HEADER || header_len > file_len.saturating_sub(PREFIX) {
            let reason = format!("not safetensors, or truncated: the header claims {header_len} bytes");
            return Err(Error::malformed(label, reason));
        }
        Ok(PREFIX + header_len)
    }

    /// Reads the head of a file: everything up to its first tensor, of exactly [`Layout::head_len`] bytes.
    pub fn parse(head: &[u8], file_len: u64, label: &Path) -> Result<Layout> {
        let (prefix, json) = head
            .split_first_chunk()
            .ok_or_else(|| Error::malformed(label, format!("{} bytes are no header", head.len())))?;
        let head_len = Layout::head_len(*prefix, file_len, label)?;
        if head_len != head.len() as u64 {
            let reason = format!("the header has {} bytes instead of {head_len}", head.len());
            return Err(Error::malformed(label, reason));
        }
        let header =
            Header::parse(json, file_len - head_len).map_err(|reason| Error::malformed(label, reason))?;
        let items: Vec<Item> = header
            .entries
            .iter()
            .map(|entry| Item {
                name: entry.name.clone(),
                dtype: entry.dtype,
                shape: entry.shape.clone(),
                bytes: entry.bytes(),
                shard: 0,
            })
            .collect();
        let shard = Shard {
            path: label.to_owned(),
            file_name: label.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            metadata: header.metadata.clone(),
            items: 0..items.len(),
            data_order: header.data_order(),
        };
        let tags = tags::read(&shard, &items)?;
        let tensors = items.iter().zip(&header.entries).map(|(item, entry)| LayoutTensor {
            info: ArchiveTensor::new(item, tags.as_ref(), &shard.file_name),
            stored: head_len + entry.begin..head_len + entry.end,
        });
        let tensors = tensors.collect();
        let is_delta = tags::get(&shard.metadata, tags::DELTA).is_some();
        Ok(Layout { label: label.to_owned(), header, tags, tensors, head_len, is_delta })
    }

    /// The tensors, in the order of the header.
    pub fn tensors(&self) -> &[LayoutTensor] {
        &self.tensors
    }

    /// Bytes of the head.
    pub fn head_bytes(&self) -> u64 {
        self.head_len
    }

    /// Whether tenfold wrote it.
    pub fn is_compressed(&self) -> bool {
        self.tags.is_some()
    }

    /// Whether it is a delta: its tensors are not those of a model.
    pub fn is_delta(&self) -> bool {
        self.is_delta
    }

    /// Reads the header of a blob, which `start` begins with, and checks it against the file's.
    pub fn check_blob(&self, index: usize, start: &[u8]) -> Result<BlobInfo> {
        let LayoutTensor { info: tensor, stored } = self.tensor(index)?;
        let info = tenfold::inspect(start).map_err(Error::codec(&tensor.name))?;
        if Some(info.dtype) != tensor.dtype || info.shape != tensor.shape {
            let reason = format!(
                "tensor {:?} is {} {:?} in the metadata but {} {:?} in its blob",
                tensor.name, tensor.dtype_name, tensor.shape, info.dtype, info.shape
            );
            return Err(Error::malformed(&self.label, reason));
        }
        if info.blob_bytes != stored.end - stored.start {
            let reason = format!(
                "the blob of tensor {:?} has {} bytes, but its header says {}",
                tensor.name,
                stored.end - stored.start,
                info.blob_bytes
            );
            return Err(Error::malformed(&self.label, reason));
        }
        Ok(info)
    }

    /// A check of a tensor that is not compressed; `None` where the file has no checksum of it.
    pub fn plain_sum(&self, index: usize) -> Result<Option<PlainSum>> {
        let tensor = &self.tensor(index)?.info;
        let expected = tensor.checksum.filter(|_| !cfg!(fuzzing));
        Ok(expected.map(|expected| PlainSum {
            expected,
            // The checksum of no bytes covers dtype and shape.
            sum: tags::tensor_hasher(tensor.stored_dtype, &tensor.shape),
        }))
    }

    fn tensor(&self, index: usize) -> Result<&LayoutTensor> {
        self.tensors.get(index).ok_or_else(|| {
            let reason =
                format!("tensor {index} does not exist: the file has {} tensors", self.tensors.len());
            Error::InvalidArgument(reason)
        })
    }
}

/// Checks the bytes of a tensor as they come.
#[derive(Debug, Clone)]
pub struct PlainSum {
    expected: u32,
    sum: crc32fast::Hasher,
}

impl PlainSum {
    /// The next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.sum.update(bytes);
    }

    /// Whether those were the bytes that the file's checksum is of.
    pub fn is_right(self) -> bool {
        self.sum.finalize() == self.expected
    }
}

/// The `config.json` of a model folder as it was before its weights were compressed, if that changed it.
pub fn restored_config(text: &str) -> Option<String> {
    config::convert(text, config::Direction::Decompress)
}

/// An index of shards (`model.safetensors.index.json`) in memory: its shards, and its text for shards with this many bytes of tensors.
#[allow(clippy::type_complexity)] // names, and what writes them anew: a type for both would be read once
pub fn shards_of_index(text: &[u8], label: &Path) -> Result<(Vec<String>, impl Fn(u64) -> Result<Vec<u8>>)> {
    let index = ShardIndex::parse(text, label)?;
    let label = label.to_owned();
    let shards = index.shard_names();
    Ok((shards, move |bytes| index.to_json(bytes).map_err(|e| Error::malformed(&label, e.to_string()))))
}

//! An input as compressing and reading see it: tensors in shards, wherever they come from.
//!
//! This is the one place that knows of more than one format. It opens a safetensors file, an index, a folder, or
//! anything that implements [`Source`], and lists tensors with the types of a safetensors header, which is
//! what gets written again.

mod open;

use std::borrow::Cow;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::safetensors::{SafetensorsFile, ShardIndex, StoredDtype};
use crate::source::Source;

/// One tensor as it is stored.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub name: String,
    pub dtype: StoredDtype,
    pub shape: Vec<usize>,
    pub bytes: u64,
    /// Index of its shard.
    pub shard: usize,
}

impl Item {
    pub fn values(&self) -> u64 {
        self.shape.iter().fold(1u64, |n, &d| n.saturating_mul(d as u64))
    }
}

/// One file of the model.
#[derive(Debug)]
pub(crate) struct Shard {
    pub path: PathBuf,
    pub file_name: String,
    pub metadata: Vec<(String, String)>,
    /// Its tensors, in the order of the header.
    pub items: Range<usize>,
    /// Its tensors in the order of their bytes; counted from the shard's first.
    pub data_order: Vec<usize>,
}

/// Where the output goes: a file beside others, or a folder of files.
#[derive(Debug)]
pub(crate) enum Layout {
    File,
    /// No file is read, so none can be overwritten by mistake; the output is one file.
    Memory,
    Folder {
        folder: PathBuf,
        index: Option<ShardIndex>,
        /// Whether everything else in the folder belongs to the model: true if the caller named the folder.
        whole: bool,
    },
}

enum Backing {
    Safetensors(Vec<SafetensorsFile>),
    Other(Box<dyn Source>),
}

/// An open model.
pub(crate) struct Model {
    pub path: PathBuf,
    pub items: Vec<Item>,
    pub shards: Vec<Shard>,
    pub layout: Layout,
    backing: Backing,
}

impl Model {
    /// Opens a safetensors file, an index of shards, a folder with either, a GGUF file or an npy file.
    pub fn open(path: &Path) -> Result<Model> {
        open::open(path)
    }

    /// A model whose tensors are not in files. `output` lends its name to the one shard.
    pub fn from_source(output: &Path, source: Box<dyn Source>) -> Result<Model> {
        let mut model = open::from_source(output, source)?;
        model.layout = Layout::Memory;
        Ok(model)
    }

    /// The bytes of a tensor as stored, in memory of their own where the format allows the choice.
    pub fn read(&self, index: usize) -> Result<Cow<'_, [u8]>> {
        let shard = self.item(index)?.shard;
        match &self.backing {
            Backing::Safetensors(files) => {
                let within = index - self.shards[shard].items.start;
                files[shard].read(within).map(Cow::Owned)
            }
            Backing::Other(source) => source.read(index),
        }
    }

    /// Fills `out` with the bytes of a tensor as stored, from `start` on.
    pub fn read_into(&self, index: usize, start: usize, out: &mut [u8]) -> Result<()> {
        let shard = self.item(index)?.shard;
        match &self.backing {
            Backing::Safetensors(files) => {
                let within = index - self.shards[shard].items.start;
                files[shard].read_into(within, start as u64, out)
            }
            Backing::Other(source) => {
                let whole = source.read(index)?;
                let part = whole.get(start..).and_then(|rest| rest.get(..out.len())).ok_or_else(|| {
                    Error::InvalidArgument(format!("tensor {index} has no {} bytes at {start}", out.len()))
                })?;
                out.copy_from_slice(part);
                Ok(())
            }
        }
    }

    /// Pieces of a tensor of `len` bytes each, one after the other, without reading the rest where the
    /// format allows that. Not through the map: its pages would count as this process's memory.
    pub fn read_pieces(&self, index: usize, starts: &[u64], len: u64) -> Result<Vec<u8>> {
        let shard = self.item(index)?.shard;
        let within = index - self.shards[shard].items.start;
        let mut out = Vec::new();
        match &self.backing {
            Backing::Safetensors(files) => {
                for &start in starts {
                    out.extend(files[shard].read_part(within, start..start.saturating_add(len))?);
                }
            }
            Backing::Other(source) => {
                let whole = source.read(index)?;
                for &start in starts {
                    let range = start as usize..start.saturating_add(len) as usize;
                    out.extend_from_slice(whole.get(range).ok_or_else(|| {
                        Error::InvalidArgument(format!("tensor {index} has no bytes at {start}"))
                    })?);
                }
            }
        }
        Ok(out)
    }

    /// The bytes of a tensor as stored, mapped: for looking at a part of them.
    pub fn peek(&self, index: usize) -> Result<Cow<'_, [u8]>> {
        let shard = self.item(index)?.shard;
        match &self.backing {
            Backing::Safetensors(files) => {
                let within = index - self.shards[shard].items.start;
                files[shard].map_tensor(within).map(Cow::Borrowed)
            }
            Backing::Other(source) => source.read(index),
        }
    }

    /// Whether the tensors lie in safetensors files.
    pub fn is_safetensors(&self) -> bool {
        matches!(self.backing, Backing::Safetensors(_))
    }

    /// Path of the file that holds a tensor.
    pub fn path_of(&self, index: usize) -> &Path {
        self.items.get(index).map_or(&self.path, |item| &self.shards[item.shard].path)
    }

    /// Bytes of all tensors as stored.
    pub fn bytes(&self) -> u64 {
        self.items.iter().map(|item| item.bytes).sum()
    }

    fn item(&self, index: usize) -> Result<&Item> {
        self.items.get(index).ok_or_else(|| {
            Error::InvalidArgument(format!(
                "tensor {index} does not exist: the model has {} tensors",
                self.items.len()
            ))
        })
    }
}

//! A GGUF file as a [`Source`].

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use gguf_rs_lib::format::GGUFTensorType;
use tenfold::Dtype;

use super::dequant::{self, Blocks};
use super::parse::{self, Descriptor};
use crate::error::{Error, Result};
use crate::pread;
use crate::source::{Source, TensorInfo};

/// Stored bytes that are turned into numbers at a time: large enough for a disk, small beside a tensor.
const CHUNK_BYTES: usize = 1 << 20;

/// A GGUF file, opened and checked. Tensors are read one at a time, on request.
pub struct GgufSource {
    path: PathBuf,
    file: File,
    metadata: BTreeMap<String, String>,
    tensors: Vec<TensorInfo>,
    stored: Vec<Stored>,
}

/// Where a tensor lies and how it becomes elements.
struct Stored {
    offset: u64,
    bytes: usize,
    coding: Coding,
}

#[derive(Clone, Copy)]
enum Coding {
    Plain(Dtype),
    Quantised(Blocks),
}

impl GgufSource {
    /// Opens a file and checks its whole head: names, sizes and ranges of all tensors.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_owned();
        let file = File::open(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
        let head = parse::read_head(&file, &path)?;
        let mut tensors = Vec::with_capacity(head.tensors.len());
        let mut stored = Vec::with_capacity(head.tensors.len());
        for descriptor in head.tensors {
            let (info, place) = interpret(descriptor, &path)?;
            tensors.push(info);
            stored.push(place);
        }
        Ok(GgufSource { path, file, metadata: head.metadata, tensors, stored })
    }

    fn fill(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        pread::read_exact_at(&self.file, &self.path, buf, offset).map_err(|source| self.io(source))
    }

    fn allocate(&self, len: usize) -> Result<Vec<u8>> {
        pread::allocate(len).map_err(|source| self.io(source))
    }

    fn io(&self, source: std::io::Error) -> Error {
        Error::Io { path: self.path.clone(), source }
    }
}

impl Source for GgufSource {
    fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    fn read(&self, index: usize) -> Result<Cow<'_, [u8]>> {
        let (Some(info), Some(stored)) = (self.tensors.get(index), self.stored.get(index)) else {
            return Err(Error::InvalidArgument(format!(
                "tensor {index} does not exist: the file has {}",
                self.tensors.len()
            )));
        };
        // `interpret` checked that this fits.
        let mut out = self.allocate(info.bytes as usize)?;
        match stored.coding {
            Coding::Plain(_) => self.fill(&mut out, stored.offset)?,
            Coding::Quantised(blocks) => {
                let per_chunk = CHUNK_BYTES / blocks.bytes;
                let mut raw = self.allocate(stored.bytes.min(per_chunk * blocks.bytes))?;
                let mut offset = stored.offset;
                for chunk in out.chunks_mut(per_chunk * blocks.values * 4) {
                    let raw = &mut raw[..chunk.len() / (blocks.values * 4) * blocks.bytes];
                    self.fill(raw, offset)?;
                    blocks.expand(raw, chunk);
                    offset += raw.len() as u64;
                }
            }
        }
        Ok(Cow::Owned(out))
    }
}

/// What the rest of the crate sees of a tensor, and how to get there; an error for types that are not read.
fn interpret(tensor: Descriptor, path: &Path) -> Result<(TensorInfo, Stored)> {
    let unsupported = |what: String| Error::Unsupported { path: path.to_owned(), what };
    let coding = find_coding(tensor.kind)
        .ok_or_else(|| unsupported(format!("tensor {:?} of type {}", tensor.name, tensor.kind.name())))?;
    let dtype = match coding {
        Coding::Plain(dtype) => dtype,
        Coding::Quantised(_) => Dtype::F32,
    };
    let bytes = tensor.values.checked_mul(dtype.size() as u64).filter(|&n| isize::try_from(n).is_ok());
    let (Some(bytes), Ok(stored_bytes)) = (bytes, usize::try_from(tensor.bytes)) else {
        return Err(unsupported(format!(
            "tensor {:?}, which does not fit into memory on this machine",
            tensor.name
        )));
    };
    let info = TensorInfo { name: tensor.name, dtype, shape: tensor.shape, bytes };
    Ok((info, Stored { offset: tensor.offset, bytes: stored_bytes, coding }))
}

fn find_coding(kind: GGUFTensorType) -> Option<Coding> {
    Some(match kind {
        GGUFTensorType::F64 => Coding::Plain(Dtype::F64),
        GGUFTensorType::F32 => Coding::Plain(Dtype::F32),
        GGUFTensorType::F16 => Coding::Plain(Dtype::F16),
        GGUFTensorType::BF16 => Coding::Plain(Dtype::Bf16),
        GGUFTensorType::I8 => Coding::Plain(Dtype::I8),
        GGUFTensorType::I16 => Coding::Plain(Dtype::I16),
        GGUFTensorType::I32 => Coding::Plain(Dtype::I32),
        GGUFTensorType::I64 => Coding::Plain(Dtype::I64),
        other => Coding::Quantised(dequant::blocks(other)?),
    })
}

//! A version of a model, as making and applying see it: names, dtypes, shapes, and bytes when they are asked for.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use tenfold::{DecodeOptions, Dtype, TensorView};

use crate::archive::Archive;
use crate::error::{Error, Result};
use crate::safetensors::{StoredDtype, codec_dtype, dtype_name, stored_dtype};

/// What a tensor is, without its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Meta {
    /// Its name.
    pub name: String,
    /// Shape, outermost dimension first.
    pub shape: Vec<usize>,
    /// Bytes of the tensor.
    pub bytes: u64,
    pub(crate) stored: StoredDtype,
}

impl Meta {
    /// Element type; `None` for one that the codec does not have (complex, 4- and 6-bit floats).
    pub fn dtype(&self) -> Option<Dtype> {
        codec_dtype(self.stored)
    }

    /// Name of the element type.
    pub fn dtype_name(&self) -> String {
        dtype_name(self.stored)
    }

    /// Dtype and shape, for errors.
    pub(super) fn kind(&self) -> String {
        format!("{} {:?}", self.dtype_name(), self.shape)
    }

    pub(super) fn is_alike(&self, other: &Meta) -> bool {
        (self.stored, &self.shape) == (other.stored, &other.shape)
    }
}

type Read<'a> = Box<dyn Fn(usize) -> Result<Cow<'a, [u8]>> + Send + Sync + 'a>;

/// The tensors of a model, in files or in memory.
pub struct Tensors<'a> {
    items: Vec<Meta>,
    by_name: HashMap<String, usize>,
    metadata: BTreeMap<String, String>,
    /// Files that hold them.
    files: Vec<PathBuf>,
    read: Read<'a>,
}

impl<'a> Tensors<'a> {
    /// Tensors in memory, by name.
    pub fn new(tensors: impl IntoIterator<Item = (String, TensorView<'a>)>) -> Result<Tensors<'a>> {
        let (mut items, mut data) = (Vec::new(), Vec::new());
        for (name, view) in tensors {
            let stored = stored_dtype(view.dtype())?;
            items.push(Meta { name, shape: view.shape().to_vec(), bytes: view.data().len() as u64, stored });
            data.push(view.data());
        }
        Tensors::from_parts(items, Box::new(move |i| Ok(Cow::Borrowed(data[i]))))
    }

    /// The tensors of a model file. Compressed ones are decoded, each when it is read.
    pub fn of_archive(archive: &'a Archive, options: &DecodeOptions) -> Tensors<'a> {
        let meta = |tensor: &crate::ArchiveTensor| Meta {
            name: tensor.name.clone(),
            shape: tensor.shape.clone(),
            bytes: tensor.bytes,
            stored: tensor.stored_dtype,
        };
        let items: Vec<Meta> = archive.tensors().iter().map(meta).collect();
        let by_name = items.iter().enumerate().map(|(i, meta)| (meta.name.clone(), i)).collect();
        let options = options.clone();
        let read: Read<'a> = Box::new(move |i| archive.read_bytes(i, &options).map(Cow::Owned));
        let files = archive.model().shards.iter().map(|shard| shard.path.clone()).collect();
        Tensors { items, by_name, metadata: archive.metadata().clone(), files, read }
    }

    fn from_parts(items: Vec<Meta>, read: Read<'a>) -> Result<Tensors<'a>> {
        let mut by_name = HashMap::with_capacity(items.len());
        for (i, meta) in items.iter().enumerate() {
            if by_name.insert(meta.name.clone(), i).is_some() {
                return Err(Error::InvalidArgument(format!("tensor {:?} is there twice", meta.name)));
            }
        }
        Ok(Tensors { items, by_name, metadata: BTreeMap::new(), files: Vec::new(), read })
    }

    /// Sets the model's metadata; a delta keeps it where it changes.
    pub fn with_metadata(mut self, metadata: BTreeMap<String, String>) -> Self {
        self.metadata = metadata;
        self
    }

    /// The files that hold the tensors, which an output must not replace.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(PathBuf::as_path)
    }

    /// What the tensors are.
    pub fn items(&self) -> &[Meta] {
        &self.items
    }

    /// The model's metadata.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Number of the tensor with this name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Bytes of all tensors; saturates if a damaged file claims more than a `u64` holds.
    pub fn bytes(&self) -> u64 {
        self.items.iter().fold(0, |sum, meta| meta.bytes.saturating_add(sum))
    }

    /// The bytes of a tensor: little-endian, row-major.
    pub fn read(&self, index: usize) -> Result<Cow<'a, [u8]>> {
        let meta = self.items.get(index).ok_or_else(|| {
            Error::InvalidArgument(format!(
                "tensor {index} does not exist: the model has {} tensors",
                self.items.len()
            ))
        })?;
        let data = (self.read)(index)?;
        if data.len() as u64 != meta.bytes {
            let (name, have, need) = (&meta.name, data.len(), meta.bytes);
            return Err(Error::InvalidArgument(format!(
                "tensor {name:?} has {have} bytes instead of {need}"
            )));
        }
        Ok(data)
    }
}

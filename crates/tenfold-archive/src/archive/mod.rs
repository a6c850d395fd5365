//! Random access to a model, compressed or not: list its tensors, read one, read some of its rows.
//!
//! To a reader of this type a blob and a plain tensor look the same; so do a file, a folder of shards,
//! a GGUF file and an npy file.

mod check;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;

use tenfold::engine::SharedEngine;
use tenfold::format::BlobInfo;
use tenfold::{DecodeOptions, Dtype, Tensor, TensorView};

use crate::error::{Error, Result};
use crate::model::{Item, Model};
use crate::safetensors::{MemoryFile, StoredDtype, codec_dtype, dtype_name};
use crate::tags::{self, Tags};

/// A tensor of an [`Archive`], as it was before compression.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArchiveTensor {
    /// Its name.
    pub name: String,
    /// Element type; `None` for one that the codec does not have (complex, 4- and 6-bit floats).
    pub dtype: Option<Dtype>,
    /// Name of the element type.
    pub dtype_name: String,
    /// Shape, outermost dimension first.
    pub shape: Vec<usize>,
    /// Bytes of the tensor.
    pub bytes: u64,
    /// Bytes in the file.
    pub stored_bytes: u64,
    /// Whether it is stored as a blob.
    pub compressed: bool,
    /// Name of the file that holds it.
    pub file: String,
    pub(crate) stored_dtype: StoredDtype,
    /// Checksum of a tensor that is not compressed, if the file has one.
    pub(crate) checksum: Option<u32>,
}

impl ArchiveTensor {
    /// A tensor of a file with these keys.
    pub(crate) fn new(item: &Item, tags: Option<&Tags>, file: &str) -> ArchiveTensor {
        let original = tags.and_then(|tags| tags.blobs.get(&item.name));
        let (dtype, shape, bytes) = match original {
            Some(original) => (original.dtype, &original.shape, original.bytes),
            None => (item.dtype, &item.shape, item.bytes),
        };
        ArchiveTensor {
            name: item.name.clone(),
            dtype: codec_dtype(dtype),
            dtype_name: dtype_name(dtype),
            shape: shape.clone(),
            bytes,
            stored_bytes: item.bytes,
            compressed: original.is_some(),
            file: file.to_owned(),
            stored_dtype: dtype,
            checksum: tags.and_then(|tags| tags.plain.as_ref()?.get(&item.name).copied()),
        }
    }
}

/// An open model.
///
/// Rows and headers are read through a memory map: do not let other processes shorten the file meanwhile.
pub struct Archive {
    model: Model,
    /// One a shard; `None` where the shard holds no blobs.
    tags: Vec<Option<Tags>>,
    tensors: Vec<ArchiveTensor>,
    by_name: HashMap<String, usize>,
    metadata: BTreeMap<String, String>,
    engine: SharedEngine,
}

impl Archive {
    /// Opens a model of any format that [`compress`](crate::compress) reads, compressed or not.
    pub fn open(path: &Path) -> Result<Archive> {
        Archive::open_any(path)?.into_model(path)
    }

    /// The same for the bytes of a safetensors file that are in memory. `label` names them in errors.
    pub fn parse(bytes: Vec<u8>, label: &Path) -> Result<Archive> {
        Archive::parse_any(bytes, label)?.into_model(label)
    }

    /// Opens a model or a delta.
    pub(crate) fn open_any(path: &Path) -> Result<Archive> {
        Archive::from_model(Model::open(path)?)
    }

    /// Refuses a delta: what it holds are not the tensors of a model.
    fn into_model(self, path: &Path) -> Result<Archive> {
        let is_delta =
            self.model.shards.iter().any(|shard| tags::get(&shard.metadata, tags::DELTA).is_some());
        if is_delta { Err(Error::IsDelta(path.to_owned())) } else { Ok(self) }
    }

    /// The bytes of a model or of a delta.
    pub(crate) fn parse_any(bytes: Vec<u8>, label: &Path) -> Result<Archive> {
        let file = MemoryFile::parse(bytes, label)?;
        let data_order = file.data_order.clone();
        let mut model = Model::from_source(label, Box::new(file))?;
        model.shards[0].data_order = data_order;
        Archive::from_model(model)
    }

    fn from_model(model: Model) -> Result<Archive> {
        let tags = model
            .shards
            .iter()
            .map(|shard| tags::read(shard, &model.items))
            .collect::<Result<Vec<Option<Tags>>>>()?;
        let mut tensors = Vec::with_capacity(model.items.len());
        for item in &model.items {
            let file = &model.shards[item.shard].file_name;
            tensors.push(ArchiveTensor::new(item, tags[item.shard].as_ref(), file));
        }
        let by_name = tensors.iter().enumerate().map(|(i, t)| (t.name.clone(), i)).collect();
        let mut metadata = BTreeMap::new();
        for (shard, tags) in model.shards.iter().zip(&tags) {
            metadata.extend(tags.as_ref().map_or(&shard.metadata, |tags| &tags.metadata).iter().cloned());
        }
        let archive = Archive { model, tags, tensors, by_name, metadata, engine: SharedEngine::default() };
        if archive.is_compressed() {
            archive.check_untagged()?;
        }
        Ok(archive)
    }

    /// Sets the engine that decodes blobs; the CPU by default.
    pub fn with_engine(mut self, engine: SharedEngine) -> Self {
        self.engine = engine;
        self
    }

    /// The tensors, in the order of the file.
    pub fn tensors(&self) -> &[ArchiveTensor] {
        &self.tensors
    }

    /// The original's metadata.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Number of the tensor with this name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Bytes of all tensors before compression; saturates if a damaged file claims more than a `u64` holds.
    pub fn bytes(&self) -> u64 {
        self.tensors.iter().fold(0, |sum, tensor| tensor.bytes.saturating_add(sum))
    }

    /// Whether the model was compressed by tenfold.
    pub fn is_compressed(&self) -> bool {
        self.tags.iter().any(Option::is_some)
    }

    /// Reads and decodes tensor `index`.
    pub fn read(&self, index: usize, options: &DecodeOptions) -> Result<Tensor> {
        let (tensor, dtype) = self.codec_tensor(index)?;
        let data = self.read_bytes(index, options)?;
        Ok(Tensor { dtype, shape: tensor.shape.clone(), data })
    }

    /// Reads rows of tensor `index`, seen as rows × last dimension; of a blob, only the tiles that hold them.
    pub fn read_rows(&self, index: usize, rows: Range<usize>, options: &DecodeOptions) -> Result<Tensor> {
        let (tensor, dtype) = self.codec_tensor(index)?;
        let stored = self.model.peek(index)?;
        if tensor.compressed {
            self.check_blob(index, &stored)?;
            return self.engine.decode_rows(&stored, rows, options).map_err(Error::codec(&tensor.name));
        }
        let view = TensorView::new(dtype, &tensor.shape, &stored).map_err(Error::codec(&tensor.name))?;
        if rows.start > rows.end || rows.end > view.rows() {
            let reason =
                format!("rows {rows:?} are outside tensor {:?}, which has {} rows", tensor.name, view.rows());
            return Err(Error::InvalidArgument(reason));
        }
        // The columns of an empty tensor may be too many to multiply; there are no rows of them then.
        let width = view.cols().saturating_mul(dtype.size());
        if rows.len() == view.rows() {
            self.check_plain(index, &stored)?;
        }
        let data = stored[rows.start * width..rows.end * width].to_vec();
        Ok(Tensor { dtype, shape: vec![rows.len(), view.cols()], data })
    }

    /// Reads tensor `index`, or rows of it as [`Archive::read_rows`] does, into memory of the caller, which must have
    /// exactly their bytes.
    pub fn read_into(
        &self,
        index: usize,
        rows: Option<Range<usize>>,
        options: &DecodeOptions,
        out: &mut [u8],
    ) -> Result<()> {
        let (tensor, dtype) = self.codec_tensor(index)?;
        if tensor.compressed {
            let done = match rows {
                Some(rows) => {
                    let stored = self.model.peek(index)?;
                    self.check_blob(index, &stored)?;
                    self.engine.decode_rows_into(&stored, rows, options, out)
                }
                None => self.engine.decode_into(&self.read_checked(index)?, options, out),
            };
            return done.map_err(Error::codec(&tensor.name));
        }
        let (cols, outer) = tensor.shape.split_last().map_or((1, &[][..]), |(&cols, outer)| (cols, outer));
        let all = outer.iter().fold(1usize, |n, &d| n.saturating_mul(d));
        let rows = rows.unwrap_or(0..all);
        if rows.start > rows.end || rows.end > all {
            let reason = format!("rows {rows:?} are outside tensor {:?}, which has {all} rows", tensor.name);
            return Err(Error::InvalidArgument(reason));
        }
        // The columns of an empty tensor may be too many to multiply; there are no rows of them then.
        let width = cols.saturating_mul(dtype.size());
        let (need, have) = ((rows.len() * width) as u64, out.len() as u64);
        if need != have {
            return Err(Error::codec(&tensor.name)(tenfold::Error::BufferTooSmall { need, have }));
        }
        self.model.read_into(index, rows.start * width, out)?;
        if rows.len() == all { self.check_plain(index, out) } else { Ok(()) }
    }

    /// The bytes of tensor `index` as the file has them: its blob, if it is compressed.
    pub fn read_stored(&self, index: usize) -> Result<Vec<u8>> {
        Ok(self.read_checked(index)?.into_owned())
    }

    /// The header of the blob of tensor `index`; `None` for a tensor that is not compressed.
    pub fn blob_info(&self, index: usize) -> Result<Option<BlobInfo>> {
        let tensor = self.tensor(index)?;
        if !tensor.compressed {
            return Ok(None);
        }
        self.check_blob(index, &self.model.peek(index)?).map(Some)
    }

    /// Checks all checksums of tensor `index` and decodes it, without keeping the result.
    pub fn verify(&self, index: usize, options: &DecodeOptions) -> Result<()> {
        let tensor = self.tensor(index)?;
        let stored = self.read_checked(index)?;
        if tensor.compressed {
            self.engine.verify(&stored, options).map_err(Error::codec(&tensor.name))?;
        }
        Ok(())
    }

    /// The bytes of the original tensor, whatever its dtype.
    pub(crate) fn read_bytes(&self, index: usize, options: &DecodeOptions) -> Result<Vec<u8>> {
        self.decode_stored(index, self.read_checked(index)?, options)
    }

    /// The same from the bytes in the file, which have been checked.
    pub(crate) fn decode_stored(
        &self,
        index: usize,
        stored: Cow<'_, [u8]>,
        options: &DecodeOptions,
    ) -> Result<Vec<u8>> {
        let tensor = self.tensor(index)?;
        if !tensor.compressed {
            return Ok(stored.into_owned());
        }
        Ok(self.engine.decode(&stored, options).map_err(Error::codec(&tensor.name))?.data)
    }

    pub(crate) fn model(&self) -> &Model {
        &self.model
    }

    pub(crate) fn tags(&self) -> &[Option<Tags>] {
        &self.tags
    }

    fn tensor(&self, index: usize) -> Result<&ArchiveTensor> {
        self.tensors.get(index).ok_or_else(|| {
            Error::InvalidArgument(format!(
                "tensor {index} does not exist: the model has {} tensors",
                self.tensors.len()
            ))
        })
    }

    fn codec_tensor(&self, index: usize) -> Result<(&ArchiveTensor, Dtype)> {
        let tensor = self.tensor(index)?;
        match tensor.dtype {
            Some(dtype) => Ok((tensor, dtype)),
            None => Err(Error::Unsupported {
                path: self.model.path_of(index).to_owned(),
                what: format!("reading tensor {:?} of dtype {}", tensor.name, tensor.dtype_name),
            }),
        }
    }
}

//! A delta, opened: what it does to which tensor. Nothing is applied here.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tenfold::delta::{DeltaInfo, Fingerprint};
use tenfold::{DecodeOptions, Tensor};

use super::difference;
use super::record::{Record, Said};
use super::tensors::Meta;
use crate::archive::Archive;
use crate::error::{Error, Result};
use crate::tags::{self, DELTA};

pub use super::record::How;

/// What a delta does to one tensor.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Change {
    /// Name in the result.
    pub name: String,
    /// How it comes to be.
    pub how: How,
    /// Tensor of the base that it is made of; `None` if it is stored whole.
    pub from: Option<String>,
    /// Fingerprint of that tensor, in the shape of the result; `None` where it need not be known.
    pub base: Option<Fingerprint>,
    /// Fingerprint in the result.
    pub result: Fingerprint,
    /// Values that change; only blobs of changes know.
    pub changed: Option<u64>,
    /// Bytes in the file.
    pub bytes: u64,
    /// Number in the file, and what that tensor is: the result; of a difference, the difference.
    pub(super) index: Option<usize>,
    pub(super) meta: Option<Meta>,
    /// What a delta blob says of itself.
    pub(super) info: Option<DeltaInfo>,
}

/// An open delta.
pub struct DeltaFile {
    path: PathBuf,
    archive: Archive,
    base: Fingerprint,
    result: Fingerprint,
    changes: Vec<Change>,
    removed: Vec<String>,
    metadata: Option<BTreeMap<String, String>>,
}

impl DeltaFile {
    /// Opens a delta and checks all that can be checked without its base.
    pub fn open(path: &Path) -> Result<DeltaFile> {
        DeltaFile::from_archive(Archive::open_any(path)?, path)
    }

    /// The same for the bytes of a file that are in memory. `label` names them in errors.
    pub fn parse(bytes: Vec<u8>, label: &Path) -> Result<DeltaFile> {
        DeltaFile::from_archive(Archive::parse_any(bytes, label)?, label)
    }

    fn from_archive(archive: Archive, path: &Path) -> Result<DeltaFile> {
        let said = match archive.model().shards.as_slice() {
            [shard] => tags::get(&shard.metadata, DELTA),
            _ => None,
        };
        let Some(said) = said else {
            let reason = "not a delta: `tenfold delta make BASE NEW` makes one of two models";
            return Err(Error::malformed(path, reason));
        };
        if archive.tags()[0].as_ref().is_none_or(|tags| tags.plain.is_none()) {
            return Err(Error::malformed(
                path,
                "its checksums are missing: the file is damaged; copy or download it again",
            ));
        }
        let record = Record::parse(said, path)?;
        let Record { base, result, removed, metadata, .. } = &record;
        let (base, result, removed, metadata) = (*base, *result, removed.clone(), metadata.clone());
        let mut file = DeltaFile {
            path: path.to_owned(),
            archive,
            base,
            result,
            changes: Vec::new(),
            removed,
            metadata,
        };
        file.changes = file.read_changes(record.tensors)?;
        let twice = |change: &&Change| file.removed.binary_search(&change.name).is_ok();
        if let Some(change) = file.changes.iter().find(twice) {
            let reason = format!("tensor {:?} is both made and removed", change.name);
            return Err(Error::malformed(path, reason));
        }
        Ok(file)
    }

    /// What is done to each tensor, in the order of their names.
    fn read_changes(&self, mut said: BTreeMap<String, Said>) -> Result<Vec<Change>> {
        let mut changes = Vec::with_capacity(self.archive.tensors().len());
        for (index, tensor) in self.archive.tensors().iter().enumerate() {
            let plain = Said { how: How::Delta, from: None, base: None, result: None };
            let said = said.remove(&tensor.name).unwrap_or(plain);
            changes.push(self.read_change(index, said)?);
        }
        for (name, said) in said {
            let (How::Copy, Some(result)) = (said.how, said.result) else {
                return Err(self.malformed(&name, "is not in the file"));
            };
            changes.push(Change {
                name,
                how: How::Copy,
                from: said.from,
                base: Some(result),
                result,
                changed: None,
                bytes: 0,
                index: None,
                meta: None,
                info: None,
            });
        }
        changes.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(changes)
    }

    fn read_change(&self, index: usize, said: Said) -> Result<Change> {
        let tensor = &self.archive.tensors()[index];
        let name = tensor.name.clone();
        let meta = Meta {
            name: name.clone(),
            shape: tensor.shape.clone(),
            bytes: tensor.bytes,
            stored: tensor.stored_dtype,
        };
        let mut found = None;
        let prints = match (said.how, said.base, said.result) {
            (How::Copy, ..) => {
                return Err(self.malformed(&name, "is a copy, and is in the file all the same"));
            }
            (How::Delta, ..) if !tensor.compressed => {
                return Err(self.malformed(&name, "is in the file, and nothing says what for"));
            }
            (How::Delta, ..) => {
                let info = self.delta_info(index)?;
                let prints = (Some(info.base), info.result);
                found = Some(info);
                prints
            }
            (How::Difference, Some(base), Some(result)) => {
                self.check_blob(index)?;
                if !tensor.compressed || tensor.dtype.is_none_or(|dtype| difference::dtype_of(dtype) != dtype)
                {
                    return Err(
                        self.malformed(&name, "is a difference that is not a compressed f32 or f64 tensor")
                    );
                }
                (Some(base), result)
            }
            (How::Stored, _, Some(result)) => {
                self.check_blob(index)?;
                (None, result)
            }
            _ => return Err(self.malformed(&name, "has no fingerprint")),
        };
        let from = match said.how {
            How::Stored => None,
            _ => Some(said.from.unwrap_or_else(|| name.clone())),
        };
        Ok(Change {
            name,
            how: said.how,
            from,
            base: prints.0,
            result: prints.1,
            changed: found.as_ref().map(|info| info.changed),
            bytes: tensor.stored_bytes,
            index: Some(index),
            meta: Some(meta),
            info: found,
        })
    }

    /// Checks the header of a blob that is a tensor of its own.
    fn check_blob(&self, index: usize) -> Result<()> {
        self.archive.blob_info(index).map(|_| ()).map_err(|error| match error {
            Error::Codec { name, source: tenfold::Error::NeedsBase } => {
                self.malformed(&name, "is to be a tensor, and its blob is a delta")
            }
            error => error,
        })
    }

    /// The header of a delta blob, held against the file's metadata.
    fn delta_info(&self, index: usize) -> Result<DeltaInfo> {
        let tensor = &self.archive.tensors()[index];
        let info = tenfold::delta::inspect(&self.archive.model().peek(index)?);
        let info = info.map_err(|error| match error {
            tenfold::Error::InvalidArgument(_) => {
                self.malformed(&tensor.name, "is to be a delta, and its blob is a tensor")
            }
            error => Error::codec(&tensor.name)(error),
        })?;
        if Some(info.dtype) != tensor.dtype || info.shape != tensor.shape {
            let what = format!(
                "is {} {:?} in the metadata but {} {:?} in its blob",
                tensor.dtype_name, tensor.shape, info.dtype, info.shape
            );
            return Err(self.malformed(&tensor.name, &what));
        }
        Ok(info)
    }

    /// Fingerprint of the model that the delta belongs to.
    pub fn base(&self) -> Fingerprint {
        self.base
    }

    /// Fingerprint of what that becomes.
    pub fn result(&self) -> Fingerprint {
        self.result
    }

    /// The tensors that change, in the order of their names.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Names that the result does not have, in order.
    pub fn removed(&self) -> &[String] {
        &self.removed
    }

    /// The result's metadata, where it is not the base's.
    pub fn metadata(&self) -> Option<&BTreeMap<String, String>> {
        self.metadata.as_ref()
    }

    /// The file, or what was given as its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The delta blob of a change, or a stored tensor as it lies in the file.
    pub(super) fn read_raw(&self, change: &Change) -> Result<Cow<'_, [u8]>> {
        let index = change.index.ok_or_else(|| self.malformed(&change.name, "is not in the file"))?;
        match change.how {
            How::Delta => self.archive.model().read(index),
            _ => self.archive.read_stored(index).map(Cow::Owned),
        }
    }

    /// The tensor that a change stores whole, or the difference.
    pub(super) fn read_tensor(&self, change: &Change, options: &DecodeOptions) -> Result<Tensor> {
        let index = change.index.ok_or_else(|| self.malformed(&change.name, "is not in the file"))?;
        self.archive.read(index, options)
    }

    /// The bytes of a tensor that is stored whole, whatever its dtype.
    pub(super) fn read_whole(&self, change: &Change, options: &DecodeOptions) -> Result<Vec<u8>> {
        let index = change.index.ok_or_else(|| self.malformed(&change.name, "is not in the file"))?;
        self.archive.read_bytes(index, options)
    }

    /// Whether a tensor of the file is a blob.
    pub(super) fn is_blob(&self, change: &Change) -> bool {
        change.index.is_some_and(|index| self.archive.tensors()[index].compressed)
    }

    pub(super) fn malformed(&self, name: &str, what: &str) -> Error {
        Error::malformed(&self.path, format!("tensor {name:?} {what}"))
    }

    /// For a model that the delta does not belong to.
    pub(super) fn wrong_base(&self, reason: impl Into<String>) -> Error {
        Error::WrongBase { path: self.path.clone(), expected: self.base.to_string(), reason: reason.into() }
    }
}

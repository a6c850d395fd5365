//! Checks tensors against the file's metadata.

use std::borrow::Cow;

use tenfold::format::BlobInfo;

use super::Archive;
use crate::error::{Error, Result};
use crate::inspect::Uncovered;
use crate::safetensors::StoredDtype;
use crate::tags;

impl Archive {
    /// Refuses files that hold blobs but have none of our keys: the blobs would pass for tensors of bytes. No flipped bit
    /// does that, but programs that drop metadata do.
    pub(crate) fn check_untagged(&self) -> Result<()> {
        for (index, item) in self.model.items.iter().enumerate() {
            let may_be_blob = item.dtype == StoredDtype::U8 && item.shape.len() == 1;
            if self.tags[item.shard].is_none()
                && may_be_blob
                && tenfold::inspect(&self.model.peek(index)?).is_ok()
            {
                let reason = format!(
                    "tensor {:?} is compressed, but the file has lost the metadata that says so; copy or download the file \
                     again, or make the program that wrote it keep __metadata__",
                    item.name
                );
                return Err(Error::malformed(self.model.path_of(index), reason));
            }
        }
        Ok(())
    }

    /// The bytes of tensor `index` as stored: a blob that agrees with the metadata, or a plain tensor whose checksum matches.
    pub(crate) fn read_checked(&self, index: usize) -> Result<Cow<'_, [u8]>> {
        let stored = self.model.read(index)?;
        if self.tensor(index)?.compressed {
            self.check_blob(index, &stored)?;
        } else {
            self.check_plain(index, &stored)?;
        }
        Ok(stored)
    }

    /// Checks all bytes of a plain tensor against its checksum, where it has one.
    pub(super) fn check_plain(&self, index: usize, bytes: &[u8]) -> Result<()> {
        let tensor = self.tensor(index)?;
        let Some(sum) = tensor.checksum.filter(|_| !cfg!(fuzzing)) else {
            return Ok(());
        };
        if sum == tags::tensor_checksum(tensor.stored_dtype, &tensor.shape, bytes) {
            return Ok(());
        }
        let reason = format!(
            "the checksum of tensor {:?} does not match: the file is damaged; copy or download it again",
            tensor.name
        );
        Err(Error::malformed(self.model.path_of(index), reason))
    }

    /// Reads a blob's header and checks it against the file's metadata.
    pub(super) fn check_blob(&self, index: usize, blob: &[u8]) -> Result<BlobInfo> {
        let tensor = self.tensor(index)?;
        let info = tenfold::inspect(blob).map_err(Error::codec(&tensor.name))?;
        if Some(info.dtype) != tensor.dtype || info.shape != tensor.shape {
            return Err(Error::malformed(
                self.model.path_of(index),
                format!(
                    "tensor {:?} is {} {:?} in the metadata but {} {:?} in its blob",
                    tensor.name, tensor.dtype_name, tensor.shape, info.dtype, info.shape
                ),
            ));
        }
        Ok(info)
    }

    /// Files that have checksums of their blobs only.
    pub(crate) fn find_uncovered(&self) -> Vec<Uncovered> {
        let shards = self.model.shards.iter().zip(&self.tags);
        let bare = shards.filter(|(_, tags)| tags.as_ref().is_none_or(|tags| tags.plain.is_none()));
        bare.map(|(shard, _)| {
            let plain = self.tensors[shard.items.clone()].iter().filter(|tensor| !tensor.compressed);
            let (tensors, bytes) = plain.fold((0, 0), |(n, sum), tensor| (n + 1, sum + tensor.bytes));
            Uncovered { file: shard.file_name.clone(), tensors, bytes }
        })
        .collect()
    }
}

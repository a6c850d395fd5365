//! What is inside a model file, without decoding it; and whether all of it decodes.

use std::path::Path;

use rayon::prelude::*;
use tenfold::engine::threads;

use crate::archive::Archive;
use crate::compress::batches;
use crate::engine::ReadOptions;
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::report::{Report, TensorRow};

/// Lists the tensors of a model, compressed or not. Reads headers only.
pub fn inspect(path: &Path) -> Result<Report> {
    let archive = Archive::open(path)?;
    let mut rows = Vec::with_capacity(archive.tensors().len());
    for (index, tensor) in archive.tensors().iter().enumerate() {
        let mut row = TensorRow::new(&tensor.name, &tensor.file, tensor.dtype_name.clone(), &tensor.shape)
            .with_sizes(tensor.bytes, tensor.stored_bytes);
        if let Some(info) = archive.blob_info(index)? {
            row = row.with_blob(&info);
        }
        rows.push(row);
    }
    Ok(Report::new(rows))
}

/// What [`verify`] has checked.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Verified {
    /// Tensors of the model.
    pub tensors: usize,
    /// Blobs among them: checksums checked and decoded.
    pub blobs: usize,
    /// Bytes of the tensors as stored, all of them read.
    pub stored_bytes: u64,
    /// Bytes of the originals.
    pub original_bytes: u64,
    /// Files with parts that no checksum covers. Earlier versions wrote such files.
    pub uncovered: Vec<Uncovered>,
}

/// A file without checksums of its header (names, dtypes, shapes, order, metadata) and its plain tensors.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Uncovered {
    /// Its name.
    pub file: String,
    /// Tensors that are stored as they were.
    pub tensors: usize,
    /// Bytes of those.
    pub bytes: u64,
}

/// Checks every checksum of a model and decodes every blob. The first fault ends it with an error.
pub fn verify(path: &Path, options: impl Into<ReadOptions>, progress: &dyn Progress) -> Result<Verified> {
    let options = options.into();
    let archive = Archive::open(path)?.with_engine(options.engine.clone());
    archive.check_untagged()?;
    let tensors = archive.tensors();
    let indices: Vec<usize> = (0..tensors.len()).collect();
    let inner = options.inner();
    threads::install(options.decode.threads, || -> Result<()> {
        progress.start(archive.bytes());
        for batch in batches(&indices, |i| tensors[i].bytes) {
            progress.message(&tensors[batch.start].name);
            batch.into_par_iter().try_for_each(|index| -> Result<()> {
                archive.verify(index, &inner)?;
                progress.advance(tensors[index].bytes);
                Ok(())
            })?;
        }
        Ok(())
    })
    .map_err(Error::Threads)??;
    Ok(Verified {
        tensors: tensors.len(),
        blobs: tensors.iter().filter(|tensor| tensor.compressed).count(),
        stored_bytes: tensors.iter().map(|tensor| tensor.stored_bytes).sum(),
        original_bytes: archive.bytes(),
        uncovered: archive.find_uncovered(),
    })
}

//! From a compressed model back to the original's layout: names, dtypes, shapes, order, metadata, shards.

use std::path::Path;

use rayon::prelude::*;
use tenfold::DecodeOptions;
use tenfold::engine::threads;

use crate::archive::Archive;
use crate::compress::{batches, finish};
use crate::engine::ReadOptions;
use crate::error::{Error, Result};
use crate::model::Shard;
use crate::output::{Direction, Staging, Target};
use crate::progress::Progress;
use crate::safetensors::{ShardWriter, Slot};

/// Decompresses the model at `input` into `output`: a file from a file, a folder from a folder or an
/// index. The output appears when it is whole. `overwrite` says whether an existing one may be replaced.
pub fn decompress(
    input: &Path,
    output: &Path,
    options: impl Into<ReadOptions>,
    overwrite: bool,
    progress: &dyn Progress,
) -> Result<()> {
    let options = options.into();
    let archive = Archive::open(input)?.with_engine(options.engine.clone());
    if !archive.is_compressed() {
        return Err(Error::malformed(input, "not compressed with tenfold"));
    }
    let target = Target::check(archive.model(), output, overwrite)?;
    let staging = Staging::new(&target)?;
    // The pool is set once, here; the codec then uses it.
    let inner = options.inner();
    threads::install(options.decode.threads, || {
        progress.start(archive.bytes());
        let mut bytes = 0u64;
        for number in 0..archive.model().shards.len() {
            bytes += restore_shard(&archive, number, &inner, &target, &staging, progress)?;
        }
        finish(archive.model(), &target, staging, bytes, Direction::Decompress).map(|_| ())
    })
    .map_err(Error::Threads)?
}

fn restore_shard(
    archive: &Archive,
    number: usize,
    options: &DecodeOptions,
    target: &Target,
    staging: &Staging,
    progress: &dyn Progress,
) -> Result<u64> {
    let shard: &Shard = &archive.model().shards[number];
    let (metadata, order) = match &archive.tags()[number] {
        Some(tags) => (tags.metadata.clone(), &tags.data_order),
        None => (shard.metadata.clone(), &shard.data_order),
    };
    let first = shard.items.start;
    let tensors = archive.tensors();
    let slots = tensors[shard.items.clone()]
        .iter()
        .map(|tensor| {
            let max_bytes = usize::try_from(tensor.bytes)
                .map_err(|_| Error::InvalidArgument(format!("tensor {:?} is too large", tensor.name)))?;
            let (name, shape) = (tensor.name.clone(), Some(tensor.shape.clone()));
            Ok(Slot { name, dtype: tensor.stored_dtype, shape, max_bytes })
        })
        .collect::<Result<Vec<Slot>>>()?;
    let path = staging.path(Path::new(&shard.file_name));
    let mut writer = ShardWriter::create(&path, &target.place(&shard.file_name), metadata, slots, order)?;
    let indices: Vec<usize> = order.iter().map(|&i| first + i).collect();
    for batch in batches(&indices, |i| tensors[i].bytes) {
        let batch = &indices[batch];
        progress.message(&tensors[batch[0]].name);
        let decode = |&index: &usize| {
            let data = archive.read_bytes(index, options)?;
            progress.advance(tensors[index].bytes);
            Ok(data)
        };
        let decoded: Vec<Vec<u8>> = match batch {
            [one] => vec![decode(one)?],
            _ => batch.par_iter().map(decode).collect::<Result<_>>()?,
        };
        for data in decoded {
            writer.put(&data)?;
        }
    }
    writer.finish()
}

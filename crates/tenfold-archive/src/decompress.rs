//! From a compressed model back to the original's layout: names, dtypes, shapes, order, metadata, shards.

use std::borrow::Cow;
use std::path::Path;

use tenfold::engine::Stop;

use crate::archive::Archive;
use crate::compress::finish;
use crate::engine::ReadOptions;
use crate::error::{Error, Result};
use crate::flow::{Flow, Steps};
use crate::model::Shard;
use crate::output::{Direction, InTurn, Staging, Target};
use crate::progress::Progress;
use crate::safetensors::{ShardWriter, Slot};

/// Decompresses the model at `input` into `output`: a file from a file, a folder from a folder or an
/// index. The output appears when it is whole. `overwrite` says whether an existing one may be replaced.
///
/// What is read ahead, decoded and about to be written takes at most twice the bytes of the largest tensor and its blob, and 32 MiB.
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
    progress.start(archive.bytes());
    let bytes = restore(&archive, &options, &target, &staging, progress)?;
    finish(archive.model(), &target, staging, bytes, Direction::Decompress).map(|_| ())
}

/// Writes all shards into the staging folder; returns the bytes of their tensors.
fn restore(
    archive: &Archive,
    options: &ReadOptions,
    target: &Target,
    staging: &Staging,
    progress: &dyn Progress,
) -> Result<u64> {
    let (tensors, items) = (archive.tensors(), &archive.model().items);
    let (count, mut bytes) = (archive.model().shards.len(), 0);
    let mut files = InTurn::new(
        count,
        |number| begin(archive, number, target, staging),
        |_, writer: ShardWriter| {
            bytes += writer.finish()?;
            Ok(())
        },
    );
    let order: Vec<usize> = (0..count)
        .flat_map(|number| {
            let first = archive.model().shards[number].items.start;
            order_of(archive, number).iter().map(move |&i| first + i)
        })
        .collect();
    let flow = Flow {
        name: "decode",
        threads: options.decode.threads,
        engine: &*options.engine,
        timeline: &options.timeline,
        stop: &options.decode.stop,
    };
    // Threads are those of the pool.
    let inner = options.inner();
    let steps = Steps {
        read: |index: usize| archive.read_checked(index),
        code: |index: usize, stored: Cow<'_, [u8]>, stop: &Stop| {
            progress.message(&tensors[index].name);
            let data = archive.decode_stored(index, stored, &inner.clone().with_stop(stop.clone()))?;
            progress.advance(tensors[index].bytes);
            Ok(data)
        },
        write: |index: usize, data: Vec<u8>| files.at(items[index].shard)?.put(&data),
    };
    let size = |index: usize| match tensors[index].compressed {
        true => tensors[index].bytes.saturating_add(tensors[index].stored_bytes),
        false => tensors[index].bytes,
    };
    flow.run(&order, size, steps)?;
    files.finish()?;
    Ok(bytes)
}

/// The tensors of a shard in the order of its bytes, counted from its first.
fn order_of(archive: &Archive, number: usize) -> &[usize] {
    match &archive.tags()[number] {
        Some(tags) => &tags.data_order,
        None => &archive.model().shards[number].data_order,
    }
}

/// Begins the file of a shard.
fn begin(archive: &Archive, number: usize, target: &Target, staging: &Staging) -> Result<ShardWriter> {
    let shard: &Shard = &archive.model().shards[number];
    let metadata = match &archive.tags()[number] {
        Some(tags) => tags.metadata.clone(),
        None => shard.metadata.clone(),
    };
    let slots = archive.tensors()[shard.items.clone()]
        .iter()
        .map(|tensor| {
            let max_bytes = usize::try_from(tensor.bytes)
                .map_err(|_| Error::InvalidArgument(format!("tensor {:?} is too large", tensor.name)))?;
            let (name, shape) = (tensor.name.clone(), Some(tensor.shape.clone()));
            Ok(Slot { name, dtype: tensor.stored_dtype, shape, max_bytes })
        })
        .collect::<Result<Vec<Slot>>>()?;
    let (path, label) = (staging.path(Path::new(&shard.file_name)), target.place(&shard.file_name));
    ShardWriter::create(&path, &label, metadata, slots, order_of(archive, number))
}

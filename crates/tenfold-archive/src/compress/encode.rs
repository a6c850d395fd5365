//! One shard at a time: tensors left as they are first, then the blobs.
//!
//! Large tensors are encoded one after the other, each on all threads; small ones are gathered, because
//! one of them cannot keep all threads busy.

use std::ops::Range;
use std::path::Path;

use rayon::prelude::*;
use tenfold::engine::Engine;
use tenfold::{DecodeOptions, Dtype, EncodeOptions, Goal, TensorView};

use crate::error::{Error, Result};
use crate::model::{Item, Model, Shard};
use crate::output::{Staging, Target};
use crate::plan::{Action, CompressOptions};
use crate::progress::Progress;
use crate::report::TensorRow;
use crate::safetensors::{ShardWriter, Slot, StoredDtype, codec_dtype, dtype_name};
use crate::tags;
use crate::values;

/// Bytes of small tensors that are worked on together.
const BATCH_BYTES: u64 = 64 << 20;

/// Writes a shard into the staging folder. Rows come back in the order of the header.
pub(crate) fn encode_shard(
    options: &CompressOptions,
    model: &Model,
    shard: &Shard,
    actions: &[Action],
    target: &Target,
    staging: &Staging,
    progress: &dyn Progress,
) -> Result<Vec<TensorRow>> {
    let (engine, stop) = (&*options.engine, &options.stop);
    let first = shard.items.start;
    let (blobs, plain): (Vec<usize>, Vec<usize>) =
        shard.data_order.iter().map(|&i| first + i).partition(|&i| actions[i].is_encode());
    let order: Vec<usize> = plain.iter().chain(&blobs).map(|&i| i - first).collect();
    let slots =
        shard.items.clone().map(|i| slot(model, i, actions[i], options)).collect::<Result<Vec<_>>>()?;
    let metadata = tags::write(shard, &model.items, |i| actions[i].is_encode())?;
    let path = staging.path(Path::new(&shard.file_name));
    let mut writer = ShardWriter::create(&path, &target.place(&shard.file_name), metadata, slots, &order)?;

    let mut sums = vec![None; shard.items.len()];
    let mut rows: Vec<TensorRow> = shard.items.clone().map(|i| row(model, i)).collect();
    for index in plain {
        let item = &model.items[index];
        stop.check().map_err(Error::codec(&item.name))?;
        let bytes = model.read(index)?;
        sums[index - first] = Some(tags::tensor_checksum(item.dtype, &item.shape, &bytes));
        writer.put(&bytes)?;
        progress.advance(item.bytes);
    }
    for batch in batches(&blobs, |i| model.items[i].bytes) {
        let batch = &blobs[batch];
        progress.message(&model.items[batch[0]].name);
        let encode = |&index: &usize| {
            let blob = encode_tensor(engine, model, index, actions[index], options)?;
            progress.advance(model.items[index].bytes);
            Ok(blob)
        };
        let encoded: Vec<(Vec<u8>, Option<f64>)> = match batch {
            [one] => vec![encode(one)?],
            _ => batch.par_iter().map(encode).collect::<Result<_>>()?,
        };
        for (&index, (blob, loss)) in batch.iter().zip(encoded) {
            writer.put(&blob)?;
            let row = blob_row(row(model, index), &blob, actions[index], &options.residual)?;
            rows[index - first] = row.with_loss(loss);
        }
    }
    tags::seal(writer.header_mut(), &sums, &shard.path)?;
    writer.finish()?;
    Ok(rows)
}

/// Encodes one tensor as its action says. Returns the blob, and what it is predicted to cost the model if that can be told.
pub(crate) fn encode_tensor(
    engine: &dyn Engine,
    model: &Model,
    index: usize,
    action: Action,
    asked: &CompressOptions,
) -> Result<(Vec<u8>, Option<f64>)> {
    let item = &model.items[index];
    let (Action::Encode { goal, effort, .. }, Some(dtype)) = (action, codec_dtype(item.dtype)) else {
        return Err(Error::InvalidArgument(format!("tensor {:?} is not selected for encoding", item.name)));
    };
    if let Some(path) = asked.made.get(&item.name) {
        return Ok((read_made(path, item, dtype)?, None));
    }
    let data = model.read(index)?;
    let view = TensorView::new(dtype, &item.shape, &data).map_err(Error::codec(&item.name))?;
    let mut options = options_of(goal, dtype, asked).with_effort(effort).with_stop(asked.stop.clone());
    if goal != Goal::Lossless && dtype.is_float() {
        options.curvature = asked.curvature(&item.name)?;
    }
    let blob = engine
        .encode(&view, &options.clone().with_prepare(asked.preparation(&item.name)))
        .map_err(Error::codec(&item.name))?;
    let loss = match (&options.curvature, &asked.calibration) {
        (Some(curvature), Some(calibration)) => {
            calibration.check_norm(&item.name, norm(dtype, &data))?;
            let decoded =
                tenfold::decode(&blob, &DecodeOptions::default()).map_err(Error::codec(&item.name))?;
            let instead = TensorView::new(decoded.dtype, &decoded.shape, &decoded.data);
            let loss = instead.and_then(|instead| curvature.loss(&view, &instead));
            Some(loss.map_err(Error::codec(&item.name))?)
        }
        _ => None,
    };
    Ok((blob, loss))
}

/// Euclidean norm of a tensor.
fn norm(dtype: Dtype, data: &[u8]) -> f64 {
    let mut sum = 0.0;
    for part in data.chunks(dtype.size() << 12) {
        let mut numbers = vec![0.0; part.len() / dtype.size()];
        values::load(dtype, part, &mut numbers);
        sum += numbers.iter().map(|v| v * v).sum::<f64>();
    }
    sum.sqrt()
}

/// Reads a blob that the caller has made. What is in it is checked when it is decoded, what it is of is checked here.
fn read_made(path: &Path, item: &Item, dtype: Dtype) -> Result<Vec<u8>> {
    let blob = std::fs::read(path).map_err(Error::io(path))?;
    let info = tenfold::inspect(&blob).map_err(Error::codec(&item.name))?;
    if info.dtype != dtype || info.shape != item.shape {
        let (name, shape) = (&item.name, &item.shape);
        return Err(Error::InvalidArgument(format!(
            "the blob for tensor {name:?} is of {} {:?}, but the tensor is {dtype} {shape:?}",
            info.dtype, info.shape
        )));
    }
    Ok(blob)
}

/// Options for the goal of a tensor. Residuals are for floats that are coded lossily.
fn options_of(goal: Goal, dtype: Dtype, asked: &CompressOptions) -> EncodeOptions {
    let mut options = EncodeOptions::new(goal);
    options.minor = asked.minor.unwrap_or(options.minor);
    if goal != Goal::Lossless && dtype.is_float() {
        options.residual.clone_from(&asked.residual);
    }
    options
}

/// Splits a list into runs to work on together: one large tensor, or small ones up to a common size.
pub(crate) fn batches(indices: &[usize], bytes: impl Fn(usize) -> u64) -> Vec<Range<usize>> {
    let mut out = Vec::new();
    let (mut start, mut size) = (0, 0u64);
    for (at, &index) in indices.iter().enumerate() {
        let next = bytes(index);
        if at > start && size.saturating_add(next) > BATCH_BYTES {
            out.push(start..at);
            (start, size) = (at, 0);
        }
        size = size.saturating_add(next);
    }
    if start < indices.len() {
        out.push(start..indices.len());
    }
    out
}

fn slot(model: &Model, index: usize, action: Action, asked: &CompressOptions) -> Result<Slot> {
    let item = &model.items[index];
    match (action, codec_dtype(item.dtype)) {
        (Action::Encode { goal, .. }, Some(dtype)) => {
            let options = options_of(goal, dtype, asked);
            let most = asked.engine.max_encoded_len(dtype, &item.shape, &options);
            let mut max_bytes = most.map_err(Error::codec(&item.name))?;
            if let Some(path) = asked.made.get(&item.name) {
                max_bytes = path.metadata().map_err(Error::io(path))?.len() as usize;
            }
            Ok(Slot { name: item.name.clone(), dtype: StoredDtype::U8, shape: None, max_bytes })
        }
        _ => {
            let max_bytes = usize::try_from(item.bytes)
                .map_err(|_| Error::InvalidArgument(format!("tensor {:?} is too large", item.name)))?;
            Ok(Slot {
                name: item.name.clone(),
                dtype: item.dtype,
                shape: Some(item.shape.clone()),
                max_bytes,
            })
        }
    }
}

fn row(model: &Model, index: usize) -> TensorRow {
    let item = &model.items[index];
    let file = &model.shards[item.shard].file_name;
    TensorRow::new(&item.name, file, dtype_name(item.dtype), &item.shape).with_sizes(item.bytes, item.bytes)
}

fn blob_row(row: TensorRow, blob: &[u8], action: Action, residual: &[Goal]) -> Result<TensorRow> {
    let info = tenfold::inspect(blob).map_err(Error::codec(&row.name))?;
    let original = row.original_bytes;
    let mut row = row.with_sizes(original, blob.len() as u64).with_blob(&info);
    if let Action::Encode { goal, .. } = action {
        let residual = if info.layers.is_empty() { &[] } else { residual };
        let goals = std::iter::once(&goal).chain(residual).map(|&goal| goal_text(goal));
        row.goal = Some(goals.collect::<Vec<_>>().join(" + "));
    }
    Ok(row)
}

fn goal_text(goal: Goal) -> String {
    match (goal, goal.number()) {
        (Goal::Bits(bits), _) => format!("bits={bits:.4}"),
        (Goal::Step(step), _) => format!("step={step:.6e}"),
        (_, Some(number)) => format!("{}={number}", goal.name()),
        (_, None) => goal.name().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_cover_everything_and_keep_to_their_size() {
        let mib = 1 << 20;
        let sizes = [30 * mib, 30 * mib, 10 * mib, 200 * mib, 1, 2, 64 * mib];
        let indices: Vec<usize> = (0..sizes.len()).collect();
        assert_eq!(batches(&indices, |i| sizes[i]), [0..2, 2..3, 3..4, 4..6, 6..7]);
        assert!(batches(&[], |_| 0).is_empty());
    }
}

//! All tensors of a model, shard by shard: in each, tensors left as they are first, then the blobs.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;

use tenfold::engine::{Engine, Stop};
use tenfold::{DecodeOptions, Dtype, EncodeOptions, Goal, TensorView};

use crate::error::{Error, Result};
use crate::flow::{Flow, Load, Steps};
use crate::model::{Item, Model, Shard};
use crate::output::{InTurn, Staging, Target};
use crate::plan::{Action, CompressOptions};
use crate::progress::Progress;
use crate::report::TensorRow;
use crate::safetensors::{ShardWriter, Slot, StoredDtype, codec_dtype, dtype_name};
use crate::tags;
use crate::values;

/// Bytes of small tensors in a batch.
const BATCH_BYTES: u64 = 64 << 20;

/// What becomes of a tensor.
enum Made<'a> {
    /// It stays as it is. With its checksum.
    Plain(Cow<'a, [u8]>, u32),
    /// A blob, and what it is predicted to cost the model if that can be told.
    Blob(Vec<u8>, Option<f64>),
}

impl Load for Made<'_> {
    fn bytes(&self) -> u64 {
        match self {
            Made::Plain(bytes, _) => bytes.len() as u64,
            Made::Blob(blob, _) => blob.len() as u64,
        }
    }
}

/// Writes all shards into the staging folder. Rows come back in the order of the headers.
pub(crate) fn encode_tensors(
    options: &CompressOptions,
    model: &Model,
    actions: &[Action],
    target: &Target,
    staging: &Staging,
    progress: &dyn Progress,
) -> Result<Vec<TensorRow>> {
    let order: Vec<usize> = model
        .shards
        .iter()
        .flat_map(|shard| order_of(shard, actions).into_iter().map(|i| shard.items.start + i))
        .collect();
    let mut rows: Vec<TensorRow> = (0..model.items.len()).map(|i| row(model, i)).collect();
    // Each with the checksums of its plain tensors.
    let mut files = InTurn::new(
        model.shards.len(),
        |number| {
            let writer = begin(options, model, actions, number, target, staging)?;
            Ok((writer, vec![None; model.shards[number].items.len()]))
        },
        |number, (mut writer, sums): (ShardWriter, Vec<Option<u32>>)| {
            tags::seal(writer.header_mut(), &sums, &model.shards[number].path)?;
            writer.finish().map(|_| ())
        },
    );
    let flow = Flow::encoding(options);
    let steps = Steps {
        read: |index| read_input(model, index, actions[index], options),
        code: |index: usize, input, stop: &Stop| {
            let item = &model.items[index];
            if !actions[index].is_encode() {
                let bytes = match input {
                    Input::Tensor(bytes) => bytes,
                    Input::Blob(blob, _) => Cow::Owned(blob),
                };
                let sum = tags::tensor_checksum(item.dtype, &item.shape, &bytes);
                return Ok(Made::Plain(bytes, sum));
            }
            progress.message(&item.name);
            let (blob, loss) = encode_input(flow.engine, model, index, actions[index], options, input, stop)?;
            progress.advance(item.bytes);
            Ok(Made::Blob(blob, loss))
        },
        write: |index: usize, made| {
            let item = &model.items[index];
            let (writer, sums) = files.at(item.shard)?;
            match made {
                Made::Plain(bytes, sum) => {
                    sums[index - model.shards[item.shard].items.start] = Some(sum);
                    writer.put(&bytes)?;
                    progress.advance(item.bytes);
                }
                Made::Blob(blob, loss) => {
                    writer.put(&blob)?;
                    let row = blob_row(row(model, index), &blob, actions[index], &options.residual)?;
                    rows[index] = row.with_loss(loss);
                }
            }
            Ok(())
        },
    };
    flow.run(&order, |i| model.items[i].bytes, steps)?;
    files.finish()?;
    Ok(rows)
}

/// Begins the file of a shard.
fn begin(
    options: &CompressOptions,
    model: &Model,
    actions: &[Action],
    number: usize,
    target: &Target,
    staging: &Staging,
) -> Result<ShardWriter> {
    let shard = &model.shards[number];
    let slots = shard.items.clone().map(|i| slot(model, i, actions[i], options));
    let slots = slots.collect::<Result<Vec<_>>>()?;
    let metadata = tags::write(shard, &model.items, |i| actions[i].is_encode())?;
    let (path, label) = (staging.path(Path::new(&shard.file_name)), target.place(&shard.file_name));
    ShardWriter::create(&path, &label, metadata, slots, &order_of(shard, actions))
}

/// The tensors of a shard in the order of the output: those that stay as they are, then the blobs. Counted from the
/// shard's first.
fn order_of(shard: &Shard, actions: &[Action]) -> Vec<usize> {
    let is_blob = |&i: &usize| actions[shard.items.start + i].is_encode();
    let (blobs, plain): (Vec<usize>, Vec<usize>) = shard.data_order.iter().partition(|i| is_blob(i));
    plain.into_iter().chain(blobs).collect()
}

/// What a tensor is encoded from.
pub(crate) enum Input<'a> {
    /// Its bytes.
    Tensor(Cow<'a, [u8]>),
    /// A blob that was made elsewhere, and what it is predicted to cost the model, where that is known.
    Blob(Vec<u8>, Option<f64>),
}

impl Load for Input<'_> {
    fn bytes(&self) -> u64 {
        match self {
            Input::Tensor(bytes) => bytes.len() as u64,
            Input::Blob(blob, _) => blob.len() as u64,
        }
    }
}

/// Reads what a tensor is encoded from, as its action says.
pub(crate) fn read_input<'a>(
    model: &'a Model,
    index: usize,
    action: Action,
    asked: &CompressOptions,
) -> Result<Input<'a>> {
    let item = &model.items[index];
    if action.is_encode() {
        if let Some(parts) = &asked.parts {
            return parts.read(&item.name).map(|(blob, loss)| Input::Blob(blob, loss));
        }
        if let Some(path) = asked.made.get(&item.name) {
            let blob = std::fs::read(path).map_err(Error::io(path))?;
            return Ok(Input::Blob(blob, None));
        }
    }
    model.read(index).map(Input::Tensor)
}

/// Encodes one tensor as its action says. Returns the blob, and what it is predicted to cost the model if that can be told.
pub(crate) fn encode_tensor(
    engine: &dyn Engine,
    model: &Model,
    index: usize,
    action: Action,
    asked: &CompressOptions,
) -> Result<(Vec<u8>, Option<f64>)> {
    let input = read_input(model, index, action, asked)?;
    encode_input(engine, model, index, action, asked, input, &asked.stop)
}

/// Encodes what was read of a tensor.
pub(crate) fn encode_input(
    engine: &dyn Engine,
    model: &Model,
    index: usize,
    action: Action,
    asked: &CompressOptions,
    input: Input<'_>,
    stop: &Stop,
) -> Result<(Vec<u8>, Option<f64>)> {
    let item = &model.items[index];
    let (Action::Encode { goal, effort, .. }, Some(dtype)) = (action, codec_dtype(item.dtype)) else {
        return Err(Error::InvalidArgument(format!("tensor {:?} is not selected for encoding", item.name)));
    };
    let data = match input {
        Input::Tensor(data) => data,
        // What is in it is checked when it is decoded, what it is of is checked here.
        Input::Blob(blob, loss) => {
            check_made(&blob, item, dtype)?;
            return Ok((blob, loss));
        }
    };
    let view = TensorView::new(dtype, &item.shape, &data).map_err(Error::codec(&item.name))?;
    let mut options = options_of(goal, dtype, asked).with_effort(effort).with_stop(stop.clone());
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

fn check_made(blob: &[u8], item: &Item, dtype: Dtype) -> Result<()> {
    let info = tenfold::inspect(blob).map_err(Error::codec(&item.name))?;
    if info.dtype != dtype || info.shape != item.shape {
        let (name, shape) = (&item.name, &item.shape);
        return Err(Error::InvalidArgument(format!(
            "the blob for tensor {name:?} is of {} {:?}, but the tensor is {dtype} {shape:?}",
            info.dtype, info.shape
        )));
    }
    Ok(())
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

/// Splits a list into runs to work on together, for work that holds one run at a time.
pub(crate) fn batches(indices: &[usize], bytes: impl Fn(usize) -> u64) -> Vec<Range<usize>> {
    groups(indices, bytes, BATCH_BYTES)
}

/// Splits a list into runs: one large tensor, or small ones of at most so many bytes together.
pub(crate) fn groups(indices: &[usize], bytes: impl Fn(usize) -> u64, most: u64) -> Vec<Range<usize>> {
    let mut out = Vec::new();
    let (mut start, mut size) = (0, 0u64);
    for (at, &index) in indices.iter().enumerate() {
        let next = bytes(index);
        if at > start && size.saturating_add(next) > most {
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

//! Compressing a model in parts: N independent processes encode a share of its tensors each, and one joins them to the
//! bytes that a single machine would have written.
//!
//! | file | holds |
//! |---|---|
//! | `split` | which tensors belong to which part |
//! | `record` | what a part file says of its blobs: of which values, and how they were made |
//! | `store` | part files, read and checked |
//!
//! A part file is safetensors: each blob is a byte tensor under its tensor's name. Parts lie in a folder beside the output,
//! `OUT.parts`, which all processes share.

mod record;
mod split;
mod store;

use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Serialize;
use tenfold::engine::Stop;

use crate::compress::{Input, compress_model, encode_input, read_input};
use crate::error::{Error, Result};
use crate::flow::{Flow, Load, Steps};
use crate::model::Model;
use crate::output::{Staging, Target};
use crate::plan::{self, Action, Alloc, CompressOptions};
use crate::progress::Progress;
use crate::report::Report;
use crate::safetensors::{ShardWriter, Slot, StoredDtype};
use crate::tags;

use record::Record;
pub(crate) use store::PartStore;

/// One of several parts, counted from 1; as text `3/16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Part {
    number: usize,
    of: usize,
}

impl Part {
    /// Most parts of a model.
    pub const MOST: usize = 99_999;

    /// Part `number` of `of`, from 1 on.
    pub fn new(number: usize, of: usize) -> Result<Part> {
        if number == 0 || number > of || of > Part::MOST {
            return Err(Error::InvalidArgument(format!(
                "part {number} of {of} does not exist: parts are 1/N to N/N, and N is at most {}",
                Part::MOST
            )));
        }
        Ok(Part { number, of })
    }

    fn file_name(self) -> String {
        format!("part-{:05}-of-{:05}.safetensors", self.number, self.of)
    }
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Part {
    type Err = Error;

    fn from_str(text: &str) -> Result<Part> {
        let numbers =
            text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        let (number, of) = numbers.ok_or_else(|| {
            Error::InvalidArgument(format!("{text:?} is not a part; write it as 3/16, the third of sixteen"))
        })?;
        Part::new(number, of)
    }
}

/// What came of one part.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct PartReport {
    /// Which part.
    pub part: Part,
    /// Its file.
    pub path: PathBuf,
    /// Tensors that it encodes.
    pub tensors: usize,
    /// Bytes of these tensors.
    pub original_bytes: u64,
    /// Bytes of its blobs.
    pub stored_bytes: u64,
    /// Whether it was there already, and nothing was done.
    pub was_done: bool,
}

/// The folder that holds the parts of an output.
pub fn parts_folder(output: &Path) -> PathBuf {
    let mut name = output.file_name().unwrap_or_default().to_os_string();
    name.push(".parts");
    output.with_file_name(name)
}

/// Encodes one part of what [`compress`](crate::compress) would, into the folder of parts beside `output`. A part that is
/// there already, of the same tensors and made the same way, is not made again.
pub fn compress_part(
    input: &Path,
    output: &Path,
    part: Part,
    options: &CompressOptions,
    progress: &dyn Progress,
) -> Result<PartReport> {
    let model = Model::open(input)?;
    let actions = actions(&model, options)?;
    let folder = parts_folder(output);
    std::fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
    let mine = split::tensors_of(part, &model, &actions);
    let path = folder.join(part.file_name());
    let report = |stored_bytes, was_done| PartReport {
        part,
        path: path.clone(),
        tensors: mine.len(),
        original_bytes: mine.iter().map(|&i| model.items[i].bytes).sum(),
        stored_bytes,
        was_done,
    };
    if let Some(bytes) = store::done(&path, part, &model, &mine, &actions, options)? {
        return Ok(report(bytes, true));
    }
    let bytes = write(&path, part, &model, &mine, &actions, options, progress)?;
    Ok(report(bytes, false))
}

/// Joins all parts of a model into `output`: the bytes are those that [`compress`](crate::compress) writes with the same
/// options. A part that is missing, of another input or made with other options is an error that names it.
pub fn join_parts(
    input: &Path,
    output: &Path,
    options: &CompressOptions,
    progress: &dyn Progress,
) -> Result<Report> {
    let model = Model::open(input)?;
    let actions = actions(&model, options)?;
    let store = PartStore::open(&parts_folder(output), &model, &actions, options)?;
    let mut options = options.clone();
    options.parts = Some(std::sync::Arc::new(store));
    compress_model(&model, output, &options, progress)
}

/// What happens to each tensor, where that can be told without the others' values.
fn actions(model: &Model, options: &CompressOptions) -> Result<Vec<Action>> {
    if !matches!(options.alloc, Alloc::Equal | Alloc::Ramp(_)) {
        return Err(Error::InvalidArgument(
            "parts are made without knowing one another: leave out the goal loss and the allocations step and loss".into(),
        ));
    }
    if !options.made.is_empty() {
        return Err(Error::InvalidArgument("parts take no blobs that were made elsewhere".into()));
    }
    plan::plan(model, options)
}

/// Encodes tensors into a part file, which appears when it is whole. Returns the bytes of its blobs.
fn write(
    path: &Path,
    part: Part,
    model: &Model,
    mine: &[usize],
    actions: &[Action],
    options: &CompressOptions,
    progress: &dyn Progress,
) -> Result<u64> {
    let target = Target::file(path, true)?;
    let staging = Staging::new(&target)?;
    progress.start(mine.iter().map(|&i| model.items[i].bytes).sum());
    // The file begins with the record of all its blobs: they are kept until the last is made.
    let mut blobs: Vec<(usize, Vec<u8>)> = Vec::new();
    let mut record = Record::new(part);
    let flow = Flow::encoding(options);
    let steps = Steps {
        read: |index| read_input(model, index, actions[index], options),
        code: |index: usize, input: Input<'_>, stop: &Stop| {
            let item = &model.items[index];
            progress.message(&item.name);
            let source = match &input {
                Input::Tensor(bytes) => tags::tensor_checksum(item.dtype, &item.shape, bytes),
                Input::Blob(..) => source_sum(model, index)?,
            };
            let (blob, loss) = encode_input(flow.engine, model, index, actions[index], options, input, stop)?;
            let entry = record::entry(&item.name, actions[index], options, source, &blob, loss)?;
            progress.advance(item.bytes);
            Ok(Made { blob, entry })
        },
        write: |index: usize, made: Made| {
            record.add(&model.items[index].name, made.entry);
            blobs.push((index, made.blob));
            Ok(())
        },
    };
    flow.run(mine, |i| model.items[i].bytes, steps)?;
    let slots = blobs
        .iter()
        .map(|(index, blob)| Slot {
            name: model.items[*index].name.clone(),
            dtype: StoredDtype::U8,
            shape: None,
            max_bytes: blob.len(),
        })
        .collect();
    let order: Vec<usize> = (0..blobs.len()).collect();
    let name = PathBuf::from(part.file_name());
    let mut writer =
        ShardWriter::create(&staging.path(&name), path, record.to_metadata(path)?, slots, &order)?;
    for (_, blob) in &blobs {
        writer.put(blob)?;
    }
    let bytes = writer.finish()?;
    staging.commit(&[name])?;
    Ok(bytes)
}

/// A blob and what the record says of it.
struct Made {
    blob: Vec<u8>,
    entry: record::Entry,
}

impl Load for Made {
    fn bytes(&self) -> u64 {
        self.blob.bytes()
    }
}

/// Checksum of a tensor of the input.
fn source_sum(model: &Model, index: usize) -> Result<u32> {
    let item = &model.items[index];
    Ok(tags::tensor_checksum(item.dtype, &item.shape, &model.read(index)?))
}

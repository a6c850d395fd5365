//! From a model to a compressed model, tensor by tensor.

mod encode;

use std::path::{Path, PathBuf};

use tenfold::engine::threads;

use crate::error::{Error, Result};
use crate::model::{Layout, Model};
use crate::output::{Direction, Staging, Target, copy_siblings};
use crate::plan::{self, Action, Alloc, CompressOptions, LossSearch, StepSearch};
use crate::progress::Progress;
use crate::report::{Report, TensorRow};
use crate::source::Source;
use crate::tags;

pub(crate) use encode::{Input, batches, encode_input, encode_tensor, groups, read_input};

/// Compresses the model at `input` into `output`.
///
/// `input` is a safetensors file, an index of shards, a folder that holds either, a GGUF file or an npy
/// file. A folder or an index gives a folder with the same files, anything else gives one file. The output
/// appears when it is whole. Memory follows the largest tensor: what is read ahead, encoded and about to be written
/// takes at most twice its bytes and 32 MiB, beside what the encoder needs for two tensors.
pub fn compress(
    input: &Path,
    output: &Path,
    options: &CompressOptions,
    progress: &dyn Progress,
) -> Result<Report> {
    compress_model(&Model::open(input)?, output, options, progress)
}

/// Compresses tensors that are in memory, or anywhere else that a [`Source`] can read, into the file `output`. The rules
/// and promises are those of [`compress`].
pub fn compress_source(
    source: Box<dyn Source>,
    output: &Path,
    options: &CompressOptions,
    progress: &dyn Progress,
) -> Result<Report> {
    compress_model(&Model::from_source(output, source)?, output, options, progress)
}

pub(crate) fn compress_model(
    model: &Model,
    output: &Path,
    options: &CompressOptions,
    progress: &dyn Progress,
) -> Result<Report> {
    if let Some(shard) = model.shards.iter().find(|shard| tags::is_tagged(&shard.metadata)) {
        let reason = format!("{} is already compressed; decompress it first", shard.path.display());
        return Err(Error::InvalidArgument(reason));
    }
    let target = Target::check(model, output, options.overwrite)?;
    let mut actions = plan::plan(model, options)?;
    let staging = Staging::new(&target)?;

    let rows = encode_model(model, &mut actions, options, &target, &staging, progress)?;
    let stored = rows.iter().map(|row| row.stored_bytes).sum();
    let mut report = Report::new(rows);
    report.left_out = finish(model, &target, staging, stored, Direction::Compress)?;
    Ok(report)
}

/// What is looked for by encoding the model more than once.
enum Search {
    /// A step for so many bits.
    Bits(StepSearch),
    /// A step for so much loss.
    Loss(LossSearch),
    /// Nothing.
    None,
}

/// Encodes everything, more than once if one step for all has to be corrected.
fn encode_model(
    model: &Model,
    actions: &mut [Action],
    options: &CompressOptions,
    target: &Target,
    staging: &Staging,
    progress: &dyn Progress,
) -> Result<Vec<TensorRow>> {
    let begin = || match (options.alloc, plan::model_bits(options), options.loss) {
        (Alloc::Loss, _, Some(loss)) => Ok(Search::Loss(LossSearch::new(model, actions, loss, options)?)),
        (Alloc::Step | Alloc::Loss, Some(bits), _) => {
            Ok(Search::Bits(StepSearch::new(model, actions, bits, options, progress)?))
        }
        _ => Ok(Search::None),
    };
    let mut search = threads::install(options.threads, begin).map_err(Error::Threads)??;
    loop {
        match &search {
            Search::Bits(search) => search.apply(actions),
            Search::Loss(search) => search.apply(actions),
            Search::None => {}
        }
        progress.start(model.bytes());
        let rows = encode::encode_tensors(options, model, actions, target, staging, progress)?;
        let shared =
            rows.iter().zip(actions.iter()).filter(|(_, action)| action.is_shared()).map(|(row, _)| row);
        let again = match &mut search {
            Search::Bits(search) => search.correct(shared.map(|row| row.stored_bytes).sum()),
            Search::Loss(search) => search.correct(shared.filter_map(|row| row.loss).sum()),
            Search::None => false,
        };
        if !again {
            return Ok(rows);
        }
    }
}

/// Adds the index and the other files of a folder and moves everything into place. Returns the files of
/// the input folder that were left out.
pub(crate) fn finish(
    model: &Model,
    target: &Target,
    staging: Staging,
    stored_bytes: u64,
    direction: Direction,
) -> Result<Vec<PathBuf>> {
    let (mut names, left_out) = copy_siblings(model, &staging, direction)?;
    names.extend(model.shards.iter().map(|shard| PathBuf::from(&shard.file_name)));
    if let Layout::Folder { index: Some(index), .. } = &model.layout {
        let name = PathBuf::from(&index.file_name);
        let label = target.place(&index.file_name);
        let text = index.to_json(stored_bytes).map_err(|e| Error::malformed(&label, e.to_string()))?;
        std::fs::write(staging.path(&name), text).map_err(Error::io(&label))?;
        names.push(name);
    }
    staging.commit(&names)?;
    Ok(left_out)
}

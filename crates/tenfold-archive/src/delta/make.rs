//! Two versions of a model to a delta, tensor by tensor.

use std::collections::HashMap;
use std::path::Path;

use globset::GlobSet;
use rayon::prelude::*;
use tenfold::delta::Fingerprint;
use tenfold::engine::threads;
use tenfold::{EncodeOptions, Goal, TensorView};

use super::difference;
use super::fingerprint::{Prints, of_model, of_parts, of_tensor};
use super::options::{MakeOptions, compile};
use super::record::{How, Said};
use super::report::DeltaReport;
use super::tensors::{Meta, Tensors};
use super::write::{Content, Frame, Writer, check_inputs};
use crate::compress::batches;
use crate::error::{Error, Result};
use crate::output::{Staging, Target};
use crate::plan::is_worth_it;
use crate::progress::Progress;
use crate::safetensors::stored_dtype;

/// Makes a delta from two versions of a model and writes it to `output`, which appears when it is whole. Applied to the
/// first it gives the second. Memory follows the largest tensor.
pub fn make(
    base: &Tensors<'_>,
    new: &Tensors<'_>,
    output: &Path,
    options: &MakeOptions,
    progress: &dyn Progress,
) -> Result<DeltaReport> {
    let target = Target::file(output, options.overwrite)?;
    check_inputs(output, base.files().chain(new.files()))?;
    let staging = Staging::new(&target)?;
    let mut writer = Writer::in_file(&staging, output)?;
    let frame = compare(base, new, options, progress, &mut writer)?;
    writer.into_file(frame, staging, &target)
}

/// The same; returns the bytes that the file would have.
pub fn make_bytes(
    base: &Tensors<'_>,
    new: &Tensors<'_>,
    options: &MakeOptions,
    progress: &dyn Progress,
) -> Result<(Vec<u8>, DeltaReport)> {
    let mut writer = Writer::in_memory();
    let frame = compare(base, new, options, progress, &mut writer)?;
    writer.into_bytes(frame)
}

fn compare(
    base: &Tensors<'_>,
    new: &Tensors<'_>,
    options: &MakeOptions,
    progress: &dyn Progress,
    writer: &mut Writer,
) -> Result<Frame> {
    let maker = Maker { base, new, options, exact: compile(&options.exclude)?, progress };
    threads::install(options.threads, || {
        progress.start(base.bytes().saturating_add(new.bytes()));
        maker.run(writer)
    })
    .map_err(Error::Threads)?
}

struct Maker<'m, 'a, 'b> {
    base: &'m Tensors<'a>,
    new: &'m Tensors<'b>,
    options: &'m MakeOptions,
    exact: GlobSet,
    progress: &'m dyn Progress,
}

/// What became of a tensor that both versions have.
struct Outcome {
    base: Fingerprint,
    result: Fingerprint,
    /// Nothing where it is as it was.
    content: Option<Content>,
}

impl Maker<'_, '_, '_> {
    fn run(&self, writer: &mut Writer) -> Result<Frame> {
        let (mut before, mut after) = (Prints::new(), Prints::new());

        // 1. Tensors of both versions.
        let items = self.new.items();
        let (both, added): (Vec<usize>, Vec<usize>) =
            (0..items.len()).partition(|&i| self.base.find(&items[i].name).is_some());
        // Both versions are in memory.
        for batch in batches(&both, |i| items[i].bytes.saturating_mul(2)) {
            let batch = &both[batch];
            self.progress.message(&items[batch[0]].name);
            let outcomes: Vec<Outcome> = match batch {
                [one] => vec![self.compare(*one)?],
                _ => batch.par_iter().map(|&i| self.compare(i)).collect::<Result<_>>()?,
            };
            for (&i, outcome) in batch.iter().zip(outcomes) {
                before.insert(items[i].name.clone(), outcome.base);
                after.insert(items[i].name.clone(), outcome.result);
                outcome.content.map_or(Ok(()), |content| writer.put(content))?;
            }
        }

        // 2. Those that are gone. What has another name now is one of these, as a rule.
        let mut removed: Vec<String> = self
            .base
            .items()
            .iter()
            .map(|meta| meta.name.clone())
            .filter(|name| self.new.find(name).is_none())
            .collect();
        removed.sort();
        let mut known: HashMap<Fingerprint, String> = HashMap::new();
        for name in &removed {
            let print =
                self.base.find(name).map_or_else(|| Ok(Fingerprint([0; 16])), |i| self.print_base(i))?;
            before.insert(name.clone(), print);
            known.entry(print).or_insert_with(|| name.clone());
        }
        for (name, print) in &before {
            known.entry(*print).or_insert_with(|| name.clone());
        }

        // 3. Those that are new.
        for batch in batches(&added, |i| items[i].bytes) {
            let batch = &added[batch];
            self.progress.message(&items[batch[0]].name);
            let add = |&i: &usize| self.add(i, &known);
            let contents: Vec<(Fingerprint, Content)> = match batch {
                [one] => vec![add(one)?],
                _ => batch.par_iter().map(add).collect::<Result<_>>()?,
            };
            for (print, content) in contents {
                after.insert(content.name.clone(), print);
                writer.put(content)?;
            }
        }
        let metadata = (self.new.metadata() != self.base.metadata()).then(|| self.new.metadata().clone());
        Ok(Frame { base: of_model(&before), result: of_model(&after), removed, metadata })
    }

    fn print_base(&self, index: usize) -> Result<Fingerprint> {
        let meta = &self.base.items()[index];
        self.check(meta)?;
        let print = of_tensor(meta, &self.base.read(index)?)?;
        self.progress.advance(meta.bytes);
        Ok(print)
    }

    fn check(&self, meta: &Meta) -> Result<()> {
        self.options.stop.check().map_err(Error::codec(&meta.name))
    }

    /// Compares a tensor with the base's of the same name.
    fn compare(&self, index: usize) -> Result<Outcome> {
        let meta = &self.new.items()[index];
        self.check(meta)?;
        let old = self.base.find(&meta.name).unwrap_or_default();
        let old_meta = &self.base.items()[old];
        let (before, after) = (self.base.read(old)?, self.new.read(index)?);
        let outcome =
            match meta.dtype().filter(|_| old_meta.stored == meta.stored && old_meta.bytes == meta.bytes) {
                _ if meta.is_alike(old_meta) && before == after => {
                    let print = of_tensor(meta, &after)?;
                    Outcome { base: print, result: print, content: None }
                }
                Some(dtype) => {
                    // A tensor of another shape has the same values: it is seen in the new one.
                    let view =
                        |data| TensorView::new(dtype, &meta.shape, data).map_err(Error::codec(&meta.name));
                    let mut outcome = self.change(meta, &view(&before)?, &view(&after)?)?;
                    if !meta.is_alike(old_meta) {
                        outcome.base = of_tensor(old_meta, &before)?;
                    }
                    outcome
                }
                None => {
                    let (base, result) = (of_tensor(old_meta, &before)?, of_tensor(meta, &after)?);
                    Outcome { base, result, content: Some(store(meta, &after, result, self.options)?) }
                }
            };
        self.progress.advance(old_meta.bytes.saturating_add(meta.bytes));
        Ok(outcome)
    }

    /// What changed, exactly or with loss: whichever is smaller, if the caller allows both.
    fn change(&self, meta: &Meta, before: &TensorView<'_>, after: &TensorView<'_>) -> Result<Outcome> {
        let codec = |e| Error::codec(&meta.name)(e);
        let blob = tenfold::delta::make(before, after, &self.options.inner()).map_err(codec)?;
        let info = tenfold::delta::inspect(&blob).map_err(codec)?;
        let (options, name) = (self.options, meta.name.clone());
        if let Some(goal) = options.goal.filter(|goal| *goal != Goal::Lossless)
            && difference::takes(before.dtype())
            && is_worth_it(&meta.shape)
            && !self.exact.is_match(&meta.name)
            && let Some(coded) =
                difference::encode(before, after, goal, options.effort, &options.decode()).map_err(codec)?
            && coded.blob.len() < blob.len()
        {
            if coded.result == before.data() {
                return Ok(Outcome { base: info.base, result: info.base, content: None });
            }
            let result = of_parts(meta.stored, &meta.shape, &coded.result).map_err(codec)?;
            let said = Said { how: How::Difference, from: None, base: Some(info.base), result: Some(result) };
            let stored = stored_dtype(difference::dtype_of(before.dtype()))?;
            let bytes = before.len() as u64 * difference::dtype_of(before.dtype()).size() as u64;
            let meta = Meta { name: name.clone(), shape: meta.shape.clone(), bytes, stored };
            let content =
                Content { name, said, meta: Some(meta), data: coded.blob, is_blob: true, changed: None };
            return Ok(Outcome { base: info.base, result, content: Some(content) });
        }
        let said = Said { how: How::Delta, from: None, base: None, result: None };
        let changed = Some(info.changed);
        let content = Content { name, said, meta: Some(meta.clone()), data: blob, is_blob: true, changed };
        Ok(Outcome { base: info.base, result: info.result, content: Some(content) })
    }

    /// A tensor that the base has under another name, or not at all.
    fn add(&self, index: usize, known: &HashMap<Fingerprint, String>) -> Result<(Fingerprint, Content)> {
        let meta = &self.new.items()[index];
        self.check(meta)?;
        let data = self.new.read(index)?;
        let result = of_tensor(meta, &data)?;
        let content = match known.get(&result) {
            Some(from) => copy(&meta.name, from, result),
            None => store(meta, &data, result, self.options)?,
        };
        self.progress.advance(meta.bytes);
        Ok((result, content))
    }
}

/// A tensor of the base under another name.
pub(super) fn copy(name: &str, from: &str, result: Fingerprint) -> Content {
    let said = Said { how: How::Copy, from: Some(from.to_owned()), base: None, result: Some(result) };
    Content { name: name.to_owned(), said, meta: None, data: Vec::new(), is_blob: false, changed: None }
}

/// A tensor as a whole: without loss if that pays, or as it is.
pub(super) fn store(meta: &Meta, data: &[u8], result: Fingerprint, options: &MakeOptions) -> Result<Content> {
    let said = Said { how: How::Stored, from: None, base: None, result: Some(result) };
    let (mut bytes, mut is_blob) = (data.to_vec(), false);
    if let Some(dtype) = meta.dtype().filter(|_| is_worth_it(&meta.shape)) {
        let view = TensorView::new(dtype, &meta.shape, data).map_err(Error::codec(&meta.name))?;
        let asked = EncodeOptions::new(Goal::Lossless).with_stop(options.stop.clone());
        let blob = tenfold::encode(&view, &asked).map_err(Error::codec(&meta.name))?;
        if blob.len() < data.len() {
            (bytes, is_blob) = (blob, true);
        }
    }
    Ok(Content {
        name: meta.name.clone(),
        said,
        meta: Some(meta.clone()),
        data: bytes,
        is_blob,
        changed: None,
    })
}

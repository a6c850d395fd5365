//! Several deltas in a row to one.
//!
//! A blob of changes can be read only beside the values that it changes: their exponents choose the statistics of its symbols. So two blobs
//! for one tensor become one with the base at hand, and not without. All else needs no base: what a single delta changes keeps its blob, and what
//! one stores whole, later ones change.

use std::path::Path;

use rayon::prelude::*;
use tenfold::TensorView;
use tenfold::delta::Fingerprint;
use tenfold::engine::threads;

use super::chain::{Chain, Route, Start, Step};
use super::file::{Change, DeltaFile};
use super::fingerprint::of_parts;
use super::make::{copy, store};
use super::options::{ApplyOptions, MakeOptions};
use super::patch::Patched;
use super::record::{How, Said};
use super::report::DeltaReport;
use super::tensors::Tensors;
use super::write::{Content, Frame, Writer, check_inputs};
use crate::compress::batches;
use crate::error::{Error, Result};
use crate::output::{Staging, Target};
use crate::progress::Progress;

/// Makes one delta of several, each of which belongs to what the one before makes, and writes it to `output`. It makes the same result. Without
/// `base`, the model that the first belongs to, no tensor may have blobs of changes in two of them.
pub fn squash(
    deltas: &[&DeltaFile],
    base: Option<&Tensors<'_>>,
    output: &Path,
    options: &MakeOptions,
    progress: &dyn Progress,
) -> Result<DeltaReport> {
    let target = Target::file(output, options.overwrite)?;
    let files = base.into_iter().flat_map(Tensors::files);
    check_inputs(output, deltas.iter().map(|delta| delta.path()).chain(files))?;
    let staging = Staging::new(&target)?;
    let mut writer = Writer::in_file(&staging, output)?;
    let frame = join(deltas, base, options, progress, &mut writer)?;
    writer.into_file(frame, staging, &target)
}

/// The same; returns the bytes that the file would have.
pub fn squash_bytes(
    deltas: &[&DeltaFile],
    base: Option<&Tensors<'_>>,
    options: &MakeOptions,
    progress: &dyn Progress,
) -> Result<(Vec<u8>, DeltaReport)> {
    let mut writer = Writer::in_memory();
    let frame = join(deltas, base, options, progress, &mut writer)?;
    writer.into_bytes(frame)
}

fn join(
    deltas: &[&DeltaFile],
    base: Option<&Tensors<'_>>,
    options: &MakeOptions,
    progress: &dyn Progress,
    writer: &mut Writer,
) -> Result<Frame> {
    let chain = Chain::new(deltas)?;
    let reading = ApplyOptions::default().with_limits(options.limits.clone()).with_stop(options.stop.clone());
    let patched = base.map(|base| Patched::new(base, deltas, &reading)).transpose()?;
    // Where all is stored, no base is looked at: an empty one will do.
    let none = Tensors::new([])?;
    let joiner = Joiner {
        chain: &chain,
        base,
        patched: patched.as_ref(),
        none: &none,
        deltas,
        options,
        reading: &reading,
    };
    let routes: Vec<(&String, &Route)> = chain.routes.iter().collect();
    let numbers: Vec<usize> = (0..routes.len()).collect();
    let size = |i: usize| joiner.size(routes[i].1);
    threads::install(options.threads, || {
        progress.start(numbers.iter().map(|&i| size(i)).sum());
        for batch in batches(&numbers, size) {
            progress.message(routes[batch.start].0);
            let each = |i: usize| {
                options.stop.check().map_err(Error::codec(routes[i].0))?;
                let content = joiner.join(routes[i].0, routes[i].1)?;
                progress.advance(size(i));
                Ok(content)
            };
            let contents: Vec<Option<Content>> = batch.into_par_iter().map(each).collect::<Result<_>>()?;
            contents.into_iter().flatten().try_for_each(|content| writer.put(content))?;
        }
        Ok(())
    })
    .map_err(Error::Threads)??;
    Ok(Frame {
        base: chain.first().base(),
        result: chain.result(),
        removed: chain.removed.iter().cloned().collect(),
        metadata: chain.metadata().cloned(),
    })
}

struct Joiner<'j, 'a> {
    chain: &'j Chain<'j>,
    base: Option<&'j Tensors<'a>>,
    patched: Option<&'j Patched<'j, 'a>>,
    none: &'j Tensors<'a>,
    deltas: &'j [&'j DeltaFile],
    options: &'j MakeOptions,
    reading: &'j ApplyOptions,
}

impl Joiner<'_, '_> {
    /// Bytes that a tensor takes while it is worked on, about.
    fn size(&self, route: &Route) -> u64 {
        let steps = route.steps.iter().copied().chain(match route.start {
            Start::Stored(step) => Some(step),
            Start::Base(_) => None,
        });
        steps
            .map(|step| self.chain.change(step).1.meta.as_ref().map_or(0, |meta| meta.bytes))
            .max()
            .unwrap_or(0)
    }

    /// What a tensor needs in one delta; nothing if it ends as it began.
    fn join(&self, name: &str, route: &Route) -> Result<Option<Content>> {
        match (&route.start, route.steps.as_slice()) {
            (Start::Base(from), []) if from == name => Ok(None),
            (Start::Base(from), []) => Ok(Some(copy(name, from, route.result))),
            (Start::Base(from), &[step]) => self.carry(name, step, Some(from)).map(Some),
            (&Start::Stored(step), []) => self.carry(name, step, None).map(Some),
            (Start::Stored(_), _) => self.change_stored(name, route.result).map(Some),
            (Start::Base(from), &[first, ..]) => self.change_base(name, from, first, route.result),
        }
    }

    /// What one delta has of a tensor, as it is.
    fn carry(&self, name: &str, step: Step, from: Option<&str>) -> Result<Content> {
        let (delta, change): (&DeltaFile, &Change) = self.chain.change(step);
        let mut meta = change.meta.clone();
        if let Some(meta) = &mut meta {
            meta.name = name.to_owned();
        }
        let told = change.how != How::Delta;
        let said = Said {
            how: change.how,
            from: from.filter(|from| *from != name).map(str::to_owned),
            base: change.base.filter(|_| told && from.is_some()),
            result: told.then_some(change.result),
        };
        let (data, is_blob) = (delta.read_raw(change)?, delta.is_blob(change));
        Ok(Content {
            name: name.to_owned(),
            said,
            meta,
            data: data.into_owned(),
            is_blob,
            changed: change.changed,
        })
    }

    /// A tensor that one delta stores and later ones change.
    fn change_stored(&self, name: &str, result: Fingerprint) -> Result<Content> {
        let only = ApplyOptions { only: vec![globset::escape(name)], ..self.reading.clone() };
        let patched = Patched::new(self.none, self.deltas, &only)?;
        let at = patched.tensors().iter().position(|tensor| tensor.meta.name == name);
        let at = at.ok_or_else(|| self.chain.first().malformed(name, "is not made by these deltas"))?;
        store(&patched.tensors()[at].meta, &patched.read(at)?, result, self.options)
    }

    /// A tensor of the base that several deltas change.
    fn change_base(
        &self,
        name: &str,
        from: &str,
        first: Step,
        result: Fingerprint,
    ) -> Result<Option<Content>> {
        let (Some(base), Some(patched)) = (self.base, self.patched) else {
            return Err(Error::NeedsBase { name: name.to_owned() });
        };
        let (delta, change) = self.chain.change(first);
        let missing = || delta.wrong_base(format!("this one has no tensor {from:?}"));
        let before = base.find(from).ok_or_else(missing)?;
        let at = patched.tensors().iter().position(|tensor| tensor.meta.name == name).ok_or_else(missing)?;
        let (meta, old) = (&patched.tensors()[at].meta, &base.items()[before]);
        let (before, after) = (base.read(before)?, patched.read(at)?);
        // Applying is content with a base that has some of the deltas. Here it must be the first one's.
        let shape = change.meta.as_ref().map_or(&old.shape, |meta| &meta.shape);
        let found = of_parts(old.stored, shape, &before).map_err(Error::codec(name))?;
        if Some(found) != change.base {
            let expected = change.base.map(|print| print.to_string()).unwrap_or_default();
            let source = tenfold::Error::WrongBase { expected, found: found.to_string() };
            return Err(Error::codec(name)(source));
        }
        if from == name && meta.is_alike(old) && before == after {
            return Ok(None);
        }
        let Some(dtype) = meta.dtype() else {
            return store(meta, &after, result, self.options).map(Some);
        };
        let view = |data| TensorView::new(dtype, &meta.shape, data).map_err(Error::codec(name));
        let blob = tenfold::delta::make(&view(&before)?, &view(&after)?, &self.options.inner());
        let data = blob.map_err(Error::codec(name))?;
        let changed = Some(tenfold::delta::inspect(&data).map_err(Error::codec(name))?.changed);
        let from = (from != name).then(|| from.to_owned());
        let said = Said { how: How::Delta, from, base: None, result: None };
        Ok(Some(Content {
            name: name.to_owned(),
            said,
            meta: Some(meta.clone()),
            data,
            is_blob: true,
            changed,
        }))
    }
}

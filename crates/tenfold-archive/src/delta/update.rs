//! A delta applied over the files of its base.
//!
//! Writing single values into a file would be quicker, but a power cut could leave half of one behind, and nothing would know. So each
//! file that changes is written anew beside the old one and takes its place: at any time a file is old or new. What is left of an
//! interrupted run is a model of both kinds of files, and the same call completes it.

use std::path::Path;

use tenfold::engine::threads;

use super::apply::write;
use super::file::DeltaFile;
use super::fingerprint::Prints;
use super::layout;
use super::options::ApplyOptions;
use super::patch::Patched;
use super::tensors::Tensors;
use crate::archive::Archive;
use crate::error::{Error, Result};
use crate::output::{Staging, Target};
use crate::progress::Progress;

/// Applies a delta to a safetensors file or a folder of them, in place. Everything is compared first; an error leaves every file as it is. Returns how
/// many files were written, none if the delta had been applied before.
///
/// The delta must leave names, dtypes and shapes as they are. Besides the model there must be room for its largest file.
pub fn update(
    model: &Path,
    delta: &DeltaFile,
    options: &ApplyOptions,
    progress: &dyn Progress,
) -> Result<usize> {
    let base = Archive::open(model)?;
    if base.is_compressed() || !base.model().is_safetensors() {
        let reason = format!(
            "{} is not plain safetensors and cannot be changed in place; write the result to another place",
            model.display()
        );
        return Err(Error::InvalidArgument(reason));
    }
    let tensors = Tensors::of_archive(&base, &options.decode());
    let patched = Patched::new(&tensors, &[delta], options)?;
    check_layout(&patched, &tensors)?;
    threads::install(options.threads, || {
        // 1. All is compared, and nothing is written.
        progress.start(patched.bytes().saturating_mul(2));
        let mut changes = vec![false; patched.tensors().len()];
        let all: Vec<usize> = (0..changes.len()).collect();
        let mut prints = Prints::new();
        patched.for_each(&all, &mut prints, progress, |i, data| {
            let route = patched.tensors()[i].route.is_some();
            changes[i] = route && tensors.read(i)? != data;
            Ok(())
        })?;
        patched.check_whole(&prints)?;

        // 2. File by file.
        let mut written = 0;
        for file in &layout::files(&base, &patched) {
            let Some(shard) = base.model().shards.iter().find(|shard| shard.file_name == file.name) else {
                continue;
            };
            let same_metadata = file.metadata.iter().all(|pair| shard.metadata.contains(pair))
                && file.metadata.len() == shard.metadata.len();
            let target = Target::file(&shard.path, true)?;
            if same_metadata && !file.tensors.iter().any(|&i| changes[i]) {
                // A run that was killed behind its last rename has left a folder.
                Staging::clear(&target);
                continue;
            }
            let staging = Staging::new(&target)?;
            let place = staging.path(Path::new(&file.name));
            write(&patched, file, &place, &shard.path, &mut prints, progress)?;
            let permissions = shard.path.metadata().map_err(Error::io(&shard.path))?.permissions();
            std::fs::set_permissions(&place, permissions).map_err(Error::io(&shard.path))?;
            staging.commit(&[file.name.clone().into()])?;
            written += 1;
        }
        Ok(written)
    })
    .map_err(Error::Threads)?
}

/// Refuses a delta that changes more than values.
fn check_layout(patched: &Patched<'_, '_>, base: &Tensors<'_>) -> Result<()> {
    let metas = patched.tensors().iter().map(|tensor| &tensor.meta);
    let same = base.items().len() == patched.tensors().len() && base.items().iter().eq(metas);
    if same {
        return Ok(());
    }
    let reason = "the delta adds, removes, renames or reshapes tensors, which cannot be done in place; write the result to another place";
    Err(Error::InvalidArgument(reason.into()))
}

//! Deltas applied to a model on disk; the result is a model of its own.

use std::path::{Path, PathBuf};

use tenfold::engine::threads;

use super::file::DeltaFile;
use super::fingerprint::Prints;
use super::layout::{self, File};
use super::options::ApplyOptions;
use super::patch::Patched;
use super::tensors::Tensors;
use super::write::check_inputs;
use crate::archive::Archive;
use crate::error::{Error, Result};
use crate::output::{Direction, Staging, Target, copy_siblings};
use crate::progress::Progress;
use crate::safetensors::ShardWriter;

/// Applies deltas, one after the other, to a model and writes the result to `output`: a file from a file, a folder from a folder or an index, and
/// never compressed. The output appears when it is whole and its fingerprint is right. Memory follows the largest tensor.
///
/// Files and order are the base's, and so are all files of a folder that hold no tensors.
pub fn apply(
    base: &Archive,
    deltas: &[&DeltaFile],
    output: &Path,
    options: &ApplyOptions,
    progress: &dyn Progress,
) -> Result<()> {
    let tensors = Tensors::of_archive(base, &options.decode());
    let patched = Patched::new(&tensors, deltas, options)?;
    let target = Target::check(base.model(), output, options.overwrite)?;
    check_inputs(output, deltas.iter().map(|delta| delta.path()))?;
    let staging = Staging::new(&target)?;
    threads::install(options.threads, || {
        progress.start(patched.bytes());
        let files = layout::files(base, &patched);
        let mut prints = Prints::new();
        let mut bytes = 0;
        for file in &files {
            let place = staging.path(Path::new(&file.name));
            bytes += write(&patched, file, &place, &target.place(&file.name), &mut prints, progress)?;
        }
        patched.check_whole(&prints)?;
        finish(base, &patched, &files, bytes, &target, staging)
    })
    .map_err(Error::Threads)?
}

/// Writes one file of the result. Returns the bytes of its tensors.
pub(super) fn write(
    patched: &Patched<'_, '_>,
    file: &File,
    place: &Path,
    label: &Path,
    prints: &mut Prints,
    progress: &dyn Progress,
) -> Result<u64> {
    let slots = layout::slots(patched, file)?;
    let mut writer = ShardWriter::create(place, label, file.metadata.clone(), slots, &file.order)?;
    let order: Vec<usize> = file.order.iter().map(|&i| file.tensors[i]).collect();
    patched.for_each(&order, prints, progress, |_, data| writer.put(&data))?;
    writer.finish()
}

/// Adds the index and the other files of a folder and moves everything into place.
fn finish(
    base: &Archive,
    patched: &Patched<'_, '_>,
    files: &[File],
    bytes: u64,
    target: &Target,
    staging: Staging,
) -> Result<()> {
    let (mut names, _) = copy_siblings(base.model(), &staging, Direction::Decompress)?;
    names.extend(files.iter().map(|file| PathBuf::from(&file.name)));
    if let Some(index) = layout::index(base, patched, files) {
        let name = PathBuf::from(&index.file_name);
        let label = target.place(&index.file_name);
        let text = index.to_json(bytes).map_err(|e| Error::malformed(&label, e.to_string()))?;
        std::fs::write(staging.path(&name), text).map_err(Error::io(&label))?;
        names.push(name);
    }
    staging.commit(&names)
}

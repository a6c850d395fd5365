//! A model folder holds more than tensors (configuration, tokenizer, licence); those files come along.

use std::fs;
use std::path::{Path, PathBuf};

use super::config::{self, Direction};
use super::staging::Staging;
use crate::error::{Error, Result};
use crate::model::{Layout, Model};

/// Copies everything else in the input folder. Returns the copies, relative to the folder, and what was
/// left out: other safetensors files at the top, which are most often the same weights once more. A model's configuration
/// tells how its weights are stored, so it changes with the direction.
pub(crate) fn copy_siblings(
    model: &Model,
    staging: &Staging,
    direction: Direction,
) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let Layout::Folder { folder, index, whole: true } = &model.layout else {
        return Ok(Default::default());
    };
    let (mut copied, mut left_out) = (Vec::new(), Vec::new());
    for (path, name) in list_visible(folder)? {
        let text = name.to_string_lossy();
        if path.is_dir() {
            copy_tree(folder, &name, staging, &mut copied)?;
        } else if model.shards.iter().any(|shard| shard.file_name == text)
            || index.as_ref().is_some_and(|index| index.file_name == text)
        {
            continue; // written anew
        } else if text.ends_with(".safetensors") {
            left_out.push(path);
        } else if let Some(text) = new_config(&path, &name, direction)? {
            let place = staging.path(&name);
            fs::write(&place, text).map_err(Error::io(&place))?;
            copied.push(name);
        } else {
            copy_file(&path, &name, staging, &mut copied)?;
        }
    }
    Ok((copied, left_out))
}

/// The text of a configuration that is not copied as it is.
fn new_config(path: &Path, name: &Path, direction: Direction) -> Result<Option<String>> {
    if name != Path::new(config::FILE_NAME) || !path.is_file() {
        return Ok(None);
    }
    let bytes = fs::read(path).map_err(Error::io(path))?;
    Ok(std::str::from_utf8(&bytes).ok().and_then(|text| config::convert(text, direction)))
}

fn copy_tree(root: &Path, dir: &Path, staging: &Staging, copied: &mut Vec<PathBuf>) -> Result<()> {
    let from = root.join(dir);
    // A linked folder may lead back up: it is not followed.
    if from.symlink_metadata().map_err(Error::io(&from))?.is_symlink() {
        return Ok(());
    }
    let to = staging.path(dir);
    fs::create_dir(&to).map_err(Error::io(&to))?;
    for (path, name) in list_visible(&from)? {
        let name = dir.join(name);
        if path.is_dir() {
            copy_tree(root, &name, staging, copied)?;
        } else {
            copy_file(&path, &name, staging, copied)?;
        }
    }
    Ok(())
}

fn copy_file(path: &Path, name: &Path, staging: &Staging, copied: &mut Vec<PathBuf>) -> Result<()> {
    // Regular files only: a pipe in the folder would block, a dangling link is not worth a failure.
    if path.is_file() {
        fs::copy(path, staging.path(name)).map_err(Error::io(path))?;
        copied.push(name.to_owned());
    }
    Ok(())
}

/// Entries of a folder that are not hidden, sorted.
fn list_visible(folder: &Path) -> Result<Vec<(PathBuf, PathBuf)>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io(folder))? {
        let entry = entry.map_err(Error::io(folder))?;
        let name = entry.file_name();
        if !name.to_string_lossy().starts_with('.') {
            entries.push((entry.path(), PathBuf::from(name)));
        }
    }
    entries.sort();
    Ok(entries)
}

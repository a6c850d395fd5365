//! Checks of an output path, before any work is done.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::model::{Layout, Model};

/// A checked output path.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    /// One file.
    File(PathBuf),
    /// A folder of files, with the names that the input's files have.
    Folder(PathBuf),
}

impl Target {
    /// Decides from the input's layout what `path` will be, and refuses what would lose data.
    pub fn check(model: &Model, path: &Path, overwrite: bool) -> Result<Target> {
        let place = resolve(path)?;
        match &model.layout {
            Layout::File | Layout::Memory => {
                if matches!(model.layout, Layout::File) && is_same(&place, &model.path) {
                    return Err(same_path(path));
                }
                Target::file(path, overwrite)
            }
            Layout::Folder { folder, .. } => {
                if is_same(&place, folder) || model.shards.iter().any(|shard| is_same(&place, &shard.path)) {
                    return Err(same_path(path));
                }
                if folder.canonicalize().is_ok_and(|folder| place.starts_with(folder)) {
                    let reason = format!(
                        "the output {} lies inside the input folder; name another place",
                        path.display()
                    );
                    return Err(Error::InvalidArgument(reason));
                }
                if path.exists() && !path.is_dir() {
                    let reason =
                        format!("{} is a file; name a folder for the output of this model", path.display());
                    return Err(Error::InvalidArgument(reason));
                }
                if !overwrite && path.is_dir() && !is_empty(path)? {
                    return Err(Error::OutputExists(path.to_owned()));
                }
                Ok(Target::Folder(path.to_owned()))
            }
        }
    }

    /// One file that depends on no input.
    pub fn file(path: &Path, overwrite: bool) -> Result<Target> {
        resolve(path)?;
        if path.is_dir() {
            let reason = format!("{} is a folder; name a file for the output", path.display());
            return Err(Error::InvalidArgument(reason));
        }
        if !overwrite && path.symlink_metadata().is_ok() {
            return Err(Error::OutputExists(path.to_owned()));
        }
        Ok(Target::File(path.to_owned()))
    }

    /// The path that the caller gave.
    pub fn path(&self) -> &Path {
        match self {
            Target::File(path) | Target::Folder(path) => path,
        }
    }

    /// Where a file of the model ends up.
    pub fn place(&self, name: &str) -> PathBuf {
        match self {
            Target::File(path) => path.clone(),
            Target::Folder(path) => path.join(name),
        }
    }
}

/// Folder in which a path lies; `.` for a bare name.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// The path without links, whether or not its last part exists.
fn resolve(path: &Path) -> Result<PathBuf> {
    if let Ok(place) = path.canonicalize() {
        return Ok(place);
    }
    let name = path.file_name().ok_or_else(|| {
        Error::InvalidArgument(format!("{} does not name a file or folder", path.display()))
    })?;
    let parent = parent(path);
    Ok(parent.canonicalize().map_err(Error::io(parent))?.join(name))
}

fn is_same(place: &Path, other: &Path) -> bool {
    other.canonicalize().is_ok_and(|other| other == place)
}

fn is_empty(folder: &Path) -> Result<bool> {
    Ok(std::fs::read_dir(folder).map_err(Error::io(folder))?.next().is_none())
}

fn same_path(path: &Path) -> Error {
    Error::InvalidArgument(format!("{} is both input and output; name another output", path.display()))
}

//! The temporary folder in which output grows.
//!
//! Its name is `.<target>.<random>.tenfold-tmp`. A killed process cannot remove its own, so the next run
//! with the same target does; a locked file inside tells a dead run's folder from one in use.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::target::{Target, parent};
use crate::error::{Error, Result};

const SUFFIX: &str = ".tenfold-tmp";
const LOCK: &str = "lock";

/// Output that is not yet in place; dropped without [`Staging::commit`], it vanishes.
#[derive(Debug)]
pub(crate) struct Staging {
    target: Target,
    payload: PathBuf,
    // Field order is drop order: the lock goes before its folder.
    lock: File,
    dir: TempDir,
}

impl Staging {
    /// Makes the folder, in the same file system as the target, and clears away what dead runs left.
    pub fn new(target: &Target) -> Result<Staging> {
        let (base, prefix) = place(target);
        remove_leftovers(base, &prefix);
        let (dir, lock) = make(base, &prefix).map_err(Error::io(base))?;
        let payload = dir.path().join("payload");
        fs::create_dir(&payload).map_err(Error::io(&payload))?;
        Ok(Staging { target: target.clone(), payload, lock, dir })
    }

    /// Clears away what dead runs left beside a target that needs no new output.
    pub fn clear(target: &Target) {
        let (base, prefix) = place(target);
        remove_leftovers(base, &prefix);
    }

    /// Where to write a file until the commit.
    pub fn path(&self, name: &Path) -> PathBuf {
        self.payload.join(name)
    }

    /// Moves files into place in the order given; the last one is what makes the set complete.
    pub fn commit(self, names: &[PathBuf]) -> Result<()> {
        match &self.target {
            Target::File(path) => {
                for name in names {
                    fs::rename(self.path(name), path).map_err(Error::io(path))?;
                }
            }
            Target::Folder(folder) if !folder.exists() => {
                fs::rename(&self.payload, folder).map_err(Error::io(folder))?;
            }
            Target::Folder(folder) => {
                for name in names {
                    let place = folder.join(name);
                    fs::create_dir_all(parent(&place)).map_err(Error::io(&place))?;
                    fs::rename(self.path(name), &place).map_err(Error::io(&place))?;
                }
            }
        }
        sync_folder(parent(self.target.path()));
        // The output is in place; a temporary folder that cannot be removed does not change that.
        drop(self.lock);
        let _ = self.dir.close();
        Ok(())
    }
}

/// The folder in which staging folders of a target lie, and how their names begin.
fn place(target: &Target) -> (&Path, String) {
    let path = target.path();
    // Renaming a whole new folder is atomic; into a folder that exists, files must be moved singly.
    let base = if matches!(target, Target::Folder(_)) && path.is_dir() { path } else { parent(path) };
    (base, format!(".{}.", path.file_name().unwrap_or_default().to_string_lossy()))
}

/// Creates and locks a folder. Another run may clear it away between the two steps: then once more.
fn make(base: &Path, prefix: &str) -> io::Result<(TempDir, File)> {
    let mut tries = 0;
    loop {
        let dir = tempfile::Builder::new().prefix(prefix).suffix(SUFFIX).tempdir_in(base)?;
        let path = dir.path().join(LOCK);
        tries += 1;
        match File::create(&path) {
            Ok(lock) if try_lock(&lock) && path.exists() => return Ok((dir, lock)),
            Err(e) if e.kind() != io::ErrorKind::NotFound || tries == 8 => return Err(e),
            Ok(_) if tries == 8 => return Err(io::ErrorKind::ResourceBusy.into()),
            _ => {}
        }
    }
}

/// Takes the lock. Also true if the file system has no locks: then nothing is cleared away.
fn try_lock(file: &File) -> bool {
    !matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock))
}

/// Removes folders of dead runs. What cannot be removed stays and does no harm.
fn remove_leftovers(base: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let random = name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(SUFFIX));
        if !random.is_some_and(|random| !random.is_empty() && !random.contains('.')) {
            continue;
        }
        let dir = entry.path();
        match File::options().write(true).open(dir.join(LOCK)) {
            Ok(lock) if lock.try_lock().is_ok() => drop(fs::remove_dir_all(&dir)),
            Ok(_) => {}
            // Killed before it made its lock, or about to make it: only an empty folder goes.
            Err(_) => drop(fs::remove_dir(&dir)),
        }
    }
}

/// Makes renames durable. Not every file system can; the data itself has been synced before.
fn sync_folder(folder: &Path) {
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}

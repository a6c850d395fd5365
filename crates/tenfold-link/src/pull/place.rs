//! Where output goes, and the hidden folder beside it that holds what is not whole yet.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// A checked output path.
#[derive(Debug)]
pub(super) struct Target {
    path: PathBuf,
    is_folder: bool,
}

impl Target {
    /// The place for a folder or for a file of this name. A file goes into `output` if that is a folder.
    pub fn new(output: &Path, is_folder: bool, name: &str, overwrite: bool) -> Result<Target> {
        let is_dir = output.is_dir();
        let path = if is_dir && !is_folder { output.join(name) } else { output.to_owned() };
        if path.file_name().is_none() {
            return Err(Error::InvalidArgument(format!("{} does not name a file or folder", path.display())));
        }
        if path.is_dir() && !is_folder {
            return Err(Error::InvalidArgument(format!("{} is a folder; name a file", path.display())));
        }
        if path.is_file() && is_folder {
            return Err(Error::InvalidArgument(format!(
                "{} is a file; name a folder for this model",
                path.display()
            )));
        }
        let is_taken = match is_folder {
            true => is_dir && fs::read_dir(&path).map_err(Error::io(&path))?.next().is_some(),
            false => path.symlink_metadata().is_ok(),
        };
        if is_taken && !overwrite {
            return Err(Error::OutputExists(path));
        }
        Ok(Target { path, is_folder })
    }

    fn parent(&self) -> &Path {
        self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }
}

/// The folder of what is not whole: spools, journals, and whole files that wait for the rest. It stays if work ends early.
#[derive(Debug)]
pub(super) struct Work {
    path: PathBuf,
    /// Held as long as the folder is in use; the system lets go of it when the process ends, however it ends.
    _lock: File,
}

impl Work {
    /// Opens the folder for a target. What another `wish` left in it goes.
    pub fn open(target: &Target, wish: &str) -> Result<Work> {
        let parent = target.parent();
        fs::create_dir_all(parent).map_err(Error::io(parent))?;
        let name = target.path.file_name().unwrap_or_default().to_string_lossy();
        let path = parent.join(format!(".{name}.tenfold-pull"));
        match fs::create_dir(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => made.map_err(Error::io(&path))?,
        }
        let lock_path = path.join("lock");
        let lock = File::create(&lock_path).map_err(Error::io(&lock_path))?;
        if matches!(lock.try_lock(), Err(fs::TryLockError::WouldBlock)) {
            return Err(Error::Busy(target.path.clone()));
        }
        let wish_path = path.join("wish.json");
        if fs::read(&wish_path).ok().as_deref() != Some(wish.as_bytes()) {
            clear(&path)?;
            fs::write(&wish_path, wish).map_err(Error::io(&wish_path))?;
        }
        let payload = path.join("payload");
        fs::create_dir_all(&payload).map_err(Error::io(&payload))?;
        Ok(Work { path, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where a whole file waits.
    pub fn payload(&self, name: &str) -> PathBuf {
        self.path.join("payload").join(name)
    }

    /// Removes the folder: what was in it has been taken.
    pub fn discard(self) {
        // Nobody waits for a folder in a cache; the next pull of the same name clears it.
        let _ = fs::remove_dir_all(&self.path);
    }

    /// Moves everything into place and removes the folder.
    pub fn commit(self, target: &Target) -> Result<()> {
        let payload = self.path.join("payload");
        if !target.is_folder {
            let mut names = fs::read_dir(&payload).map_err(Error::io(&payload))?;
            let name = names.next().and_then(Result::<_, std::io::Error>::ok);
            let from = name.ok_or_else(|| Error::InvalidArgument("there is nothing to take".into()))?.path();
            fs::rename(&from, &target.path).map_err(Error::io(&target.path))?;
        } else if !target.path.exists() {
            fs::rename(&payload, &target.path).map_err(Error::io(&target.path))?;
        } else {
            merge(&payload, &target.path)?;
        }
        if let Ok(folder) = File::open(target.parent()) {
            // Makes the rename durable, where the file system can.
            let _ = folder.sync_all();
        }
        // The output is in place; a folder that cannot be removed does not change that.
        let _ = fs::remove_dir_all(&self.path);
        Ok(())
    }
}

/// Moves files into a folder that exists, one by one.
fn merge(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).map_err(Error::io(from))? {
        let entry = entry.map_err(Error::io(from))?;
        let place = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir_all(&place).map_err(Error::io(&place))?;
            merge(&entry.path(), &place)?;
        } else {
            fs::rename(entry.path(), &place).map_err(Error::io(&place))?;
        }
    }
    Ok(())
}

/// Removes everything but the lock.
fn clear(path: &Path) -> Result<()> {
    for entry in fs::read_dir(path).map_err(Error::io(path))? {
        let entry = entry.map_err(Error::io(path))?.path();
        if entry.ends_with("lock") {
            continue;
        }
        let gone = if entry.is_dir() { fs::remove_dir_all(&entry) } else { fs::remove_file(&entry) };
        gone.map_err(Error::io(&entry))?;
    }
    Ok(())
}

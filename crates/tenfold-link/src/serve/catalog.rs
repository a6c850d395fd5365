//! The files of a folder and their digests, taken once for each version of a file.

use std::collections::HashMap;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use tokio::sync::OnceCell;

use crate::error::{Error, Result};
use crate::manifest::{FileEntry, is_safe};

/// Most files whose digests are kept.
const MAX_FILES: usize = 100_000;

/// The digests of a version of a file, once somebody has asked.
type Cell = Arc<OnceCell<Arc<FileEntry>>>;

/// What tells one version of a file from another.
type Version = (u64, Option<SystemTime>);

/// A file that may be offered.
#[derive(Debug, Clone)]
pub(super) struct Found {
    /// Without links.
    pub path: PathBuf,
    /// Relative to the folder.
    pub name: String,
    version: Version,
}

/// The files of a folder.
#[derive(Debug)]
pub(super) struct Catalog {
    root: PathBuf,
    digests: Mutex<HashMap<PathBuf, (Version, Cell)>>,
}

impl Catalog {
    /// The files of a folder, whose path has no links.
    pub fn new(root: PathBuf) -> Catalog {
        Catalog { root, digests: Mutex::default() }
    }

    /// The file of a name. Names and links that lead out of the folder lead nowhere, and so do hidden files.
    pub fn find(&self, name: &str) -> Option<Found> {
        if !is_safe(name) {
            return None;
        }
        let path = self.root.join(name).canonicalize().ok()?;
        let meta = path.metadata().ok()?;
        (path.starts_with(&self.root) && meta.is_file()).then(|| Found {
            path,
            name: name.to_owned(),
            version: version(&meta),
        })
    }

    /// The files of a subfolder, those of its own subfolders included, by name.
    pub fn list(&self, folder: &str) -> Option<Vec<Found>> {
        let prefix = folder.trim_end_matches('/');
        if !prefix.is_empty() && !is_safe(prefix) {
            return None;
        }
        let top = self.root.join(prefix).canonicalize().ok()?;
        if !top.starts_with(&self.root) || !top.is_dir() {
            return None;
        }
        let mut found = Vec::new();
        self.walk(prefix, 0, &mut found);
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Some(found)
    }

    fn walk(&self, folder: &str, depth: usize, found: &mut Vec<Found>) {
        // A folder that cannot be read has no files to offer.
        let Ok(entries) = std::fs::read_dir(self.root.join(folder)) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let name = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
            // Linked folders may lead in circles: only plain ones are entered.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) && depth < 8 && is_safe(&name) {
                self.walk(&name, depth + 1, found);
            } else if found.len() < MAX_FILES
                && let Some(file) = self.find(&name)
            {
                found.push(file);
            }
        }
    }

    /// The digests of a file, taken now if nobody has asked before.
    pub async fn digests(&self, file: &Found) -> Result<Arc<FileEntry>> {
        let cell = self.cell(file);
        let (path, name) = (file.path.clone(), file.name.clone());
        let take = || async {
            let read = move || FileEntry::of_file(&path, &name).map(Arc::new);
            tokio::task::spawn_blocking(read).await.map_err(|e| Error::Environment(e.to_string()))?
        };
        cell.get_or_try_init(take).await.cloned()
    }

    /// The digests of a file, if they have been taken.
    pub fn known(&self, file: &Found) -> Option<Arc<FileEntry>> {
        self.cell(file).get().cloned()
    }

    fn cell(&self, file: &Found) -> Cell {
        let mut digests = self.digests.lock().unwrap_or_else(PoisonError::into_inner);
        if digests.len() > MAX_FILES {
            digests.clear();
        }
        let slot = digests.entry(file.path.clone()).or_insert_with(|| (file.version, Cell::default()));
        if slot.0 != file.version {
            *slot = (file.version, Cell::default());
        }
        slot.1.clone()
    }
}

impl Found {
    /// A file outside the folder, which the server itself made.
    pub fn own(path: &Path, name: &str) -> Option<Found> {
        let meta = path.metadata().ok()?;
        Some(Found { path: path.to_owned(), name: name.to_owned(), version: version(&meta) })
    }

    /// Bytes when it was found.
    pub fn len(&self) -> u64 {
        self.version.0
    }

    /// Whether it still is what it was.
    pub fn is_same(&self, meta: &Metadata) -> bool {
        version(meta) == self.version
    }
}

fn version(meta: &Metadata) -> Version {
    (meta.len(), meta.modified().ok())
}

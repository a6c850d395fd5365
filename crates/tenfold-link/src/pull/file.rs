//! What all files of a pull share, and one of them: ask what it is, open its spool, and transfer it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use globset::GlobSet;
use serde::{Deserialize, Serialize};
use tenfold_archive::Progress;
use tokio::task::JoinSet;

use super::PullOptions;
use super::fetch::{Fetch, FetchOptions, look};
use super::remote::{Pin, Place, Remote};
use super::spool::Spool;
use super::taken::Take;
use super::transfer::Transfer;
use crate::error::{Error, Result};
use crate::manifest::FileEntry;

/// Bytes that the first request asks for: most headers fit, and small files do altogether.
const FIRST: u64 = 128 << 10;

/// What all files of a pull share.
pub(super) struct Context<'a> {
    pub options: &'a PullOptions,
    pub remote: Arc<Remote>,
    pub runtime: tokio::runtime::Handle,
    pub progress: &'a dyn Progress,
    pub include: Option<GlobSet>,
    /// Folder for files that are not whole.
    pub work: PathBuf,
    /// Who gets the tensors, where no file is made of them.
    pub take: Option<&'a Take<'a>>,
}

/// A file to pull.
pub(super) struct Task {
    pub place: Place,
    pub name: String,
    pub entry: Option<FileEntry>,
    /// Where it goes when it is whole.
    pub out: PathBuf,
}

/// What came of a file.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Done {
    /// Bytes that were fetched in this run.
    pub fetched: u64,
    /// Bytes of the file written; 0 if there was nothing in it to take.
    pub written: u64,
    /// Of those, bytes of tensors.
    pub tensor_bytes: u64,
    /// Names of the tensors that were taken; `None` for a file without any.
    pub tensors: Option<Vec<String>>,
    /// Bytes that no checksum covered.
    pub unchecked: u64,
}

impl Context<'_> {
    /// Whether parts of files are wanted.
    pub fn is_selective(&self) -> bool {
        self.include.is_some() || self.options.rows.is_some()
    }

    fn fetch_options(&self) -> FetchOptions {
        FetchOptions {
            connections: self.options.connections,
            retries: self.options.retries,
            timeline: self.options.timeline.clone(),
        }
    }

    /// Pulls a file.
    pub fn pull(&self, task: &Task) -> Result<Done> {
        let spool_path = self.work.join(format!("{}.part", blake3::hash(task.name.as_bytes()).to_hex()));
        // A partial file most likely has the first bytes already.
        let first = if Spool::exists(&spool_path) { 1 } else { FIRST };
        let looked = self.block_on(look(&self.remote, &task.place, first, self.options.retries))?;
        let (pin, start) = looked;
        if let Some(entry) = &task.entry
            && entry.bytes != pin.len
        {
            let url = task.place.to_string();
            let reason = format!("the manifest says {} bytes, the server {}", entry.bytes, pin.len);
            return Err(Error::Corrupt { url, reason });
        }
        let identity = identity(task, &pin);
        let marker = spool_path.with_extension("done");
        if let Some(done) = read_marker(&marker, &identity)
            .filter(|_| self.take.is_none() && (task.out.is_file() || self.is_selective()))
        {
            return Ok(done);
        }
        let spool = Arc::new(Spool::open(&spool_path, &identity, pin.len)?);
        if !spool.missing(0..start.len() as u64).is_empty() {
            spool.writer(0).write(&start)?;
        }
        self.progress.message(&task.name);
        let transfer = Transfer {
            context: self,
            task,
            fetch: Fetch::new(
                self.remote.clone(),
                task.place.clone(),
                pin.clone(),
                spool.clone(),
                self.fetch_options(),
            ),
            pin,
            reported: AtomicU64::new(0),
            spool,
        };
        let mut tasks = JoinSet::new();
        transfer.fetch.start(&mut tasks, &self.runtime);
        let done = transfer.run();
        transfer.fetch.close();
        self.runtime.block_on(async { tasks.shutdown().await });
        // What made the transfer fail, rather than the waiting that it ended.
        match (done, transfer.spool.failure()) {
            (Err(_), Some(failure)) if !self.options.stop.is_stopped() => Err(failure),
            (Err(error), _) => Err(error),
            (Ok(done), _) => {
                let text = serde_json::json!([identity, Done { fetched: 0, ..done.clone() }]).to_string();
                std::fs::write(&marker, text).map_err(Error::io(&marker))?;
                Ok(done)
            }
        }
    }

    /// Waits for a future, unless the caller stops the work.
    pub fn block_on<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let stop = &self.options.stop;
        self.runtime.block_on(async {
            tokio::pin!(work);
            loop {
                let wait = std::time::Duration::from_millis(100);
                match tokio::time::timeout(wait, &mut work).await {
                    Ok(done) => return done,
                    Err(_) if stop.is_stopped() => return Err(Error::Stopped),
                    Err(_) => {}
                }
            }
        })
    }
}

/// What an earlier run made of the same file.
fn read_marker(path: &Path, identity: &str) -> Option<Done> {
    let (stored, done): (String, Done) = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    (stored == identity).then_some(done)
}

/// What must be the same for a partial file to be gone on with.
fn identity(task: &Task, pin: &Pin) -> String {
    let manifest = task.entry.as_ref().map(|entry| &entry.blake3);
    serde_json::json!({
        "tenfold_pull": 1, "place": task.place.to_string(), "name": task.name, "bytes": pin.len, "tag": pin.tag, "blake3": manifest,
    })
    .to_string()
}

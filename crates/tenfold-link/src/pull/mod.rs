//! Fetching models: from `tenfold serve`, any web server, an object store, a folder.
//!
//! A file goes into a sparse *spool* beside its place, range by range and several at once, with a *journal* of what has arrived. Tensors
//! are checked, and decoded where that is asked for, while the rest is on its way. The file takes its place when it is whole. A run
//! that ends early leaves spool and journal, and the next one goes on from there.

mod check;
mod decode;
mod fetch;
mod file;
mod folder;
mod journal;
mod options;
mod place;
mod remote;
mod spool;
#[cfg(feature = "stores")]
mod store;
mod taken;
mod transfer;

use std::path::Path;
use std::sync::Arc;

use globset::{Glob, GlobSetBuilder};
use serde::Serialize;
use tenfold_archive::Progress;
use tokio::runtime::Runtime;

use crate::error::{Error, Result};
use file::{Context, Done, Task};
use remote::{Place, Remote};

pub use options::PullOptions;
pub(crate) use remote::decode as decode_percent;
pub use taken::{Taken, pull_tensors};

/// What [`pull`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Pulled {
    /// Files written.
    pub files: usize,
    /// Bytes fetched in this run.
    pub fetched: u64,
    /// Bytes written.
    pub written: u64,
    /// Of those, bytes that nothing vouches for: plain files without a manifest.
    pub unchecked: u64,
}

/// Pulls the model at `url` into `output`: a file for a file, a folder for a folder.
///
/// The output appears when it is whole and every checksum that there is has been checked. If the work ends early, what has arrived
/// stays in a hidden folder beside `output`, and the same call goes on with it.
pub fn pull(url: &str, output: &Path, options: &PullOptions, progress: &dyn Progress) -> Result<Pulled> {
    let (runtime, mut context, place) = start(url, options, progress)?;
    // 1. Which files there are, and where they go.
    let listing = folder::list(&context, &place)?;
    let target = place::Target::new(output, listing.is_folder, &listing.files[0].0, options.overwrite)?;
    // 2. A folder for what is not whole, locked.
    let work = place::Work::open(&target, &wish(url, options))?;
    context.work = work.path().to_owned();
    // 3. The files, one after the other; each keeps all connections busy.
    let mut pulled = Pulled::default();
    let mut done: Vec<(String, Done)> = Vec::new();
    for (name, entry, place) in &listing.files {
        let task =
            Task { place: place.clone(), name: name.clone(), entry: entry.clone(), out: work.payload(name) };
        let file = context.pull(&task)?;
        pulled.fetched += file.fetched;
        pulled.unchecked += file.unchecked;
        if file.written > 0 || task.out.exists() {
            pulled.files += 1;
            pulled.written += file.written;
        }
        done.push((name.clone(), file));
    }
    if done.iter().all(|(_, file)| file.tensors.is_none()) && context.include.is_some() {
        let globs = options.include.join(", ");
        return Err(Error::InvalidArgument(format!("{url}: no tensor matches {globs}")));
    }
    // 4. What a folder says of its own files.
    if listing.is_folder {
        folder::finish(&context, &work, &done)?;
    }
    // 5. In place.
    work.commit(&target)?;
    drop(context);
    runtime.shutdown_background();
    Ok(pulled)
}

/// Checks the options and makes what all files of a pull share. The folder for what is not whole is still to be named.
fn start<'a>(
    url: &str,
    options: &'a PullOptions,
    progress: &'a dyn Progress,
) -> Result<(Runtime, Context<'a>, Place)> {
    let include = globs(&options.include)?;
    if options.rows.as_ref().is_some_and(|rows| rows.start >= rows.end) {
        return Err(Error::InvalidArgument("rows are a range A:B with A below B".into()));
    }
    let (remote, place) = Remote::new(url, options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| Error::Environment(format!("cannot start threads: {e}")))?;
    let context = Context {
        options,
        remote: Arc::new(remote),
        runtime: runtime.handle().clone(),
        progress,
        include,
        work: Default::default(),
        take: None,
    };
    Ok((runtime, context, place))
}

/// What must be the same for work that was left behind to be gone on with.
fn wish(url: &str, options: &PullOptions) -> String {
    let place = url.split('?').next().unwrap_or_default();
    let PullOptions { decode, include, rows, query, .. } = options;
    let rows = rows.as_ref().map(|rows| [rows.start, rows.end]);
    serde_json::json!({"tenfold_pull": 1, "url": place, "decode": decode, "include": include, "rows": rows, "query": query})
        .to_string()
}

fn globs(patterns: &[String]) -> Result<Option<globset::GlobSet>> {
    if patterns.is_empty() {
        return Ok(None);
    }
    let bad = |e: globset::Error| Error::InvalidArgument(format!("not a glob: {e}"));
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(Glob::new(pattern).map_err(bad)?);
    }
    set.build().map(Some).map_err(bad)
}

//! A file on its way: fetched into a spool, checked and decoded as it arrives, and put in place when it is whole.
//!
//! | file | holds |
//! |---|---|
//! | `head` | what the file says of itself, and the digest of all of it |
//! | `plan` | what to take of its tensors, and which bytes that needs |
//! | `work` | pieces of work, each when its bytes are there, and what becomes of them |

mod head;
mod plan;
mod work;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tenfold::engine::ErrorKind;

use super::fetch::Fetch;
use super::file::{Context, Done, Task};
use super::remote::Pin;
use super::spool::Spool;
use crate::error::{Error, Result};
use plan::Output;

/// How often bytes that turn out wrong are fetched again.
const AGAIN: u32 = 3;

/// A file on its way.
pub(super) struct Transfer<'a> {
    pub context: &'a Context<'a>,
    pub task: &'a Task,
    pub fetch: Arc<Fetch>,
    pub pin: Pin,
    pub spool: Arc<Spool>,
    pub reported: AtomicU64,
}

impl Transfer<'_> {
    /// The recipe.
    pub fn run(&self) -> Result<Done> {
        if !self.pin.has_ranges {
            self.fetch.want(0..self.pin.len, false);
        }
        // 1. What is in the file.
        let is_model = self.task.name.ends_with(".safetensors");
        let layout = if is_model { Some(self.head()?) } else { None };
        let Some(layout) = layout else { return self.plain() };
        // 2. What to take of it, and what that will look like.
        let Some(plan) = self.plan(layout)? else { return Ok(Done::default()) };
        // 3. Fetch, check, decode and write, all at once.
        self.want(&plan)?;
        let out = self.context.work.join(format!("{}.out", blake3::hash(self.task.name.as_bytes()).to_hex()));
        let file = match &plan.output {
            Output::File(written) => Some(work::begin(&out, written)?),
            Output::Spool | Output::Caller(_) => None,
        };
        self.work(&plan, file.as_ref())?;
        // 4. The digest of the whole, where nothing finer says as much.
        if plan.is_spool() {
            self.whole(Some(&plan))?;
        }
        // 5. In place.
        match (&plan.output, &file) {
            (Output::Caller(_), _) => {}
            (_, None) => {
                self.spool.sync()?;
                self.place(self.spool.path())?;
            }
            (_, Some(file)) => {
                file.sync_all().map_err(Error::io(&out))?;
                self.place(&out)?;
            }
        }
        let tensors = plan.picks.iter().map(|pick| plan.layout.tensors()[pick.index].info.name.clone());
        let (written, tensor_bytes) = plan.bytes(self.pin.len);
        let is_checked = plan.layout.is_compressed() || self.digest().is_some();
        Ok(Done {
            fetched: self.spool.fetched(),
            written,
            tensor_bytes,
            tensors: Some(tensors.collect()),
            unchecked: if is_checked { 0 } else { written },
        })
    }

    /// A file that is taken as it is.
    fn plain(&self) -> Result<Done> {
        // The index and the configuration go with whatever is taken of the tensors.
        if self.context.is_selective() && !self.task.name.ends_with(".json") {
            return Ok(Done::default());
        }
        self.context.progress.start(self.pin.len);
        self.need(0..self.pin.len, false)?;
        self.whole(None)?;
        self.spool.sync()?;
        self.place(self.spool.path())?;
        let unchecked = if self.digest().is_some() { 0 } else { self.pin.len };
        Ok(Done { fetched: self.spool.fetched(), written: self.pin.len, unchecked, ..Done::default() })
    }

    fn place(&self, from: &Path) -> Result<()> {
        let out = &self.task.out;
        if let Some(parent) = out.parent() {
            std::fs::create_dir_all(parent).map_err(Error::io(parent))?;
        }
        std::fs::rename(from, out).map_err(Error::io(out))
    }

    /// Fetches bytes and waits for them.
    fn need(&self, range: Range<u64>, is_urgent: bool) -> Result<()> {
        if self.pin.has_ranges {
            self.fetch.want(range.clone(), is_urgent);
        }
        self.wait(&range)
    }

    fn wait(&self, range: &Range<u64>) -> Result<()> {
        self.spool.wait_for(range, &self.context.options.stop, &|| self.tick())
    }

    /// Tells the caller how far the transfer is.
    fn tick(&self) {
        let fetched = self.spool.fetched();
        let before = self.reported.fetch_max(fetched, Ordering::Relaxed);
        self.context.progress.advance(fetched.saturating_sub(before));
    }

    /// Does work on bytes that are there. If they are wrong, fetches them again.
    fn with_again<T>(&self, range: &Range<u64>, work: impl Fn() -> Result<T>) -> Result<T> {
        let mut tries = 0;
        loop {
            match work() {
                Err(error) if is_content(&error) && tries < AGAIN => {
                    tries += 1;
                    self.fetch.again(range.clone())?;
                    self.wait(range)?;
                }
                done => return done,
            }
        }
    }
}

/// Whether an error is about the bytes that came. A flipped bit may look like a newer version.
fn is_content(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Data | ErrorKind::Unsupported)
        && !matches!(error, Error::Changed(_) | Error::Protocol { .. })
}

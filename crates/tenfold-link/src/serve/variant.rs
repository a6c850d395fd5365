//! Models encoded on request: one at a time, kept in a folder of bounded size, named by the digest of the plain file and the goal.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use tenfold::engine::{GoalNumber, Stop};
use tenfold::{Effort, Goal};
use tenfold_archive::{Archive, CompressOptions, Silent, compress};
use tokio::sync::Semaphore;

use super::EncodeLimits;
use super::catalog::Found;
use crate::error::{Error, Result};
use crate::manifest::FileEntry;
use crate::pipeline::Rates;

/// Bytes of a model that are encoded to learn how fast that is.
const SAMPLE: usize = 4 << 20;

/// What becomes of a request.
pub(super) enum Answer {
    /// The request makes no sense.
    Bad(String),
    /// Too many are waiting.
    Busy,
    /// The model cannot be encoded so.
    Failed(String),
    /// It is being made.
    Wait,
    /// The plain file is faster over the client's link, or already compressed.
    Raw,
    /// Here it is, with its digest.
    Ready(Found, String),
}

/// What is known of a request.
#[derive(Debug, Clone)]
enum State {
    Working,
    Failed(String),
    Ready(String),
}

/// Encoded models.
#[derive(Debug)]
pub(super) struct Variants {
    limits: EncodeLimits,
    one: Arc<Semaphore>,
    states: Mutex<HashMap<String, State>>,
    /// How fast each goal was measured to be for a file.
    rates: Mutex<HashMap<String, Rates>>,
    /// What a client was told once holds for all its requests, whatever rates are measured later.
    choices: Mutex<HashMap<String, bool>>,
}

impl Variants {
    pub fn new(limits: &EncodeLimits, folder: &Path) -> Result<Variants> {
        std::fs::create_dir_all(&limits.cache).map_err(Error::io(&limits.cache))?;
        let cache = limits.cache.canonicalize().map_err(Error::io(&limits.cache))?;
        if cache.starts_with(folder) {
            return Err(Error::InvalidArgument(format!(
                "the cache {} lies in the folder that is offered; name another",
                cache.display()
            )));
        }
        let limits = EncodeLimits { cache, ..limits.clone() };
        let (states, rates, choices) = Default::default();
        Ok(Variants { limits, one: Arc::new(Semaphore::new(1)), states, rates, choices })
    }

    /// The file at the goal of a query such as `bits=3&effort=fast`. If the client says what its link carries, the plain file may be
    /// the better answer. A goal goes for all of a file or none of it.
    pub async fn find(
        self: &Arc<Self>,
        file: &Found,
        entry: &FileEntry,
        query: &str,
        bandwidth: Option<f64>,
    ) -> Answer {
        let (goal, effort) = match parse(query) {
            Ok(asked) => asked,
            Err(reason) => return Answer::Bad(reason),
        };
        if !file.name.ends_with(".safetensors") {
            return Answer::Bad("only safetensors files are encoded".into());
        }
        let key = format!("{}-{goal:?}-{effort:?}", entry.blake3);
        let name = format!("{}.safetensors", blake3::hash(key.as_bytes()).to_hex());
        let path = self.limits.cache.join(&name);
        let ready = match self.states().get(&key).cloned() {
            Some(State::Ready(digest)) => Some(digest),
            Some(State::Failed(reason)) => return Answer::Failed(reason),
            Some(State::Working) => return Answer::Wait,
            None => None,
        };
        if let Some(digest) = ready {
            if let Some(made) = Found::own(&path, &file.name) {
                // The time of the last request decides what goes first when room is needed.
                let _ = std::fs::File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
                let made = Found::own(&path, &file.name).unwrap_or(made);
                return Answer::Ready(made, digest);
            }
            self.states().remove(&key);
        }
        match self.is_raw_better(file, &key, goal, effort, bandwidth).await {
            Ok(true) => return Answer::Raw,
            Ok(false) => {}
            Err(reason) => return Answer::Failed(reason),
        }
        let working = self.states().values().filter(|state| matches!(state, State::Working)).count();
        if working >= self.limits.waiting.max(1) {
            return Answer::Busy;
        }
        self.states().insert(key.clone(), State::Working);
        let (this, source) = (self.clone(), file.path.clone());
        tokio::spawn(async move {
            // Never closed.
            let _one = this.one.clone().acquire_owned().await;
            let worker = this.clone();
            let made = tokio::task::spawn_blocking(move || worker.make(&source, &path, goal, effort)).await;
            let state = match made {
                Ok(Ok(digest)) => State::Ready(digest),
                Ok(Err(error)) => State::Failed(error.to_string()),
                Err(error) => State::Failed(error.to_string()),
            };
            this.states().insert(key, state);
        });
        Answer::Wait
    }

    fn states(&self) -> MutexGuard<'_, HashMap<String, State>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Encodes a file and returns the digest of what came of it. One that an earlier run of the server made is taken.
    fn make(&self, source: &Path, path: &Path, goal: Goal, effort: Effort) -> Result<String> {
        let is_there = path.is_file() && Archive::open(path).is_ok();
        if !is_there {
            self.make_room(source.metadata().map_err(Error::io(source))?.len())?;
            let mut options =
                CompressOptions::new(goal).with_effort(effort).with_threads(self.limits.threads);
            options = options.with_overwrite(true).with_stop(Stop::default());
            compress(source, path, &options, &Silent)?;
        }
        Ok(FileEntry::of_file(path, "model")?.blake3)
    }

    /// Removes files until one of this size fits.
    fn make_room(&self, bytes: u64) -> Result<()> {
        let cache = &self.limits.cache;
        let mut files = Vec::new();
        for entry in std::fs::read_dir(cache).map_err(Error::io(cache))?.flatten() {
            if let Ok(meta) = entry.metadata()
                && meta.is_file()
            {
                files.push((meta.modified().unwrap_or(SystemTime::UNIX_EPOCH), meta.len(), entry.path()));
            }
        }
        files.sort();
        let mut sum: u64 = files.iter().map(|(_, len, _)| len).sum();
        if bytes > self.limits.cache_bytes {
            let limit = self.limits.cache_bytes;
            return Err(Error::Limit(format!(
                "a model of {bytes} bytes may not fit into a cache of {limit}"
            )));
        }
        for (_, len, path) in files {
            if sum.saturating_add(bytes) <= self.limits.cache_bytes {
                break;
            }
            // Readers that have it open keep it until they are done.
            std::fs::remove_file(&path).map_err(Error::io(&path))?;
            sum -= len;
        }
        Ok(())
    }

    /// Whether the plain file would arrive first. Without a stated bandwidth the client wants what it asked for.
    async fn is_raw_better(
        self: &Arc<Self>,
        file: &Found,
        key: &str,
        goal: Goal,
        effort: Effort,
        bandwidth: Option<f64>,
    ) -> std::result::Result<bool, String> {
        let choice = format!("{key} {bandwidth:?}");
        let choices = || self.choices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&choice) = choices().get(&choice) {
            return Ok(choice);
        }
        let known = self.rates.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied();
        let measured = match known {
            Some(rates) => Some(rates),
            None => {
                let path = file.path.clone();
                let work = move || measure(&path, goal, effort);
                tokio::task::spawn_blocking(work)
                    .await
                    .map_err(|e| e.to_string())?
                    .map_err(|e| e.to_string())?
            }
        };
        // A file that is compressed already, or has nothing to encode.
        let Some(rates) = measured else { return Ok(true) };
        let mut all = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() > 10_000 {
            all.clear();
        }
        all.insert(key.to_owned(), rates);
        drop(all);
        let is_raw = bandwidth.is_some_and(|link| {
            let link = link.max(1.0);
            // The file is encoded before its first byte goes out: the two times add up.
            1.0 / rates.codec + 1.0 / (rates.ratio * link) > 1.0 / link
        });
        let mut all = choices();
        if all.len() > 10_000 {
            all.clear();
        }
        all.insert(choice, is_raw);
        Ok(is_raw)
    }
}

/// How fast a file is encoded, and to what ratio, from a part of its first tensor that is large enough. `None` if there is none, or
/// the file is compressed.
fn measure(path: &Path, goal: Goal, effort: Effort) -> Result<Option<Rates>> {
    let archive = Archive::open(path)?;
    if archive.is_compressed() {
        return Ok(None);
    }
    let candidates = archive.tensors().iter().enumerate().filter(|(_, tensor)| {
        tensor.shape.len() > 1 && tensor.bytes >= 8192 && tensor.dtype.is_some_and(tenfold::Dtype::is_float)
    });
    let Some((index, tensor)) = candidates.max_by_key(|(_, tensor)| tensor.bytes) else { return Ok(None) };
    let cols = tensor.shape.last().copied().unwrap_or(1).max(1);
    let all: usize = tensor.shape.iter().rev().skip(1).product();
    let row = (tensor.bytes as usize / all.max(1)).max(1);
    let rows = (SAMPLE / row).clamp(1, all);
    let part = archive.read_rows(index, 0..rows, &tenfold::DecodeOptions::default())?;
    let shape = [rows, cols];
    let view = tenfold::TensorView::new(part.dtype, &shape, &part.data)?;
    let begin = Instant::now();
    // A cap in bytes is for whole tensors.
    let goal = if matches!(goal, Goal::MaxBytes(_)) { Goal::Bits(3.0) } else { goal };
    let blob = tenfold::encode(&view, &tenfold::EncodeOptions::new(goal).with_effort(effort))?;
    let (bytes, seconds) = (part.data.len() as f64, begin.elapsed().as_secs_f64().max(1e-6));
    Ok(Some(Rates { codec: bytes / seconds, ratio: bytes / blob.len() as f64, link: f64::INFINITY }))
}

/// Reads a goal and an effort from a query.
fn parse(query: &str) -> std::result::Result<(Goal, Effort), String> {
    let (mut goal, mut effort) = (None, Effort::Balanced);
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if name == "effort" {
            effort = match value {
                "fast" => Effort::Fast,
                "balanced" => Effort::Balanced,
                "best" => Effort::Best,
                _ => return Err("effort is fast, balanced or best".into()),
            };
            continue;
        }
        let known = Goal::NAMES
            .iter()
            .find(|known| known.name == name)
            .ok_or("the query is not a goal, as in ?bits=3")?;
        let number = match known.number {
            GoalNumber::Nothing => None,
            _ => Some(value.parse().map_err(|_| format!("{name} needs a number"))?),
        };
        if goal.is_some() {
            return Err("state one goal".into());
        }
        goal = Some(Goal::from_name(name, number).map_err(|e| e.to_string())?);
    }
    Ok((goal.ok_or("state a goal, as in ?bits=3")?, effort))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_state_one_goal() {
        assert_eq!(parse("bits=3"), Ok((Goal::Bits(3.0), Effort::Balanced)));
        assert_eq!(parse("effort=fast&lossless"), Ok((Goal::Lossless, Effort::Fast)));
        for query in
            ["", "bits", "bits=x", "bits=-1", "bits=3&bits=4", "effort=fast", "effort=x&bits=3", "other=1"]
        {
            assert!(parse(query).is_err(), "{query}");
        }
    }

    #[test]
    fn the_cache_drops_what_was_asked_for_the_longest_ago() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, cache) = (dir.path().join("f"), dir.path().join("c"));
        std::fs::create_dir(&folder).unwrap();
        let limits = EncodeLimits { cache_bytes: 100, ..EncodeLimits::new(cache.clone()) };
        let variants = Variants::new(&limits, &folder).unwrap();
        for (i, name) in ["a", "b", "c"].iter().enumerate() {
            let path = cache.join(name);
            std::fs::write(&path, [0; 30]).unwrap();
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(10 - i as u64);
            std::fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        }
        variants.make_room(20).unwrap();
        assert_eq!(["a", "b", "c"].map(|name| cache.join(name).exists()), [true, true, false]);
        assert!(variants.make_room(101).is_err());
        let inside = EncodeLimits::new(folder.join("c"));
        assert!(Variants::new(&inside, &folder.canonicalize().unwrap()).is_err());
    }
}

//! A file on its way: sparse, filled range by range in any order, with a journal beside it.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenfold::engine::Stop;

use super::journal::{Entry, Journal, half};
use crate::error::{Error, Result};
use crate::ranges::RangeSet;

/// Bytes after which a range that still grows is noted: what a killed client fetches again, for each connection.
const NOTE: u64 = 1 << 20;

/// A partial file.
#[derive(Debug)]
pub(super) struct Spool {
    file: File,
    path: PathBuf,
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Debug)]
struct State {
    journal: Journal,
    have: RangeSet,
    /// Bytes that have come in this run.
    fetched: u64,
    failure: Option<Error>,
    has_failed: bool,
}

impl Spool {
    /// Opens the partial file at `path` with `len` bytes to come. What an earlier run of the same transfer left is kept, as far as
    /// its digests match.
    pub fn open(path: &Path, identity: &str, len: u64) -> Result<Spool> {
        let (journal, entries) = Journal::open(&journal_of(path), identity)?;
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(entries.is_empty());
        let file = options.open(path).map_err(Error::io(path))?;
        // Sparse: takes no room on the disk before the bytes come.
        file.set_len(len).map_err(Error::io(path))?;
        let mut have = RangeSet::default();
        for entry in &entries {
            match entry {
                Entry::Have(range, _) if range.end <= len => have.insert(range.clone()),
                Entry::Have(..) => {}
                Entry::Forget(range) => have.remove(range.clone()),
            }
        }
        let (mut buffer, mut verified) = (Vec::new(), RangeSet::default());
        for entry in entries {
            let Entry::Have(range, digest) = entry else { continue };
            // Forgotten in part, so that its digest says nothing; or longer than any that is written here.
            if range.end > len || range.end - range.start > 2 * NOTE || !have.contains(&range) {
                continue;
            }
            buffer.resize((range.end - range.start) as usize, 0);
            let is_there = file.read_exact_at(&mut buffer, range.start).is_ok();
            if is_there && half(blake3::hash(&buffer)) == digest {
                verified.insert(range);
            }
        }
        let have = verified;
        let state = Mutex::new(State { journal, have, fetched: 0, failure: None, has_failed: false });
        Ok(Spool { file, path: path.to_owned(), state, arrived: Condvar::new() })
    }

    /// Whether a partial file may be there.
    pub fn exists(path: &Path) -> bool {
        journal_of(path).exists()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes that have come in this run.
    pub fn fetched(&self) -> u64 {
        self.lock().fetched
    }

    /// Which of these bytes are still to come.
    pub fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        self.lock().have.missing(range)
    }

    /// Drops bytes that turned out wrong.
    pub fn forget(&self, range: Range<u64>) -> Result<()> {
        let mut state = self.lock();
        state.have.remove(range.clone());
        state.journal.push(&Entry::Forget(range))
    }

    /// Reads bytes that are there.
    pub fn read(&self, at: u64, out: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(out, at).map_err(Error::io(&self.path))
    }

    /// Goes through bytes that are there, piece by piece.
    pub fn for_each(&self, range: Range<u64>, mut work: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut buffer = vec![0; (range.end - range.start).min(4 << 20) as usize];
        let mut at = range.start;
        while at < range.end {
            let take = buffer.len().min((range.end - at) as usize);
            self.read(at, &mut buffer[..take])?;
            work(&buffer[..take])?;
            at += take as u64;
        }
        Ok(())
    }

    /// Waits until bytes have come, or the transfer has failed. `tick` is called now and then.
    pub fn wait_for(&self, range: &Range<u64>, stop: &Stop, tick: &dyn Fn()) -> Result<()> {
        let mut state = self.lock();
        loop {
            if state.has_failed || stop.is_stopped() {
                // The failure itself is the caller's to fetch, once everything has stopped.
                return Err(Error::Stopped);
            }
            if state.have.contains(range) {
                return Ok(());
            }
            let wait = self.arrived.wait_timeout(state, Duration::from_millis(50));
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
            drop(state);
            tick();
            state = self.lock();
        }
    }

    /// Ends all waiting.
    pub fn fail(&self, error: Error) {
        let mut state = self.lock();
        state.has_failed = true;
        state.failure.get_or_insert(error);
        self.arrived.notify_all();
    }

    /// Why the transfer failed.
    pub fn failure(&self) -> Option<Error> {
        self.lock().failure.take()
    }

    /// Makes sure that everything is on the disk.
    pub fn sync(&self) -> Result<()> {
        self.file.sync_all().map_err(Error::io(&self.path))
    }

    /// Writes bytes as they come, from `at` on.
    pub fn writer(&self, at: u64) -> Writer<'_> {
        Writer { spool: self, start: at, at, hasher: blake3::Hasher::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn journal_of(path: &Path) -> PathBuf {
    path.with_extension("journal")
}

/// Writes consecutive bytes and notes them. What was not noted when it is dropped is noted then.
pub(super) struct Writer<'a> {
    spool: &'a Spool,
    start: u64,
    at: u64,
    hasher: blake3::Hasher,
}

impl Writer<'_> {
    /// The next bytes.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let room = (NOTE - (self.at - self.start)) as usize;
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.spool.file.write_all_at(now, self.at).map_err(Error::io(&self.spool.path))?;
            self.hasher.update(now);
            self.at += now.len() as u64;
            bytes = later;
            if self.at - self.start >= NOTE {
                self.note()?;
            }
        }
        Ok(())
    }

    /// Notes what has come since the last note.
    pub fn note(&mut self) -> Result<()> {
        let range = self.start..self.at;
        if range.is_empty() {
            return Ok(());
        }
        let mut state = self.spool.lock();
        state.journal.push(&Entry::Have(range.clone(), half(self.hasher.finalize())))?;
        state.fetched += range.end - range.start;
        state.have.insert(range);
        self.spool.arrived.notify_all();
        drop(state);
        self.start = self.at;
        self.hasher.reset();
        Ok(())
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        // An error was reported by `write`, or the next one will be.
        let _ = self.note();
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // what is missing is a list of ranges
mod tests {
    use super::*;

    #[test]
    fn what_arrived_is_there_after_a_crash_and_what_is_damaged_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let bytes: Vec<u8> = (0..3u32 << 20).map(|i| (i.wrapping_mul(i) >> 9) as u8).collect();
        let len = bytes.len() as u64;
        let spool = Spool::open(&path, "id", len).unwrap();
        spool.writer(0).write(&bytes[..1_500_000]).unwrap();
        spool.writer(2_000_000).write(&bytes[2_000_000..2_100_000]).unwrap();
        spool.forget(10..20).unwrap();
        drop(spool);
        // The note that the forgotten bytes belong to cannot be checked any more, so all of it is in doubt.
        let again = Spool::open(&path, "id", len).unwrap();
        assert_eq!(again.missing(0..len), [0..NOTE, 1_500_000..2_000_000, 2_100_000..len]);
        drop(again);
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(&[!bytes[2_050_000]], 2_050_000).unwrap();
        let again = Spool::open(&path, "id", len).unwrap();
        assert_eq!(again.missing(1_500_000..len), [1_500_000..len]);
        let mut out = vec![0; 1000];
        again.read(1_200_000, &mut out).unwrap();
        assert!(out == bytes[1_200_000..1_201_000]);
        drop(again);
        assert_eq!(Spool::open(&path, "other", len).unwrap().missing(0..len), [0..len]);
    }

    #[test]
    fn waiting_ends_when_bytes_come_or_never_will() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(&dir.path().join("s"), "id", 100).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| spool.writer(0).write(&[1; 50]).unwrap());
            spool.wait_for(&(10..50), &Stop::new(), &|| ()).unwrap();
        });
        let stop = Stop::new();
        stop.stop();
        assert!(matches!(spool.wait_for(&(0..100), &stop, &|| ()), Err(Error::Stopped)));
        spool.fail(Error::Changed("u".into()));
        assert!(spool.wait_for(&(0..100), &Stop::new(), &|| ()).is_err());
        assert!(matches!(spool.failure(), Some(Error::Changed(_))));
    }
}

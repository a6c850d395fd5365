//! What of a partial file has arrived: a list of ranges with digests, appended as they come, read again after a crash.
//!
//! A record is written after its bytes. The machine may have lost either since, so a reader trusts neither: a torn record ends the
//! journal, and bytes whose digest does not match are fetched again.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// kind, offset, length, half of the BLAKE3 of the bytes; then a checksum of the record.
const RECORD: usize = 1 + 8 + 8 + 16 + 8;

/// Longest first line.
const MAX_IDENTITY: u64 = 1 << 16;

/// What a record says of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    /// It has arrived, and its bytes have this digest.
    Have(Range<u64>, [u8; 16]),
    /// What was there turned out wrong.
    Forget(Range<u64>),
}

/// An open journal.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    path: PathBuf,
}

/// The digest of a record's bytes.
pub(super) fn half(hash: blake3::Hash) -> [u8; 16] {
    let (half, _) = hash.as_bytes().split_at(16);
    let mut out = [0; 16];
    out.copy_from_slice(half);
    out
}

impl Journal {
    /// Opens a journal for the transfer that `identity` describes, and returns what it has. A journal of another transfer is emptied.
    pub fn open(path: &Path, identity: &str) -> Result<(Journal, Vec<Entry>)> {
        let entries = match File::open(path) {
            Ok(file) => read(file, identity).map_err(Error::io(path))?,
            Err(_) => None,
        };
        let mut options = File::options();
        let options = options.create(true);
        let options =
            if entries.is_some() { options.append(true) } else { options.write(true).truncate(true) };
        let file = options.open(path).map_err(Error::io(path))?;
        let mut journal = Journal { file, path: path.to_owned() };
        match entries {
            None => {
                journal.write(format!("{identity}\n").as_bytes())?;
                Ok((journal, Vec::new()))
            }
            Some((entries, end)) => {
                // What follows a torn record is lost; new records take its place.
                journal.file.set_len(end).map_err(Error::io(path))?;
                Ok((journal, entries))
            }
        }
    }

    /// Appends a record.
    pub fn push(&mut self, entry: &Entry) -> Result<()> {
        let (kind, range, half) = match entry {
            Entry::Have(range, half) => (1, range, *half),
            Entry::Forget(range) => (0, range, [0; 16]),
        };
        let mut record = Vec::with_capacity(RECORD);
        record.push(kind);
        record.extend_from_slice(&range.start.to_le_bytes());
        record.extend_from_slice(&(range.end - range.start).to_le_bytes());
        record.extend_from_slice(&half);
        record.extend_from_slice(&blake3::hash(&record).as_bytes()[..8]);
        self.write(&record)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        // In one call: two would leave more chances for half a record.
        self.file.write_all(bytes).map_err(Error::io(&self.path))
    }
}

/// The records of a journal of this transfer and where the last whole one ends; `None` if it is another's.
fn read(file: File, identity: &str) -> std::io::Result<Option<(Vec<Entry>, u64)>> {
    let mut file = BufReader::new(file);
    let mut line = Vec::new();
    (&mut file).take(MAX_IDENTITY).read_until(b'\n', &mut line)?;
    if line.strip_suffix(b"\n") != Some(identity.as_bytes()) {
        return Ok(None);
    }
    let (mut entries, mut end) = (Vec::new(), line.len() as u64);
    let mut record = [0; RECORD];
    while file.read_exact(&mut record).is_ok() {
        let (body, sum) = record.split_at(RECORD - 8);
        if blake3::hash(body).as_bytes()[..8] != *sum {
            break;
        }
        let number = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&body[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        let Some(stop) = number(1).checked_add(number(9)) else { break };
        let range = number(1)..stop;
        let mut half = [0; 16];
        half.copy_from_slice(&body[17..]);
        entries.push(if body[0] == 1 { Entry::Have(range, half) } else { Entry::Forget(range) });
        end += RECORD as u64;
    }
    Ok(Some((entries, end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_torn_ones_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        let entries = [Entry::Have(0..10, [7; 16]), Entry::Forget(3..4), Entry::Have(20..u64::MAX, [9; 16])];
        let (mut journal, old) = Journal::open(&path, "a").unwrap();
        assert!(old.is_empty());
        entries.iter().for_each(|entry| journal.push(entry).unwrap());
        drop(journal);
        let whole = std::fs::read(&path).unwrap();
        for length in 0..=whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let (mut journal, old) = Journal::open(&path, "a").unwrap();
            let kept = length.saturating_sub(2) / RECORD;
            assert_eq!(old, entries[..kept], "{length}");
            journal.push(&Entry::Forget(1..2)).unwrap();
            drop(journal);
            let (_, old) = Journal::open(&path, "a").unwrap();
            assert_eq!(old.last(), Some(&Entry::Forget(1..2)), "{length}");
            assert_eq!(old.len(), kept + 1);
        }
        for at in 2..whole.len() {
            let mut bent = whole.clone();
            bent[at] ^= 1;
            std::fs::write(&path, &bent).unwrap();
            assert_eq!(Journal::open(&path, "a").unwrap().1, entries[..(at - 2) / RECORD], "{at}");
        }
        std::fs::write(&path, &whole).unwrap();
        assert!(Journal::open(&path, "b").unwrap().1.is_empty());
        assert!(Journal::open(&path, "a").unwrap().1.is_empty());
    }
}

//! Whether bytes that have arrived are the right ones: the manifest's digests, the blobs' own checksums, and those of the file's
//! metadata for all else.

use std::ops::Range;

use blake3::Hash;
use tenfold::engine::Limits;
use tenfold_archive::Layout;

use super::spool::Spool;
use crate::error::{Error, Result};
use crate::manifest::FileEntry;

/// Longest header of a blob that is read: the directory of a tensor of 8 TB.
const MAX_BLOB_HEADER: u64 = 512 << 20;

/// Bytes of a blob that tell how long its header is.
const FIXED: u64 = tenfold::format::FIXED as u64;

/// What the bytes of a file are checked against.
pub(super) struct Checks<'a> {
    pub spool: &'a Spool,
    pub layout: &'a Layout,
    pub entry: Option<&'a FileEntry>,
    pub url: String,
    pub limits: Limits,
}

impl Checks<'_> {
    /// What the manifest says of a tensor's bytes.
    pub fn digest(&self, index: usize) -> Result<Option<Hash>> {
        let Some(entry) = self.entry.filter(|entry| !entry.tensors.is_empty()) else {
            return Ok(None);
        };
        let tensor = &self.layout.tensors()[index];
        let found = entry
            .tensors
            .get(index)
            .filter(|found| found.name == tensor.info.name && (found.begin..found.end) == tensor.stored);
        let found = found.and_then(|found| Hash::from_hex(&found.blake3).ok());
        match found {
            Some(hash) => Ok(Some(hash)),
            None => Err(self.corrupt(format!(
                "the manifest and the file disagree on where tensor {:?} lies",
                tensor.info.name
            ))),
        }
    }

    /// Checks all bytes of a tensor, which are there, in one pass.
    pub fn tensor(&self, index: usize) -> Result<()> {
        let tensor = &self.layout.tensors()[index];
        let digest = self.digest(index)?;
        let mut hasher = digest.map(|_| blake3::Hasher::new());
        let mut sum = self.layout.plain_sum(index)?;
        let mut parts = match tensor.info.compressed {
            true => Some(Parts::new(&self.header(index)?, &self.limits).map_err(|e| self.codec(index, e))?),
            false => None,
        };
        self.spool.for_each(tensor.stored.clone(), |bytes| {
            if let Some(hasher) = &mut hasher {
                hasher.update(bytes);
            }
            if let Some(sum) = &mut sum {
                sum.update(bytes);
            }
            parts.as_mut().map_or(Ok(()), |parts| parts.update(bytes).map_err(|e| self.codec(index, e)))
        })?;
        let name = &tensor.info.name;
        if hasher.map(|hasher| hasher.finalize()) != digest {
            return Err(self.corrupt(format!("tensor {name:?} is not the one of the manifest")));
        }
        if sum.is_some_and(|sum| !sum.is_right()) {
            return Err(self.corrupt(format!("the checksum of tensor {name:?} does not match")));
        }
        parts.map_or(Ok(()), |parts| parts.finish().map_err(|e| self.codec(index, e)))
    }

    /// Bytes of a blob's header, from those at its start; `None` while even those that say so are not enough.
    pub fn header_range(&self, index: usize) -> Result<Range<u64>> {
        let stored = &self.layout.tensors()[index].stored;
        if stored.end - stored.start < FIXED {
            return Err(self.corrupt("a blob is shorter than its header".into()));
        }
        let mut fixed = [0; FIXED as usize];
        self.spool.read(stored.start, &mut fixed)?;
        let len = u64::from(u32::from_le_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]));
        if len < FIXED || len > (stored.end - stored.start).min(MAX_BLOB_HEADER) {
            let name = &self.layout.tensors()[index].info.name;
            return Err(self.corrupt(format!("the blob of tensor {name:?} claims a header of {len} bytes")));
        }
        Ok(stored.start..stored.start + len)
    }

    /// The bytes at the start of a blob that say how long its header is.
    pub fn fixed_range(&self, index: usize) -> Range<u64> {
        let stored = &self.layout.tensors()[index].stored;
        stored.start..stored.end.min(stored.start + FIXED)
    }

    /// The header of a blob, which is there and agrees with the file's.
    pub fn header(&self, index: usize) -> Result<Vec<u8>> {
        let range = self.header_range(index)?;
        let mut header = vec![0; (range.end - range.start) as usize];
        self.spool.read(range.start, &mut header)?;
        self.layout.check_blob(index, &header)?;
        Ok(header)
    }

    pub fn corrupt(&self, reason: String) -> Error {
        Error::Corrupt { url: self.url.clone(), reason }
    }

    fn codec(&self, index: usize, source: tenfold::Error) -> Error {
        let name = self.layout.tensors()[index].info.name.clone();
        tenfold_archive::Error::Codec { name, source }.into()
    }
}

/// Checks the parts of a blob as its bytes come by.
struct Parts {
    parts: std::vec::IntoIter<(Range<usize>, u32)>,
    now: Option<(Range<usize>, u32)>,
    sum: crc32fast::Hasher,
    at: usize,
}

impl Parts {
    fn new(header: &[u8], limits: &Limits) -> tenfold::engine::Result<Parts> {
        let mut parts = tenfold::format::part_sums(header, limits)?.into_iter();
        let now = parts.next();
        Ok(Parts { parts, now, sum: crc32fast::Hasher::new(), at: 0 })
    }

    fn update(&mut self, mut bytes: &[u8]) -> tenfold::engine::Result<()> {
        while let Some((range, sum)) = self.now.clone() {
            // Parts follow each other without holes, behind the header.
            let skipped = range.start.saturating_sub(self.at).min(bytes.len());
            (self.at, bytes) = (self.at + skipped, &bytes[skipped..]);
            let take = range.end.saturating_sub(self.at).min(bytes.len());
            if self.at >= range.start {
                self.sum.update(&bytes[..take]);
                (self.at, bytes) = (self.at + take, &bytes[take..]);
            }
            if self.at < range.end {
                return Ok(());
            }
            if std::mem::take(&mut self.sum).finalize() != sum {
                return Err(tenfold::Error::Corrupt("tile checksum"));
            }
            self.now = self.parts.next();
        }
        self.at += bytes.len();
        Ok(())
    }

    fn finish(self) -> tenfold::engine::Result<()> {
        match self.now {
            None => Ok(()),
            Some((range, _)) => {
                Err(tenfold::Error::Truncated { need: range.end as u64, have: self.at as u64 })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tenfold::{EncodeOptions, Goal, TensorView};

    use super::*;

    #[test]
    fn parts_are_checked_however_the_bytes_come() {
        let values: Vec<f32> = (0..300_000).map(|i| (i as f32 * 0.37).sin()).collect();
        let view = TensorView::from_slice(&values, &[3000, 100]).unwrap();
        let blob = tenfold::encode(&view, &EncodeOptions::new(Goal::Bits(3.0))).unwrap();
        let check = |blob: &[u8], step: usize| {
            let mut parts = Parts::new(blob, &Limits::default())?;
            blob.chunks(step).try_for_each(|chunk| parts.update(chunk))?;
            parts.finish()
        };
        for step in [1, 7, 1000, 1 << 20] {
            check(&blob, step).unwrap();
        }
        let header = tenfold::inspect(&blob).unwrap().header_bytes as usize;
        for at in [header, header + 1000, blob.len() / 2, blob.len() - 1] {
            let mut bent = blob.clone();
            bent[at] ^= 4;
            assert!(check(&bent, 997).is_err(), "{at}");
            assert!(check(&blob[..at], 997).is_err(), "{at}");
        }
    }
}

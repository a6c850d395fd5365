//! What a file says of itself: its head, and the digest of all of it.

use std::cell::Cell;
use std::path::Path;

use blake3::Hash;
use tenfold_archive::Layout;

use super::plan::Plan;
use super::{AGAIN, Transfer, is_content};
use crate::error::{Error, Result};

impl Transfer<'_> {
    /// The digest of the whole file, if anybody states one.
    pub(super) fn digest(&self) -> Option<Hash> {
        let manifest = self.task.entry.as_ref().and_then(|entry| Hash::from_hex(&entry.blake3).ok());
        manifest.or(self.pin.hash)
    }

    /// Reads and checks the file's head.
    pub(super) fn head(&self) -> Result<Layout> {
        let seen = Cell::new(0);
        let mut tries = 0;
        loop {
            match self.read_head(&seen) {
                Err(error) if is_content(&error) && tries < AGAIN => {
                    tries += 1;
                    // The length itself may have been wrong: all that was read for it goes.
                    self.fetch.again(0..seen.get())?;
                    self.wait(&(0..seen.get()))?;
                }
                done => return done,
            }
        }
    }

    /// One attempt; `seen` says how many bytes it looked at.
    fn read_head(&self, seen: &Cell<u64>) -> Result<Layout> {
        let (label, len) = (Path::new(&self.task.name), self.pin.len);
        let mut prefix = [0; Layout::PREFIX];
        let fixed = len.min(Layout::PREFIX as u64);
        seen.set(fixed);
        self.need(0..fixed, true)?;
        self.spool.read(0, &mut prefix[..fixed as usize])?;
        let head_len = Layout::head_len(prefix, len, label)?;
        seen.set(head_len);
        self.need(0..head_len, true)?;
        let mut head = vec![0; head_len as usize];
        self.spool.read(0, &mut head)?;
        let stated = self.task.entry.as_ref().and_then(|entry| entry.head.as_ref());
        if stated.is_some_and(|stated| Hash::from_hex(stated).ok() != Some(blake3::hash(&head))) {
            let url = self.task.place.to_string();
            return Err(Error::Corrupt { url, reason: "the header is not the one of the manifest".into() });
        }
        Ok(Layout::parse(&head, len, label)?)
    }

    /// Checks the digest of the whole file, if there is one and nothing finer has said as much.
    pub(super) fn whole(&self, plan: Option<&Plan>) -> Result<()> {
        let Some(digest) = self.digest() else { return Ok(()) };
        let entry = self.task.entry.as_ref();
        let finer =
            |plan: &Plan| entry.is_some_and(|entry| entry.tensors.len() == plan.layout.tensors().len());
        if plan.is_some_and(finer) && entry.is_some_and(|entry| entry.head.is_some()) {
            return Ok(());
        }
        self.with_again(&(0..self.pin.len), || {
            let mut hasher = blake3::Hasher::new();
            self.spool.for_each(0..self.pin.len, |bytes| {
                hasher.update_rayon(bytes);
                Ok(())
            })?;
            if hasher.finalize() == digest {
                return Ok(());
            }
            let url = self.task.place.to_string();
            Err(Error::Corrupt {
                url,
                reason: "the file does not have the digest that the server states".into(),
            })
        })
    }
}

//! What to take of a file's tensors, and which of its bytes that needs.

use std::ops::Range;
use std::sync::atomic::Ordering;

use tenfold_archive::{Layout, Pick, Written};

use super::Transfer;
use crate::error::Result;
use crate::pull::file::Context;

/// What is to be made of a file's tensors.
pub(super) struct Plan {
    pub layout: Layout,
    pub picks: Vec<Pick>,
    pub output: Output,
}

/// Where tensors go.
pub(super) enum Output {
    /// They stay in the spool, which becomes the file.
    Spool,
    /// Into another file.
    File(Written),
    /// To the caller, so many bytes; no file is made.
    Caller(u64),
}

impl Plan {
    /// Whether the spool itself is what was asked for.
    pub fn is_spool(&self) -> bool {
        matches!(self.output, Output::Spool)
    }

    /// Where the bytes of a pick go in the file to be.
    pub fn place(&self, pick: usize) -> u64 {
        match &self.output {
            Output::File(written) => written.places[pick].start,
            Output::Spool | Output::Caller(_) => 0,
        }
    }

    /// Bytes of the output, and those of its tensors.
    pub fn bytes(&self, stored: u64) -> (u64, u64) {
        match &self.output {
            Output::Spool => (stored, stored - self.layout.head_bytes()),
            Output::File(written) => (written.len, written.len - written.head.len() as u64),
            Output::Caller(bytes) => (*bytes, *bytes),
        }
    }
}

impl Transfer<'_> {
    /// Decides what to take.
    pub(super) fn plan(&self, layout: Layout) -> Result<Option<Plan>> {
        let Context { options, include, .. } = self.context;
        let rows = options.rows.clone();
        let is_taken = |name: &str| include.as_ref().is_none_or(|include| include.is_match(name));
        let picks: Vec<Pick> = (0..layout.tensors().len())
            .filter(|&index| is_taken(&layout.tensors()[index].info.name))
            .map(|index| Pick { index, rows: rows.clone() })
            .collect();
        if picks.is_empty() && self.context.is_selective() {
            return Ok(None);
        }
        let decodes = (options.decode || rows.is_some()) && layout.is_compressed();
        let output = if self.context.take.is_some() {
            // Checks rows, and refuses deltas, whose tensors are not those of a model.
            let whole = layout.restored(&picks)?;
            let stored = || picks.iter().map(|pick| &layout.tensors()[pick.index].stored);
            let is_decoded = decodes || rows.is_some() || !layout.is_compressed();
            let bytes = if is_decoded {
                whole.len - whole.head.len() as u64
            } else {
                stored().map(|range| range.end - range.start).sum()
            };
            Output::Caller(bytes)
        } else if decodes || rows.is_some() {
            Output::File(layout.restored(&picks)?)
        } else if picks.len() < layout.tensors().len() {
            Output::File(layout.subset(&picks.iter().map(|pick| pick.index).collect::<Vec<_>>())?)
        } else {
            Output::Spool
        };
        Ok(Some(Plan { layout, picks, output }))
    }

    /// Puts what is needed into the queue, in the order of the file.
    pub(super) fn want(&self, plan: &Plan) -> Result<()> {
        let tensors = plan.layout.tensors();
        let mut wanted: Vec<Range<u64>> = if plan.is_spool() {
            std::iter::once(0..self.pin.len).collect()
        } else if self.context.options.rows.is_some() {
            // Headers first: they tell which tiles hold the rows. Plain tensors need none.
            let is_blob = |pick: &&Pick| tensors[pick.index].info.compressed;
            let starts = plan.picks.iter().filter(is_blob).map(|pick| {
                let stored = &tensors[pick.index].stored;
                stored.start..stored.end.min(stored.start + (64 << 10))
            });
            starts.collect()
        } else {
            plan.picks.iter().map(|pick| tensors[pick.index].stored.clone()).collect()
        };
        wanted.sort_by_key(|range| range.start);
        let to_come: u64 =
            wanted.iter().flat_map(|range| self.spool.missing(range.clone())).map(|r| r.end - r.start).sum();
        // Of a small file everything has come with its header.
        let fetched = self.spool.fetched();
        self.context.progress.start(fetched + to_come);
        self.context.progress.advance(fetched);
        self.reported.store(fetched, Ordering::Relaxed);
        if !plan.is_spool() && self.context.options.rows.is_none() {
            let stored: u64 = wanted.iter().map(|range| range.end - range.start).sum();
            let ratio = plan.bytes(self.pin.len).0 as f64 / stored.max(1) as f64;
            self.context.progress.message(&format!("{}, ratio {ratio:.2}", self.task.name));
        }
        if self.pin.has_ranges {
            // Neighbours become one range, so that requests are large.
            let mut joined: Vec<Range<u64>> = Vec::new();
            for range in wanted {
                match joined.last_mut() {
                    Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
                    _ => joined.push(range),
                }
            }
            joined.into_iter().for_each(|range| self.fetch.want(range, false));
        }
        Ok(())
    }
}

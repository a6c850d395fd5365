//! Pages that a device makes of tokens in blocks.

use rayon::prelude::*;
use tenfold::engine::ErrorKind;
use tenfold::{Effort, EncodeOptions, Error, Goal};
use tenfold_cuda::{DeviceSlice, EncodePages, Status, Stream, encode_pages, encode_pages_workspace_len};

use super::bases::{DeviceGroup, DevicePages};
use super::queue::{ALIGN, BLOB, Blocks, part};
use crate::error::{Result, invalid};
use crate::page::frame::{self, Blobs, KEYS, VALUES};

/// Bytes that a blob may take beside one for each value.
const HEADER: usize = 8192;

/// Where the keys and the values of a page are among the bytes of a group; `None` where the device has refused them.
pub type Place = Option<[(usize, usize); 2]>;

/// Pages that are about to be encoded on a device, all with one step and as many tokens.
#[derive(Debug)]
pub struct Save {
    pages: usize,
    tokens: usize,
    step: f64,
}

impl DevicePages {
    /// Prepares the encoding of so many pages, of so many tokens each, at a step. Errors say what a device does not encode; the CPU does.
    pub fn save(&self, pages: usize, tokens: usize, step: f64) -> Result<Save> {
        if let Some(what) = self.reads_only {
            let reason = format!("{what} are not made on a device; encode them on the CPU");
            return Err(Error::Engine { kind: ErrorKind::Unsupported, reason }.into());
        }
        if tokens == 0 || !(step.is_finite() && step > 0.0) {
            return Err(invalid(format!(
                "a page has at least one token and a positive step, not {tokens} and {step}"
            )));
        }
        Ok(Save { pages, tokens, step })
    }
}

impl Save {
    /// Pages.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Bytes that the blobs of a page may take together where the page may take `cap`: the header is never larger than what is left. `None` if
    /// the cap has no room for a header.
    pub fn budget(&self, pages: &DevicePages, cap: usize) -> Option<usize> {
        let layers: Vec<usize> = pages.groups.iter().map(|group| group.layers).collect();
        cap.checked_sub(frame::Frame::header_room(self.tokens, &layers, cap))
    }

    /// Tokens of all pages: each has a slot.
    pub fn tokens(&self) -> usize {
        self.pages * self.tokens
    }

    fn group<'p>(&self, pages: &'p DevicePages, group: usize) -> Result<&'p DeviceGroup> {
        let missing = || invalid(format!("group {group} does not exist: there are {}", pages.groups.len()));
        let found = pages.groups.get(group).ok_or_else(missing)?;
        match found.sides.iter().any(Vec::is_empty) {
            true => Err(invalid("these pages were planned for another codec")),
            false => Ok(found),
        }
    }

    /// Bytes of room for each blob of keys, and for each of values.
    fn rooms(&self, group: &DeviceGroup) -> [usize; 2] {
        let room = |side: usize| self.tokens * group.sides[side][0].1.columns() + HEADER;
        [0, 1].map(|side| room(side).next_multiple_of(BLOB))
    }

    /// Bytes that a group's blobs need on the device, at a multiple of 256.
    pub fn blobs_len(&self, pages: &DevicePages, group: usize) -> Result<usize> {
        Ok(self
            .rooms(self.group(pages, group)?)
            .iter()
            .map(|room| (room * self.pages).next_multiple_of(ALIGN))
            .sum())
    }

    /// Statuses of a group: one for the keys of each page, then one for the values.
    pub fn statuses(&self) -> usize {
        2 * self.pages
    }

    fn request(
        &self,
        group: &DeviceGroup,
        side: usize,
        rows: DeviceSlice,
        blobs: DeviceSlice,
    ) -> EncodePages {
        let goal = Goal::Step(self.step * group.steps[side]);
        let options = EncodeOptions::new(goal).with_effort(Effort::Fast);
        EncodePages::new(self.pages, self.tokens, rows, blobs, options)
    }

    /// Bytes of workspace that any group needs, at a multiple of 256.
    pub fn workspace_len(&self, pages: &DevicePages) -> Result<usize> {
        let mut most = 0;
        for number in 0..pages.groups.len() {
            let group = self.group(pages, number)?;
            for (side, room) in self.rooms(group).into_iter().enumerate() {
                let basis = &group.sides[side][0].1;
                let rows = 2 * self.tokens() * basis.columns();
                let anywhere = |len: usize| DeviceSlice::new(ALIGN as u64, len);
                let mut request = self.request(group, side, anywhere(rows), anywhere(room * self.pages));
                if side == 0 && group.turned {
                    request = request.with_positions(anywhere(8 * self.pages));
                }
                let work = encode_pages_workspace_len(basis, &request).map_err(Error::from)?;
                most = most.max(rows.next_multiple_of(ALIGN) + work);
            }
        }
        Ok(most)
    }

    /// Queues the encoding of one group. `slots` are those of all tokens, page after page, and `positions` those of each page's first
    /// token, all of 64 bits; `blobs` and `status` are what [`Save::assemble`] reads.
    ///
    /// # Safety
    /// All memory is memory of the pages' device, is as long as it says, does not overlap, and is neither freed nor used otherwise until the
    /// stream has passed this call.
    #[allow(clippy::too_many_arguments)] // what a device works on
    pub unsafe fn queue(
        &self,
        pages: &DevicePages,
        group: usize,
        blocks: Blocks<'_>,
        slots: DeviceSlice,
        positions: DeviceSlice,
        blobs: DeviceSlice,
        status: DeviceSlice,
        workspace: DeviceSlice,
        stream: Stream,
    ) -> Result<()> {
        let group = self.group(pages, group)?;
        let mut at = 0;
        for (side, room) in self.rooms(group).into_iter().enumerate() {
            let basis = &group.sides[side][0].1;
            let pool = blocks.side(side, basis.columns())?;
            let bytes = 2 * self.tokens() * basis.columns();
            let rows = part(workspace, 0, bytes)?;
            let behind = bytes.next_multiple_of(ALIGN);
            let work = part(workspace, behind, workspace.len.saturating_sub(behind))?;
            let to = part(blobs, at, room * self.pages)?;
            at += (room * self.pages).next_multiple_of(ALIGN);
            let said = part(status, 16 * side * self.pages, 16 * self.pages)?;
            let mut request = self.request(group, side, rows, to);
            if side == 0 && group.turned {
                request = request.with_positions(part(positions, 0, 8 * self.pages)?);
            }
            // SAFETY: the caller's; the parts of the workspace do not overlap, and calls of one stream follow each other.
            let queued = unsafe {
                pool.gather(part(slots, 0, 8 * self.tokens())?, rows, stream)
                    .and_then(|()| encode_pages(basis, &request, said, work, stream))
            };
            queued.map_err(Error::from)?;
        }
        Ok(())
    }

    /// Where on the device the blobs of a group are, from the statuses: of each page keys and values, by their place in `blobs`. An error where
    /// one was refused.
    pub fn places(
        &self,
        pages: &DevicePages,
        group: usize,
        statuses: &[u8],
    ) -> Result<Vec<Result<[std::ops::Range<usize>; 2]>>> {
        if statuses.len() != 16 * self.statuses() {
            return Err(invalid(format!(
                "{} bytes of statuses are read, {} given",
                16 * self.statuses(),
                statuses.len()
            )));
        }
        let rooms = self.rooms(self.group(pages, group)?);
        let starts = [0, (rooms[0] * self.pages).next_multiple_of(ALIGN)];
        let all = statuses.as_chunks::<16>().0;
        let place = |side: usize, page: usize| {
            let status = Status::from_bytes(all[side * self.pages + page]);
            status.check()?;
            let (at, len) = (starts[side] + page * rooms[side], status.size as usize);
            match len <= rooms[side] && len.is_multiple_of(4) {
                true => Ok(at..at + len),
                false => Err(crate::Error::from(Error::Corrupt("the device's answer"))),
            }
        };
        Ok((0..self.pages).map(|page| Ok([place(0, page)?, place(1, page)?])).collect())
    }

    /// A page from the blobs of all its groups, keys and values of each.
    pub fn assemble(&self, pages: &DevicePages, blobs: &[[&[u8]; 2]]) -> Result<Vec<u8>> {
        if blobs.len() != pages.groups.len() {
            return Err(invalid(format!(
                "a page has {} groups of layers, not {}",
                pages.groups.len(),
                blobs.len()
            )));
        }
        let group = |(group, blobs): (&DeviceGroup, &[&[u8]; 2])| {
            let mut all = Blobs::<Vec<u8>>::default();
            all[KEYS] = blobs[0].to_vec();
            all[VALUES] = blobs[1].to_vec();
            (group.layers, all)
        };
        let groups: Vec<_> = pages.groups.iter().zip(blobs).map(group).collect();
        Ok(frame::write(self.tokens, (0, 0), &groups))
    }

    /// All pages, from the bytes of each group and where in them each page's keys and values are. `None` for a page of which a group has
    /// none.
    pub fn assemble_all(
        &self,
        pages: &DevicePages,
        bytes: &[&[u8]],
        places: &[&[Place]],
    ) -> Result<Vec<Option<Vec<u8>>>> {
        if bytes.len() != places.len() || places.iter().any(|group| group.len() != self.pages) {
            return Err(invalid("every group has the place of every page"));
        }
        let page = |page: usize| -> Result<Option<Vec<u8>>> {
            let mut blobs = Vec::with_capacity(bytes.len());
            for (bytes, places) in bytes.iter().zip(places) {
                let Some(both) = places[page] else { return Ok(None) };
                let blob =
                    |(from, to): (usize, usize)| bytes.get(from..to).ok_or(invalid("a place without bytes"));
                blobs.push([blob(both[0])?, blob(both[1])?]);
            }
            self.assemble(pages, &blobs).map(Some)
        };
        (0..self.pages).into_par_iter().map(page).collect()
    }
}

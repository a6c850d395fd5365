//! Pages that a device makes of tokens in blocks.
//!
//! Where pages can choose among bases, or do with a part of one, a look at all of them comes first ([`Save::queue_look`]). Then keys
//! or values of a group become blobs, those of all pages with the same basis in one [`Batch`]. Tokens that stay exact are few: the host codes
//! them, from rows that [`Save::queue_exact`] brings together, while it puts pages together.

use std::ops::Range;

use rayon::prelude::*;
use tenfold::{Dtype, EncodeOptions, Error, Goal, TensorView};
use tenfold_cuda::{
    DevicePool, DeviceSlice, EncodeBatch, EncodePages, PageSeen, Status, Stream, encode_batch,
    encode_batch_workspace_len, encode_pages, encode_pages_workspace_len, look_at_pages,
    look_at_pages_workspace_len,
};

use super::bases::{DeviceGroup, DevicePages};
use super::queue::{ALIGN, BLOB, part};
use crate::error::{Result, invalid};
use crate::page::frame::{self, Blobs, EXACT_KEYS, EXACT_VALUES, KEYS, VALUES};

/// Bytes that a blob may take beside those for each value.
const HEADER: usize = 8192;
/// Coordinates of a page from which on it has a plan that its basis has ready: in smaller ones tables cost more than those plans reckon.
const READY_FROM: usize = 1 << 14;
/// Of a page's blobs, those of keys and of values: exact ones, and the others.
const PLACES: [[usize; 2]; 2] = [[EXACT_KEYS, KEYS], [EXACT_VALUES, VALUES]];

/// Pages that are about to be encoded on a device, all with one step and as many tokens.
#[derive(Debug, Clone)]
pub struct Save {
    pages: usize,
    tokens: usize,
    step: f64,
    /// Tokens at a page's start and end that stay exact.
    exact: (usize, usize),
    /// Columns of keys and of values of each group, and what they are.
    columns: Vec<[usize; 2]>,
    dtype: Dtype,
}

/// Keys or values of a group: of some pages, which have the same basis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The group.
    pub group: usize,
    /// 0 for keys, 1 for values.
    pub side: usize,
    /// The number of the basis, if there is one.
    basis: Option<usize>,
    /// Pages by their number in the save, the smallest first.
    pub pages: Vec<usize>,
}

/// Where the blobs of a batch are: of each page, bytes of what [`Save::assemble`] is given; `None` where the device has refused it.
pub type Place = Option<(usize, usize)>;

/// Blobs of a batch as they are assembled: the batch, its bytes, and where in them those of each page are.
pub type Made<'b> = (&'b Batch, &'b [u8], &'b [Place]);

impl DevicePages {
    /// Prepares the encoding of so many pages, of so many tokens each, at a step. `columns` are those of the keys and of the values of a
    /// token, for each group, and of a float of at most 16 bits.
    pub fn save(
        &self,
        pages: usize,
        tokens: usize,
        step: f64,
        columns: &[[usize; 2]],
        dtype: Dtype,
    ) -> Result<Save> {
        if tokens == 0 || !(step.is_finite() && step > 0.0) {
            return Err(invalid(format!(
                "a page has at least one token and a positive step, not {tokens} and {step}"
            )));
        }
        let fits = |(group, columns): (&DeviceGroup, &[usize; 2])| {
            let of = |side: usize| {
                group.sides[side].first().is_none_or(|(_, basis)| basis.columns() == columns[side])
            };
            of(0) && of(1)
        };
        if columns.len() != self.groups.len() || !self.groups.iter().zip(columns).all(fits) {
            return Err(invalid("keys and values have other columns than the codec's bases"));
        }
        if self.effort == tenfold::Effort::Fast {
            for (_, basis) in self.groups.iter().flat_map(|group| &group.sides).flatten() {
                basis.prepare_plans().map_err(Error::from)?;
            }
        }
        if !dtype.is_float() || dtype.size() > 2 {
            return Err(invalid(format!(
                "a device makes pages of floats of at most 16 bits, not of {dtype}"
            )));
        }
        let first = self.exact.0.min(tokens);
        let exact = (first, self.exact.1.min(tokens - first));
        Ok(Save { pages, tokens, step, exact, columns: columns.to_vec(), dtype })
    }
}

impl DeviceGroup {
    /// Whether pages must be looked at to know their basis.
    fn has_choice(&self, side: usize) -> bool {
        match &self.choices[side][..] {
            [] => false,
            [one] => one.part.is_some(),
            _ => true,
        }
    }
}

impl Save {
    /// Pages.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Tokens of a page that are quantised.
    pub fn lossy(&self) -> Range<usize> {
        self.exact.0..self.tokens - self.exact.1
    }

    /// Bytes that the blobs of a page may take together, exact ones not counted, where the page may take `cap` and its exact tokens take
    /// `exact`: the header is never larger than what is left. `None` if the cap has no room for a header.
    pub fn budget(&self, pages: &DevicePages, cap: usize, exact: usize) -> Option<usize> {
        let layers: Vec<usize> = pages.groups.iter().map(|group| group.layers).collect();
        cap.checked_sub(frame::Frame::header_room(self.tokens, &layers, cap))?.checked_sub(exact)
    }

    fn group<'p>(&self, pages: &'p DevicePages, group: usize) -> Result<&'p DeviceGroup> {
        match self.columns.len() == pages.groups.len() {
            true => pages.groups.get(group).ok_or_else(|| {
                invalid(format!("group {group} does not exist: there are {}", pages.groups.len()))
            }),
            false => Err(invalid("these pages were planned for another codec")),
        }
    }

    fn goal(&self, group: &DeviceGroup, side: usize) -> f64 {
        self.step * group.steps[side]
    }

    /// Keys (0) or values (1) of groups that must be looked at first.
    pub fn looks(&self, pages: &DevicePages) -> Vec<(usize, usize)> {
        let all = (0..pages.groups.len()).flat_map(|group| [(group, 0), (group, 1)]);
        match self.lossy().is_empty() {
            true => Vec::new(),
            false => all.filter(|&(group, side)| pages.groups[group].has_choice(side)).collect(),
        }
    }

    /// Bytes that a look leaves on the device: some for each basis and page.
    pub fn look_len(&self, pages: &DevicePages, look: (usize, usize)) -> Result<usize> {
        self.width(look)?;
        Ok(self.group(pages, look.0)?.choices[look.1].len() * self.pages * PageSeen::BYTES)
    }

    /// Pages of a batch as the encoder has them.
    fn request(
        &self,
        pages: &DevicePages,
        (group, side): (usize, usize),
        basis: usize,
        count: usize,
        rows: DeviceSlice,
        blobs: DeviceSlice,
        positions: DeviceSlice,
    ) -> Result<EncodePages> {
        let of = self.group(pages, group)?;
        let options = EncodeOptions::new(Goal::Step(self.goal(of, side))).with_effort(pages.effort);
        let (_, basis) = of.sides[side].get(basis).ok_or_else(|| invalid("there is no such basis"))?;
        let ready = basis.has_plans() && self.lossy().len() * basis.rank() >= READY_FROM;
        let request = EncodePages::new(count, self.lossy().len(), rows, blobs, options)
            .with_ready(ready)
            .with_dtype(self.dtype);
        Ok(match side == 0 && of.turned {
            true => request.with_positions(part(positions, 0, 8 * count)?),
            false => request,
        })
    }

    /// Columns of keys (0) or values (1) of a group.
    fn width(&self, (group, side): (usize, usize)) -> Result<usize> {
        let found = self.columns.get(group).and_then(|columns| columns.get(side));
        found.copied().ok_or_else(|| invalid(format!("there is no side {side} of a group {group}")))
    }

    /// Bytes of rows of so many pages, at most: behind a basis they are bf16, whatever the pool has.
    fn rows_len(&self, side: (usize, usize), count: usize) -> Result<usize> {
        Ok(2 * count * self.lossy().len() * self.width(side)?)
    }

    /// Bytes of workspace that a look needs, at a multiple of 256.
    pub fn look_workspace_len(&self, pages: &DevicePages, look: (usize, usize)) -> Result<usize> {
        let rows = self.rows_len(look, self.pages)?;
        let anywhere = |len: usize| DeviceSlice::new(ALIGN as u64, len);
        let mut most = 0;
        for choice in &self.group(pages, look.0)?.choices[look.1] {
            let request = self.request(
                pages,
                look,
                choice.whole,
                self.pages,
                anywhere(rows),
                anywhere(0),
                anywhere(8 * self.pages),
            )?;
            let basis = &pages.groups[look.0].sides[look.1][choice.whole].1;
            most = most.max(look_at_pages_workspace_len(basis, &request).map_err(Error::from)?);
        }
        Ok(rows.next_multiple_of(ALIGN) + most)
    }

    /// Queues a look at keys or values of all pages, in a pool. `slots` are those of the tokens that are quantised, page after page, and
    /// `positions` those of each page's first, all of 64 bits; `seen` is what [`Save::batches`] reads.
    ///
    /// # Safety
    /// All memory is memory of the pages' device, is as long as it says, does not overlap, and is neither freed nor used otherwise until the
    /// stream has passed this call.
    #[allow(clippy::too_many_arguments)] // what a device works on
    pub unsafe fn queue_look(
        &self,
        pages: &DevicePages,
        look: (usize, usize),
        pool: &DevicePool,
        slots: DeviceSlice,
        positions: DeviceSlice,
        seen: DeviceSlice,
        workspace: DeviceSlice,
        stream: Stream,
    ) -> Result<()> {
        let of = self.group(pages, look.0)?;
        self.check_pool(pool, look)?;
        let (rows, work) = self.split(workspace, look, self.pages)?;
        let slots = part(slots, 0, 8 * self.pages * self.lossy().len())?;
        // SAFETY: the caller's; the parts of the workspace do not overlap, and calls of one stream follow each other.
        unsafe {
            pool.gather_halves(slots, rows, stream).map_err(Error::from)?;
            for (number, choice) in of.choices[look.1].iter().enumerate() {
                let nowhere = DeviceSlice::new(0, 0);
                let request =
                    self.request(pages, look, choice.whole, self.pages, rows, nowhere, positions)?;
                let len = self.pages * PageSeen::BYTES;
                let found = part(seen, number * len, len)?;
                let outside = choice.part.as_ref().map(|(_, outside)| outside.slice());
                let (step, basis) = (self.goal(of, look.1), &of.sides[look.1][choice.whole].1);
                look_at_pages(basis, &request, step, outside, found, work, stream).map_err(Error::from)?;
            }
        }
        Ok(())
    }

    /// What is encoded at once, from what every look has seen: pages of a batch have the same basis.
    pub fn batches(&self, pages: &DevicePages, seen: &[&[u8]]) -> Result<Vec<Batch>> {
        let looks = self.looks(pages);
        if seen.len() != looks.len() {
            return Err(invalid(format!("{} looks were had, {} are needed", seen.len(), looks.len())));
        }
        let mut batches = Vec::new();
        for (group, of) in pages.groups.iter().enumerate().filter(|_| !self.lossy().is_empty()) {
            for (side, choices) in of.choices.iter().enumerate() {
                let all =
                    |basis: Option<usize>| Batch { group, side, basis, pages: (0..self.pages).collect() };
                let Some(at) = looks.iter().position(|look| *look == (group, side)) else {
                    batches.push(all(choices.first().map(|choice| choice.whole)));
                    continue;
                };
                if seen[at].len() != self.look_len(pages, (group, side))? {
                    return Err(invalid("a look leaves some bytes for each basis and page"));
                }
                let found = seen[at].as_chunks().0;
                let mut of_basis: Vec<Vec<usize>> = vec![Vec::new(); of.sides[side].len()];
                for page in 0..self.pages {
                    let look = |number: usize| PageSeen::from_bytes(found[number * self.pages + page]);
                    // The first of the cheapest; what is no number is never cheaper.
                    let best = (1..choices.len()).fold(0, |best, number| {
                        if look(number).cost < look(best).cost { number } else { best }
                    });
                    let part = choices[best].part.as_ref().filter(|_| look(best).inside);
                    of_basis[part.map_or(choices[best].whole, |part| part.0)].push(page);
                }
                let some = of_basis.into_iter().enumerate().filter(|(_, pages)| !pages.is_empty());
                batches.extend(some.map(|(basis, pages)| Batch { group, side, basis: Some(basis), pages }));
            }
        }
        Ok(batches)
    }

    /// Bytes of room for each blob of a batch.
    fn room(&self, pages: &DevicePages, batch: &Batch) -> Result<usize> {
        let tokens = self.lossy().len();
        let of = self.group(pages, batch.group)?;
        let bytes = match batch.basis.and_then(|number| of.sides[batch.side].get(number)) {
            Some((_, basis)) => tokens * basis.rank(),
            // What is small becomes lossless.
            None => 2 * tokens * self.width((batch.group, batch.side))?,
        };
        Ok((bytes + HEADER).next_multiple_of(BLOB))
    }

    /// Bytes that a batch's blobs need on the device, at a multiple of 256.
    pub fn blobs_len(&self, pages: &DevicePages, batch: &Batch) -> Result<usize> {
        Ok((self.room(pages, batch)? * batch.pages.len()).next_multiple_of(ALIGN))
    }

    /// Rows without a basis, as the encoder has them.
    fn bare(
        &self,
        pages: &DevicePages,
        batch: &Batch,
        rows: DeviceSlice,
        blobs: DeviceSlice,
    ) -> Result<EncodeBatch> {
        let of = self.group(pages, batch.group)?;
        let options = EncodeOptions::new(Goal::Step(self.goal(of, batch.side))).with_effort(pages.effort);
        let shape = [self.lossy().len(), self.width((batch.group, batch.side))?];
        let count = batch.pages.len();
        let rows = part(rows, 0, self.dtype.size() * count * shape[0] * shape[1])?;
        Ok(EncodeBatch::new(count, rows, self.dtype, &shape, blobs, options))
    }

    /// Bytes of workspace that a batch needs, at a multiple of 256.
    pub fn workspace_len(&self, pages: &DevicePages, batch: &Batch) -> Result<usize> {
        let (side, count) = ((batch.group, batch.side), batch.pages.len());
        let rows = self.rows_len(side, count)?;
        let anywhere = |len: usize| DeviceSlice::new(ALIGN as u64, len);
        let blobs = anywhere(self.blobs_len(pages, batch)?);
        let work = match batch.basis {
            Some(number) => {
                let request =
                    self.request(pages, side, number, count, anywhere(rows), blobs, anywhere(8 * count))?;
                let basis = &pages.groups[batch.group].sides[batch.side][number].1;
                encode_pages_workspace_len(basis, &request)
            }
            None => {
                encode_batch_workspace_len(&pages.device, &self.bare(pages, batch, anywhere(rows), blobs)?)
            }
        };
        Ok(rows.next_multiple_of(ALIGN) + work.map_err(Error::from)?.next_multiple_of(ALIGN))
    }

    fn check_pool(&self, pool: &DevicePool, (group, side): (usize, usize)) -> Result<()> {
        let expected = self.width((group, side))?;
        match (pool.columns(), pool.dtype()) == (Some(expected), self.dtype) {
            true => Ok(()),
            false => Err(invalid(format!(
                "a token has {expected} columns of {} in the group's layers, the pool has {} bytes of {}",
                self.dtype,
                pool.row(),
                pool.dtype()
            ))),
        }
    }

    /// Rows, and what else there is of a workspace.
    fn split(
        &self,
        workspace: DeviceSlice,
        side: (usize, usize),
        count: usize,
    ) -> Result<(DeviceSlice, DeviceSlice)> {
        let bytes = self.rows_len(side, count)?;
        let behind = bytes.next_multiple_of(ALIGN);
        let work = part(workspace, behind, workspace.len.saturating_sub(behind))?;
        Ok((part(workspace, 0, bytes)?, work))
    }

    /// Queues the encoding of a batch from its pool. `slots` are those of the tokens that are quantised, page after page, and `positions` those
    /// of each page's first, all of 64 bits and of the batch's pages alone; `status` has 16 bytes a page.
    ///
    /// # Safety
    /// As for [`Save::queue_look`].
    #[allow(clippy::too_many_arguments)] // what a device works on
    pub unsafe fn queue(
        &self,
        pages: &DevicePages,
        batch: &Batch,
        pool: &DevicePool,
        slots: DeviceSlice,
        positions: DeviceSlice,
        blobs: DeviceSlice,
        status: DeviceSlice,
        workspace: DeviceSlice,
        stream: Stream,
    ) -> Result<()> {
        let (side, count) = ((batch.group, batch.side), batch.pages.len());
        self.group(pages, batch.group)?;
        self.check_pool(pool, side)?;
        let (rows, work) = self.split(workspace, side, count)?;
        let blobs = part(blobs, 0, self.room(pages, batch)? * count)?;
        let slots = part(slots, 0, 8 * count * self.lossy().len())?;
        let said = part(status, 0, 16 * count)?;
        // SAFETY: the caller's; the parts of the workspace do not overlap, and calls of one stream follow each other.
        unsafe {
            match batch.basis {
                Some(number) => {
                    pool.gather_halves(slots, rows, stream).map_err(Error::from)?;
                    let request = self.request(pages, side, number, count, rows, blobs, positions)?;
                    let basis = &pages.groups[batch.group].sides[batch.side][number].1;
                    encode_pages(basis, &request, said, work, stream).map_err(Error::from)?;
                }
                None => {
                    let request = self.bare(pages, batch, rows, blobs)?;
                    pool.gather(slots, request.tensors, stream).map_err(Error::from)?;
                    encode_batch(&pages.device, &request, said, work, stream).map_err(Error::from)?;
                }
            }
        }
        Ok(())
    }

    /// Where on the device the blobs of a batch are, from the statuses: of each page, by its place in `blobs`. An error where one was
    /// refused.
    pub fn places(
        &self,
        pages: &DevicePages,
        batch: &Batch,
        statuses: &[u8],
    ) -> Result<Vec<Result<Range<usize>>>> {
        if statuses.len() != 16 * batch.pages.len() {
            return Err(invalid(format!(
                "{} bytes of statuses are read, {} given",
                16 * batch.pages.len(),
                statuses.len()
            )));
        }
        let room = self.room(pages, batch)?;
        let place = |(number, said): (usize, &[u8; 16])| {
            let status = Status::from_bytes(*said);
            status.check()?;
            let (at, len) = (number * room, status.size as usize);
            match len <= room && len.is_multiple_of(4) && len > 0 {
                true => Ok(at..at + len),
                false => Err(crate::Error::from(Error::Corrupt("the device's answer"))),
            }
        };
        Ok(statuses.as_chunks().0.iter().enumerate().map(place).collect())
    }

    /// Tokens of a page that stay exact, by their number in it.
    pub fn exact(&self) -> Vec<usize> {
        (0..self.exact.0).chain(self.tokens - self.exact.1..self.tokens).collect()
    }

    /// Bytes of the rows of exact tokens of all pages: keys (0) or values (1) of a group.
    pub fn exact_len(&self, group: usize, side: usize) -> Result<usize> {
        let tokens = self.pages * (self.exact.0 + self.exact.1);
        Ok(self.dtype.size() * tokens * self.width((group, side))?)
    }

    /// Queues the gathering of the rows of exact tokens. `slots` are theirs, page after page.
    ///
    /// # Safety
    /// As for [`Save::queue_look`].
    pub unsafe fn queue_exact(
        &self,
        (group, side): (usize, usize),
        pool: &DevicePool,
        slots: DeviceSlice,
        rows: DeviceSlice,
        stream: Stream,
    ) -> Result<()> {
        self.check_pool(pool, (group, side))?;
        let slots = part(slots, 0, 8 * self.pages * (self.exact.0 + self.exact.1))?;
        let rows = part(rows, 0, self.exact_len(group, side)?)?;
        // SAFETY: the caller's.
        Ok(unsafe { pool.gather(slots, rows, stream) }.map_err(Error::from)?)
    }

    /// Lossless blobs of the exact tokens of each page, keys and values of each group in turn, from the rows of each; none without exact
    /// tokens.
    pub fn encode_exact(&self, pages: &DevicePages, rows: &[&[u8]]) -> Result<Vec<Vec<Vec<u8>>>> {
        let tokens = self.exact.0 + self.exact.1;
        if tokens == 0 {
            return Ok(vec![Vec::new(); self.pages]);
        }
        let sides: Vec<(usize, usize)> =
            (0..self.columns.len()).flat_map(|group| [(group, 0), (group, 1)]).collect();
        let fits = |(&(group, side), rows): (&(usize, usize), &&[u8])| {
            self.exact_len(group, side).is_ok_and(|len| rows.len() == len)
        };
        if rows.len() != sides.len() || !sides.iter().zip(rows).all(fits) {
            return Err(invalid(
                "rows of exact tokens are those of all pages, for keys and values of each group",
            ));
        }
        let page = |page: usize| -> Result<Vec<Vec<u8>>> {
            let blob = |(&(group, side), rows): (&(usize, usize), &&[u8])| {
                let columns = self.width((group, side))?;
                let bytes = self.dtype.size() * tokens * columns;
                let shape = [tokens, columns];
                let view = TensorView::new(self.dtype, &shape, &rows[page * bytes..][..bytes])?;
                let options = EncodeOptions::new(Goal::Lossless).with_effort(pages.effort).with_threads(1);
                Ok(tenfold::encode(&view, &options)?)
            };
            sides.iter().zip(rows).map(blob).collect()
        };
        (0..self.pages).into_par_iter().map(page).collect()
    }

    /// Pages on their way to bytes, from all batches and the blobs of exact tokens.
    pub fn assemble<'b>(
        &self,
        pages: &DevicePages,
        made: &[Made<'b>],
        exact: &'b [Vec<Vec<u8>>],
    ) -> Result<Vec<Option<Assembled<'b>>>> {
        let count = self.exact.0 + self.exact.1;
        let groups = pages.groups.len();
        if groups != self.columns.len()
            || exact.len() != self.pages
            || exact.iter().any(|blobs| blobs.len() != if count == 0 { 0 } else { 2 * groups })
        {
            return Err(invalid("every page has its exact tokens"));
        }
        let mut all: Vec<Option<Vec<Blobs<&'b [u8]>>>> = exact
            .iter()
            .map(|blobs| {
                let mut own = vec![Blobs::<&[u8]>::default(); groups];
                for (number, blob) in blobs.iter().enumerate() {
                    own[number / 2][PLACES[number % 2][0]] = blob;
                }
                Some(own)
            })
            .collect();
        for (batch, bytes, places) in made {
            if batch.pages.len() != places.len() || batch.group >= groups {
                return Err(invalid("every page of a batch has a place"));
            }
            for (&page, place) in batch.pages.iter().zip(*places) {
                let own = all.get_mut(page).ok_or_else(|| invalid("a page that is not there"))?;
                match (place, &mut *own) {
                    (Some((from, to)), Some(blobs)) => {
                        let blob = bytes.get(*from..*to).ok_or_else(|| invalid("a place without bytes"))?;
                        blobs[batch.group][PLACES[batch.side][1]] = blob;
                    }
                    _ => *own = None,
                }
            }
        }
        let assembled = |blobs: Vec<Blobs<&'b [u8]>>| {
            let layers = pages.groups.iter().map(|group| group.layers);
            let lengths = blobs.iter().map(|blobs| blobs.map(<[u8]>::len));
            let header = frame::header(self.tokens, self.exact, layers.zip(lengths));
            Assembled { header, blobs: blobs.into_iter().flatten().collect() }
        };
        Ok(all.into_iter().map(|blobs| blobs.map(assembled)).collect())
    }
}

/// A page in pieces.
#[derive(Debug)]
pub struct Assembled<'b> {
    header: Vec<u8>,
    blobs: Vec<&'b [u8]>,
}

impl Assembled<'_> {
    /// Bytes of the page.
    #[allow(clippy::len_without_is_empty)] // it has a header
    pub fn len(&self) -> usize {
        self.header.len() + self.blobs.iter().map(|blob| blob.len()).sum::<usize>()
    }

    /// Writes pages, each of which takes all of its memory, on all cores.
    pub fn write_all(pages: Vec<(&Self, &mut [u8])>) {
        pages.into_par_iter().for_each(|(page, to)| page.write(to));
    }

    fn write(&self, to: &mut [u8]) {
        let mut rest = to;
        for piece in std::iter::once(self.header.as_slice()).chain(self.blobs.iter().copied()) {
            let (here, behind) = rest.split_at_mut(piece.len());
            here.copy_from_slice(piece);
            rest = behind;
        }
    }
}

//! Pages that a device makes of tokens in blocks.
//!
//! Where pages can choose among bases, or do with a part of one, a look at all of them comes first ([`Save::queue_look`]). Then keys
//! or values of a group become blobs, those of all pages with the same basis in one [`Batch`]. Tokens that stay exact are few: the host codes
//! them, from rows that [`Save::queue_exact`] brings together, while it puts pages together.

use std::collections::BTreeMap;
use std::ops::Range;

use tenfold::{Dtype, EncodeOptions, Error, Goal};
use tenfold_cuda::{
    DeviceBasis, DevicePool, DeviceSlice, EncodeBatch, EncodePages, PageSeen, PageSizes, Status, Stream,
    encode_batch, encode_batch_workspace_len, encode_pages, encode_pages_workspace_len, guess_page_sizes,
    look_at_pages, look_at_pages_workspace_len,
};

use super::bases::{DeviceGroup, DevicePages};
use super::ladder::Ladder;
use super::queue::{ALIGN, BLOB, part};
use crate::error::{Result, invalid};
use crate::page::frame;

/// Bytes that a blob may take beside those for each value.
const HEADER: usize = 8192;
/// What the bytes of a page's rows are a multiple of where the device encodes many pages of them at once.
const ROWS: usize = 16;
/// Coordinates of a page from which on it has a plan that its basis has ready: in smaller ones tables cost more than those plans reckon.
const READY_FROM: usize = 1 << 14;

/// Pages that are about to be encoded on a device, all with as many tokens.
#[derive(Debug, Clone)]
pub struct Save {
    /// The step of each page.
    steps: Vec<f64>,
    /// Whether all tokens stay exact: then the device codes these, and steps mean nothing.
    pub(super) lossless: bool,
    pub(super) tokens: usize,
    /// Tokens at a page's start and end that stay exact.
    pub(super) exact: (usize, usize),
    /// Columns of keys and of values of each group, and what they are.
    pub(super) columns: Vec<[usize; 2]>,
    pub(super) dtype: Dtype,
}

/// What a device is given of pages: all of 64 bits, at a multiple of 8.
#[derive(Debug, Clone, Copy)]
pub struct Given {
    /// Slots of the tokens that are quantised, page after page.
    pub slots: DeviceSlice,
    /// Positions of each page's first such token.
    pub positions: DeviceSlice,
    /// Each page's step, as f64; read where [`Save::has_steps`].
    pub steps: DeviceSlice,
}

/// Keys or values of a group: of some pages, which have the same basis.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// The group.
    pub group: usize,
    /// 0 for keys, 1 for values.
    pub side: usize,
    /// The number of the basis, if there is one.
    basis: Option<usize>,
    /// The step of all of its pages; none if each has its own.
    step: Option<f64>,
    /// Pages by their number in the save, the smallest first.
    pub pages: Vec<usize>,
}

impl DevicePages {
    /// Prepares the encoding of pages of so many tokens each, at a step for each of them. `columns` are those of the keys and of the values of
    /// a token, for each group, and of a float of at most 16 bits.
    pub fn save(&self, tokens: usize, steps: &[f64], columns: &[[usize; 2]], dtype: Dtype) -> Result<Save> {
        let wrong = steps.iter().copied().find(|step| !(step.is_finite() && *step > 0.0));
        if let Some(step) = wrong.or((tokens == 0).then_some(1.0)) {
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
        Ok(Save { steps: steps.to_vec(), lossless: false, tokens, exact, columns: columns.to_vec(), dtype })
    }

    /// The same for so many pages that keep every bit.
    pub fn save_lossless(
        &self,
        tokens: usize,
        count: usize,
        columns: &[[usize; 2]],
        dtype: Dtype,
    ) -> Result<Save> {
        let save = self.save(tokens, &vec![1.0; count], columns, dtype)?;
        Ok(Save { lossless: true, exact: (0, 0), ..save })
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
        self.steps.len()
    }

    /// The step of all pages, if they have one.
    fn step(&self) -> Option<f64> {
        let first = self.steps.first().copied().unwrap_or(1.0);
        self.steps.iter().all(|step| *step == first).then_some(first)
    }

    /// Whether the device reads the step of each page.
    pub fn has_steps(&self) -> bool {
        self.step().is_none()
    }

    /// Tokens of a page that the device codes: those that are quantised, or all.
    pub fn coded(&self) -> Range<usize> {
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

    /// Whether pages in a basis have plans that it has ready.
    fn is_ready(&self, basis: &DeviceBasis) -> bool {
        basis.has_plans() && self.coded().len() * basis.rank() >= READY_FROM
    }

    /// Keys (0) and values (1) of all groups.
    fn sides(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let groups = if self.coded().is_empty() { 0 } else { self.columns.len() };
        (0..groups).flat_map(|group| [(group, 0), (group, 1)])
    }

    /// Keys (0) or values (1) of groups that must be looked at first.
    pub fn looks(&self, pages: &DevicePages) -> Vec<(usize, usize)> {
        let has_choice = |&(group, side): &(usize, usize)| {
            !self.lossless && pages.groups.get(group).is_some_and(|group| group.has_choice(side))
        };
        self.sides().filter(has_choice).collect()
    }

    /// Bytes that a look leaves on the device: some for each basis and page.
    pub fn look_len(&self, pages: &DevicePages, look: (usize, usize)) -> Result<usize> {
        self.width(look)?;
        Ok(self.group(pages, look.0)?.choices[look.1].len() * self.pages() * PageSeen::BYTES)
    }

    /// Pages of a batch as the encoder has them.
    #[allow(clippy::too_many_arguments)] // what a device works on
    fn request(
        &self,
        pages: &DevicePages,
        (group, side): (usize, usize),
        basis: usize,
        step: Option<f64>,
        count: usize,
        rows: DeviceSlice,
        blobs: DeviceSlice,
        given: &Given,
    ) -> Result<EncodePages> {
        let of = self.group(pages, group)?;
        let goal = Goal::Step(step.unwrap_or(1.0) * of.steps[side]);
        let options = EncodeOptions::new(goal).with_effort(pages.effort);
        let (_, basis) = of.sides[side].get(basis).ok_or_else(|| invalid("there is no such basis"))?;
        let mut request = EncodePages::new(count, self.coded().len(), rows, blobs, options)
            .with_ready(self.is_ready(basis))
            .with_dtype(self.dtype);
        if step.is_none() {
            request = request.with_steps(part(given.steps, 0, 8 * count)?);
        }
        Ok(match side == 0 && of.turned {
            true => request.with_positions(part(given.positions, 0, 8 * count)?),
            false => request,
        })
    }

    /// Columns of keys (0) or values (1) of a group.
    pub(super) fn width(&self, (group, side): (usize, usize)) -> Result<usize> {
        let found = self.columns.get(group).and_then(|columns| columns.get(side));
        found.copied().ok_or_else(|| invalid(format!("there is no side {side} of a group {group}")))
    }

    /// Bytes of rows of so many pages, at most: behind a basis they are bf16, whatever the pool has.
    fn rows_len(&self, side: (usize, usize), count: usize) -> Result<usize> {
        Ok(2 * count * self.coded().len() * self.width(side)?)
    }

    /// Bytes of workspace that a look needs, at a multiple of 256.
    pub fn look_workspace_len(&self, pages: &DevicePages, look: (usize, usize)) -> Result<usize> {
        let (rows, count) = (self.rows_len(look, self.pages())?, self.pages());
        let mut most = 0;
        for choice in &self.group(pages, look.0)?.choices[look.1] {
            let (given, step) = (anything(count), self.step());
            let request =
                self.request(pages, look, choice.whole, step, count, anywhere(rows), anywhere(0), &given)?;
            let basis = &pages.groups[look.0].sides[look.1][choice.whole].1;
            most = most.max(look_at_pages_workspace_len(basis, &request).map_err(Error::from)?);
        }
        Ok(rows.next_multiple_of(ALIGN) + most)
    }

    /// Queues a look at keys or values of all pages, in a pool. `seen` is what [`Save::batches`] reads.
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
        given: &Given,
        seen: DeviceSlice,
        workspace: DeviceSlice,
        stream: Stream,
    ) -> Result<()> {
        let (of, count) = (self.group(pages, look.0)?, self.pages());
        self.check_pool(pool, look)?;
        let (rows, work) = self.split(workspace, look, count)?;
        let slots = part(given.slots, 0, 8 * count * self.coded().len())?;
        // SAFETY: the caller's; the parts of the workspace do not overlap, and calls of one stream follow each other.
        unsafe {
            pool.gather_halves(slots, rows, stream).map_err(Error::from)?;
            for (number, choice) in of.choices[look.1].iter().enumerate() {
                let nowhere = DeviceSlice::new(0, 0);
                let step = self.step();
                let request = self.request(pages, look, choice.whole, step, count, rows, nowhere, given)?;
                let len = count * PageSeen::BYTES;
                let found = part(seen, number * len, len)?;
                let outside = choice.part.as_ref().map(|(_, outside)| outside.slice());
                let step = step.unwrap_or(1.0) * of.steps[look.1];
                let basis = &of.sides[look.1][choice.whole].1;
                look_at_pages(basis, &request, step, outside, found, work, stream).map_err(Error::from)?;
            }
        }
        Ok(())
    }

    /// Keys (0) or values (1) of groups whose sizes can be guessed: all of them or, where one cannot, none.
    pub fn guesses(&self, pages: &DevicePages) -> Vec<(usize, usize)> {
        let can = |(group, side): (usize, usize)| {
            let of = pages.groups.get(group).filter(|_| !self.lossless)?;
            let whole = of.choices[side].first()?.whole;
            self.is_ready(&of.sides[side].get(whole)?.1).then_some((group, side))
        };
        self.sides().map(can).collect::<Option<_>>().unwrap_or_default()
    }

    /// Bytes that a guess leaves on the device.
    pub fn guess_len(&self) -> usize {
        self.pages() * PageSizes::BYTES
    }

    /// Queues a guess at the sizes of keys or values of all pages. `sizes` is what [`Save::ladder`] reads; the workspace has
    /// [`Save::look_workspace_len`] bytes.
    ///
    /// # Safety
    /// As for [`Save::queue_look`].
    #[allow(clippy::too_many_arguments)] // what a device works on
    pub unsafe fn queue_guess(
        &self,
        pages: &DevicePages,
        side: (usize, usize),
        pool: &DevicePool,
        given: &Given,
        sizes: DeviceSlice,
        workspace: DeviceSlice,
        stream: Stream,
    ) -> Result<()> {
        let (of, count) = (self.group(pages, side.0)?, self.pages());
        self.check_pool(pool, side)?;
        let (rows, work) = self.split(workspace, side, count)?;
        let slots = part(given.slots, 0, 8 * count * self.coded().len())?;
        let nowhere = DeviceSlice::new(0, 0);
        let whole =
            of.choices[side.1].first().ok_or_else(|| invalid("rows without a basis have no guess"))?.whole;
        let request = self.request(pages, side, whole, Some(1.0), count, rows, nowhere, given)?;
        // SAFETY: the caller's; the parts of the workspace do not overlap, and calls of one stream follow each other.
        unsafe {
            pool.gather_halves(slots, rows, stream).map_err(Error::from)?;
            guess_page_sizes(&of.sides[side.1][whole].1, &request, sizes, work, stream)
                .map_err(Error::from)?;
        }
        Ok(())
    }

    /// Looks for the step of each page at which its blobs take no more than so many bytes, if it has some; from what was guessed of
    /// all sides ([`Save::guesses`]).
    pub fn ladder(
        &self,
        pages: &DevicePages,
        budgets: &[Option<usize>],
        guessed: &[&[u8]],
    ) -> Result<Ladder> {
        let sides = self.guesses(pages);
        if guessed.len() != sides.len() || guessed.iter().any(|bytes| bytes.len() != self.guess_len()) {
            return Err(invalid("a guess leaves some bytes for each page, of keys and values of each group"));
        }
        if budgets.len() != self.pages() {
            return Err(invalid("every page has a budget or none"));
        }
        let side = |((group, side), bytes): (&(usize, usize), &&[u8])| {
            let sizes = bytes.as_chunks().0.iter().map(|of| PageSizes::from_bytes(*of)).collect::<Vec<_>>();
            (pages.groups[*group].steps[*side], sizes)
        };
        let sides: Vec<(f64, Vec<PageSizes>)> = sides.iter().zip(guessed).map(side).collect();
        Ok(Ladder::new(budgets, |page| {
            let of_page = |(step, sizes): &(f64, Vec<PageSizes>)| (*step, sizes[page]);
            sides.iter().map(of_page).collect()
        }))
    }

    /// What is encoded at once, from what every look has seen: pages of a batch have the same basis.
    pub fn batches(&self, pages: &DevicePages, seen: &[&[u8]]) -> Result<Vec<Batch>> {
        let looks = self.looks(pages);
        if seen.len() != looks.len() {
            return Err(invalid(format!("{} looks were had, {} are needed", seen.len(), looks.len())));
        }
        let mut batches = Vec::new();
        for (group, of) in pages.groups.iter().enumerate().filter(|_| !self.coded().is_empty()) {
            for (side, choices) in of.choices.iter().enumerate() {
                let Some(at) = looks.iter().position(|look| *look == (group, side)) else {
                    let basis = choices.first().filter(|_| !self.lossless).map(|choice| choice.whole);
                    batches.extend(self.alike((group, side), of, basis, (0..self.pages()).collect())?);
                    continue;
                };
                if seen[at].len() != self.look_len(pages, (group, side))? {
                    return Err(invalid("a look leaves some bytes for each basis and page"));
                }
                let found = seen[at].as_chunks().0;
                let mut of_basis: Vec<Vec<usize>> = vec![Vec::new(); of.sides[side].len()];
                for page in 0..self.pages() {
                    let look = |number: usize| PageSeen::from_bytes(found[number * self.pages() + page]);
                    // The first of the cheapest; what is no number is never cheaper.
                    let best = (1..choices.len()).fold(0, |best, number| {
                        if look(number).cost < look(best).cost { number } else { best }
                    });
                    let part = choices[best].part.as_ref().filter(|_| look(best).inside);
                    of_basis[part.map_or(choices[best].whole, |part| part.0)].push(page);
                }
                let some = of_basis.into_iter().enumerate().filter(|(_, pages)| !pages.is_empty());
                for (basis, pages) in some {
                    batches.extend(self.alike((group, side), of, Some(basis), pages)?);
                }
            }
        }
        Ok(batches)
    }

    /// Batches of pages that have the same basis: one, one for each step where the device takes no more, or one for each page.
    fn alike(
        &self,
        (group, side): (usize, usize),
        of: &DeviceGroup,
        basis: Option<usize>,
        pages: Vec<usize>,
    ) -> Result<Vec<Batch>> {
        let page_bytes = self.coded().len() * self.width((group, side))? * self.dtype.size();
        if basis.is_none() && !page_bytes.is_multiple_of(ROWS) {
            let alone = |page| Batch { group, side, basis, step: Some(self.steps[page]), pages: vec![page] };
            return Ok(pages.into_iter().map(alone).collect());
        }
        let ready = basis.and_then(|number| of.sides[side].get(number)).is_some_and(|b| self.is_ready(&b.1));
        if ready || !self.has_steps() {
            return Ok(vec![Batch { group, side, basis, step: self.step(), pages }]);
        }
        let mut by_step: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for page in pages {
            // Bits of positive numbers are in their order.
            by_step.entry(self.steps[page].to_bits()).or_default().push(page);
        }
        let batch = |(step, pages)| Batch { group, side, basis, step: Some(f64::from_bits(step)), pages };
        Ok(by_step.into_iter().map(batch).collect())
    }

    /// Bytes of room for each blob of a batch.
    fn room(&self, pages: &DevicePages, batch: &Batch) -> Result<usize> {
        let tokens = self.coded().len();
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
        let step = batch.step.ok_or_else(|| invalid("rows without a basis have one step"))?;
        let goal = if self.lossless { Goal::Lossless } else { Goal::Step(step * of.steps[batch.side]) };
        let options = EncodeOptions::new(goal).with_effort(pages.effort);
        let shape = [self.coded().len(), self.width((batch.group, batch.side))?];
        let count = batch.pages.len();
        let rows = part(rows, 0, self.dtype.size() * count * shape[0] * shape[1])?;
        Ok(EncodeBatch::new(count, rows, self.dtype, &shape, blobs, options))
    }

    /// Bytes of workspace that a batch needs, at a multiple of 256.
    pub fn workspace_len(&self, pages: &DevicePages, batch: &Batch) -> Result<usize> {
        let (side, count) = ((batch.group, batch.side), batch.pages.len());
        let rows = self.rows_len(side, count)?;
        let blobs = anywhere(self.blobs_len(pages, batch)?);
        let work = match batch.basis {
            Some(number) => {
                let given = anything(count);
                let request =
                    self.request(pages, side, number, batch.step, count, anywhere(rows), blobs, &given)?;
                let basis = &pages.groups[batch.group].sides[batch.side][number].1;
                encode_pages_workspace_len(basis, &request)
            }
            None => {
                encode_batch_workspace_len(&pages.device, &self.bare(pages, batch, anywhere(rows), blobs)?)
            }
        };
        Ok(rows.next_multiple_of(ALIGN) + work.map_err(Error::from)?.next_multiple_of(ALIGN))
    }

    pub(super) fn check_pool(&self, pool: &DevicePool, (group, side): (usize, usize)) -> Result<()> {
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

    /// Queues the encoding of a batch from its pool. What is given is of the batch's pages alone; `status` has 16 bytes a page.
    ///
    /// # Safety
    /// As for [`Save::queue_look`].
    #[allow(clippy::too_many_arguments)] // what a device works on
    pub unsafe fn queue(
        &self,
        pages: &DevicePages,
        batch: &Batch,
        pool: &DevicePool,
        given: &Given,
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
        let slots = part(given.slots, 0, 8 * count * self.coded().len())?;
        let said = part(status, 0, 16 * count)?;
        // SAFETY: the caller's; the parts of the workspace do not overlap, and calls of one stream follow each other.
        unsafe {
            match batch.basis {
                Some(number) => {
                    pool.gather_halves(slots, rows, stream).map_err(Error::from)?;
                    let request = self.request(pages, side, number, batch.step, count, rows, blobs, given)?;
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
}

/// Memory of which only the length matters.
fn anywhere(len: usize) -> DeviceSlice {
    DeviceSlice::new(ALIGN as u64, len)
}

/// What a device might be given of so many pages, likewise.
fn anything(count: usize) -> Given {
    Given { slots: anywhere(0), positions: anywhere(8 * count), steps: anywhere(8 * count) }
}

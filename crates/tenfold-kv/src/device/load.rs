//! What the host does before a device decodes pages: it reads headers, and puts blobs and slots where the device finds them.

use std::collections::BTreeMap;
use std::ops::Range;

use rayon::prelude::*;
use tenfold::engine::{ErrorKind, Limits};
use tenfold::format::{BlobInfo, BlobShape};
use tenfold::prepare::{Positions, Transform};
use tenfold::{Dtype, Error};
use tenfold_cuda::can_decode;

use super::bases::{DeviceGroup, DevicePages};
use super::queue::{ALIGN, BLOB};
use crate::error::{Result, invalid};
use crate::page::frame::{self, EXACT_KEYS, EXACT_VALUES, Frame, KEYS, VALUES};

/// Where the blobs of keys and of values are in a group: those of exact tokens, and the others.
const PLACES: [[usize; 2]; 2] = [[EXACT_KEYS, KEYS], [EXACT_VALUES, VALUES]];

/// Pages that are about to be decoded on a device.
#[derive(Debug)]
pub struct Load {
    /// Bytes of each page.
    lengths: Vec<usize>,
    /// Tokens of the pages before each, and of all.
    first: Vec<usize>,
    dtype: Option<Dtype>,
    pub(super) groups: Vec<Vec<Call>>,
    /// Where each group is staged.
    places: Vec<Range<usize>>,
    len: usize,
}

/// What a pool on a device has.
const DTYPES: [Dtype; 4] = [Dtype::Bf16, Dtype::F16, Dtype::F8E4M3, Dtype::F8E5M2];

/// Blobs of one side of a group that are decoded in one call.
#[derive(Debug)]
pub(super) struct Call {
    /// 0 for keys, 1 for values.
    pub side: usize,
    /// The basis that they are behind, by its number; `None` for exact tokens, and what is coded without a basis.
    pub basis: Option<usize>,
    /// Rows of each, columns, and what they are.
    pub rows: usize,
    pub columns: usize,
    pub dtype: Dtype,
    pub blobs: Vec<Placed>,
    /// Where the slots of all rows are staged.
    pub slots: Range<usize>,
}

/// A blob, and where it is staged.
#[derive(Debug)]
pub(super) struct Placed {
    pub page: usize,
    from: Range<usize>,
    pub staged: Range<usize>,
    /// Its tokens in the page: a run, and for exact ones another at the end.
    tokens: [Range<usize>; 2],
}

impl DevicePages {
    /// Reads the headers of pages. A page that the device does not decode is an error that says why; decode it on the CPU then.
    pub fn plan(&self, pages: &[&[u8]]) -> Result<Load> {
        let frames = pages.par_iter().map(|page| self.parse(page)).collect::<Result<Vec<Frame>>>()?;
        let mut first = vec![0];
        for frame in &frames {
            first.push(first[first.len() - 1] + frame.tokens);
        }
        let lengths = pages.iter().map(|page| page.len()).collect();
        let mut load = Load { lengths, first, dtype: None, groups: Vec::new(), places: Vec::new(), len: 0 };
        let calls = |number: usize| -> Result<Vec<Call>> {
            let side = |side: usize| gather_calls(pages, &frames, (number, &self.groups[number]), side);
            let (keys, values) = rayon::join(|| side(0), || side(1));
            Ok(keys?.into_iter().chain(values?).collect())
        };
        let groups = (0..self.groups.len()).into_par_iter().map(calls).collect::<Result<Vec<_>>>()?;
        load.dtype = groups.iter().flatten().next().map(|call| call.dtype);
        for mut calls in groups {
            if calls.iter().any(|call| Some(call.dtype) != load.dtype) {
                return Err(unsupported("keys and values of several dtypes are not decoded together"));
            }
            let start = load.len;
            calls.iter_mut().for_each(|call| load.place(call));
            load.places.push(start..load.len);
            load.groups.push(calls);
        }
        Ok(load)
    }

    fn parse(&self, page: &[u8]) -> Result<Frame> {
        let frame = frame::parse(page)?;
        let (need, have) = (frame.end(), page.len());
        if have < need {
            return Err(Error::Truncated { need: need as u64, have: have as u64 }.into());
        }
        if have > need {
            return Err(Error::Corrupt("bytes after the last blob of a page").into());
        }
        if !frame.groups.iter().map(|group| group.0).eq(self.groups.iter().map(|group| group.layers)) {
            return Err(invalid("the page has other groups of layers than this codec's pages"));
        }
        Ok(frame)
    }
}

/// Calls for keys or values of a group: one for each basis and number of rows.
fn gather_calls(
    pages: &[&[u8]],
    frames: &[Frame],
    (number, group): (usize, &DeviceGroup),
    side: usize,
) -> Result<Vec<Call>> {
    let mut calls: BTreeMap<(Option<usize>, usize), Call> = BTreeMap::new();
    for (page, frame) in frames.iter().enumerate() {
        let (tokens, (start, end)) = (frame.tokens, frame.exact);
        let kinds =
            [(start + end, [0..start, tokens - end..tokens]), (frame.lossy(), [start..tokens - end, 0..0])];
        for (kind, (rows, tokens)) in kinds.into_iter().enumerate().filter(|(_, (rows, _))| *rows > 0) {
            let from = frame.groups[number].1[PLACES[side][kind]].clone();
            let blob = &pages[page][from.clone()];
            let info = BlobShape::read(blob, &Limits::default())?;
            let &[found, columns] = info.shape.as_slice() else {
                return Err(Error::Corrupt("a blob does not fit its page").into());
            };
            // All blobs of a side are of the width that its bases have: a blob of any other would ask for memory that nobody has.
            let width = group.sides[side].first().map_or(columns, |(_, basis)| basis.columns());
            if found != rows || columns != width {
                return Err(Error::Corrupt("a blob does not fit its page").into());
            }
            if !DTYPES.contains(&info.dtype) {
                return Err(unsupported(format!(
                    "pages of {} are not decoded on a device, only bf16, f16, f8_e4m3 and f8_e5m2",
                    info.dtype
                )));
            }
            let basis = find_basis(blob, &info, group, side)?;
            let dtype = info.dtype;
            let call = calls.entry((basis, rows)).or_insert_with(|| Call {
                side,
                basis,
                rows,
                columns,
                dtype,
                blobs: Vec::new(),
                slots: 0..0,
            });
            if call.columns != columns {
                return Err(invalid("pages of one call must have the same columns"));
            }
            if call.dtype != dtype {
                return Err(unsupported("pages of several dtypes are not decoded together"));
            }
            call.blobs.push(Placed { page, from, staged: 0..0, tokens });
        }
    }
    Ok(calls.into_values().collect())
}

/// The number of a blob's basis among those of its group, if it has one.
fn find_basis(blob: &[u8], info: &BlobShape, group: &DeviceGroup, side: usize) -> Result<Option<usize>> {
    let rotation = match info.transforms.as_slice() {
        [Transform::Basis(rotation)] => rotation,
        [Transform::Rope(rope), Transform::Basis(rotation)] => {
            if let Positions::List(_) = rope.positions() {
                return Err(unsupported(
                    "positions that are not one after the other are not turned on a device",
                ));
            }
            rotation
        }
        _ => {
            let info = BlobInfo::read_native(blob, &Limits::default())?;
            return can_decode(&info).map(|()| None).map_err(|e| unsupported(e.to_string()));
        }
    };
    let known = group.sides[side].iter().position(|(name, _)| *name == rotation.fingerprint());
    let missing = || Error::MissingBasis { fingerprint: rotation.fingerprint().to_string() };
    Ok(Some(known.ok_or_else(missing)?))
}

pub(super) fn unsupported(reason: impl Into<String>) -> crate::Error {
    let reason = format!("{}; decode it on the CPU", reason.into());
    Error::Engine { kind: ErrorKind::Unsupported, reason }.into()
}

impl Load {
    /// Finds places for what a call needs.
    fn place(&mut self, call: &mut Call) {
        let mut take = |len: usize, align: usize| {
            let at = self.len;
            self.len = (at + len).next_multiple_of(align);
            at..at + len
        };
        call.blobs.iter_mut().for_each(|blob| blob.staged = take(blob.from.len(), BLOB));
        call.slots = take(call.rows * call.blobs.len() * size_of::<i64>(), ALIGN);
    }

    /// Where some groups are among all that is staged; each group is on the device at a multiple of 256.
    pub fn staged(&self, groups: Range<usize>) -> Result<Range<usize>> {
        let missing = || invalid(format!("there are {} groups, not {}", self.places.len(), groups.end));
        let some = self.places.get(groups.clone()).ok_or_else(missing)?;
        Ok(some.first().map_or(0, |first| first.start)..some.last().map_or(0, |last| last.end))
    }

    /// Bytes that all groups take.
    pub fn staged_len(&self) -> usize {
        self.len
    }

    /// What pools must have; `None` if there are no pages.
    pub fn dtype(&self) -> Option<Dtype> {
        self.dtype
    }

    /// Tokens of all pages.
    pub fn tokens(&self) -> usize {
        self.first.last().copied().unwrap_or(0)
    }

    /// Pages.
    pub fn pages(&self) -> usize {
        self.lengths.len()
    }

    /// Puts some groups' blobs of the pages that it was planned for, and slots, into memory of the host, best pinned. `slots` has one for
    /// each token, page after page; a token whose number is no slot of the pool, such as −1, goes nowhere.
    pub fn stage(&self, groups: Range<usize>, pages: &[&[u8]], slots: &[i64], to: &mut [u8]) -> Result<()> {
        if !pages.iter().map(|page| page.len()).eq(self.lengths.iter().copied()) {
            return Err(invalid("these are not the pages that were planned for"));
        }
        let place = self.staged(groups.clone())?;
        if slots.len() != self.tokens() || to.len() != place.len() {
            return Err(invalid(format!(
                "{} tokens need as many slots and {} bytes of memory; {} slots and {} bytes were given",
                self.tokens(),
                place.len(),
                slots.len(),
                to.len()
            )));
        }
        // A part of the memory for each call, which follow one another.
        let mut parts = Vec::new();
        let mut rest = to;
        for call in self.groups[groups].iter().flatten() {
            let (part, behind) = rest.split_at_mut(call.end() - call.start());
            parts.push((call, part));
            rest = behind;
        }
        parts.into_par_iter().for_each(|(call, part)| self.stage_call(call, pages, slots, part));
        Ok(())
    }

    fn stage_call(&self, call: &Call, pages: &[&[u8]], slots: &[i64], to: &mut [u8]) {
        let start = call.start();
        for blob in &call.blobs {
            let place = blob.staged.start - start..blob.staged.end - start;
            to[place].copy_from_slice(&pages[blob.page][blob.from.clone()]);
        }
        let first = |blob: &Placed| self.first[blob.page];
        let tokens = call.blobs.iter().flat_map(|blob| {
            blob.tokens.iter().flat_map(move |run| run.clone()).map(move |token| first(blob) + token)
        });
        let room = to[call.slots.start - start..call.slots.end - start].as_chunks_mut::<8>().0;
        room.iter_mut().zip(tokens).for_each(|(to, token)| *to = slots[token].to_le_bytes());
    }
}

impl Call {
    /// Where it is staged: its blobs, then slots.
    fn start(&self) -> usize {
        self.blobs.first().map_or(self.slots.start, |blob| blob.staged.start)
    }

    fn end(&self) -> usize {
        self.slots.end.next_multiple_of(ALIGN)
    }
}

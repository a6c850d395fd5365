//! Decoding of staged pages, some groups at a time.

use std::ops::Range;

use tenfold_cuda::{
    DecodeSettings, DeviceBasis, DevicePool, DeviceSlice, PageBlobs, PageSlots, Status, Stream,
    decode_to_pools, decode_to_pools_workspace_len,
};

use super::bases::DevicePages;
use super::load::{Call, Load, Placed, unsupported};
use crate::error::{Result, invalid};

/// What parts of a workspace start at a multiple of.
pub(super) const ALIGN: usize = 256;
/// What blobs start at a multiple of.
pub(super) const BLOB: usize = 16;
/// Blobs that keep a device busy.
const WAVE: usize = 4096;

/// Where keys and values of a group's layers go: pools of these layers, in their order.
#[derive(Debug, Clone, Copy)]
pub struct Blocks<'p> {
    /// Of keys.
    pub keys: &'p DevicePool,
    /// Of values.
    pub values: &'p DevicePool,
}

impl<'p> Blocks<'p> {
    /// Keys (0) or values (1), if a token takes as many columns there.
    pub(super) fn side(&self, side: usize, columns: usize) -> Result<&'p DevicePool> {
        let pool = [self.keys, self.values][side];
        match pool.columns() {
            Some(found) if found == columns => Ok(pool),
            _ => Err(invalid(format!(
                "a token takes {columns} columns in the group's layers, the pool has {} bytes of {}",
                pool.row(),
                pool.dtype()
            ))),
        }
    }
}

/// Some bytes of a piece of memory.
pub(super) fn part(whole: DeviceSlice, at: usize, len: usize) -> Result<DeviceSlice> {
    match at.checked_add(len).is_some_and(|end| end <= whole.len) {
        true => Ok(DeviceSlice::new(whole.address + at as u64, len)),
        false => Err(invalid(format!(
            "{} bytes of the device were given, {} are needed",
            whole.len,
            at.saturating_add(len)
        ))),
    }
}

impl Call {
    /// Its basis, if it has one, of the pages that it was planned for.
    fn basis<'p>(&self, pages: &'p DevicePages, group: usize) -> Result<Option<&'p DeviceBasis>> {
        let Some(number) = self.basis else { return Ok(None) };
        let found = pages.groups.get(group).and_then(|group| group.sides[self.side].get(number));
        let missing = || invalid("these pages were planned for another codec");
        found.map(|(_, basis)| Some(basis)).ok_or_else(missing)
    }

    /// Its blobs, staged at an address.
    fn blobs<'p>(&self, pages: &'p DevicePages, group: usize, staged: u64) -> Result<PageBlobs<'p>> {
        let blob = |blob: &Placed| {
            DeviceSlice::new(staged.wrapping_add(blob.staged.start as u64), blob.staged.len())
        };
        Ok(PageBlobs {
            basis: self.basis(pages, group)?,
            dtype: self.dtype,
            blobs: self.blobs.iter().map(blob).collect(),
            rows: self.rows,
            columns: self.columns,
        })
    }
}

/// Some groups of pages that are decoded together with others'.
#[derive(Debug, Clone)]
pub struct Part<'p> {
    /// Of the codec that the pages were planned for.
    pub pages: &'p DevicePages,
    /// The plan.
    pub load: &'p Load,
    /// Groups.
    pub groups: Range<usize>,
    /// What [`Load::stage`] made of these groups, on the device.
    pub staged: DeviceSlice,
    /// Where the layers of each group go.
    pub blocks: Vec<Blocks<'p>>,
}

/// Bytes of workspace that groups of some loads need together, at a multiple of 256.
pub fn workspace_len(parts: &[(&DevicePages, &Load, Range<usize>)]) -> Result<usize> {
    let mut blobs = Vec::new();
    for (pages, load, groups) in parts {
        for (group, call) in load.calls(groups.clone())? {
            blobs.push(call.blobs(pages, group, ALIGN as u64)?);
        }
    }
    Ok(decode_to_pools_workspace_len(&blobs).map_err(tenfold::Error::from)?)
}

/// Queues the decoding of groups into blocks. `status` has 16 bytes for each blob, part after part, which [`Load::check`] reads. Where a
/// status refuses a blob, what its tokens' slots hold means nothing: do not attend to them.
///
/// # Safety
/// All memory is memory of the pages' device, is as long as it says, does not overlap, and is neither freed nor used otherwise until the
/// stream has passed this call.
pub unsafe fn queue(
    parts: &[Part<'_>],
    settings: &DecodeSettings,
    status: DeviceSlice,
    workspace: DeviceSlice,
    stream: Stream,
) -> Result<()> {
    let Some(first) = parts.first() else { return Ok(()) };
    let (mut blobs, mut to, mut statuses) = (Vec::new(), Vec::new(), 0);
    for one in parts {
        let place = one.load.staged(one.groups.clone())?;
        if one.staged.len != place.len() || one.blocks.len() != one.groups.len() {
            return Err(invalid(format!(
                "{} groups of {} staged bytes are decoded; {} pools and {} bytes were given",
                one.groups.len(),
                place.len(),
                one.blocks.len(),
                one.staged.len
            )));
        }
        // As if all groups were staged there.
        let start = one.staged.address.wrapping_sub(place.start as u64);
        for (group, call) in one.load.calls(one.groups.clone())? {
            blobs.push(call.blobs(one.pages, group, start)?);
            let pool = one.blocks[group - one.groups.start].side(call.side, call.columns)?;
            if pool.dtype() != call.dtype {
                return Err(unsupported(format!(
                    "a device decodes pages of {0} into pools of {0}, not of {1}",
                    call.dtype,
                    pool.dtype()
                )));
            }
            let slots = DeviceSlice::new(start.wrapping_add(call.slots.start as u64), call.slots.len());
            to.push(PageSlots { pool, slots });
            statuses += call.blobs.len();
        }
    }
    let status = part(status, 0, 16 * statuses)?;
    // SAFETY: the caller's.
    let queued =
        unsafe { decode_to_pools(&first.pages.device, &blobs, &to, settings, status, workspace, stream) };
    Ok(queued.map_err(tenfold::Error::from)?)
}

impl Load {
    /// Calls of some groups, with the number of their group.
    fn calls(&self, groups: Range<usize>) -> Result<impl Iterator<Item = (usize, &Call)>> {
        let missing = || invalid(format!("there are {} groups, not {}", self.groups.len(), groups.end));
        let some = self.groups.get(groups.clone()).ok_or_else(missing)?;
        Ok(some
            .iter()
            .zip(groups.start..)
            .flat_map(|(calls, group)| calls.iter().map(move |call| (group, call))))
    }

    /// Groups that are decoded together, in order: one alone may leave most of a device idle.
    pub fn waves(&self) -> Vec<Range<usize>> {
        let mut waves: Vec<Range<usize>> = Vec::new();
        let mut blobs = 0;
        for (group, calls) in self.groups.iter().enumerate() {
            match waves.last_mut().filter(|_| blobs < WAVE) {
                Some(wave) => wave.end = group + 1,
                None => {
                    waves.push(group..group + 1);
                    blobs = 0;
                }
            }
            blobs += calls.iter().map(|call| call.blobs.len()).sum::<usize>();
        }
        waves
    }

    /// Bytes of workspace that any wave needs, at a multiple of 256.
    pub fn workspace_len(&self, pages: &DevicePages) -> Result<usize> {
        let mut most = 0;
        for wave in self.waves() {
            most = most.max(workspace_len(&[(pages, self, wave)])?);
        }
        Ok(most)
    }

    /// Blobs of some groups: each gets a status.
    pub fn statuses(&self, groups: Range<usize>) -> Result<usize> {
        Ok(self.calls(groups)?.map(|(_, call)| call.blobs.len()).sum())
    }

    /// What a device said of each page's blobs of some groups: an error where one was refused.
    pub fn check(&self, groups: Range<usize>, statuses: &[u8]) -> Result<Vec<Result<()>>> {
        let need = 16 * self.statuses(groups.clone())?;
        if statuses.len() != need {
            return Err(invalid(format!("{need} bytes of statuses are read, {} given", statuses.len())));
        }
        let mut verdicts: Vec<Result<()>> = (0..self.pages()).map(|_| Ok(())).collect();
        let blobs = self.calls(groups)?.flat_map(|(_, call)| &call.blobs);
        for (blob, said) in blobs.zip(statuses.as_chunks::<16>().0) {
            let Placed { page, .. } = blob;
            if let (Err(error), Ok(())) = (Status::from_bytes(*said).check(), &verdicts[*page]) {
                verdicts[*page] = Err(error.into());
            }
        }
        Ok(verdicts)
    }
}

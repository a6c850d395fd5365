//! Decoding of staged pages, group by group.

use tenfold::Dtype;
use tenfold_cuda::{
    DecodeRequest, DecodeSettings, DeviceBasis, DevicePool, DeviceSlice, Status, Stream, decode,
    decode_pages, decode_pages_workspace_len, decode_workspace_len,
};

use super::bases::DevicePages;
use super::load::{Call, Load, Placed};
use crate::error::{Result, invalid};

/// What parts of a workspace start at a multiple of.
pub(super) const ALIGN: usize = 256;
/// What blobs start at a multiple of.
pub(super) const BLOB: usize = 16;

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
        match (pool.row(), 2 * columns) {
            (found, expected) if found != expected => Err(invalid(format!(
                "a token takes {expected} bytes in the group's layers, the pool has {found}"
            ))),
            _ => Ok(pool),
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
    /// Bytes of its rows.
    fn bytes(&self) -> usize {
        2 * self.rows * self.columns * self.blobs.len()
    }

    /// Its basis, by its number, of the pages that it was planned for.
    fn basis<'p>(&self, pages: &'p DevicePages, group: usize, number: usize) -> Result<&'p DeviceBasis> {
        let found = pages.groups.get(group).and_then(|group| group.sides[self.side].get(number));
        found.map(|(_, basis)| basis).ok_or_else(|| invalid("these pages were planned for another codec"))
    }

    /// Its blobs on the device.
    fn staged(&self, staged: DeviceSlice) -> Result<Vec<DeviceSlice>> {
        self.blobs.iter().map(|blob| part(staged, blob.staged.start, blob.staged.len())).collect()
    }

    /// Requests for exact tokens.
    fn requests(&self, blobs: &[DeviceSlice], rows: DeviceSlice) -> Result<Vec<DecodeRequest>> {
        let each = 2 * self.rows * self.columns;
        let request = |(i, &blob): (usize, &DeviceSlice)| {
            Ok(DecodeRequest::new(blob, part(rows, i * each, each)?, Dtype::Bf16))
        };
        blobs.iter().enumerate().map(request).collect()
    }

    /// Bytes of workspace: for rows, and for what decodes them.
    fn workspace_len(&self, pages: &DevicePages, group: usize) -> Result<usize> {
        let rows = self.bytes().next_multiple_of(ALIGN);
        let anywhere = |len: usize| DeviceSlice::new(ALIGN as u64, len);
        let blobs: Vec<DeviceSlice> = self.blobs.iter().map(|blob| anywhere(blob.staged.len())).collect();
        let work = match self.basis {
            Some(basis) => {
                let basis = self.basis(pages, group, basis)?;
                decode_pages_workspace_len(basis, &blobs, self.rows).map_err(tenfold::Error::from)?
            }
            None => decode_workspace_len(&self.requests(&blobs, anywhere(self.bytes()))?),
        };
        Ok(rows + work)
    }
}

impl Load {
    fn calls(&self, group: usize) -> Result<&[Call]> {
        let missing = || invalid(format!("group {group} does not exist: there are {}", self.groups.len()));
        self.groups.get(group).map(Vec::as_slice).ok_or_else(missing)
    }

    /// Bytes of workspace that any group needs, at a multiple of 256.
    pub fn workspace_len(&self, pages: &DevicePages) -> Result<usize> {
        let mut most = 0;
        for (group, calls) in self.groups.iter().enumerate() {
            for call in calls {
                most = most.max(call.workspace_len(pages, group)?);
            }
        }
        Ok(most)
    }

    /// Blobs of a group: each gets a status.
    pub fn statuses(&self, group: usize) -> Result<usize> {
        Ok(self.calls(group)?.iter().map(|call| call.blobs.len()).sum())
    }

    /// Queues the decoding of one group of all pages into blocks. `staged` is what [`Load::stage`] made, on the device; `status` has 16
    /// bytes for each blob of the group, which [`Load::check`] reads. Where a status refuses a blob, what its tokens' slots hold means
    /// nothing: do not attend to them.
    ///
    /// # Safety
    /// All memory is memory of the pages' device, is as long as it says, does not overlap, and is neither freed nor used otherwise until the
    /// stream has passed this call.
    #[allow(clippy::too_many_arguments)] // what a device works on
    pub unsafe fn queue(
        &self,
        pages: &DevicePages,
        group: usize,
        staged: DeviceSlice,
        blocks: Blocks<'_>,
        settings: &DecodeSettings,
        status: DeviceSlice,
        workspace: DeviceSlice,
        stream: Stream,
    ) -> Result<()> {
        let calls = self.calls(group)?;
        let mut said = 0;
        for call in calls {
            let pool = blocks.side(call.side, call.columns)?;
            let rows = part(workspace, 0, call.bytes())?;
            let at = call.bytes().next_multiple_of(ALIGN);
            let work = part(workspace, at, workspace.len.saturating_sub(at))?;
            let blobs = call.staged(staged)?;
            let statuses = part(status, said, 16 * blobs.len())?;
            said += 16 * blobs.len();
            let slots = part(staged, call.slots.start, call.slots.len())?;
            // SAFETY: the caller's; the parts of the workspace do not overlap, and calls of one stream follow each other.
            let queued = unsafe {
                let decoded = match call.basis {
                    Some(basis) => {
                        let basis = call.basis(pages, group, basis)?;
                        decode_pages(basis, &blobs, call.rows, rows, settings, statuses, work, stream)
                    }
                    None => {
                        let requests = call.requests(&blobs, rows)?;
                        decode(&pages.device, &requests, settings, statuses, work, stream)
                    }
                };
                decoded.and_then(|()| pool.scatter(rows, slots, stream))
            };
            queued.map_err(tenfold::Error::from)?;
        }
        Ok(())
    }

    /// What a device said of each page's blobs of a group: an error where one was refused.
    pub fn check(&self, group: usize, statuses: &[u8]) -> Result<Vec<Result<()>>> {
        let need = 16 * self.statuses(group)?;
        if statuses.len() != need {
            return Err(invalid(format!("{need} bytes of statuses are read, {} given", statuses.len())));
        }
        let mut verdicts: Vec<Result<()>> = (0..self.pages()).map(|_| Ok(())).collect();
        let blobs = self.calls(group)?.iter().flat_map(|call| &call.blobs);
        for (blob, said) in blobs.zip(statuses.as_chunks::<16>().0) {
            let Placed { page, .. } = blob;
            if let (Err(error), Ok(())) = (Status::from_bytes(*said).check(), &verdicts[*page]) {
                verdicts[*page] = Err(error.into());
            }
        }
        Ok(verdicts)
    }
}

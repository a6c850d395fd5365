//! Pages behind a basis, encoded and decoded on the device, batch after batch.

use anyhow::{Result, ensure};
use tenfold::EncodeOptions;
use tenfold::prepare::{Basis, Rope};
use tenfold_cuda::{
    Buffer, DecodeSettings, DeviceBasis, DeviceSlice, EncodePages, Status, Stream, decode_pages,
    decode_pages_workspace_len, encode_pages, encode_pages_workspace_len,
};

use super::{Rig, Times, repeat};

/// Pages on the device, room for their blobs, and for what these decode to.
pub(in crate::bench::cuda) struct Paging<'a> {
    rig: &'a Rig,
    basis: DeviceBasis,
    pages: EncodePages,
    rows: usize,
    /// Pages, blobs, decoded pages, statuses.
    held: [Buffer; 4],
    /// Where pages start, if they have rotary positions.
    positions: Option<Buffer>,
}

impl<'a> Paging<'a> {
    /// `once`, some pages of `rows` rows, `times` times over.
    pub fn new(
        rig: &'a Rig,
        basis: &Basis,
        once: &[u8],
        times: usize,
        rows: usize,
        options: EncodeOptions,
    ) -> Result<Paging<'a>> {
        let device = &rig.device;
        let count = once.len() / (rows * basis.cols() * 2) * times;
        let bytes = once.len() * times;
        let held = [
            repeat(device, once, times)?,
            Buffer::new(device, bytes / 2)?,
            Buffer::new(device, bytes)?,
            Buffer::new(device, count * size_of::<Status>())?,
        ];
        let pages = EncodePages::new(count, rows, held[0].slice(), held[1].slice(), options);
        Ok(Paging { rig, basis: DeviceBasis::new(device, basis)?, pages, rows, held, positions: None })
    }

    /// The same with one plan for all pages, or one a page.
    pub fn with_together(mut self, together: bool) -> Self {
        self.pages = self.pages.with_together(together);
        self
    }

    /// The same for keys, whose pages start at these positions, again and again.
    pub fn with_rope(mut self, rope: &Rope, starts: &[u64]) -> Result<Self> {
        let starts = starts.iter().cycle().take(self.pages.count);
        let bytes: Vec<u8> = starts.flat_map(|s| s.to_le_bytes()).collect();
        let positions = Buffer::from_slice(&self.rig.device, &bytes)?;
        self.basis = self.basis.with_rope(rope)?;
        self.pages = self.pages.with_positions(positions.slice());
        self.positions = Some(positions);
        Ok(self)
    }

    /// Encodes all pages, call after call; the blobs' sizes.
    pub fn encode(&self) -> Result<(Times, Vec<usize>)> {
        let len = encode_pages_workspace_len(&self.basis, &self.pages)?;
        let workspace = Buffer::new(&self.rig.device, len)?;
        let status = self.held[3].slice();
        let times = self.rig.time(|_, stream| {
            // SAFETY: all of it is ours, used by one stream alone, and lives until `time` has waited.
            unsafe { encode_pages(&self.basis, &self.pages, status, workspace.slice(), stream)? };
            Ok(())
        })?;
        Ok((times, self.read_statuses()?.iter().map(|s| s.size as usize).collect()))
    }

    /// Decodes all blobs, call after call.
    pub fn decode(&self, sizes: &[usize]) -> Result<Times> {
        let (slot, base) = (self.pages.slot(), self.held[1].slice().address);
        let place = |(i, &len): (usize, &usize)| DeviceSlice::new(base + (i * slot) as u64, len);
        let blobs: Vec<DeviceSlice> = sizes.iter().enumerate().map(place).collect();
        let len = decode_pages_workspace_len(&self.basis, &blobs, self.rows)?;
        let workspace = Buffer::new(&self.rig.device, len)?;
        let (out, status, settings) = (self.held[2].slice(), self.held[3].slice(), DecodeSettings::default());
        let times = self.rig.time(|_, stream| {
            let workspace = workspace.slice();
            // SAFETY: as above.
            unsafe {
                decode_pages(&self.basis, &blobs, self.rows, out, &settings, status, workspace, stream)?
            };
            Ok(())
        })?;
        self.read_statuses()?;
        Ok(times)
    }

    /// What was said of each page, all of them good.
    fn read_statuses(&self) -> Result<Vec<Status>> {
        let mut bytes = vec![0; self.held[3].slice().len];
        self.held[3].read(&mut bytes, Stream::DEFAULT)?;
        let mut said = Vec::new();
        for chunk in bytes.chunks_exact(size_of::<Status>()) {
            let status = Status::from_bytes(chunk.try_into()?);
            status.check()?;
            said.push(status);
        }
        Ok(said)
    }

    /// The first blob, and as much of the decoded pages as `once` has.
    pub fn first(&self, size: usize, bytes: usize) -> Result<(Vec<u8>, Vec<u8>)> {
        ensure!(size <= self.pages.slot(), "a blob that is larger than its slot");
        let (mut blob, mut rows) = (vec![0; size], vec![0; bytes]);
        self.held[1].read(&mut blob, Stream::DEFAULT)?;
        self.held[2].read(&mut rows, Stream::DEFAULT)?;
        Ok((blob, rows))
    }
}

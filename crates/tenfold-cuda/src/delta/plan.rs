//! A delta's header, as the kernels need it.

use tenfold::Dtype;
use tenfold::delta::{Applied, DeltaLayout, Fingerprint};
use tenfold::engine::Limits;

use crate::abi::{CType, DELTA_ALIGN, DELTA_CHUNK, DELTA_CLASSES, DELTA_TABLE, DeltaTile};
use crate::device::{Device, DeviceSlice};
use crate::driver::Stream;
use crate::error::Result;
use crate::status::{Code, OTHER_VALUES, Status};

/// A delta whose header and heads of tiles were read and found to be in order. What tiles hold is checked on the device.
#[derive(Clone)]
pub struct DeltaPlan {
    dtype: Dtype,
    shape: Vec<usize>,
    values: usize,
    base: Fingerprint,
    changed: u64,
    blob_len: usize,
    lanes_log: u32,
    key: (u32, u8),
    tables: usize,
    tiles: Vec<DeltaTile>,
    slots: u64,
    setup: Vec<u8>,
}

impl DeltaPlan {
    /// Reads a delta in memory of the host.
    pub fn new(blob: &[u8], limits: &Limits) -> Result<DeltaPlan> {
        Ok(DeltaPlan::of(&DeltaLayout::read(blob, limits)?, blob.len(), true))
    }

    /// Reads a delta in memory of the device, of which it makes a copy on the host. Waits.
    ///
    /// # Safety
    /// The blob is memory of this device, and nothing writes it meanwhile.
    pub unsafe fn from_device(
        device: &Device,
        blob: DeviceSlice,
        limits: &Limits,
        stream: Stream,
    ) -> Result<DeltaPlan> {
        let mut bytes = vec![0; blob.len];
        // SAFETY: the caller's; `bytes` outlives the wait.
        unsafe { device.driver.copy_out(bytes.as_mut_ptr(), blob.address, bytes.len(), stream)? };
        device.driver.synchronize(stream)?;
        DeltaPlan::new(&bytes, limits)
    }

    /// With tables, or without them where the host decodes.
    pub(super) fn of(layout: &DeltaLayout<'_>, blob_len: usize, with_tables: bool) -> DeltaPlan {
        let (mut slots, mut changed) = (0, 0);
        let mut tiles = Vec::with_capacity(layout.tiles().len());
        for tile in layout.tiles() {
            tiles.push(DeltaTile {
                at: tile.bytes.start as u64,
                start: tile.start as u64,
                first: slots,
                before: tile.before,
                after: tile.after,
                // Tiles have at most 2^22 values and far fewer than 2^32 bytes.
                len: tile.bytes.len() as u32,
                crc: tile.crc,
                values: tile.values as u32,
                changes: tile.changes as u32,
                gap_table: tile.gap_table as u32,
                value_table: tile.value_table as u32,
                way: tile.way,
                gap_words: tile.words[0],
                value_words: tile.words[1],
                unused: 0,
            });
            changed += tile.changes as u64;
            slots += tile.changes.next_multiple_of(DELTA_ALIGN) as u64;
        }
        let mut setup = layout.class_of().to_vec();
        let mut tables = 0;
        for frequencies in layout.tables().filter(|_| with_tables) {
            write_table(frequencies, &mut setup);
            tables += 1;
        }
        setup.extend_from_slice(bytes_of(&tiles));
        DeltaPlan {
            dtype: layout.dtype(),
            shape: layout.shape().to_vec(),
            values: layout.values(),
            base: layout.base(),
            changed,
            blob_len,
            lanes_log: layout.lanes_log(),
            key: layout.key(),
            tables,
            tiles,
            slots,
            setup,
        }
    }

    /// Element type of the tensor.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Shape of the tensor.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Bytes of the tensor.
    pub fn tensor_len(&self) -> usize {
        self.values * self.dtype.size()
    }

    /// Fingerprint of the tensor that the delta belongs to.
    pub fn base(&self) -> Fingerprint {
        self.base
    }

    /// Values that change.
    pub fn changed(&self) -> u64 {
        self.changed
    }

    /// Bytes of the delta.
    pub fn blob_len(&self) -> usize {
        self.blob_len
    }

    /// What the device must have of this plan, at a multiple of 16 bytes.
    pub fn setup(&self) -> &[u8] {
        &self.setup
    }

    /// What a status says of an application of this delta.
    pub fn check(&self, said: Status) -> tenfold::engine::Result<Applied> {
        if said.code == Code::OtherBase as u32 {
            let (expected, found) = (self.base.to_string(), OTHER_VALUES.into());
            return Err(tenfold::Error::WrongBase { expected, found });
        }
        said.check()?;
        Ok(DeltaLayout::applied(self.changed, said.size))
    }

    /// Refuses a tensor that the delta cannot be for.
    pub(crate) fn check_tensor(&self, dtype: Dtype, shape: &[usize]) -> Result<()> {
        if (self.dtype, self.shape.as_slice()) == (dtype, shape) {
            return Ok(());
        }
        Err(tenfold::Error::InvalidArgument(format!(
            "the delta is for a tensor of {} {:?}, not of {dtype} {shape:?}",
            self.dtype, self.shape
        ))
        .into())
    }

    pub(super) fn tiles(&self) -> &[DeltaTile] {
        &self.tiles
    }

    /// Room for changes in the workspace: those of a tile start at a multiple of [`DELTA_ALIGN`].
    pub(super) fn slots(&self) -> u64 {
        self.slots
    }

    /// Blocks that write a tile: as many as the fullest needs, within reason.
    pub(super) fn writers(&self) -> u32 {
        let most = self.tiles.iter().map(|tile| tile.changes).max().unwrap_or(0);
        most.div_ceil(DELTA_CHUNK).clamp(1, 16)
    }

    pub(super) fn lanes_log(&self) -> u32 {
        self.lanes_log
    }

    pub(super) fn key(&self) -> (u32, u8) {
        self.key
    }

    pub(super) fn table_count(&self) -> usize {
        self.tables
    }

    /// Where the tiles are in the setup.
    pub(super) fn tiles_at(&self) -> usize {
        DELTA_CLASSES + self.tables * DELTA_TABLE
    }
}

impl std::fmt::Debug for DeltaPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (dtype, shape, changed) = (self.dtype, &self.shape, self.changed);
        f.debug_struct("DeltaPlan")
            .field("dtype", &dtype)
            .field("shape", shape)
            .field("changed", &changed)
            .finish_non_exhaustive()
    }
}

/// A table in the form that shared memory has room for: a byte a slot, a word a symbol.
fn write_table(frequencies: &[u16; 256], out: &mut Vec<u8>) {
    let end = out.len() + DELTA_TABLE;
    let mut spans = [0u32; 256];
    let mut start = 0;
    for ((symbol, &frequency), span) in (0..=255u8).zip(frequencies).zip(&mut spans) {
        out.resize(out.len() + usize::from(frequency), symbol);
        if frequency > 0 {
            *span = u32::from(frequency - 1) | start << 16;
        }
        start += u32::from(frequency);
    }
    spans.iter().for_each(|span| out.extend_from_slice(&span.to_le_bytes()));
    // Frequencies that were read add up.
    out.resize(end, 0);
}

/// Structures that kernels read, as bytes.
fn bytes_of<T: CType>(values: &[T]) -> &[u8] {
    // SAFETY: plain numbers without gaps between them, as the header for C checks.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

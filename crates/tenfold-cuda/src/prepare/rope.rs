//! Rotary positions on a device: what turns rows, and by how much.

use tenfold::prepare::{Pairing, Rope};

use crate::device::{Device, DeviceSlice};
use crate::driver::{Shape, Stream};
use crate::error::Result;
use crate::memory::Buffer;

/// Positions of rows that lie in runs: where run i starts, the number of starts, and the rows of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Runs {
    starts: u64,
    count: u64,
    run: u64,
}

impl Runs {
    /// Runs of so many rows, whose starts lie in memory.
    pub(crate) fn new(starts: DeviceSlice, run: u64) -> Runs {
        Runs { starts: starts.address, count: (starts.len / size_of::<u64>()) as u64, run }
    }
}

/// As the kernels have it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Turning {
    frequencies: u64,
    starts: u64,
    count: u64,
    run: u64,
    first: u64,
    head: u32,
    half: u32,
    neighbours: u32,
    back: u32,
}

#[repr(C)]
struct Args {
    from: u64,
    to: u64,
    rows: u64,
    columns: u32,
    unused: u32,
    turning: Turning,
}

/// What a model's rotary embedding does, on a device; whose positions is said when rows are turned.
pub(crate) struct DeviceRope {
    device: Device,
    frequencies: Buffer,
    head: u32,
    half: u32,
    neighbours: bool,
}

impl DeviceRope {
    pub(crate) fn new(device: &Device, rope: &Rope) -> Result<DeviceRope> {
        let frequencies: Vec<u8> = rope.frequencies().iter().flat_map(|f| f.to_le_bytes()).collect();
        Ok(DeviceRope {
            device: device.clone(),
            frequencies: Buffer::from_slice(device, &frequencies)?,
            head: rope.head() as u32,
            half: rope.turned() as u32 / 2,
            neighbours: rope.pairing() == Pairing::Neighbours,
        })
    }

    /// How rows are turned, back or as the model did; `first` is the number of the first of them.
    pub(crate) fn turning(&self, runs: Runs, first: u64, back: bool) -> Turning {
        Turning {
            frequencies: self.frequencies.slice().address,
            starts: runs.starts,
            count: runs.count,
            run: runs.run,
            first,
            head: self.head,
            half: self.half,
            neighbours: self.neighbours as u32,
            back: back as u32,
        }
    }

    /// Queues the turning of rows of bf16, which may stay where they are.
    ///
    /// # Safety
    /// All of it is memory of this device, and large enough.
    #[allow(clippy::too_many_arguments)] // rows, and how
    pub(crate) unsafe fn halves(
        &self,
        from: u64,
        to: u64,
        rows: usize,
        columns: usize,
        runs: Runs,
        back: bool,
        stream: Stream,
    ) -> Result<()> {
        let turning = self.turning(runs, 0, back);
        let args = Args { from, to, rows: rows as u64, columns: columns as u32, unused: 0, turning };
        let work = (args.rows * u64::from(self.half)).div_ceil(256).max(1);
        let grid = work.min(u64::from(self.device.properties().multiprocessors) * 16) as u32;
        // SAFETY: the caller's.
        unsafe { self.device.launch("basis_turn", Shape::new(grid, 256, 0), &args, stream) }
    }
}

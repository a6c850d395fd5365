//! Rotary positions on a device: what turns rows, and by how much.

use tenfold::prepare::{Pairing, Rope};

use crate::abi::{self, BasisArgs, Turning};
use crate::device::{Device, DeviceSlice};
use crate::driver::{Shape, Stream};
use crate::error::Result;
use crate::memory::Buffer;

/// Positions of rows that lie in runs: the position that each run starts at, a u64 each, and the rows of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Runs {
    pub(crate) starts: DeviceSlice,
    pub(crate) run: u64,
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
        Ok(DeviceRope {
            device: device.clone(),
            frequencies: Buffer::from_values(device, &rope.frequencies())?,
            head: rope.head() as u32,
            half: rope.turned() as u32 / 2,
            neighbours: rope.pairing() == Pairing::Neighbours,
        })
    }

    /// Whether eight pairs are turned at a time in heads of so many columns, and how often eight a head has.
    pub(crate) fn by_eights(&self, head: usize) -> bool {
        !self.neighbours
            && self.half.is_multiple_of(8)
            && self.head == 2 * self.half
            && self.head as usize == head
    }

    pub(crate) fn eights(&self) -> usize {
        self.half as usize / 8
    }

    /// How rows are turned, back or as the model did; `first` is the number of the first of them.
    pub(crate) fn turning(&self, runs: Runs, first: u64, back: bool) -> Turning {
        Turning {
            frequencies: self.frequencies.slice().into(),
            starts: runs.starts.into(),
            count: (runs.starts.len / size_of::<u64>()) as u64,
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
    pub(crate) unsafe fn turn_halves(
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
        let (rows, columns) = (rows as u64, columns as u32);
        let args = BasisArgs { from: from.into(), to: to.into(), rows, columns, unused: 0, turning };
        let work = (rows * u64::from(self.half)).div_ceil(256).max(1);
        let grid = work.min(u64::from(self.device.properties().multiprocessors) * 16) as u32;
        // SAFETY: the caller's.
        unsafe { self.device.launch(abi::basis_turn, Shape::new(grid, 256, 0), &args, stream) }
    }
}

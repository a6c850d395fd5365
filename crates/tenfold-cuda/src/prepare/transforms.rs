//! Steps done to all rows of a tensor and undone: a kernel or a product each.

use tenfold::Dtype;

use super::chain::{DeviceChain, Room};
use super::link::Link;
use super::rope::{Runs, Turning};
use crate::device::DeviceSlice;
use crate::driver::{Matrix, Product, Shape, Stream};
use crate::error::{Error, Result};

/// Threads of a block, and log2 of the columns up to which a warp rotates a block of a row by itself.
const THREADS: u32 = 256;
const WARP_LOG: u32 = 10;
/// Blocks that add up squares, and so sums of them.
pub(super) const POWERS: u32 = 256;

/// As the kernels have it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Args {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) table: u64,
    pub(super) rows: u64,
    pub(super) first: u64,
    pub(super) columns: u32,
    pub(super) kind: u32,
    pub(super) by: u32,
    pub(super) count: u32,
    pub(super) turning: Turning,
}

impl DeviceChain {
    pub(super) unsafe fn launch(
        &self,
        kernels: [&'static str; 2],
        args: &Args,
        stream: Stream,
    ) -> Result<()> {
        let work = (args.rows.saturating_mul(u64::from(args.columns))).div_ceil(u64::from(THREADS)).max(1);
        let grid = work.min(u64::from(self.device.properties().multiprocessors) * 16) as u32;
        // SAFETY: the caller's.
        unsafe { self.device.launch(self.kernel(kernels), Shape::new(grid, THREADS, 0), args, stream) }
    }

    fn kernel(&self, [narrow, wide]: [&'static str; 2]) -> &'static str {
        if self.dtype == Dtype::F64 { wide } else { narrow }
    }

    unsafe fn hadamard(&self, args: &Args, stream: Stream) -> Result<()> {
        let warps = args.kind <= WARP_LOG;
        let blocks = if warps { THREADS / 32 } else { 1 };
        let shared = (self.working().size() as u32 * blocks) << args.kind;
        let properties = self.device.properties();
        if shared > properties.shared_per_block.saturating_sub(1 << 10) {
            let columns = 1u32 << args.kind;
            return Err(Error::NoDevice(format!(
                "this device has too little shared memory to rotate blocks of {columns} columns"
            )));
        }
        let grid = properties.multiprocessors * (properties.shared_per_block / shared.max(1)).clamp(1, 8);
        let args = Args { count: warps as u32, ..*args };
        let kernel = self.kernel(["chain_hadamard_4", "chain_hadamard_8"]);
        // SAFETY: the caller's.
        unsafe { self.device.launch(kernel, Shape::new(grid, THREADS, shared), &args, stream) }
    }

    /// Queues a product of rows with a matrix of so many rows and columns, to another place.
    unsafe fn multiply(&self, args: &Args, room: &Room, bias: u64, stream: Stream) -> Result<()> {
        if self.dtype == Dtype::F64 {
            // SAFETY: the caller's.
            return unsafe { self.launch(["chain_product_8"; 2], args, stream) };
        }
        let product = Product {
            left: args.from,
            right: args.table,
            to: args.to,
            rows: args.rows as usize,
            inner: args.count as usize,
            columns: args.columns as usize,
            of: Matrix::F32,
            out: Matrix::F32,
            bias,
            workspace: room.scratch,
        };
        // SAFETY: the caller's.
        unsafe { self.device.driver.multiply(&product, stream) }
    }

    /// Queues the steps on the rows in `room.here`; returns where the working values are then. Squares of what a basis
    /// leaves out go to `powers`, if they are asked for: twice [`POWERS`] sums a basis.
    pub(super) unsafe fn forward(
        &self,
        mut room: Room,
        powers: Option<DeviceSlice>,
        stream: Stream,
    ) -> Result<u64> {
        let mut powers = powers.map(|p| p.address);
        for (columns, link) in &self.links {
            let here = room.here.address;
            let args = Args {
                from: here,
                to: here,
                rows: self.rows as u64,
                columns: *columns as u32,
                ..Args::default()
            };
            // SAFETY: the caller's; the places do not overlap.
            unsafe {
                match link {
                    Link::Weights { rows, forward, .. } => {
                        let args = Args { table: forward.slice().address, by: *rows as u32, ..args };
                        self.launch(["chain_weigh_4", "chain_weigh_8"], &args, stream)?;
                    }
                    Link::Means { values } => {
                        let args = Args { table: values.slice().address, by: 1, ..args };
                        self.launch(["chain_add_4", "chain_add_8"], &args, stream)?;
                    }
                    Link::Hadamard { log2, signs } => {
                        self.hadamard(&Args { table: signs.slice().address, kind: *log2, ..args }, stream)?;
                    }
                    Link::Dct { log2, forward, .. } => {
                        let args = Args { table: forward.slice().address, kind: *log2, ..args };
                        self.launch(["chain_cosines_4", "chain_cosines_8"], &args, stream)?;
                    }
                    Link::Rope { rope, starts, run } => {
                        let runs = Runs::new(starts.slice(), *run);
                        let args = Args { turning: rope.turning(runs, 0, true), ..args };
                        self.launch(["chain_turn_4", "chain_turn_8"], &args, stream)?;
                    }
                    Link::Delta { group } => {
                        let args = Args { to: room.other.address, count: *group, ..args };
                        self.launch(["chain_differ_4", "chain_differ_8"], &args, stream)?;
                        std::mem::swap(&mut room.here, &mut room.other);
                    }
                    Link::Basis { means, forward, rank, measured, .. } => {
                        let Some(forward) = forward else {
                            let why = "a basis out of a blob is for decoding only";
                            return Err(Error::InvalidArgument(why.into()));
                        };
                        let centered = Args { table: means.slice().address, by: 1, ..args };
                        self.launch(["chain_add_4", "chain_add_8"], &centered, stream)?;
                        let to = room.other.address;
                        let table = forward.slice().address;
                        let product =
                            Args { to, table, columns: *rank as u32, count: *columns as u32, ..args };
                        self.multiply(&product, &room, 0, stream)?;
                        if let Some(sums) = powers.as_mut().filter(|_| *measured) {
                            self.power(&Args { to: *sums, ..args }, stream)?;
                            let after = *sums + u64::from(POWERS) * 8;
                            self.power(&Args { from: to, to: after, columns: *rank as u32, ..args }, stream)?;
                            *sums = after + u64::from(POWERS) * 8;
                        }
                        std::mem::swap(&mut room.here, &mut room.other);
                    }
                }
            }
        }
        Ok(room.here.address)
    }

    unsafe fn power(&self, args: &Args, stream: Stream) -> Result<()> {
        let kernel = self.kernel(["chain_power_4", "chain_power_8"]);
        // SAFETY: the caller's.
        unsafe { self.device.launch(kernel, Shape::new(POWERS, THREADS, 0), args, stream) }
    }

    /// Queues the undoing of all steps on so many rows in `room.here`, the first of which is row `first` and begins a group;
    /// returns where they are then.
    pub(super) unsafe fn inverse(
        &self,
        mut room: Room,
        rows: usize,
        first: usize,
        stream: Stream,
    ) -> Result<u64> {
        for (columns, link) in self.links.iter().rev() {
            let here = room.here.address;
            let args = Args {
                from: here,
                to: here,
                rows: rows as u64,
                first: first as u64,
                columns: *columns as u32,
                ..Args::default()
            };
            // SAFETY: the caller's; the places do not overlap.
            unsafe {
                match link {
                    Link::Weights { rows, inverse, .. } => {
                        let args = Args { table: inverse.slice().address, by: *rows as u32, ..args };
                        self.launch(["chain_weigh_4", "chain_weigh_8"], &args, stream)?;
                    }
                    Link::Means { values } => {
                        let args = Args { table: values.slice().address, ..args };
                        self.launch(["chain_add_4", "chain_add_8"], &args, stream)?;
                    }
                    Link::Hadamard { log2, signs } => {
                        let table = signs.slice().address;
                        self.hadamard(&Args { table, kind: *log2, by: 1, ..args }, stream)?;
                    }
                    Link::Dct { log2, inverse, .. } => {
                        let args = Args { table: inverse.slice().address, kind: *log2, ..args };
                        self.launch(["chain_cosines_4", "chain_cosines_8"], &args, stream)?;
                    }
                    Link::Rope { rope, starts, run } => {
                        let runs = Runs::new(starts.slice(), *run);
                        let args = Args { turning: rope.turning(runs, first as u64, false), ..args };
                        self.launch(["chain_turn_4", "chain_turn_8"], &args, stream)?;
                    }
                    Link::Delta { group } => {
                        let args = Args { count: *group, ..args };
                        self.launch(["chain_sum_4", "chain_sum_8"], &args, stream)?;
                    }
                    Link::Basis { means, vectors, rank, .. } => {
                        let (to, table) = (room.other.address, vectors.slice().address);
                        let product = Args { to, table, count: *rank as u32, ..args };
                        self.multiply(&product, &room, means.slice().address, stream)?;
                        if self.dtype == Dtype::F64 {
                            let table = means.slice().address;
                            let args = Args { from: to, to, table, ..args };
                            self.launch(["chain_add_8"; 2], &args, stream)?;
                        }
                        std::mem::swap(&mut room.here, &mut room.other);
                    }
                }
            }
        }
        Ok(room.here.address)
    }
}

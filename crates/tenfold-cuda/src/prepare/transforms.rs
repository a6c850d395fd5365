//! Steps done to all rows of a tensor and undone: a kernel or a product each.

use tenfold::Dtype;

use super::chain::{DeviceChain, Room};
use super::link::Link;
use super::rope::Runs;
use crate::abi::{self, Address, ByReal, CHAIN_THREADS, CType, ChainArgs, Kernel, Void};
use crate::device::DeviceSlice;
use crate::driver::{Matrix, Product, Shape, Stream};
use crate::error::{Error, Result};

/// log2 of the columns up to which a warp rotates a block of a row by itself.
const WARP_LOG: u32 = 10;
/// Blocks that add up squares, and so sums of them.
pub(super) const POWERS: u32 = 256;

impl DeviceChain {
    /// Queues the kernel of a family that is for this chain's values.
    pub(super) unsafe fn launch(
        &self,
        kernels: ByReal<ChainArgs>,
        args: &ChainArgs,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.launch_one(kernels.select(self.dtype), args, stream) }
    }

    pub(super) unsafe fn launch_one(
        &self,
        kernel: Kernel<ChainArgs>,
        args: &ChainArgs,
        stream: Stream,
    ) -> Result<()> {
        let values = args.rows.saturating_mul(u64::from(args.columns));
        let most = u64::from(self.device.properties().multiprocessors) * 16;
        let grid = values.div_ceil(u64::from(CHAIN_THREADS)).clamp(1, most) as u32;
        // SAFETY: the caller's.
        unsafe { self.device.launch(kernel, Shape::new(grid, CHAIN_THREADS, 0), args, stream) }
    }

    unsafe fn apply_hadamard(&self, args: &ChainArgs, stream: Stream) -> Result<()> {
        let warps = args.kind <= WARP_LOG;
        let blocks = if warps { CHAIN_THREADS / 32 } else { 1 };
        let shared = (self.working_dtype().size() as u32 * blocks) << args.kind;
        let properties = self.device.properties();
        if shared > properties.shared_per_block.saturating_sub(1 << 10) {
            let columns = 1u32 << args.kind;
            return Err(Error::NoDevice(format!(
                "this device has too little shared memory to rotate blocks of {columns} columns"
            )));
        }
        let grid = properties.multiprocessors * (properties.shared_per_block / shared.max(1)).clamp(1, 8);
        let args = ChainArgs { count: warps as u32, ..*args };
        let shape = Shape::new(grid, CHAIN_THREADS, shared);
        // SAFETY: the caller's.
        unsafe { self.device.launch(abi::chain_hadamard.select(self.dtype), shape, &args, stream) }
    }

    /// Queues a product of rows with a matrix of so many rows and columns, to another place.
    unsafe fn multiply(&self, args: &ChainArgs, room: &Room, bias: u64, stream: Stream) -> Result<()> {
        if self.dtype == Dtype::F64 {
            // SAFETY: the caller's.
            return unsafe { self.launch_one(abi::chain_product_8, args, stream) };
        }
        let product = Product {
            left: args.from.get(),
            right: args.table.get(),
            to: args.to.get(),
            rows: args.rows as usize,
            inner: args.count as usize,
            columns: args.columns as usize,
            of: Matrix::F32,
            out: Matrix::F32,
            bias,
            workspace: room.scratch,
            ..Product::NONE
        };
        // SAFETY: the caller's.
        unsafe { self.device.driver.multiply(&product, stream) }
    }

    /// Queues the transforms of the rows in `room.here` and returns where the working values are then. Squares of what
    /// a basis leaves out go to `powers`, if requested: twice [`POWERS`] sums a basis.
    pub(super) unsafe fn forward(
        &self,
        mut room: Room,
        powers: Option<DeviceSlice>,
        stream: Stream,
    ) -> Result<u64> {
        let mut powers = powers.map(|p| p.address);
        for (columns, link) in &self.links {
            let here = room.here.address;
            let args = ChainArgs {
                from: here.into(),
                to: here.into(),
                rows: self.rows as u64,
                columns: *columns as u32,
                ..ChainArgs::ZERO
            };
            // SAFETY: the caller's; the places do not overlap.
            unsafe {
                match link {
                    Link::Weights { rows, forward, .. } => {
                        let args = ChainArgs { table: forward.slice().into(), by: *rows as u32, ..args };
                        self.launch(abi::chain_weigh, &args, stream)?;
                    }
                    Link::Means { values } => {
                        let args = ChainArgs { table: values.slice().into(), by: 1, ..args };
                        self.launch(abi::chain_add, &args, stream)?;
                    }
                    Link::Hadamard { log2, signs } => {
                        self.apply_hadamard(
                            &ChainArgs { table: signs.slice().into(), kind: *log2, ..args },
                            stream,
                        )?;
                    }
                    Link::Dct { log2, forward, .. } => {
                        let args = ChainArgs { table: forward.slice().into(), kind: *log2, ..args };
                        self.launch(abi::chain_cosines, &args, stream)?;
                    }
                    Link::Rope { rope, starts, run } => {
                        let runs = Runs { starts: starts.slice(), run: *run };
                        let args = ChainArgs { turning: rope.turning(runs, 0, true), ..args };
                        self.launch(abi::chain_turn, &args, stream)?;
                    }
                    Link::Delta { group } => {
                        let args = ChainArgs { to: room.other.into(), count: *group, ..args };
                        self.launch(abi::chain_differ, &args, stream)?;
                        std::mem::swap(&mut room.here, &mut room.other);
                    }
                    Link::Basis { means, forward, rank, measured, .. } => {
                        let Some(forward) = forward else {
                            let why = "a basis read from a blob is for decoding only";
                            return Err(Error::InvalidArgument(why.into()));
                        };
                        let centered = ChainArgs { table: means.slice().into(), by: 1, ..args };
                        self.launch(abi::chain_add, &centered, stream)?;
                        let (to, table): (Address<Void>, _) = (room.other.into(), forward.slice().into());
                        let product =
                            ChainArgs { to, table, columns: *rank as u32, count: *columns as u32, ..args };
                        self.multiply(&product, &room, 0, stream)?;
                        if let Some(sums) = powers.as_mut().filter(|_| *measured) {
                            self.measure_power(&ChainArgs { to: (*sums).into(), ..args }, stream)?;
                            let after = *sums + u64::from(POWERS) * 8;
                            let columns = *rank as u32;
                            let kept = ChainArgs { from: to.cast(), to: after.into(), columns, ..args };
                            self.measure_power(&kept, stream)?;
                            *sums = after + u64::from(POWERS) * 8;
                        }
                        std::mem::swap(&mut room.here, &mut room.other);
                    }
                }
            }
        }
        Ok(room.here.address)
    }

    unsafe fn measure_power(&self, args: &ChainArgs, stream: Stream) -> Result<()> {
        let shape = Shape::new(POWERS, CHAIN_THREADS, 0);
        // SAFETY: the caller's.
        unsafe { self.device.launch(abi::chain_power.select(self.dtype), shape, args, stream) }
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
            let args = ChainArgs {
                from: here.into(),
                to: here.into(),
                rows: rows as u64,
                first: first as u64,
                columns: *columns as u32,
                ..ChainArgs::ZERO
            };
            // SAFETY: the caller's; the places do not overlap.
            unsafe {
                match link {
                    Link::Weights { rows, inverse, .. } => {
                        let args = ChainArgs { table: inverse.slice().into(), by: *rows as u32, ..args };
                        self.launch(abi::chain_weigh, &args, stream)?;
                    }
                    Link::Means { values } => {
                        let args = ChainArgs { table: values.slice().into(), ..args };
                        self.launch(abi::chain_add, &args, stream)?;
                    }
                    Link::Hadamard { log2, signs } => {
                        let table = signs.slice().into();
                        self.apply_hadamard(&ChainArgs { table, kind: *log2, by: 1, ..args }, stream)?;
                    }
                    Link::Dct { log2, inverse, .. } => {
                        let args = ChainArgs { table: inverse.slice().into(), kind: *log2, ..args };
                        self.launch(abi::chain_cosines, &args, stream)?;
                    }
                    Link::Rope { rope, starts, run } => {
                        let runs = Runs { starts: starts.slice(), run: *run };
                        let args = ChainArgs { turning: rope.turning(runs, first as u64, false), ..args };
                        self.launch(abi::chain_turn, &args, stream)?;
                    }
                    Link::Delta { group } => {
                        let args = ChainArgs { count: *group, ..args };
                        self.launch(abi::chain_sum, &args, stream)?;
                    }
                    Link::Basis { means, vectors, rank, .. } => {
                        let (to, table): (Address<Void>, _) = (room.other.into(), vectors.slice().into());
                        let product = ChainArgs { to, table, count: *rank as u32, ..args };
                        self.multiply(&product, &room, means.slice().address, stream)?;
                        if self.dtype == Dtype::F64 {
                            let table = means.slice().into();
                            let args = ChainArgs { from: to.cast(), to, table, ..args };
                            self.launch(abi::chain_add, &args, stream)?;
                        }
                        std::mem::swap(&mut room.here, &mut room.other);
                    }
                }
            }
        }
        Ok(room.here.address)
    }
}

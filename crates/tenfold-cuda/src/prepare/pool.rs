//! Paged pools: keys or values of tokens that lie in blocks anywhere in memory, as serving engines keep them.

use tenfold::Dtype;

use super::rope::{DeviceRope, Runs};
use crate::abi::{self, Kernel, POOL_LAYERS, POOL_THREADS, PoolArgs, TurnedPoolArgs};
use crate::device::{Device, DeviceSlice};
use crate::driver::{Shape, Stream};
use crate::error::{Error, Result};
use crate::pieces::too_large;

/// Bytes that a thread may move at once, the most first.
const UNITS: [usize; 4] = [16, 4, 2, 1];
/// What the addresses and strides of a pool may be multiples of, the most first.
const ALIGNED: [usize; 5] = [16, 8, 4, 2, 1];
/// Elements that a thread converts at once.
const EIGHT: usize = 8;

/// How a layer of a pool lies in memory: slots in blocks, heads in slots. Strides are in bytes, from the start of one to that of
/// the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolLayout {
    /// Blocks.
    pub blocks: usize,
    /// Slots of a block, each for a token.
    pub block: usize,
    /// Heads of a token.
    pub heads: usize,
    /// Bytes of a head.
    pub head: usize,
    /// From block to block.
    pub block_stride: usize,
    /// From token to token of a block.
    pub token_stride: usize,
    /// From head to head of a token.
    pub head_stride: usize,
}

impl PoolLayout {
    /// Blocks × slots × heads × bytes of a head, nothing between them: what most engines have. With one slot a block it is a pool
    /// without blocks.
    ///
    /// ```
    /// use tenfold_cuda::PoolLayout;
    /// let layout = PoolLayout::new(1000, 16, 8, 256);
    /// assert_eq!((layout.token_stride, layout.block_stride), (2048, 32768));
    /// ```
    pub fn new(blocks: usize, block: usize, heads: usize, head: usize) -> Self {
        let token_stride = heads.saturating_mul(head);
        let block_stride = block.saturating_mul(token_stride);
        PoolLayout { blocks, block, heads, head, block_stride, token_stride, head_stride: head }
    }

    /// Blocks × heads × slots × bytes of a head, likewise.
    pub fn heads_first(blocks: usize, block: usize, heads: usize, head: usize) -> Self {
        let head_stride = block.saturating_mul(head);
        PoolLayout { token_stride: head, head_stride, ..PoolLayout::new(blocks, block, heads, head) }
    }

    /// The same with other strides, of blocks, tokens and heads.
    pub fn with_strides(mut self, block: usize, token: usize, head: usize) -> Self {
        (self.block_stride, self.token_stride, self.head_stride) = (block, token, head);
        self
    }

    /// Bytes of a token.
    fn token(&self) -> Option<usize> {
        self.heads.checked_mul(self.head)
    }

    /// Bytes from the first of a layer to behind its last.
    fn extent(&self) -> Option<usize> {
        let last = |count: usize, stride: usize| count.checked_sub(1)?.checked_mul(stride);
        let blocks = last(self.blocks, self.block_stride)?;
        let within = last(self.block, self.token_stride)?.checked_add(last(self.heads, self.head_stride)?)?;
        blocks.checked_add(within)?.checked_add(self.head)
    }
}

/// The layers of a pool, all of one layout and one dtype.
#[derive(Debug, Clone)]
pub struct DevicePool {
    device: Device,
    layout: PoolLayout,
    dtype: Dtype,
    /// Their addresses.
    bases: Vec<u64>,
    /// What all of them are a multiple of.
    aligned: usize,
}

impl DevicePool {
    /// Describes the memory of layers of a device, 256 at most, of bf16 ([`DevicePool::with_dtype`]). Nothing is copied.
    pub fn new(device: &Device, layers: &[DeviceSlice], layout: PoolLayout) -> Result<DevicePool> {
        let slots = layout.blocks.checked_mul(layout.block).filter(|slots| u32::try_from(*slots).is_ok());
        let token = layout.token().filter(|bytes| u32::try_from(*bytes).is_ok());
        let (Some(extent), Some(slots), Some(_)) = (layout.extent(), slots, token) else {
            return Err(too_large());
        };
        if layers.is_empty() || layers.len() > POOL_LAYERS as usize || slots == 0 || layout.head == 0 {
            let why = format!("a pool needs 1 to {POOL_LAYERS} layers, and blocks, slots and heads");
            return Err(Error::InvalidArgument(why));
        }
        if let Some(short) = layers.iter().find(|layer| layer.len < extent) {
            return Err(Error::InvalidArgument(format!(
                "a layer of the pool has {} bytes, but its layout takes {extent}",
                short.len
            )));
        }
        let strides = [layout.block_stride, layout.token_stride, layout.head_stride, layout.head];
        let fits = |unit: &&usize| {
            strides.iter().all(|stride| stride.is_multiple_of(**unit))
                && layers.iter().all(|layer| layer.address.is_multiple_of(**unit as u64))
        };
        let aligned = ALIGNED.iter().find(fits).copied().unwrap_or(1);
        let bases = layers.iter().map(|layer| layer.address).collect();
        Ok(DevicePool { device: device.clone(), layout, dtype: Dtype::Bf16, bases, aligned })
    }

    /// Says what its elements are: bf16, f16, f8_e4m3 or f8_e5m2.
    pub fn with_dtype(mut self, dtype: Dtype) -> Result<DevicePool> {
        if !dtype.is_float() || dtype.size() > 2 {
            let why = format!("a pool has bf16, f16, f8_e4m3 or f8_e5m2, not {dtype}");
            return Err(Error::InvalidArgument(why));
        }
        self.dtype = dtype;
        Ok(self)
    }

    /// What its elements are.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Elements of a token in all layers; `None` if its bytes are no whole number of them, or not at multiples of their size.
    pub fn columns(&self) -> Option<usize> {
        let size = self.dtype.size();
        (self.aligned.is_multiple_of(size) && self.layout.head.is_multiple_of(size))
            .then(|| self.row() / size)
    }

    /// Bytes of a token in all layers, side by side: what one row has that is as the pool has it.
    pub fn row(&self) -> usize {
        self.bases.len() * self.layout.heads * self.layout.head
    }

    /// Queues the copying of tokens out of the pool to rows that lie one after the other, layers side by side. `slots` are the tokens',
    /// 64 bits each, wherever in the pool they are; a number that is no slot, such as −1, gives zeros.
    ///
    /// # Safety
    /// The layers, the slots and the rows are memory of this device, are as long as they say, do not overlap, and are neither freed nor
    /// written otherwise until the stream has passed this call.
    pub unsafe fn gather(&self, slots: DeviceSlice, rows: DeviceSlice, stream: Stream) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.queue(abi::pool_gather, self.args(slots, rows)?, stream) }
    }

    /// The same to rows of bf16, whatever the pool's dtype. Floats of eight bits stay what they are; f16 is rounded to the nearest.
    ///
    /// # Safety
    /// As for [`DevicePool::gather`].
    pub unsafe fn gather_halves(&self, slots: DeviceSlice, rows: DeviceSlice, stream: Stream) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.queue(abi::pool_gather, self.half_args(slots, rows)?, stream) }
    }

    /// Queues the copying of rows into the pool. A row whose number is no slot goes nowhere; no slot may be stated twice.
    ///
    /// # Safety
    /// As for [`DevicePool::gather`].
    pub unsafe fn scatter(&self, rows: DeviceSlice, slots: DeviceSlice, stream: Stream) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.queue(abi::pool_scatter, self.args(slots, rows)?, stream) }
    }

    /// The same with rows of bf16, whatever the pool's dtype: rounded to the nearest, ties to even. What is too large, infinities too,
    /// becomes the largest finite number; NaN stays NaN.
    ///
    /// # Safety
    /// As for [`DevicePool::gather`].
    pub unsafe fn scatter_halves(&self, rows: DeviceSlice, slots: DeviceSlice, stream: Stream) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.queue(abi::pool_scatter, self.half_args(slots, rows)?, stream) }
    }

    /// The same for keys, rows of bf16 whose rotary positions are done on the way.
    ///
    /// # Safety
    /// As for [`DevicePool::gather`].
    pub(crate) unsafe fn scatter_turned(
        &self,
        rows: DeviceSlice,
        slots: DeviceSlice,
        (rope, runs): (&DeviceRope, Runs),
        stream: Stream,
    ) -> Result<()> {
        let Some(mut args) = self.half_args(slots, rows)? else { return Ok(()) };
        let (size, head) = (self.dtype.size(), self.layout.head);
        let eights = args.unit == if args.dtype == 0 { 16 } else { EIGHT as u32 };
        // SAFETY: the caller's; every slot that is one lies in the layers' memory, and rows have the bytes of all tokens.
        unsafe {
            if eights && rope.by_eights(head / size) {
                (args.heads, args.head) = (self.layout.heads as u32, (head / (EIGHT * size)) as u32);
                let threads = args.tokens as usize * rope.eights();
                let shape = self.shape(threads.div_ceil(POOL_THREADS as usize));
                let args = TurnedPoolArgs { pool: args, turning: rope.turning(runs, 0, false) };
                return self.device.launch(abi::pool_scatter_turned, shape, &args, stream);
            }
            let (tokens, columns) = (args.tokens as usize, self.row() / size);
            rope.turn_halves(rows.address, rows.address, tokens, columns, runs, false, stream)?;
            self.scatter_halves(rows, slots, stream)
        }
    }

    unsafe fn queue(&self, kernel: Kernel<PoolArgs>, args: Option<PoolArgs>, stream: Stream) -> Result<()> {
        let Some(args) = args else { return Ok(()) };
        let warps = args.tokens as usize * self.bases.len();
        let shape = self.shape(warps.div_ceil(POOL_THREADS as usize / 32));
        // SAFETY: the caller's; every slot that is one lies in the layers' memory, and rows have the bytes of all tokens.
        unsafe { self.device.launch(kernel, shape, &args, stream) }
    }

    fn shape(&self, blocks: usize) -> Shape {
        let most = self.device.properties().multiprocessors as usize * 16;
        Shape::new(blocks.clamp(1, most) as u32, POOL_THREADS, 0)
    }

    /// What a kernel takes that copies rows as they are; `None` if there are no tokens.
    fn args(&self, slots: DeviceSlice, rows: DeviceSlice) -> Result<Option<PoolArgs>> {
        let unit = |unit: &usize| self.aligned >= *unit && rows.address.is_multiple_of(*unit as u64);
        let unit = UNITS.into_iter().find(unit).unwrap_or(1);
        self.args_of(slots, rows, self.row(), (unit, unit))
    }

    /// The same for rows of bf16, of elements that lie at multiples of their size.
    fn half_args(&self, slots: DeviceSlice, rows: DeviceSlice) -> Result<Option<PoolArgs>> {
        let size = self.dtype.size();
        let Some(columns) = self.columns().filter(|_| rows.address.is_multiple_of(2)) else {
            let why = format!("rows of bf16, and {} of a pool, lie at multiples of their size", self.dtype);
            return Err(Error::InvalidArgument(why));
        };
        if self.dtype == Dtype::Bf16 {
            return self.args(slots, rows);
        }
        let eights = self.aligned >= EIGHT * size && rows.address.is_multiple_of(16);
        let unit = if eights { EIGHT } else { 1 };
        let args =
            self.args_of(slots, rows, columns.checked_mul(2).ok_or_else(too_large)?, (unit, unit * size))?;
        Ok(args.map(|args| PoolArgs { dtype: self.dtype.id().into(), ..args }))
    }

    /// What a kernel takes for rows of so many bytes each, and units: how many, and how many bytes of the pool one has.
    fn args_of(
        &self,
        slots: DeviceSlice,
        rows: DeviceSlice,
        row: usize,
        (unit, bytes): (usize, usize),
    ) -> Result<Option<PoolArgs>> {
        let tokens = slots.len / size_of::<u64>();
        let need = tokens.checked_mul(row).ok_or_else(too_large)?;
        if rows.len != need || !slots.len.is_multiple_of(8) || !slots.address.is_multiple_of(8) {
            return Err(Error::InvalidArgument(format!(
                "{tokens} tokens of the pool are rows of {need} bytes, {} given; slots are 8 bytes each, at a multiple of 8",
                rows.len
            )));
        }
        if tokens == 0 {
            return Ok(None);
        }
        let layout = &self.layout;
        // Heads that lie side by side are one.
        let joined = layout.head_stride == layout.head || layout.heads == 1;
        let (heads, head) =
            if joined { (1, layout.heads * layout.head) } else { (layout.heads, layout.head) };
        let mut bases = [0; POOL_LAYERS as usize];
        bases[..self.bases.len()].copy_from_slice(&self.bases);
        Ok(Some(PoolArgs {
            bases,
            slots: slots.into(),
            rows: rows.into(),
            tokens: tokens as u64,
            slot_count: (layout.blocks * layout.block) as u64,
            block_stride: layout.block_stride as u64,
            token_stride: layout.token_stride as u64,
            head_stride: layout.head_stride as u64,
            layers: self.bases.len() as u32,
            block: layout.block as u32,
            heads: heads as u32,
            head: (head / bytes) as u32,
            unit: unit as u32,
            dtype: 0,
        }))
    }
}

//! What launches kernels and moves bytes: the CUDA driver, loaded at run time, or the emulator of tests.

mod cublas;
mod cuda;
#[cfg(feature = "emulator")]
mod emulated;

use std::ffi::c_void;

use crate::device::DeviceSlice;
use crate::error::Result;

pub(crate) use cuda::{Cuda, count, describe};
#[cfg(feature = "emulator")]
pub(crate) use emulated::Emulated;

/// A CUDA stream of the caller's: a `CUstream` or `cudaStream_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream(pub *mut c_void);

// SAFETY: a handle; the driver's functions that take it may be called from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// The default stream of the device.
    pub const DEFAULT: Stream = Stream(std::ptr::null_mut());
}

/// A point in a stream's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event(pub *mut c_void);

/// What a device is like.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Properties {
    /// Name for people.
    pub name: String,
    /// Compute capability.
    pub capability: (u32, u32),
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Shared memory that a block may take, in bytes.
    pub shared_per_block: u32,
    /// Memory of the device, in bytes.
    pub memory: u64,
}

/// How a kernel is launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Blocks.
    pub grid: u32,
    /// Threads of a block.
    pub block: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared: u32,
    /// How often all of that: once for each tensor of a batch, [`MAX_BATCH`] at most.
    pub batch: u32,
}

/// The most that [`Shape::batch`] may be.
pub(crate) const MAX_BATCH: u32 = 65535;

impl Shape {
    /// For one tensor.
    pub(crate) const fn new(grid: u32, block: u32, shared: u32) -> Shape {
        Shape { grid, block, shared, batch: 1 }
    }
}

/// The arguments of a launch: a structure that the kernel takes by value.
#[derive(Clone, Copy)]
pub(crate) struct Arguments {
    address: *mut c_void,
    #[cfg_attr(not(feature = "emulator"), allow(dead_code))] // the driver knows
    bytes: usize,
}

impl Arguments {
    /// They are read before the launch returns.
    pub(crate) fn new<A>(args: &A) -> Arguments {
        Arguments { address: std::ptr::from_ref(args).cast_mut().cast(), bytes: size_of::<A>() }
    }
}

/// What a matrix is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Matrix {
    Bf16,
    F16,
    F32,
    F64,
}

/// A product of two matrices, all of them row by row, added up in f32, or in f64 if they are of that: `left` has `rows` rows and
/// `right` has `inner`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Product {
    pub left: u64,
    pub right: u64,
    pub to: u64,
    pub rows: usize,
    pub inner: usize,
    pub columns: usize,
    /// Of the two.
    pub of: Matrix,
    /// Of what comes of them.
    pub out: Matrix,
    /// A row that is added to every row, of the same kind as what comes of it; 0 for none.
    pub bias: u64,
    /// Scratch memory of the library's, at a multiple of 256.
    pub workspace: DeviceSlice,
    /// What rows are apart where they are those of larger matrices.
    pub strides: Option<Strides>,
    /// Whether `right` is stored column by column.
    pub turned: bool,
    /// What it is multiplied by before it is added to what is there; none if it takes the place of that.
    pub added: Option<f32>,
}

/// Numbers from one row to the next, or from one column to the next of what is stored so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Strides {
    pub left: usize,
    pub right: usize,
    pub to: usize,
}

impl Product {
    /// Nothing, to be filled in.
    pub(crate) const NONE: Product = Product {
        left: 0,
        right: 0,
        to: 0,
        rows: 0,
        inner: 0,
        columns: 0,
        of: Matrix::F32,
        out: Matrix::F32,
        bias: 0,
        workspace: DeviceSlice { address: 0, len: 0 },
        strides: None,
        turned: false,
        added: None,
    };

    /// Those of the matrices as they are, if no others are stated.
    pub(crate) fn strides(&self) -> Strides {
        let right = if self.turned { self.inner } else { self.columns };
        self.strides.unwrap_or(Strides { left: self.inner, right, to: self.columns })
    }
}

/// The few things that the engine needs of a device. Copies and launches are queued on a stream and return
/// at once.
///
/// # Safety
/// Callers pass addresses that this driver allocated, or that the caller of the crate vouches for, with sizes
/// within them, and host memory that lives until the stream has passed the copy.
pub(crate) trait Driver: Send + Sync {
    fn properties(&self) -> &Properties;
    /// Makes the context current in this thread, for libraries that work in it.
    fn enter(&self) -> Result<()>;
    /// The context.
    fn context(&self) -> *mut c_void;
    /// Bytes of memory that are free.
    fn free_memory(&self) -> Result<u64>;
    fn alloc(&self, bytes: usize) -> Result<u64>;
    unsafe fn free(&self, address: u64);
    /// Host memory that the device reads and writes by itself.
    fn alloc_host(&self, bytes: usize) -> Result<*mut u8>;
    unsafe fn free_host(&self, address: *mut u8);
    unsafe fn copy_in(&self, to: u64, from: *const u8, bytes: usize, stream: Stream) -> Result<()>;
    unsafe fn copy_out(&self, to: *mut u8, from: u64, bytes: usize, stream: Stream) -> Result<()>;
    unsafe fn copy(&self, to: u64, from: u64, bytes: usize, stream: Stream) -> Result<()>;
    unsafe fn launch(
        &self,
        kernel: &'static str,
        shape: Shape,
        args: Arguments,
        stream: Stream,
    ) -> Result<()>;
    /// Queues a product, or says that nothing is installed that makes any.
    unsafe fn multiply(&self, product: &Product, stream: Stream) -> Result<()>;
    /// Whether products can be made.
    fn can_multiply(&self) -> Result<()>;
    /// A stream that waits for no other; kernels of an urgent one go before those of others.
    fn create_stream(&self, urgent: bool) -> Result<Stream>;
    unsafe fn destroy_stream(&self, stream: Stream);
    fn synchronize(&self, stream: Stream) -> Result<()>;
    /// `timed` events can be asked how far apart they are.
    fn create_event(&self, timed: bool) -> Result<Event>;
    unsafe fn destroy_event(&self, event: Event);
    fn record(&self, event: Event, stream: Stream) -> Result<()>;
    /// Makes a stream wait for an event.
    fn wait(&self, stream: Stream, event: Event) -> Result<()>;
    fn block_on(&self, event: Event) -> Result<()>;
    /// Milliseconds between two events that have happened.
    fn elapsed(&self, from: Event, to: Event) -> Result<f32>;
}

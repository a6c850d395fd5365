//! Memory that this crate owns: on a device, or pinned on the host.

use std::borrow::{Borrow, BorrowMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::abi::CType;
use crate::device::{Device, DeviceSlice};
use crate::driver::Stream;
use crate::error::{Error, Result};

/// Device memory, freed when dropped.
pub struct Buffer {
    device: Device,
    slice: DeviceSlice,
}

impl Buffer {
    /// Takes memory of a device.
    pub fn new(device: &Device, len: usize) -> Result<Buffer> {
        let address = device.driver.alloc(len)?;
        Ok(Buffer { device: device.clone(), slice: DeviceSlice { address, len } })
    }

    /// A copy of bytes of the host.
    pub fn from_slice(device: &Device, bytes: &[u8]) -> Result<Buffer> {
        Buffer::from_values(device, bytes)
    }

    /// A copy of values of the host, as kernels have them.
    pub(crate) fn from_values<T: CType>(device: &Device, values: &[T]) -> Result<Buffer> {
        let buffer = Buffer::new(device, size_of_val(values))?;
        buffer.copy_in(values, Stream::DEFAULT)?;
        Ok(buffer)
    }

    /// Where it is.
    pub fn slice(&self) -> DeviceSlice {
        self.slice
    }

    /// Copies bytes to its start and waits for that.
    pub fn write(&self, bytes: &[u8], stream: Stream) -> Result<()> {
        self.copy_in(bytes, stream)
    }

    fn copy_in<T: CType>(&self, values: &[T], stream: Stream) -> Result<()> {
        let to = self.slice.part(0, size_of_val(values))?;
        // SAFETY: `to` is ours and as long; `values` outlives the wait.
        unsafe { self.device.driver.copy_in(to.address, values.as_ptr().cast(), to.len, stream)? };
        self.device.driver.synchronize(stream)
    }

    /// Copies bytes from its start, once the stream has come so far.
    pub fn read(&self, out: &mut [u8], stream: Stream) -> Result<()> {
        let from = self.slice.part(0, out.len())?;
        // SAFETY: `from` is ours and as long; `out` outlives the wait.
        unsafe { self.device.driver.copy_out(out.as_mut_ptr(), from.address, out.len(), stream)? };
        self.device.driver.synchronize(stream)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: taken in `new`; nobody else frees it. The driver waits for work that uses it.
        unsafe { self.device.driver.free(self.slice.address) }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Buffer").field(&self.slice).finish()
    }
}

/// Where a call takes device memory from: a device, a pool, another library's allocator.
///
/// # Safety
/// What [`Memory::take`] gives is memory of the device, of so many bytes at least, at a multiple of 16. It may be dropped while work on
/// the caller's stream still uses it: it is given out again only to work that comes later on that stream, or freed once the device
/// is done.
pub unsafe trait Memory {
    /// Keeps the memory.
    type Piece;

    /// Takes memory: what keeps it, and its address.
    fn take(&self, len: usize) -> Result<(Self::Piece, u64)>;
}

/// Device memory that [`Memory`] gave.
pub struct Taken<P> {
    /// What keeps it.
    pub piece: P,
    slice: DeviceSlice,
}

impl<P> Taken<P> {
    pub(crate) fn new(memory: &impl Memory<Piece = P>, len: usize) -> Result<Taken<P>> {
        let (piece, address) = memory.take(len)?;
        Ok(Taken { piece, slice: DeviceSlice::new(address, len) })
    }

    /// Where it is.
    pub fn slice(&self) -> DeviceSlice {
        self.slice
    }
}

impl<P> Borrow<DeviceSlice> for Taken<P> {
    fn borrow(&self) -> &DeviceSlice {
        &self.slice
    }
}

impl<P> BorrowMut<DeviceSlice> for Taken<P> {
    fn borrow_mut(&mut self) -> &mut DeviceSlice {
        &mut self.slice
    }
}

/// Buffers that are kept for the next call, for work on one stream.
#[derive(Default)]
pub(crate) struct Pool {
    free: Arc<Mutex<Vec<Buffer>>>,
}

/// A buffer that goes back to its pool.
pub(crate) struct Pooled {
    buffer: Option<Buffer>,
    free: Arc<Mutex<Vec<Buffer>>>,
}

impl Drop for Pooled {
    fn drop(&mut self) {
        lock(&self.free).extend(self.buffer.take());
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// The smallest free buffer that suffices, or a new one in place of the largest that does not.
    fn take(&self, device: &Device, len: usize) -> Result<Buffer> {
        let mut free = lock(&self.free);
        free.sort_unstable_by_key(|buffer| buffer.slice.len);
        let at = free.partition_point(|buffer| buffer.slice.len < len);
        if at < free.len() {
            return Ok(free.remove(at));
        }
        // The old buffer goes first: both together may not fit.
        free.pop();
        let rounded = len.max(1).next_multiple_of(1 << 16);
        Buffer::new(device, rounded).or_else(|error| {
            if free.is_empty() {
                return Err(error);
            }
            free.clear();
            Buffer::new(device, rounded)
        })
    }
}

/// A pool's memory of a device.
pub(crate) struct FromPool<'a>(pub &'a Device, pub &'a Pool);

// SAFETY: a buffer is dropped by no one else, and is used again only for later work on the same stream.
unsafe impl Memory for FromPool<'_> {
    type Piece = Pooled;

    fn take(&self, len: usize) -> Result<(Pooled, u64)> {
        let buffer = self.1.take(self.0, len)?;
        let address = buffer.slice.address;
        Ok((Pooled { buffer: Some(buffer), free: self.1.free.clone() }, address))
    }
}

/// `len` bytes of a buffer that grows as needed: the same as last time where they suffice.
pub(crate) fn reserve(device: &Device, slot: &mut Option<Buffer>, len: usize) -> Result<DeviceSlice> {
    if slot.as_ref().is_none_or(|b| b.slice().len < len) {
        // The old piece goes first: both together may not fit.
        *slot = None;
        *slot = Some(Buffer::new(device, len.next_multiple_of(1 << 16))?);
    }
    let buffer = slot.as_ref().ok_or(Error::OutOfMemory { asked: len as u64 })?;
    buffer.slice().part(0, len)
}

/// Host memory that a device copies from and to by itself, freed when dropped.
pub struct Pinned {
    device: Device,
    address: *mut u8,
    len: usize,
}

// SAFETY: owns its memory, like a boxed slice.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Takes pinned memory; its content means nothing yet.
    pub fn new(device: &Device, len: usize) -> Result<Pinned> {
        let address = device.driver.alloc_host(len)?;
        if address.is_null() {
            return Err(Error::Driver {
                what: "allocating pinned memory",
                reason: "the driver returned no address".into(),
            });
        }
        // SAFETY: fresh memory of that many bytes.
        unsafe { std::ptr::write_bytes(address, 0, len) };
        Ok(Pinned { device: device.clone(), address, len })
    }
}

impl std::ops::Deref for Pinned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: ours, initialised in `new`.
        unsafe { std::slice::from_raw_parts(self.address, self.len) }
    }
}

impl std::ops::DerefMut for Pinned {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.len) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: taken in `new`.
        unsafe { self.device.driver.free_host(self.address) }
    }
}

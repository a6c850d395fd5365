//! The emulator: kernels run on this thread, memory is the process's own, streams do everything at once.
//!
//! Device memory and shared memory end at guard pages, so a kernel that reads or writes past an allocation stops the process instead of
//! passing a test.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_uint, c_void};
use std::sync::Mutex;

use super::{Arguments, Driver, Event, Matrix, Product, Properties, Shape, Stream};
use crate::error::{Error, Result};

unsafe extern "C" {
    fn tenfold_emulate(
        name: *const c_char,
        grid: c_uint,
        batch: c_uint,
        threads: c_uint,
        shared: c_uint,
        params: *mut *mut c_void,
        bytes: usize,
    ) -> *const c_char;
}

/// An emulated device.
pub(crate) struct Emulated {
    properties: Properties,
    /// Where each allocation's pages start and how many bytes they are.
    maps: Mutex<HashMap<u64, (usize, usize)>>,
    memory: u64,
}

const PAGE: usize = 4096;

impl Emulated {
    /// A device with so much memory.
    pub(crate) fn new(memory: u64) -> Emulated {
        let properties = Properties {
            name: "emulator".into(),
            capability: (7, 5),
            multiprocessors: 2,
            shared_per_block: 227 << 10,
            memory,
        };
        Emulated { properties, maps: Mutex::default(), memory }
    }

    fn used(&self) -> u64 {
        let maps = self.maps.lock().unwrap_or_else(|e| e.into_inner());
        maps.values().map(|m| m.1 as u64).sum()
    }
}

impl Drop for Emulated {
    fn drop(&mut self) {
        let maps = self.maps.get_mut().unwrap_or_else(|e| e.into_inner());
        for (_, (start, len)) in maps.drain() {
            // SAFETY: mapped by `alloc` and not unmapped since.
            unsafe { libc::munmap(start as *mut c_void, len) };
        }
    }
}

impl Driver for Emulated {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn enter(&self) -> Result<()> {
        Ok(())
    }

    fn context(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    fn free_memory(&self) -> Result<u64> {
        Ok(self.memory.saturating_sub(self.used()))
    }

    fn alloc(&self, bytes: usize) -> Result<u64> {
        let asked = Error::OutOfMemory { asked: bytes as u64 };
        if bytes as u64 > self.memory.saturating_sub(self.used()) {
            return Err(asked);
        }
        let body = bytes.max(1).next_multiple_of(PAGE);
        // SAFETY: a fresh private mapping; the last page is taken away again below.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                body + PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(asked);
        }
        // SAFETY: within the mapping.
        unsafe {
            libc::mprotect(start.cast::<u8>().add(body).cast(), PAGE, libc::PROT_NONE);
            // What a kernel does not write should look like nothing it could have meant.
            std::ptr::write_bytes(start.cast::<u8>(), 0xcd, body);
        }
        let address = (start as usize + body - bytes.next_multiple_of(16)) as u64;
        let mut maps = self.maps.lock().unwrap_or_else(|e| e.into_inner());
        maps.insert(address, (start as usize, body + PAGE));
        Ok(address)
    }

    unsafe fn free(&self, address: u64) {
        let mut maps = self.maps.lock().unwrap_or_else(|e| e.into_inner());
        if let Some((start, len)) = maps.remove(&address) {
            // SAFETY: mapped by `alloc`.
            unsafe { libc::munmap(start as *mut c_void, len) };
        }
    }

    fn alloc_host(&self, bytes: usize) -> Result<*mut u8> {
        self.alloc(bytes).map(|a| a as *mut u8)
    }

    unsafe fn free_host(&self, address: *mut u8) {
        // SAFETY: see the trait.
        unsafe { self.free(address as u64) }
    }

    unsafe fn copy_in(&self, to: u64, from: *const u8, bytes: usize, _: Stream) -> Result<()> {
        // SAFETY: see the trait; device addresses are host addresses here.
        unsafe { std::ptr::copy(from, to as *mut u8, bytes) };
        Ok(())
    }

    unsafe fn copy_out(&self, to: *mut u8, from: u64, bytes: usize, _: Stream) -> Result<()> {
        // SAFETY: as above.
        unsafe { std::ptr::copy(from as *const u8, to, bytes) };
        Ok(())
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: usize, _: Stream) -> Result<()> {
        // SAFETY: as above.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
        Ok(())
    }

    unsafe fn launch(&self, kernel: &'static str, shape: Shape, args: Arguments, _: Stream) -> Result<()> {
        let failed = |reason: String| Error::Driver { what: kernel, reason };
        if shape.shared > self.properties.shared_per_block {
            return Err(failed(format!("{} bytes of shared memory", shape.shared)));
        }
        let name = CString::new(kernel).map_err(|_| failed("a name with a zero byte".into()))?;
        let mut params = [args.address];
        // SAFETY: the kernel of that name takes one structure by value, of which `args` says where it lies; one of
        // another size is refused.
        let answer = unsafe {
            tenfold_emulate(
                name.as_ptr(),
                shape.grid,
                shape.batch,
                shape.block,
                shape.shared,
                params.as_mut_ptr(),
                args.bytes,
            )
        };
        if answer.is_null() {
            return Ok(());
        }
        // SAFETY: a constant string.
        Err(failed(unsafe { CStr::from_ptr(answer) }.to_string_lossy().into_owned()))
    }

    unsafe fn multiply(&self, p: &Product, _: Stream) -> Result<()> {
        let read = |kind: Matrix, at: u64, i: usize| -> f64 {
            // SAFETY: see the trait; device addresses are host addresses here.
            unsafe {
                match kind {
                    Matrix::Bf16 => f32::from_bits(u32::from(*(at as *const u16).add(i)) << 16).into(),
                    Matrix::F16 => half::f16::from_bits(*(at as *const u16).add(i)).into(),
                    Matrix::F32 => (*(at as *const f32).add(i)).into(),
                    Matrix::F64 => *(at as *const f64).add(i),
                }
            }
        };
        let strides = p.strides();
        let (down, across) = if p.turned { (1, strides.right) } else { (strides.right, 1) };
        for i in 0..p.rows * p.columns {
            let (row, col) = (i / p.columns, i % p.columns);
            let term = |k: usize| {
                read(p.of, p.left, row * strides.left + k) * read(p.of, p.right, k * down + col * across)
            };
            let mut sum = match p.of {
                Matrix::F64 => (0..p.inner).map(term).sum::<f64>(),
                _ => (0..p.inner).map(|k| term(k) as f32).sum::<f32>().into(),
            };
            let at = row * strides.to + col;
            if p.bias != 0 {
                sum += read(p.out, p.bias, col);
            }
            if let Some(by) = p.added {
                sum = read(p.out, p.to, at) + f64::from(by) * sum;
            }
            // SAFETY: as above.
            unsafe {
                match p.out {
                    Matrix::Bf16 => {
                        let bits = (sum as f32).to_bits();
                        *(p.to as *mut u16).add(at) = ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16;
                    }
                    Matrix::F16 => *(p.to as *mut u16).add(at) = half::f16::from_f64(sum).to_bits(),
                    Matrix::F32 => *(p.to as *mut f32).add(at) = sum as f32,
                    Matrix::F64 => *(p.to as *mut f64).add(at) = sum,
                }
            }
        }
        Ok(())
    }

    fn can_multiply(&self) -> Result<()> {
        Ok(())
    }

    fn create_stream(&self, _: bool) -> Result<Stream> {
        Ok(Stream::DEFAULT)
    }

    unsafe fn destroy_stream(&self, _: Stream) {}

    fn synchronize(&self, _: Stream) -> Result<()> {
        Ok(())
    }

    fn create_event(&self, _: bool) -> Result<Event> {
        Ok(Event(std::ptr::null_mut()))
    }

    unsafe fn destroy_event(&self, _: Event) {}

    fn record(&self, _: Event, _: Stream) -> Result<()> {
        Ok(())
    }

    fn wait(&self, _: Stream, _: Event) -> Result<()> {
        Ok(())
    }

    fn block_on(&self, _: Event) -> Result<()> {
        Ok(())
    }

    fn elapsed(&self, _: Event, _: Event) -> Result<f32> {
        Ok(0.0)
    }
}

//! The CUDA driver.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::Mutex;

use cudarc::driver::{DriverError, result, sys};

use super::cublas::Cublas;
use super::{Arguments, Driver, Event, Product, Properties, Shape, Stream};
use crate::error::{Error, Result};
use crate::ptx;

/// The oldest compute capability that the kernels are compiled for.
const OLDEST: (u32, u32) = (7, 5);

/// One device with the kernels on it.
pub(crate) struct Cuda {
    context: sys::CUcontext,
    device: sys::CUdevice,
    properties: Properties,
    functions: Mutex<Functions>,
    cublas: Mutex<Option<Cublas>>,
}

#[derive(Default)]
struct Functions {
    modules: Vec<sys::CUmodule>,
    found: HashMap<&'static str, sys::CUfunction>,
}

// SAFETY: handles of the driver, which may be used from any thread once the context is current there; `enter`
// makes it so.
unsafe impl Send for Cuda {}
// SAFETY: as above.
unsafe impl Sync for Cuda {}

/// Whether there is a driver at all, and if not, why.
fn probe() -> Result<()> {
    // SAFETY: only loads the library.
    if !unsafe { sys::is_culib_present() } {
        return Err(Error::NoDevice("the driver library libcuda is not installed".into()));
    }
    result::init().map_err(|e| Error::NoDevice(text(e)))
}

/// Devices of this machine.
pub(crate) fn count() -> Result<u32> {
    probe()?;
    let n = result::device::get_count().map_err(|e| Error::NoDevice(text(e)))?;
    Ok(u32::try_from(n).unwrap_or(0))
}

fn text(e: DriverError) -> String {
    let name = e.error_name().map(|s| s.to_string_lossy().into_owned());
    let words = e.error_string().map(|s| s.to_string_lossy().into_owned());
    match (name, words) {
        (Ok(name), Ok(words)) => format!("{words} ({name})"),
        _ => format!("error {}", e.0 as u32),
    }
}

/// Sorts an answer of the driver.
fn check<T>(what: &'static str, answer: std::result::Result<T, DriverError>) -> Result<T> {
    use sys::cudaError_enum as E;
    answer.map_err(|e| match e.0 {
        E::CUDA_ERROR_OUT_OF_MEMORY => Error::OutOfMemory { asked: 0 },
        E::CUDA_ERROR_ILLEGAL_ADDRESS
        | E::CUDA_ERROR_LAUNCH_FAILED
        | E::CUDA_ERROR_LAUNCH_TIMEOUT
        | E::CUDA_ERROR_HARDWARE_STACK_ERROR
        | E::CUDA_ERROR_ILLEGAL_INSTRUCTION
        | E::CUDA_ERROR_MISALIGNED_ADDRESS
        | E::CUDA_ERROR_INVALID_ADDRESS_SPACE
        | E::CUDA_ERROR_INVALID_PC
        | E::CUDA_ERROR_ECC_UNCORRECTABLE
        | E::CUDA_ERROR_CONTEXT_IS_DESTROYED
        | E::CUDA_ERROR_DEINITIALIZED
        | E::CUDA_ERROR_DEVICE_UNAVAILABLE
        | E::CUDA_ERROR_ASSERT => Error::DeviceLost(text(e)),
        _ => Error::Driver { what, reason: text(e) },
    })
}

/// A device and what it is like; fails where there is none of that number, or one that is too old.
fn find(ordinal: u32) -> Result<(sys::CUdevice, Properties)> {
    let devices = count()?;
    if ordinal >= devices {
        return Err(Error::NoDevice(format!("device {ordinal} does not exist: the driver finds {devices}")));
    }
    let device = check("opening the device", result::device::get(ordinal as i32))?;
    let attribute = |a| {
        // SAFETY: `device` came from the driver.
        let v = unsafe { result::device::get_attribute(device, a) };
        check("reading the properties of the device", v).map(|v| v as u32)
    };
    use sys::CUdevice_attribute as A;
    let capability = (
        attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    );
    let name = check("reading the name of the device", result::device::get_name(device))?;
    if capability < OLDEST {
        let (have, need) = (capability, OLDEST);
        return Err(Error::NoDevice(format!(
            "{name} has compute capability {}.{}, but tenfold needs {}.{}",
            have.0, have.1, need.0, need.1
        )));
    }
    let properties = Properties {
        name,
        capability,
        multiprocessors: attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        shared_per_block: attribute(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        // SAFETY: `device` came from the driver.
        memory: check("reading the memory size of the device", unsafe { result::device::total_mem(device) })?
            as u64,
    };
    Ok((device, properties))
}

/// What a device is like; it is not opened for that.
pub(crate) fn describe(ordinal: u32) -> Result<Properties> {
    find(ordinal).map(|found| found.1)
}

impl Cuda {
    /// Opens device `ordinal`; kernels are loaded when they are first needed.
    pub(crate) fn open(ordinal: u32) -> Result<Cuda> {
        let (device, properties) = find(ordinal)?;
        // SAFETY: `device` came from the driver; released in `drop`.
        let context = check("opening the device", unsafe { result::primary_ctx::retain(device) })?;
        Ok(Cuda { context, device, properties, functions: Mutex::default(), cublas: Mutex::default() })
    }

    /// Makes the context current in this thread.
    fn enter(&self) -> Result<()> {
        // SAFETY: retained until `self` is dropped.
        check("entering the device's context", unsafe { result::ctx::set_current(self.context) })
    }

    /// The kernel, loaded if this is the first time.
    fn function(&self, kernel: &'static str) -> Result<sys::CUfunction> {
        let mut known = self.functions.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(&f) = known.found.get(kernel) {
            return Ok(f);
        }
        let packed = ptx::module_of(kernel).ok_or_else(|| Error::Driver {
            what: "loading a kernel",
            reason: format!("{kernel} does not exist"),
        })?;
        let text = packed.unpack_only(kernel)?;
        let name = CString::new(kernel).map_err(|_| Error::Driver {
            what: "loading a kernel",
            reason: "a name with a zero byte".into(),
        })?;
        // SAFETY: a string of PTX that ends with a zero byte.
        let module = check("loading a kernel", unsafe { result::module::load_data(text.as_ptr().cast()) })?;
        known.modules.push(module);
        // SAFETY: `module` was just loaded and stays so.
        let f = check("looking up a kernel", unsafe { result::module::get_function(module, name) })?;
        self.allow_shared(f)?;
        known.found.insert(kernel, f);
        Ok(f)
    }

    /// Lets a kernel take all the shared memory that its own fixed part leaves.
    fn allow_shared(&self, f: sys::CUfunction) -> Result<()> {
        use sys::CUfunction_attribute_enum as A;
        // SAFETY: `f` belongs to a loaded module.
        unsafe {
            let fixed = check(
                "reading the memory needs of a kernel",
                result::function::get_function_attribute(f, A::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES),
            )?;
            let most = self.properties.shared_per_block as i32 - fixed;
            check(
                "setting the memory of a kernel",
                result::function::set_function_attribute(
                    f,
                    A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                    most,
                ),
            )
        }
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        if self.enter().is_ok() {
            *self.cublas.get_mut().unwrap_or_else(|e| e.into_inner()) = None;
            let known = self.functions.get_mut().unwrap_or_else(|e| e.into_inner());
            for module in known.modules.drain(..) {
                // SAFETY: loaded by us, and nobody can launch from it any more. Errors have nowhere to go.
                let _ = unsafe { result::module::unload(module) };
            }
        }
        // SAFETY: retained in `open`.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

fn to_cu_stream(stream: Stream) -> sys::CUstream {
    stream.0.cast()
}

fn to_cu_event(event: Event) -> sys::CUevent {
    event.0.cast()
}

impl Driver for Cuda {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn enter(&self) -> Result<()> {
        Cuda::enter(self)
    }

    fn context(&self) -> *mut c_void {
        self.context.cast()
    }

    fn free_memory(&self) -> Result<u64> {
        self.enter()?;
        let (free, _) = check("reading how much memory is free", result::mem_get_info())?;
        Ok(free as u64)
    }

    fn alloc(&self, bytes: usize) -> Result<u64> {
        self.enter()?;
        // SAFETY: freed by `free` alone.
        match check("allocating device memory", unsafe { result::malloc_sync(bytes.max(1)) }) {
            Err(Error::OutOfMemory { .. }) => Err(Error::OutOfMemory { asked: bytes as u64 }),
            other => other,
        }
    }

    unsafe fn free(&self, address: u64) {
        if self.enter().is_ok() {
            // SAFETY: the caller got it from `alloc`.
            let _ = unsafe { result::free_sync(address) };
        }
    }

    fn alloc_host(&self, bytes: usize) -> Result<*mut u8> {
        self.enter()?;
        // SAFETY: freed by `free_host` alone.
        match check("allocating pinned memory", unsafe { result::malloc_host(bytes.max(1), 0) }) {
            Err(Error::OutOfMemory { .. }) => Err(Error::Driver {
                what: "allocating pinned memory",
                reason: format!("the system cannot pin {bytes} bytes"),
            }),
            other => other.map(|p| p.cast()),
        }
    }

    unsafe fn free_host(&self, address: *mut u8) {
        if self.enter().is_ok() {
            // SAFETY: the caller got it from `alloc_host`.
            let _ = unsafe { result::free_host(address.cast()) };
        }
    }

    unsafe fn copy_in(&self, to: u64, from: *const u8, bytes: usize, stream: Stream) -> Result<()> {
        self.enter()?;
        // SAFETY: see the trait.
        let answer = unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.cast(), bytes, to_cu_stream(stream)) };
        check("copying to the device", answer.result())
    }

    unsafe fn copy_out(&self, to: *mut u8, from: u64, bytes: usize, stream: Stream) -> Result<()> {
        self.enter()?;
        // SAFETY: see the trait.
        let answer = unsafe { sys::cuMemcpyDtoHAsync_v2(to.cast(), from, bytes, to_cu_stream(stream)) };
        check("copying from the device", answer.result())
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: usize, stream: Stream) -> Result<()> {
        self.enter()?;
        // SAFETY: see the trait.
        check("copying on the device", unsafe {
            result::memcpy_dtod_async(to, from, bytes, to_cu_stream(stream))
        })
    }

    unsafe fn launch(
        &self,
        kernel: &'static str,
        shape: Shape,
        args: Arguments,
        stream: Stream,
    ) -> Result<()> {
        self.enter()?;
        let f = self.function(kernel)?;
        let mut params = [args.address];
        // SAFETY: see the trait; every kernel takes one structure by value, of which `args` says where it lies.
        let answer = unsafe {
            result::launch_kernel(
                f,
                (shape.grid, shape.batch, 1),
                (shape.block, 1, 1),
                shape.shared,
                to_cu_stream(stream),
                &mut params,
            )
        };
        check(kernel, answer)
    }

    unsafe fn multiply(&self, product: &Product, stream: Stream) -> Result<()> {
        self.can_multiply()?;
        let mut cublas = self.cublas.lock().unwrap_or_else(|e| e.into_inner());
        match cublas.as_mut() {
            // SAFETY: see the trait.
            Some(cublas) => unsafe { cublas.multiply(product, stream) },
            None => Err(Error::NoDevice("cuBLAS is gone".into())),
        }
    }

    fn can_multiply(&self) -> Result<()> {
        self.enter()?;
        let mut cublas = self.cublas.lock().unwrap_or_else(|e| e.into_inner());
        if cublas.is_none() {
            *cublas = Some(Cublas::open()?);
        }
        Ok(())
    }

    fn create_stream(&self, urgent: bool) -> Result<Stream> {
        use result::stream::{StreamKind, create_with_priority, get_priority_range};
        self.enter()?;
        let (least, greatest) = check("asking for priorities of streams", get_priority_range())?;
        let priority = if urgent { greatest } else { least };
        let s = check("making a stream", create_with_priority(StreamKind::NonBlocking, priority))?;
        Ok(Stream(s.cast()))
    }

    unsafe fn destroy_stream(&self, stream: Stream) {
        if self.enter().is_ok() {
            // SAFETY: the caller got it from `stream`.
            let _ = unsafe { result::stream::destroy(to_cu_stream(stream)) };
        }
    }

    fn synchronize(&self, stream: Stream) -> Result<()> {
        self.enter()?;
        // SAFETY: a stream of this context, as the caller vouches.
        check("waiting for the device", unsafe { result::stream::synchronize(to_cu_stream(stream)) })
    }

    fn create_event(&self, timed: bool) -> Result<Event> {
        self.enter()?;
        use sys::CUevent_flags_enum as F;
        let flags = if timed { F::CU_EVENT_DEFAULT } else { F::CU_EVENT_DISABLE_TIMING };
        Ok(Event(check("making an event", result::event::create(flags))?.cast()))
    }

    unsafe fn destroy_event(&self, event: Event) {
        if self.enter().is_ok() {
            // SAFETY: the caller got it from `event`.
            let _ = unsafe { result::event::destroy(to_cu_event(event)) };
        }
    }

    fn record(&self, event: Event, stream: Stream) -> Result<()> {
        self.enter()?;
        // SAFETY: both live.
        check("recording an event", unsafe {
            result::event::record(to_cu_event(event), to_cu_stream(stream))
        })
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<()> {
        self.enter()?;
        use sys::CUevent_wait_flags_enum as F;
        // SAFETY: both live.
        check("waiting for an event", unsafe {
            result::stream::wait_event(to_cu_stream(stream), to_cu_event(event), F::CU_EVENT_WAIT_DEFAULT)
        })
    }

    fn block_on(&self, event: Event) -> Result<()> {
        self.enter()?;
        // SAFETY: it lives.
        check("waiting for an event", unsafe { result::event::synchronize(to_cu_event(event)) })
    }

    fn elapsed(&self, from: Event, to: Event) -> Result<f32> {
        self.enter()?;
        // SAFETY: both live.
        check("timing", unsafe { result::event::elapsed(to_cu_event(from), to_cu_event(to)) })
    }
}

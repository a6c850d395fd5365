//! A device: the way to everything in this crate.

use std::sync::Arc;

use crate::abi::{CType, Kernel};
use crate::driver::{Arguments, Cuda, Driver, Properties, Shape, Stream, count, describe};
use crate::error::{Error, Result};

/// A CUDA device with tenfold's kernels. Cheap to clone.
#[derive(Clone)]
pub struct Device {
    pub(crate) driver: Arc<dyn Driver>,
}

/// Memory of a device that someone else owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceSlice {
    /// Address on the device.
    pub address: u64,
    /// Bytes.
    pub len: usize,
}

impl DeviceSlice {
    /// Memory at an address.
    pub fn new(address: u64, len: usize) -> Self {
        DeviceSlice { address, len }
    }

    /// A part of it.
    pub fn part(self, at: usize, len: usize) -> Result<DeviceSlice> {
        if at.checked_add(len).is_none_or(|end| end > self.len) {
            let (have, need) = (self.len, at.saturating_add(len));
            return Err(Error::InvalidArgument(format!(
                "{have} bytes of device memory are too few: {need} are needed"
            )));
        }
        Ok(DeviceSlice { address: self.address + at as u64, len })
    }
}

impl Device {
    /// Opens a device by its number. Fails with [`Error::NoDevice`] if there is no driver or no such device.
    pub fn open(ordinal: u32) -> Result<Device> {
        Ok(Device { driver: Arc::new(Cuda::open(ordinal)?) })
    }

    /// How many devices there are.
    pub fn count() -> Result<u32> {
        count()
    }

    /// What a device is like, without opening it, which takes memory and a moment. Fails as [`Device::open`] does.
    pub fn describe(ordinal: u32) -> Result<Properties> {
        describe(ordinal)
    }

    /// An emulated device for tests: kernels run on the CPU, slowly, with every access checked.
    #[cfg(feature = "emulator")]
    pub fn emulated(memory: u64) -> Device {
        Device { driver: Arc::new(crate::driver::Emulated::new(memory)) }
    }

    /// What the device is like.
    pub fn properties(&self) -> &Properties {
        self.driver.properties()
    }

    /// Makes the device's context current in the calling thread, for libraries of the driver that work in it.
    pub fn make_current(&self) -> Result<()> {
        self.driver.enter()
    }

    /// The device's context (`CUcontext`), for libraries of the driver that are told it; good as long as the device is open.
    pub fn context(&self) -> *mut std::ffi::c_void {
        self.driver.context()
    }

    /// Bytes of the device's memory that are free.
    pub fn free_memory(&self) -> Result<u64> {
        self.driver.free_memory()
    }

    /// Waits until a stream's work is done.
    pub fn synchronize(&self, stream: Stream) -> Result<()> {
        self.driver.synchronize(stream)
    }

    /// Queues a kernel.
    ///
    /// # Safety
    /// Addresses in `args` are good for what the kernel does with them.
    pub(crate) unsafe fn launch<A: CType>(
        &self,
        kernel: Kernel<A>,
        shape: Shape,
        args: &A,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: the caller's; the driver reads the arguments before it returns.
        unsafe { self.driver.launch(kernel.name, shape, Arguments::new(args), stream) }
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Device").field(self.properties()).finish()
    }
}

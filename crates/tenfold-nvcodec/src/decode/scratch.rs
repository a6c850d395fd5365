//! Small memory that decodings need for a while, kept for the next one: taking it of the device anew would make all work wait.

use std::sync::{Arc, Mutex, PoisonError};

use tenfold_cuda::{Buffer, Device, Pinned};

use crate::error::Result;

/// Places for the checksums of pictures: on the device, and where the host reads them.
pub(super) struct Words {
    pub device: Buffer,
    pub host: Pinned,
}

/// Places that nobody uses now.
pub(super) struct Scratch {
    device: Device,
    free: Mutex<Vec<Words>>,
}

/// Places that go back when dropped.
pub(super) struct Lent {
    pub words: Option<Words>,
    from: Arc<Scratch>,
}

/// Places that are kept at most.
const KEPT: usize = 64;

impl Scratch {
    pub(super) fn new(device: &Device) -> Scratch {
        Scratch { device: device.clone(), free: Mutex::default() }
    }

    /// The device.
    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// Room for so many words, all zero on the host.
    pub(super) fn lend(self: &Arc<Self>, count: usize) -> Result<Lent> {
        let len = (count * 4).max(256);
        let found = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            free.iter().position(|w| w.host.len() >= len).map(|at| free.swap_remove(at))
        };
        let mut words = match found {
            Some(words) => words,
            None => {
                let len = len.next_power_of_two();
                Words { device: Buffer::new(&self.device, len)?, host: Pinned::new(&self.device, len)? }
            }
        };
        words.host.fill(0);
        Ok(Lent { words: Some(words), from: self.clone() })
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut free = self.from.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < KEPT {
            free.extend(self.words.take());
        }
    }
}

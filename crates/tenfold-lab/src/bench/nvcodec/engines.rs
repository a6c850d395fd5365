//! The engines as the bench sees them: so many lanes that turn a blob of pictures into a tensor on the device.

use std::sync::Arc;

use anyhow::Result;
use tenfold::{Dtype, inspect};
use tenfold_cuda::{Buffer, Device};

use super::work::Work;

/// Lanes of engines that are open.
pub(super) trait Lanes: Send {
    /// Decodes a blob into a bf16 tensor on the device, and waits.
    fn decode(&mut self, blob: &[u8], out: &Buffer) -> Result<()>;

    /// Decodes a blob into tensors in turn, so many times; the next is submitted before the one before it is waited for.
    fn decode_in_turn(&mut self, blob: &[u8], outs: [&Buffer; 2], times: usize) -> Result<()>;
}

/// Opens so many lanes.
type Open = dyn Fn(&Device, usize) -> Result<Box<dyn Lanes>> + Send + Sync;

/// The engines of a device.
pub(super) struct Engines {
    count: usize,
    open: Arc<Open>,
}

impl Engines {
    /// So many engines, and how lanes of them are opened.
    pub fn new(
        count: usize,
        open: impl Fn(&Device, usize) -> Result<Box<dyn Lanes>> + Send + Sync + 'static,
    ) -> Engines {
        Engines { count: count.max(1), open: Arc::new(open) }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }
}

/// A blob that is decoded over and over.
pub(super) struct Pictures {
    lanes: Box<dyn Lanes>,
    blob: Vec<u8>,
    out: Buffer,
    values: usize,
}

impl Pictures {
    /// A blob on so many lanes, and room for its tensor.
    pub fn new(engines: &Engines, device: &Device, blob: Vec<u8>, lanes: usize) -> Result<Pictures> {
        let values = inspect(&blob)?.values as usize;
        let out = Buffer::new(device, values * Dtype::Bf16.size())?;
        Ok(Pictures { lanes: (engines.open)(device, lanes)?, blob, out, values })
    }

    pub fn values(&self) -> usize {
        self.values
    }

    pub fn out(&self) -> &Buffer {
        &self.out
    }

    /// Decodes so many times, into two tensors in turn.
    pub fn run_in_turn(&mut self, second: &Buffer, times: usize) -> Result<()> {
        self.lanes.decode_in_turn(&self.blob, [&self.out, second], times)
    }
}

impl Work for Pictures {
    fn name(&self) -> &'static str {
        "video engines"
    }

    fn run(&mut self) -> Result<()> {
        self.lanes.decode(&self.blob, &self.out)
    }
}

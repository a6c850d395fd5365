//! Engines encode and decode blobs: this crate's own code, a device, or a codec library. Files, caches and messages
//! work with any engine.

mod capabilities;
mod coordinates;
mod cpu;
mod goal;
mod host;
mod layered;
pub mod search;
mod stop;
mod subject;
mod sum;
pub mod threads;

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::error::Error;
use crate::format::BlobInfo;
use crate::options::{DecodeOptions, EncodeOptions};
use crate::view::{Dtype, Tensor, TensorView};

pub use crate::blob::Parts;
pub use crate::error::{ErrorKind, Result};
pub use crate::goal::{GoalName, GoalNumber};
pub use crate::options::Limits;
pub use capabilities::Capabilities;
pub use coordinates::Coordinates;
pub use cpu::Cpu;
pub use goal::{Coded, Outcome, TINY, meet_goal};
pub use layered::{Elements, Layer, Layered, Opened, Pieces, Scratch, Single, max_layered_len};
pub use stop::Stop;
pub use subject::{Subject, estimate_bits};

/// Encodes and decodes blobs.
pub trait Engine: Send + Sync {
    /// Name for people.
    fn name(&self) -> String;

    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// Whether it encodes a tensor of a dtype with these options; if not, the error says why.
    fn can_encode(&self, dtype: Dtype, options: &EncodeOptions) -> Result<()> {
        self.capabilities().check_encode(&self.name(), dtype, options)
    }

    /// Whether it decodes a blob; if not, the error says why, and another engine may.
    fn can_decode(&self, info: &BlobInfo) -> Result<()> {
        self.capabilities().check_decode(&self.name(), info)
    }

    /// Encodes a tensor into a new blob.
    fn encode(&self, view: &TensorView<'_>, options: &EncodeOptions) -> Result<Vec<u8>>;

    /// Encodes into the caller's memory and returns the bytes written. [`Engine::max_encoded_len`] bytes always
    /// suffice.
    fn encode_into(&self, view: &TensorView<'_>, options: &EncodeOptions, out: &mut [u8]) -> Result<usize> {
        let blob = self.encode(view, options)?;
        let (need, have) = (blob.len(), out.len());
        let room =
            out.get_mut(..need).ok_or(Error::BufferTooSmall { need: need as u64, have: have as u64 })?;
        room.copy_from_slice(&blob);
        Ok(need)
    }

    /// Decodes a blob into a new tensor.
    fn decode(&self, blob: &[u8], options: &DecodeOptions) -> Result<Tensor>;

    /// Decodes rows of the two-dimensional view, as [`crate::decode_rows`].
    fn decode_rows(&self, blob: &[u8], rows: Range<usize>, options: &DecodeOptions) -> Result<Tensor>;

    /// Decodes into the caller's memory, which must have exactly the bytes of the tensor.
    fn decode_into(&self, blob: &[u8], options: &DecodeOptions, out: &mut [u8]) -> Result<()> {
        fill(&self.decode(blob, options)?.data, out)
    }

    /// Decodes rows as [`Engine::decode_rows`] does, into the caller's memory, which must have exactly their bytes.
    fn decode_rows_into(
        &self,
        blob: &[u8],
        rows: Range<usize>,
        options: &DecodeOptions,
        out: &mut [u8],
    ) -> Result<()> {
        fill(&self.decode_rows(blob, rows, options)?.data, out)
    }

    /// Most bytes that [`Engine::encode`] returns for a tensor of this dtype and shape with these options.
    fn max_encoded_len(&self, dtype: Dtype, shape: &[usize], options: &EncodeOptions) -> Result<usize> {
        match options.residual.len() {
            0 => crate::format::max_encoded_len(dtype, shape),
            residuals => max_layered_len(dtype, shape, residuals + 1),
        }
    }

    /// Checks every checksum and decodes everything, without keeping the result.
    fn verify(&self, blob: &[u8], options: &DecodeOptions) -> Result<()> {
        self.decode(blob, options).map(|_| ())
    }
}

/// An engine that several owners share. Default: [`Cpu`].
#[derive(Clone)]
pub struct SharedEngine(Arc<dyn Engine>);

impl SharedEngine {
    /// Shares an engine.
    pub fn new(engine: impl Engine + 'static) -> Self {
        SharedEngine(Arc::new(engine))
    }
}

impl Default for SharedEngine {
    fn default() -> Self {
        SharedEngine::new(Cpu)
    }
}

impl Deref for SharedEngine {
    type Target = dyn Engine;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl fmt::Debug for SharedEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.name())
    }
}

fn fill(data: &[u8], out: &mut [u8]) -> Result<()> {
    if data.len() != out.len() {
        return Err(Error::BufferTooSmall { need: data.len() as u64, have: out.len() as u64 });
    }
    out.copy_from_slice(data);
    Ok(())
}

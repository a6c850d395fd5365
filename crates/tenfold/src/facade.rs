//! The functions that users call.

use std::ops::Range;

use crate::blob::{Frame, Params};
use crate::error::{Error, Result};
use crate::levels::{self, Dequant};
use crate::options::{DecodeOptions, Effort, EncodeOptions, Goal, Limits};
use crate::rate::{self, Outcome, Target};
use crate::simd::Level;
use crate::view::{Dtype, Tensor, TensorView, byte_len, rows_of};
use crate::workers::Workers;
use crate::{inspect::BlobInfo, lossless};

/// Below this many values a soft goal (bits, ratio, error) is met losslessly: a header and a table would
/// take more than quantising saves.
const TINY: usize = 256;

/// Encodes a tensor into a new blob.
///
/// Integers and booleans take [`Goal::Lossless`] only. A goal that a lossless blob meets with fewer
/// bytes is met losslessly.
pub fn encode(view: &TensorView<'_>, options: &EncodeOptions) -> Result<Vec<u8>> {
    options.validate()?;
    let workers = Workers::new(options.threads)?;
    let exact = || lossless::encode(view, options.lane_values, &workers);
    if options.goal == Goal::Lossless {
        return exact();
    }
    let bytes = view.data().len() as f64;
    let target = match options.goal {
        Goal::Bits(b) => Target::Bytes(b * view.len() as f64 / 8.0),
        Goal::Ratio(r) => Target::Bytes(bytes / r),
        Goal::Mse(v) => Target::Mse(v),
        Goal::Nmse(v) => Target::Nmse(v),
        Goal::MaxError(v) => Target::Bound(v),
        Goal::Step(v) => Target::Step(v),
        Goal::MaxBytes(cap) => Target::Cap(cap),
        Goal::Lossless => return exact(),
    };
    let soft = !matches!(target, Target::Cap(_));
    if !view.dtype().is_float() {
        // A cap is not about error: an integer tensor may meet it exactly.
        if let Target::Cap(cap) = target {
            let blob = exact()?;
            return if blob.len() <= cap { Ok(blob) } else { Err(does_not_fit(cap, blob.len())) };
        }
        return Err(Error::InvalidArgument(format!(
            "{} tensors are only coded losslessly; use Goal::Lossless",
            view.dtype()
        )));
    }
    if soft && view.len() < TINY {
        return exact();
    }
    // Close to the size of the elements a lossless blob may be the better answer; try it first where
    // the goal is a size that it could meet.
    let size = match target {
        Target::Bytes(b) => Some(b),
        Target::Cap(c) => Some(c as f64),
        _ => None,
    };
    if size.is_some_and(|s| s >= bytes * 0.5) || view.len() < TINY {
        let blob = exact()?;
        if size.is_some_and(|s| blob.len() as f64 <= s) {
            return Ok(blob);
        }
    }
    match (rate::encode(view, options, &workers, target)?, target) {
        // A lossless blob is seldom this small, so it is seldom made for nothing.
        (Outcome::Blob(blob), _) if blob.len() as f64 > bytes * 0.4 => {
            let other = exact()?;
            Ok(if other.len() <= blob.len() { other } else { blob })
        }
        // Much smaller than asked: no finer step was of use, as in a tensor that is mostly zero.
        (Outcome::Blob(blob), Target::Bytes(want)) if (blob.len() as f64) < want * 0.95 => {
            let other = exact()?;
            Ok(if other.len() as f64 <= want { other } else { blob })
        }
        (Outcome::Trivial(blob), _) => {
            let other = exact()?;
            let blob = if other.len() <= blob.len() { other } else { blob };
            match target {
                Target::Cap(cap) if blob.len() > cap => Err(does_not_fit(cap, blob.len())),
                _ => Ok(blob),
            }
        }
        (Outcome::Blob(blob), _) => Ok(blob),
        (Outcome::Failed(smallest), Target::Cap(cap)) => {
            let blob = exact()?;
            if blob.len() <= cap {
                return Ok(blob);
            }
            Err(does_not_fit(cap, smallest.map_or(blob.len(), |s| s.min(blob.len()))))
        }
        (Outcome::Failed(_), _) => exact(),
    }
}

fn does_not_fit(cap: usize, need: usize) -> Error {
    Error::DoesNotFit { cap: cap as u64, need: need as u64 }
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

/// Reads the header of a blob that this crate decodes itself.
fn open(blob: &[u8], options: &DecodeOptions) -> Result<Frame> {
    let frame = Frame::parse_native(blob, &options.limits)?;
    frame.check_len(blob)?;
    Ok(frame)
}

/// Decodes a blob into a new tensor.
pub fn decode(blob: &[u8], options: &DecodeOptions) -> Result<Tensor> {
    let frame = open(blob, options)?;
    let size = frame.head.dtype.size();
    let mut data = vec![0u8; frame.values * size];
    decode_range(&frame, blob, 0..frame.values, options.threads, &mut data)?;
    Ok(Tensor { dtype: frame.head.dtype, shape: frame.head.shape, data })
}

/// Decodes into the caller's buffer, which must have exactly the bytes of the tensor.
pub fn decode_into(blob: &[u8], options: &DecodeOptions, out: &mut [u8]) -> Result<()> {
    let frame = open(blob, options)?;
    let need = frame.values * frame.head.dtype.size();
    if out.len() != need {
        return Err(Error::BufferTooSmall { need: need as u64, have: out.len() as u64 });
    }
    decode_range(&frame, blob, 0..frame.values, options.threads, out)
}

/// Decodes rows `rows` of the two-dimensional view; only the tiles that hold them are read.
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
    let mut data = vec![0u8; values.len() * frame.head.dtype.size()];
    decode_range(&frame, blob, values, options.threads, &mut data)?;
    Ok(Tensor { dtype: frame.head.dtype, shape: vec![rows.len(), cols], data })
}

/// Decodes consecutive values into `out`, tile by tile.
fn decode_range(
    frame: &Frame,
    blob: &[u8],
    values: Range<usize>,
    threads: usize,
    out: &mut [u8],
) -> Result<()> {
    if values.is_empty() {
        return Ok(());
    }
    let level = Level::detect();
    let workers = Workers::new(threads)?;
    let dtype = frame.head.dtype;
    let geometry = frame.head.params.geometry();
    let first = values.start / geometry.tile_values();
    let last = (values.end - 1) / geometry.tile_values();
    // The part of each tile that lies within the range, and where it goes.
    let window = |i: usize| {
        let t = geometry.tile(i, frame.values);
        let from = values.start.max(t.start) - t.start;
        (t, from..values.end.min(t.start + t.len) - t.start)
    };
    let mut pieces = Vec::with_capacity(last - first + 1);
    let mut rest = out;
    for i in first..=last {
        let (piece, later) = rest.split_at_mut(window(i).1.len() * dtype.size());
        pieces.push(piece);
        rest = later;
    }
    match &frame.head.params {
        Params::Levels(p) => {
            let scratch = levels::Scratch::new(level, p);
            let dequant = Dequant::of(dtype, p);
            workers.for_pieces(
                pieces,
                || (),
                |_, i, out| {
                    let (tile, window) = window(first + i);
                    levels::decode_tile(
                        &scratch,
                        p,
                        &dequant,
                        tile,
                        frame.tile(blob, first + i)?,
                        window,
                        out,
                    )
                },
            )
        }
        Params::Planes(p) => {
            let scratch = lossless::Scratch::new(level, p);
            workers.for_pieces(pieces, Vec::new, |planes, i, out| {
                let (tile, window) = window(first + i);
                let bytes = frame.tile(blob, first + i)?;
                lossless::decode_tile(&scratch, p, dtype, tile, bytes, window, planes, out)
            })
        }
        // `open` lets none pass.
        Params::Carried(p) => Err(Error::OtherEngine { id: p.id, codec: frame.codec().name() }),
    }
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

/// Bits a value that this tensor would take at a step and an effort, from a sample of its values.
/// Meant for sharing one budget among many tensors.
pub fn estimate_bits(view: &TensorView<'_>, step: f64, effort: Effort) -> Result<f64> {
    EncodeOptions::new(Goal::Step(step)).validate()?;
    if !view.dtype().is_float() || view.is_empty() {
        return Ok(view.dtype().size() as f64 * 8.0);
    }
    rate::estimate(view, step, effort)
}

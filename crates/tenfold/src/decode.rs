//! From tiles to elements, directly or through transforms that have to be undone.

use std::ops::Range;

use crate::blob::{CodecParams, Frame};
use crate::error::{Error, Result};
use crate::levels::{self, Dequant};
use crate::lossless;
use crate::prepare::{self, Elements, Slab, Transform};
use crate::simd::Isa;
use crate::view::Dtype;
use crate::workers::Workers;

/// Values that are decoded before transforms are undone.
pub(crate) const SLAB: usize = 1 << 23;

/// Decodes the values of whole rows into `out`.
pub(crate) fn decode_range(
    frame: &Frame,
    blob: &[u8],
    values: Range<usize>,
    workers: &Workers,
    out: &mut [u8],
) -> Result<()> {
    if values.is_empty() {
        return Ok(());
    }
    match frame.head.dtype {
        dtype if frame.head.transforms.is_empty() => decode_tiles(frame, blob, values, dtype, workers, out),
        Dtype::F64 => decode_prepared::<f64>(frame, blob, values, workers, out),
        _ => decode_prepared::<f32>(frame, blob, values, workers, out),
    }
}

/// Decodes transformed rows slab by slab and undoes the transforms.
fn decode_prepared<R: Elements>(
    frame: &Frame,
    blob: &[u8],
    values: Range<usize>,
    workers: &Workers,
    out: &mut [u8],
) -> Result<()> {
    let (dtype, cols) = (frame.head.dtype, frame.head.shape.last().copied().unwrap_or(1).max(1));
    let transforms = &frame.head.transforms;
    if let Some(rest) = prepare::behind_transposition(transforms) {
        return decode_transposed::<R>(frame, blob, rest, values, workers, out);
    }
    let (all, width) = (frame.values / cols, prepare::width_of(transforms, cols));
    let group = prepare::group_of(transforms).min(all).max(1);
    // Tiles at the seams are decoded twice, so slabs should span many tiles.
    let slab =
        SLAB.max(32 * frame.head.params.geometry().tile_values()).div_ceil(cols).next_multiple_of(group);
    let rows = values.start / cols..values.end / cols;
    let (mut worked, mut spare) = (Vec::new(), Vec::new());
    let mut rest = out;
    for start in (rows.start / group * group..rows.end).step_by(slab) {
        let range = start..(start + slab).min(all).min(rows.end.next_multiple_of(group));
        let wanted = rows.start.max(start)..rows.end.min(range.end);
        let (out, later) = rest.split_at_mut(wanted.len() * cols * dtype.size());
        rest = later;
        worked.resize(range.len() * width, R::from_f64(0.0));
        let coded = range.start * width..range.end * width;
        decode_tiles(frame, blob, coded, R::DTYPE, workers, bytemuck::cast_slice_mut(&mut worked))?;
        let undo =
            |out: &mut [u8]| prepare::finish(transforms, dtype, cols, range.start, &worked, workers, out);
        if wanted == range {
            undo(out)?;
            continue;
        }
        // Rows of a group that were not requested.
        spare.resize(range.len() * cols * dtype.size(), 0);
        undo(&mut spare)?;
        let from = (wanted.start - range.start) * cols * dtype.size();
        out.copy_from_slice(&spare[from..from + out.len()]);
    }
    Ok(())
}

/// Decodes all rows of a transposed tensor slab by slab, undoes the other transforms, and keeps of each row the columns that are the
/// wanted rows of the tensor.
fn decode_transposed<R: Elements>(
    frame: &Frame,
    blob: &[u8],
    transforms: &[Transform],
    values: Range<usize>,
    workers: &Workers,
    out: &mut [u8],
) -> Result<()> {
    let (dtype, width) = (frame.head.dtype, frame.head.shape.last().copied().unwrap_or(1).max(1));
    let (size, line) = (dtype.size(), frame.values / width);
    let group = prepare::group_of(transforms);
    let slab =
        SLAB.max(32 * frame.head.params.geometry().tile_values()).div_ceil(line).next_multiple_of(group);
    let (mut worked, mut done) = (Vec::new(), Vec::new());
    for first in (0..width).step_by(slab) {
        let rows = first..width.min(first + slab);
        let coded = rows.start * line..rows.end * line;
        worked.resize(coded.len(), R::from_f64(0.0));
        done.resize(coded.len() * size, 0);
        decode_tiles(frame, blob, coded, R::DTYPE, workers, bytemuck::cast_slice_mut(&mut worked))?;
        prepare::finish(transforms, dtype, line, first, &worked, workers, &mut done)?;
        let wanted = values.start / width..values.end / width;
        Slab { bytes: &done, line, size, first, wanted }.turn(width, workers, out)?;
    }
    if let Some(Transform::Kept(kept)) = frame.head.transforms.first() {
        kept.apply(values, out);
    }
    Ok(())
}

/// Decodes all values without undoing transforms.
pub(crate) fn decode_working(frame: &Frame, blob: &[u8], workers: &Workers, out: &mut [f32]) -> Result<()> {
    decode_tiles(frame, blob, 0..frame.coded, Dtype::F32, workers, bytemuck::cast_slice_mut(out))
}

/// Decodes consecutive values into `out` as elements of a dtype, tile by tile.
fn decode_tiles(
    frame: &Frame,
    blob: &[u8],
    values: Range<usize>,
    dtype: Dtype,
    workers: &Workers,
    out: &mut [u8],
) -> Result<()> {
    let isa = Isa::detect();
    let geometry = frame.head.params.geometry();
    let first = values.start / geometry.tile_values();
    let last = (values.end - 1) / geometry.tile_values();
    // The part of each tile that lies within the range, and where it goes.
    let window = |i: usize| {
        let t = geometry.tile(i, frame.coded);
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
        CodecParams::Levels(p) => {
            let dequant = Dequant::from_params(dtype, p);
            let scratch = levels::Scratch::new(isa, p, &dequant, !frame.head.transforms.is_empty());
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
        CodecParams::Planes(p) => {
            let scratch = lossless::Scratch::new(isa, p);
            workers.for_pieces(pieces, Vec::new, |planes, i, out| {
                let (tile, window) = window(first + i);
                let bytes = frame.tile(blob, first + i)?;
                lossless::decode_tile(&scratch, p, dtype, tile, bytes, window, planes, out)
            })
        }
        CodecParams::Delta(_) => Err(Error::NeedsBase),
        // `Layered` decodes them one by one.
        CodecParams::Layers(_) => Err(Error::Corrupt("layers in place of tiles")),
        // `open` refuses them.
        CodecParams::Carried(p) => Err(Error::OtherEngine { id: p.id, codec: frame.codec().name() }),
    }
}

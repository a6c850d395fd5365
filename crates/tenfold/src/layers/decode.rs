//! Layers added up, some rows after the other.

use std::ops::Range;

use super::sum::Working;
use crate::blob::Frame;
use crate::decode::{SLAB, decode_range};
use crate::error::Result;
use crate::options::DecodeOptions;
use crate::prepare::group_of;
use crate::simd::Isa;
use crate::view::Dtype;
use crate::workers::Workers;

/// Values that a worker adds at a time.
const PIECE: usize = 1 << 16;

/// Decodes the values of whole rows of a blob whose layers were opened.
pub(crate) fn decode(
    frame: &Frame,
    blob: &[u8],
    values: Range<usize>,
    options: &DecodeOptions,
    out: &mut [u8],
) -> Result<()> {
    // Some rows leave much of a layer unread; what is read, the layer's own checksums cover.
    if values.len() == frame.values {
        (0..frame.layers.len()).try_for_each(|i| frame.tile(blob, i).map(|_| ()))?;
    }
    match frame.head.dtype {
        Dtype::F64 => decode_in::<f64>(frame, blob, values, options, out),
        _ => decode_in::<f32>(frame, blob, values, options, out),
    }
}

fn decode_in<R: Working>(
    frame: &Frame,
    blob: &[u8],
    values: Range<usize>,
    options: &DecodeOptions,
    out: &mut [u8],
) -> Result<()> {
    let workers = Workers::new(options.threads, &options.stop)?;
    let (dtype, cols) = (frame.head.dtype, frame.head.shape.last().copied().unwrap_or(1).max(1));
    let (mut sum, mut next) = (Vec::new(), Vec::new());
    let mut rest = out;
    for range in slabs(frame, cols, values) {
        let (out, later) = rest.split_at_mut(range.len() * dtype.size());
        rest = later;
        // Where working values are what is asked for, they are added where they shall be.
        let place = if dtype == R::DTYPE { bytemuck::try_cast_slice_mut(out).ok() } else { None };
        match place {
            Some(sum) => add_layers(frame, blob, range, options, &workers, (sum, &mut next))?,
            None => {
                sum.resize(range.len(), R::of(0.0));
                add_layers(frame, blob, range, options, &workers, (&mut sum, &mut next))?;
                let pieces = sum.chunks(PIECE).zip(out.chunks_mut(PIECE * dtype.size())).collect();
                round(dtype, pieces, &workers)?;
            }
        }
    }
    Ok(())
}

/// Whole rows, with many tiles and whole groups between two seams.
fn slabs(frame: &Frame, cols: usize, values: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let tile = frame.layers.iter().map(|l| l.head.params.geometry().tile_values()).max().unwrap_or(1);
    let group = frame.layers.iter().map(|l| group_of(&l.head.transforms)).max().unwrap_or(1);
    let rows = SLAB.max(32 * tile).div_ceil(cols).next_multiple_of(group);
    let slab = rows.saturating_mul(cols);
    (values.start..values.end).step_by(slab).map(move |at| at..values.end.min(at.saturating_add(slab)))
}

/// Decodes the layers of some rows into the first room, by way of the second.
fn add_layers<R: Working>(
    frame: &Frame,
    blob: &[u8],
    values: Range<usize>,
    options: &DecodeOptions,
    workers: &Workers,
    (sum, next): (&mut [R], &mut Vec<R>),
) -> Result<()> {
    for (i, layer) in frame.layers.iter().enumerate() {
        let bytes = frame.part(blob, i)?;
        if i == 0 {
            decode_range(layer, bytes, values.clone(), options, bytemuck::cast_slice_mut(sum))?;
            continue;
        }
        next.resize(values.len(), R::of(0.0));
        decode_range(layer, bytes, values.clone(), options, bytemuck::cast_slice_mut(next))?;
        add(sum, next, workers)?;
    }
    Ok(())
}

/// Adds a layer to the sum of those before it.
pub(super) fn add<R: Working>(sum: &mut [R], next: &[R], workers: &Workers) -> Result<()> {
    let pieces: Vec<(&mut [R], &[R])> = sum.chunks_mut(PIECE).zip(next.chunks(PIECE)).collect();
    workers.for_pieces(
        pieces,
        || (),
        |(), _, (sum, next)| {
            sum.iter_mut().zip(next).for_each(|(s, &n)| *s = s.join(n));
            Ok(())
        },
    )
}

fn round<R: Working>(dtype: Dtype, pieces: Vec<(&[R], &mut [u8])>, workers: &Workers) -> Result<()> {
    let isa = Isa::detect();
    workers.for_pieces(
        pieces,
        || (),
        |(), _, (sums, out)| {
            R::to_elements(isa, dtype, sums, out);
            Ok(())
        },
    )
}

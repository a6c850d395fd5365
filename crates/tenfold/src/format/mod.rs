//! Constants and parts of the bitstream, for engines that read and write it with their own code.
//!
//! Normative: docs/format.md. The CUDA kernels take theirs from here.

pub mod carry;
mod inspect;

use std::ops::Range;
use std::sync::Arc;

use crate::blob::Frame;
use crate::error::{Error, Result};
use crate::options::{Goal, Limits};
use crate::prepare::{Basis, Transform};
use crate::view::{Dtype, TensorView, byte_len};
use crate::workers::Workers;

pub use crate::blob::{
    CODEC_DELTA, CODEC_LAYERS, CODEC_LEVELS, CODEC_PAIRS, CODEC_PLANES, FIXED, Geometry, MAGIC, MAX_LAYERS,
    MAX_TILE,
};
pub use crate::engine::max_layered_len;
pub use crate::entropy::class::{KNOWN_SCALES as SCALES_OF_BASIS, MAX_SCALE_BITS};
pub use crate::entropy::pairs::{
    PAIR_ESCAPE, PAIR_ESCAPE_BITS, PAIR_FIRST_ODD, PAIR_LOG, PAIR_SECOND_ODD, PAIR_TABLES,
};
pub use crate::entropy::rans::START;
pub use crate::entropy::table::LOG_RANGE;
pub use crate::entropy::{ESCAPE, MAX_CLASSES, MAX_LANES, MAX_LEVEL, MAX_LOW_BITS};
pub use crate::levels::{CODED, ESCAPES_SHIFT, EXACT, OFFSETS, UNITS};
pub use crate::lossless::{LOG as PLANE_LOG, PLANE_CODED, PLANE_CONSTANT, PLANE_STORED};
pub use crate::prepare::MOST_POSITION as MAX_POSITION;
pub use crate::prepare::list::{
    BASIS as TRANSFORM_BASIS, KEPT as TRANSFORM_KEPT, MEANS as TRANSFORM_MEANS, ROPE as TRANSFORM_ROPE,
    TRANSPOSED as TRANSFORM_TRANSPOSED, WEIGHTS as TRANSFORM_WEIGHTS,
};
pub use crate::quant::machine::CODES as TRELLIS_CODES;
pub use crate::rate::{Look, goal_behind};
pub use crate::view::Element;
pub use inspect::{BlobInfo, BlobShape, Codec};

/// Version of the bitstream that this build writes, and the newest it reads.
pub const VERSION: u8 = 1;

/// Minor version that this build writes. 1.1 added codec 5, 1.2 the transform 10, 1.3 codec 6. No blob states it: a reader refuses what it does not know.
pub const MINOR: u8 = 3;

/// The minor version of a version such as `1.0`, if this build writes it.
///
/// ```
/// assert_eq!(tenfold::format::parse_version("1.0")?, 0);
/// assert!(tenfold::format::parse_version("2.0").is_err());
/// # Ok::<(), tenfold::Error>(())
/// ```
pub fn parse_version(version: &str) -> Result<u8> {
    let minor = version.strip_prefix(&format!("{VERSION}.")).and_then(|minor| minor.parse().ok());
    minor.filter(|&minor| minor <= MINOR).ok_or_else(|| {
        let known: Vec<String> = (0..=MINOR).map(|minor| format!("{VERSION}.{minor}")).collect();
        Error::InvalidArgument(format!("format must be {}, not {version:?}", known.join(" or ")))
    })
}

/// Largest size in bytes of a blob of this dtype and shape, whatever the options. For layered blobs use
/// [`max_layered_len`].
///
/// ```
/// use tenfold::{Dtype, format::max_encoded_len};
/// assert!(max_encoded_len(Dtype::F32, &[1000, 1000])? < 4_100_000);
/// # Ok::<(), tenfold::Error>(())
/// ```
pub fn max_encoded_len(dtype: Dtype, shape: &[usize]) -> Result<usize> {
    let bytes = byte_len(dtype, shape)
        .ok_or_else(|| Error::InvalidArgument(format!("shape {shape:?} has too many elements")))?;
    Ok(crate::lossless::max_len(dtype, bytes / dtype.size()) + 10 * shape.len())
}

/// Steps as a header has them, their number first.
pub fn transforms(transforms: &[Transform]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    crate::prepare::write(transforms, &mut out)?;
    Ok(out)
}

/// Checks that transforms can precede the levels of a tensor with this many rows and columns.
pub fn check_transforms(transforms: &[Transform], rows: usize, cols: usize) -> Result<()> {
    crate::prepare::fit(transforms, rows, cols)
}

/// The transforms of a blob whose tensor has this many columns, with the bases that they name.
pub fn resolve_transforms(
    mut transforms: Vec<Transform>,
    bases: &[Arc<Basis>],
    cols: usize,
) -> Result<Vec<Transform>> {
    crate::prepare::resolve(&mut transforms, bases, cols)?;
    Ok(transforms)
}

/// A goal that does not depend on the tensor: [`Goal::RoundToNearest`] becomes the error that it allows for this
/// tensor.
pub fn plain_goal(view: &TensorView<'_>, goal: Goal) -> Result<Goal> {
    crate::rate::plain_goal(view, goal, &Workers::current_thread())
}

/// The same for a tensor of floats whose largest finite magnitude is known.
pub fn plain_goal_within(largest: f64, goal: Goal) -> Goal {
    match goal {
        Goal::RoundToNearest { bits } => crate::rate::within(bits, largest),
        goal => goal,
    }
}

/// Whether this crate undoes transforms of a number.
pub fn knows_transform(id: u8) -> bool {
    crate::prepare::knows(id)
}

/// Where each tile of a blob starts, in bytes from the blob's start, and at the end the length of the blob. Reads the
/// header alone; for engines that move a blob piece by piece. Of a layered blob these are its layers, each a blob.
///
/// ```
/// use tenfold::engine::Limits;
/// use tenfold::{EncodeOptions, Goal, TensorView};
/// let values = vec![0.5f32; 100_000];
/// let view = TensorView::from_slice(&values, &[100_000])?;
/// let blob = tenfold::encode(&view, &EncodeOptions::new(Goal::Lossless))?;
/// let starts = tenfold::format::tile_starts(&blob, &Limits::default())?;
/// assert_eq!(starts.len() as u64, tenfold::inspect(&blob)?.tiles + 1);
/// assert_eq!(*starts.last().unwrap(), blob.len());
/// # Ok::<(), tenfold::Error>(())
/// ```
pub fn tile_starts(blob: &[u8], limits: &Limits) -> Result<Vec<usize>> {
    Ok(Frame::parse_native(blob, limits)?.into_starts())
}

/// The parts of a blob that have checksums of their own: its tiles, or the layers of a layered blob, as bytes counted from the
/// blob's start, each with the CRC-32 that its bytes must have. Reads the header alone; for whoever checks a blob without
/// decoding it, piece by piece as it arrives.
///
/// ```
/// use tenfold::engine::Limits;
/// use tenfold::{EncodeOptions, Goal, TensorView};
/// let values = vec![0.5f32; 100_000];
/// let view = TensorView::from_slice(&values, &[100_000])?;
/// let blob = tenfold::encode(&view, &EncodeOptions::new(Goal::Lossless))?;
/// let parts = tenfold::format::part_sums(&blob, &Limits::default())?;
/// assert!(parts.iter().all(|(range, sum)| crc32fast::hash(&blob[range.clone()]) == *sum));
/// assert_eq!(parts.last().unwrap().0.end, blob.len());
/// # Ok::<(), tenfold::Error>(())
/// ```
pub fn part_sums(blob: &[u8], limits: &Limits) -> Result<Vec<(Range<usize>, u32)>> {
    Ok(Frame::parse(blob, limits)?.parts().collect())
}

/// The bytes of a blob that [`decode_rows`](crate::decode_rows) reads for some rows, apart from the header: a run of whole tiles.
/// Reads the header alone. Of layered, transposed and carried blobs it is everything behind the header.
///
/// The rest of the blob may hold anything while these rows are decoded.
///
/// ```
/// use tenfold::engine::Limits;
/// use tenfold::{DecodeOptions, EncodeOptions, Goal, TensorView};
/// let values: Vec<f32> = (0..400_000).map(|i| i as f32).collect();
/// let view = TensorView::from_slice(&values, &[1000, 400])?;
/// let blob = tenfold::encode(&view, &EncodeOptions::new(Goal::Lossless))?;
/// let tiles = tenfold::format::rows_span(&blob, 10..20, &Limits::default())?;
/// assert!(tiles.len() < blob.len() / 2);
/// let mut part = vec![0; blob.len()];
/// let header = tenfold::inspect(&blob)?.header_bytes as usize;
/// part[..header].copy_from_slice(&blob[..header]);
/// part[tiles.clone()].copy_from_slice(&blob[tiles]);
/// let rows = tenfold::decode_rows(&part, 10..20, &DecodeOptions::default())?;
/// assert_eq!(rows.to_vec::<f32>()?, values[4000..8000]);
/// # Ok::<(), tenfold::Error>(())
/// ```
pub fn rows_span(blob: &[u8], rows: Range<usize>, limits: &Limits) -> Result<Range<usize>> {
    let frame = Frame::parse(blob, limits)?;
    let cols = frame.head.shape.last().copied().unwrap_or(1);
    let all = frame.values.checked_div(cols).unwrap_or(0);
    let given = crate::view::rows_of(&frame.head.shape);
    if rows.start > rows.end || rows.end > given {
        return Err(Error::InvalidArgument(format!(
            "rows {rows:?} are outside the tensor, which has {given} rows"
        )));
    }
    let whole = frame.header_len..frame.blob_len();
    let scattered = !matches!(frame.codec(), Codec::Planes | Codec::Levels)
        || frame.head.transforms.contains(&Transform::Transposed);
    if scattered || all == 0 || rows.is_empty() {
        return Ok(if rows.is_empty() { whole.start..whole.start } else { whole });
    }
    let width = crate::prepare::width_of(&frame.head.transforms, cols);
    let group = crate::prepare::group_of(&frame.head.transforms).clamp(1, all);
    let first = rows.start / group * group * width;
    let last = (rows.end.next_multiple_of(group).min(all) * width).max(first + 1);
    let tile = frame.head.params.geometry().tile_values();
    let starts = frame.into_starts();
    let at = |i: usize| starts.get(i).copied().unwrap_or(whole.end);
    Ok(at(first / tile)..at(last.div_ceil(tile)))
}

//! The transforms of a header.

use super::{Dct, Delta, Hadamard, Kept, Means, Rope, Rotation, Transform, Weights};
use crate::blob::bytes::{Reader, put_varint};
use crate::blob::{CODEC_LAYERS, CODEC_LEVELS, CODEC_PAIRS, CODEC_PLANES};
use crate::error::{Error, Result};
use crate::view::{Dtype, rows_of};

const HADAMARD: u8 = 1;
/// Stored number of weights.
pub const WEIGHTS: u8 = 2;
// 3 is in a golden vector of what is refused.
/// Stored number of kept elements.
pub const KEPT: u8 = 4;
/// Stored number of means.
pub const MEANS: u8 = 5;
const DCT: u8 = 6;
/// Stored number of a basis.
pub const BASIS: u8 = 7;
/// Stored number of rotary positions.
pub const ROPE: u8 = 8;
const DELTA: u8 = 9;
/// Stored number of a transposition.
pub const TRANSPOSED: u8 = 10;

impl Transform {
    fn id(&self) -> u8 {
        match self {
            Transform::Hadamard(_) => HADAMARD,
            Transform::Weights(_) => WEIGHTS,
            Transform::Kept(_) => KEPT,
            Transform::Means(_) => MEANS,
            Transform::Dct(_) => DCT,
            Transform::Basis(_) => BASIS,
            Transform::Rope(_) => ROPE,
            Transform::Delta(_) => DELTA,
            Transform::Transposed => TRANSPOSED,
        }
    }

    fn content(&self) -> Vec<u8> {
        match self {
            Transform::Hadamard(h) => h.write(),
            Transform::Weights(w) => w.write(),
            Transform::Kept(k) => k.write(),
            Transform::Means(m) => m.write(),
            Transform::Dct(d) => d.write(),
            Transform::Basis(b) => b.write(),
            Transform::Rope(r) => r.write(),
            Transform::Delta(d) => d.write(),
            Transform::Transposed => Vec::new(),
        }
    }
}

/// Whether a transform may stand before a codec.
pub(super) fn allowed(id: u8, codec: u8) -> bool {
    match codec {
        CODEC_PLANES | CODEC_LAYERS => false,
        CODEC_LEVELS | CODEC_PAIRS => {
            matches!(id, HADAMARD | WEIGHTS | KEPT | MEANS | DCT | BASIS | ROPE | DELTA | TRANSPOSED)
        }
        // Row by row and without elements of its own: pictures have a place for those.
        _ => matches!(id, HADAMARD | WEIGHTS | MEANS | DCT | BASIS | ROPE),
    }
}

/// Whether a transform may stand before a codec outside this crate.
pub(super) fn may_be_carried(transform: &Transform) -> bool {
    // No codec of this crate has this number.
    allowed(transform.id(), u8::MAX)
}

/// Whether a transform may stand before any codec of this crate.
pub(crate) fn knows(id: u8) -> bool {
    allowed(id, CODEC_LEVELS)
}

/// Writes a chain.
pub(crate) fn write(transforms: &[Transform], out: &mut Vec<u8>) -> Result<()> {
    let count = u8::try_from(transforms.len())
        .map_err(|_| Error::InvalidArgument("a chain can have at most 255 transforms".into()))?;
    out.push(count);
    for transform in transforms {
        let content = transform.content();
        out.push(transform.id());
        put_varint(out, content.len() as u64);
        out.extend_from_slice(&content);
    }
    Ok(())
}

/// Reads a chain; a transform that this build does not know, or not before this codec, is refused by its
/// number.
pub(crate) fn read(
    r: &mut Reader<'_>,
    codec: u8,
    dtype: Dtype,
    shape: &[usize],
    values: usize,
) -> Result<Vec<Transform>> {
    let count = r.u8()?;
    let (mut cols, mut rows) = (shape.last().copied().unwrap_or(1), rows_of(shape));
    let mut transforms: Vec<Transform> = Vec::with_capacity(usize::from(count));
    for i in 0..count {
        let id = r.u8()?;
        if !allowed(id, codec) {
            return Err(Error::UnsupportedFeature { what: "preparation step", id: u64::from(id) });
        }
        let len = usize::try_from(r.varint()?).map_err(|_| Error::Corrupt("preparation step"))?;
        let content = r.take(len)?;
        transforms.push(match id {
            HADAMARD => Transform::Hadamard(Hadamard::read(content)?),
            WEIGHTS => Transform::Weights(Weights::read(content, cols, rows)?),
            MEANS => Transform::Means(Means::read(content, cols)?),
            DCT => Transform::Dct(Dct::read(content)?),
            BASIS if transforms.contains(&Transform::Transposed) => {
                return Err(Error::Corrupt("a basis behind a transposition"));
            }
            BASIS => Transform::Basis(Rotation::read(content, cols)?),
            ROPE => Transform::Rope(Rope::read(content, cols)?),
            DELTA if transforms.iter().any(|s| matches!(s, Transform::Delta(_))) => {
                return Err(Error::Corrupt("two delta steps"));
            }
            DELTA => Transform::Delta(Delta::read(content)?),
            TRANSPOSED
                if !content.is_empty() || transforms.iter().any(|t| !matches!(t, Transform::Kept(_))) =>
            {
                return Err(Error::Corrupt("transposed step"));
            }
            TRANSPOSED => {
                std::mem::swap(&mut cols, &mut rows);
                Transform::Transposed
            }
            _ if i > 0 => return Err(Error::Corrupt("kept elements after another step")),
            _ => Transform::Kept(Kept::read(content, dtype, values)?),
        });
        cols = transforms.last().map_or(cols, |transform| transform.width(cols));
    }
    Ok(transforms)
}

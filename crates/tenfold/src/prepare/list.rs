//! The steps of a header.

use super::{Dct, Delta, Hadamard, Kept, Means, Rope, Rotation, Step, Weights};
use crate::blob::bytes::{Reader, put_varint};
use crate::blob::{CODEC_LAYERS, CODEC_LEVELS, CODEC_PLANES};
use crate::error::{Error, Result};
use crate::view::{Dtype, rows_of};

const HADAMARD: u8 = 1;
/// Stored number of weights.
pub const WEIGHTS: u8 = 2;
// 3 is in a golden vector of what is refused.
/// Stored number of kept elements.
pub const KEPT: u8 = 4;
const MEANS: u8 = 5;
const DCT: u8 = 6;
/// Stored number of a basis.
pub const BASIS: u8 = 7;
/// Stored number of rotary positions.
pub const ROPE: u8 = 8;
const DELTA: u8 = 9;

impl Step {
    fn id(&self) -> u8 {
        match self {
            Step::Hadamard(_) => HADAMARD,
            Step::Weights(_) => WEIGHTS,
            Step::Kept(_) => KEPT,
            Step::Means(_) => MEANS,
            Step::Dct(_) => DCT,
            Step::Basis(_) => BASIS,
            Step::Rope(_) => ROPE,
            Step::Delta(_) => DELTA,
        }
    }

    fn content(&self) -> Vec<u8> {
        match self {
            Step::Hadamard(h) => h.write(),
            Step::Weights(w) => w.write(),
            Step::Kept(k) => k.write(),
            Step::Means(m) => m.write(),
            Step::Dct(d) => d.write(),
            Step::Basis(b) => b.write(),
            Step::Rope(r) => r.write(),
            Step::Delta(d) => d.write(),
        }
    }
}

/// Whether a step may stand before a codec.
pub(super) fn allowed(id: u8, codec: u8) -> bool {
    match codec {
        CODEC_PLANES | CODEC_LAYERS => false,
        CODEC_LEVELS => matches!(id, HADAMARD | WEIGHTS | KEPT | MEANS | DCT | BASIS | ROPE | DELTA),
        _ => id == HADAMARD,
    }
}

/// Whether a step may stand before any codec of this crate.
pub(crate) fn knows(id: u8) -> bool {
    allowed(id, CODEC_LEVELS)
}

/// Writes a chain.
pub(crate) fn write(steps: &[Step], out: &mut Vec<u8>) -> Result<()> {
    let count = u8::try_from(steps.len())
        .map_err(|_| Error::InvalidArgument("a chain may have 255 preparation steps at most".into()))?;
    out.push(count);
    for step in steps {
        let content = step.content();
        out.push(step.id());
        put_varint(out, content.len() as u64);
        out.extend_from_slice(&content);
    }
    Ok(())
}

/// Reads a chain; a step that this build does not know, or not before this codec, is refused by its
/// number.
pub(crate) fn read(
    r: &mut Reader<'_>,
    codec: u8,
    dtype: Dtype,
    shape: &[usize],
    values: usize,
) -> Result<Vec<Step>> {
    let count = r.u8()?;
    let (mut cols, rows) = (shape.last().copied().unwrap_or(1), rows_of(shape));
    let mut steps: Vec<Step> = Vec::with_capacity(usize::from(count));
    for i in 0..count {
        let id = r.u8()?;
        if !allowed(id, codec) {
            return Err(Error::UnsupportedFeature { what: "preparation step", id: u64::from(id) });
        }
        let len = usize::try_from(r.varint()?).map_err(|_| Error::Corrupt("preparation step"))?;
        let content = r.take(len)?;
        steps.push(match id {
            HADAMARD => Step::Hadamard(Hadamard::read(content)?),
            WEIGHTS => Step::Weights(Weights::read(content, cols, rows)?),
            MEANS => Step::Means(Means::read(content, cols)?),
            DCT => Step::Dct(Dct::read(content)?),
            BASIS => Step::Basis(Rotation::read(content, cols)?),
            ROPE => Step::Rope(Rope::read(content, cols)?),
            DELTA if steps.iter().any(|s| matches!(s, Step::Delta(_))) => {
                return Err(Error::Corrupt("two delta steps"));
            }
            DELTA => Step::Delta(Delta::read(content)?),
            _ if i > 0 => return Err(Error::Corrupt("kept elements after another step")),
            _ => Step::Kept(Kept::read(content, dtype, values)?),
        });
        cols = steps.last().map_or(cols, |step| step.width(cols));
    }
    Ok(steps)
}

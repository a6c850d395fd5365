//! Reversible steps on real numbers, taken before a codec sees a tensor and recorded in its blob.
//!
//! Normative: docs/format.md, 'Preparation steps'. A step that is asked for, one that is stored and one
//! that is done are the same [`Step`]: none of them has anything to choose.

mod hadamard;

pub use hadamard::Hadamard;

use crate::blob::bytes::{Reader, put_varint};
use crate::error::{Error, Result};

const HADAMARD: u8 = 1;

/// One step of the chain.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Step {
    /// Rotation of blocks of a row.
    Hadamard(Hadamard),
}

impl Step {
    /// Does the step to whole rows of `cols` values.
    pub fn forward(&self, values: &mut [f64], cols: usize) {
        match self {
            Step::Hadamard(h) => h.forward(values, cols),
        }
    }

    /// Undoes the step.
    pub fn inverse(&self, values: &mut [f64], cols: usize) {
        match self {
            Step::Hadamard(h) => h.inverse(values, cols),
        }
    }

    fn id(&self) -> u8 {
        match self {
            Step::Hadamard(_) => HADAMARD,
        }
    }

    fn content(&self) -> Vec<u8> {
        match self {
            Step::Hadamard(h) => h.write(),
        }
    }
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
pub(crate) fn read(r: &mut Reader<'_>, allowed: bool) -> Result<Vec<Step>> {
    let count = r.u8()?;
    let mut steps = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        let id = r.u8()?;
        if id != HADAMARD || !allowed {
            return Err(Error::UnsupportedFeature { what: "preparation step", id: u64::from(id) });
        }
        let len = usize::try_from(r.varint()?).map_err(|_| Error::Corrupt("preparation step"))?;
        steps.push(Step::Hadamard(Hadamard::read(r.take(len)?)?));
    }
    Ok(steps)
}

//! Reversible steps on real numbers, taken before a codec sees a tensor and recorded in its blob.
//!
//! Normative: docs/format.md, 'Preparation steps'. A step that is asked for, one that is stored and one
//! that is done are the same [`Step`]: none of them has anything to choose. `list` reads and writes the steps of a
//! header, `tensor` does them to a whole tensor and undoes them.

mod hadamard;
mod kept;
mod list;
mod real;
mod tensor;
mod weights;

pub use hadamard::Hadamard;
pub use kept::Kept;
pub(crate) use list::{read, write};
pub(crate) use real::Elements;
pub use real::Real;
pub(crate) use tensor::{Prepared, check, finish};
pub use weights::{Axis, EIGHTHS, Weights};

/// One step of the chain.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Step {
    /// Rotation of blocks of a row.
    Hadamard(Hadamard),
    /// Columns or rows multiplied by weights.
    Weights(Weights),
    /// Elements set aside; encoders add this where it is needed.
    Kept(Kept),
}

impl Step {
    /// Does the step to whole rows of `cols` values, the first of which is row `first` of the tensor.
    pub fn forward<R: Real>(&self, values: &mut [R], cols: usize, first: usize) {
        match self {
            Step::Hadamard(h) => h.forward(values, cols),
            Step::Weights(w) => w.forward(values, cols, first),
            Step::Kept(_) => {}
        }
    }

    /// Undoes the step. Elements that were set aside are none of its business: they are not numbers.
    pub fn inverse<R: Real>(&self, values: &mut [R], cols: usize, first: usize) {
        match self {
            Step::Hadamard(h) => h.inverse(values, cols),
            Step::Weights(w) => w.inverse(values, cols, first),
            Step::Kept(_) => {}
        }
    }

    /// Name for people.
    pub fn name(&self) -> &'static str {
        match self {
            Step::Hadamard(_) => "Hadamard",
            Step::Weights(w) => match w.axis() {
                Axis::Columns => "column weights",
                Axis::Rows => "row weights",
            },
            Step::Kept(_) => "kept elements",
        }
    }
}

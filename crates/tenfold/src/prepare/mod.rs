//! Reversible transforms on real numbers, taken before a codec sees a tensor and recorded in its blob.
//!
//! Normative: docs/format.md, 'Transforms'. A transform that is asked for, one that is stored and one
//! that is done are the same [`Transform`]: none of them has anything to choose. `list` reads and writes the transforms of a
//! header, `tensor` does them to a whole tensor and undoes them, `auto` finds out which are worth it.

mod auto;
mod basis;
mod dct;
mod delta;
mod hadamard;
mod kept;
pub(crate) mod list;
mod means;
mod patch;
mod product;
mod real;
mod rope;
mod rotation;
mod runs;
mod spec;
mod tensor;
mod transposed;
mod trial;
mod weights;

pub use auto::{LEAST_GAIN, auto, choose};
pub use basis::{Basis, Fingerprint};
pub use dct::Dct;
pub use delta::Delta;
pub use hadamard::Hadamard;
pub use kept::Kept;
pub(crate) use list::{knows, read, write};
pub use means::Means;
pub(crate) use product::accumulate;
pub(crate) use real::Elements;
pub use real::Real;
pub use rope::MOST as MOST_POSITION;
pub use rope::{Pairing, Positions, Rope, Scaling};
pub use rotation::Rotation;
pub use runs::Runs;
pub use spec::{Named, Preparation};
pub(crate) use tensor::{Prepared, check, finish, finish_columns, fit, group_of, resolve, width_of};
pub(crate) use transposed::{Slab, behind_transposition};
pub use weights::{Axis, EIGHTHS, Weights};

/// One transform of the chain.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Transform {
    /// Rotation of blocks of a row.
    Hadamard(Hadamard),
    /// Columns or rows multiplied by weights.
    Weights(Weights),
    /// A number taken off each column.
    Means(Means),
    /// Cosine transform of blocks of a row.
    Dct(Dct),
    /// Rotary positions undone.
    Rope(Rope),
    /// Differences from the row before.
    Delta(Delta),
    /// Coordinates in a basis in place of columns.
    Basis(Rotation),
    /// Rows in place of columns: only before all others, and not with a basis. Whole tensors are turned, not rows, so
    /// [`Transform::forward`] and [`Transform::inverse`] do nothing.
    Transposed,
    /// Elements set aside; encoders add this where it is needed.
    Kept(Kept),
}

impl Transform {
    /// Does the transform to whole rows of `cols` values, the first of which is row `first` of the tensor and begins a
    /// [`Transform::group`]; the rows behind it have [`Transform::width`] values. Returns the squared error of what is lost for good.
    pub fn forward<R: Real>(&self, values: &mut Vec<R>, cols: usize, first: usize) -> f64 {
        match self {
            Transform::Hadamard(h) => h.forward(values, cols),
            Transform::Weights(w) => w.forward(values, cols, first),
            Transform::Means(m) => m.forward(values, cols),
            Transform::Dct(d) => d.forward(values, cols),
            Transform::Rope(r) => r.forward(values, cols, first),
            Transform::Delta(d) => d.forward(values, cols),
            Transform::Basis(b) => return b.basis().map_or(0.0, |b| b.forward(values)),
            Transform::Kept(_) | Transform::Transposed => {}
        }
        0.0
    }

    /// Undoes the transform; `cols` are those before it. Elements that were set aside are none of its business: they are not
    /// numbers.
    pub fn inverse<R: Real>(&self, values: &mut Vec<R>, cols: usize, first: usize) {
        match self {
            Transform::Hadamard(h) => h.inverse(values, cols),
            Transform::Weights(w) => w.inverse(values, cols, first),
            Transform::Means(m) => m.inverse(values, cols),
            Transform::Dct(d) => d.inverse(values, cols),
            Transform::Rope(r) => r.inverse(values, cols, first),
            Transform::Delta(d) => d.inverse(values, cols),
            Transform::Basis(b) => {
                if let Some(basis) = b.basis() {
                    basis.inverse(values);
                }
            }
            Transform::Kept(_) | Transform::Transposed => {}
        }
    }

    /// Columns of rows behind the transform, which had `cols` before it.
    pub fn width(&self, cols: usize) -> usize {
        match self {
            Transform::Basis(b) => b.rank(),
            _ => cols,
        }
    }

    /// Rows that cannot be done without each other.
    pub fn group(&self) -> usize {
        match self {
            Transform::Delta(d) => d.group(),
            _ => 1,
        }
    }

    /// Whether it may stand before a codec outside this crate, see [`crate::format::carry`].
    pub fn may_be_carried(&self) -> bool {
        list::may_be_carried(self)
    }

    /// The names of all transforms.
    pub const NAMES: [&'static str; 10] = [
        "Hadamard",
        "column weights",
        "row weights",
        "means",
        "DCT",
        "rotary positions",
        "delta",
        "basis",
        "kept elements",
        "transposed",
    ];

    /// Name for people.
    pub fn name(&self) -> &'static str {
        match self {
            Transform::Hadamard(_) => "Hadamard",
            Transform::Weights(w) => match w.axis() {
                Axis::Columns => "column weights",
                Axis::Rows => "row weights",
            },
            Transform::Means(_) => "means",
            Transform::Dct(_) => "DCT",
            Transform::Rope(_) => "rotary positions",
            Transform::Delta(_) => "delta",
            Transform::Basis(_) => "basis",
            Transform::Kept(_) => "kept elements",
            Transform::Transposed => "transposed",
        }
    }
}

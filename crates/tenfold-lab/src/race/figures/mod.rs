//! What the measurements say: curves, the gap at each rate, bits at equal error, and where ours loses.

mod curve;
mod equal;
mod gaps;
mod losses;
mod mean;
mod shown;

pub(crate) use curve::{Curve, curve};
pub use equal::{EqualCell, EqualRow, EqualTable};
pub(crate) use equal::{equal_error, means};
pub(crate) use gaps::gap_tables;
pub use gaps::{GapCell, GapRow, GapTable};
pub(crate) use losses::losses;
pub use losses::{Loss, Losses};
pub(crate) use mean::{Point, kinds, points};
pub(crate) use shown::{Style, styles};

use super::run::Row;

/// The rows of a family on a tensor.
pub(crate) fn filter_rows<'a>(
    rows: &'a [Row],
    input: usize,
    family: &'a str,
) -> impl Iterator<Item = &'a Row> {
    rows.iter().filter(move |r| r.input == input && r.family == family)
}

#[cfg(test)]
mod tests;

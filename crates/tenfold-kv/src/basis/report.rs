//! The report of a fit, for people and for JSON.

use serde::Serialize;

use super::gain::Gain;
use super::kind::Kind;

/// A fit as a whole.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// One for each basis.
    pub groups: Vec<GroupReport>,
    /// One for each kind and way to take layers together: that of the file first, then those to compare with.
    pub summaries: Vec<Summary>,
    /// Upper bound on the bytes of the file.
    pub bytes: u64,
    /// Highest rate that the file serves, in bits a value; less than requested if a cap on its bytes required it.
    pub bits: f64,
}

/// One basis.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct GroupReport {
    /// What its rows are of.
    pub kind: Kind,
    /// Its layers.
    pub layers: Vec<usize>,
    /// Columns of its rows.
    pub cols: usize,
    /// Rows that it was made from.
    pub tokens: u64,
    /// Its vectors.
    pub rank: usize,
    /// Its bytes.
    pub bytes: u64,
    /// Bits a value lost because its vectors are compressed, at the rate that the file serves.
    pub loss: f64,
    /// Its gain on rows that it was not made from; `None` if that was not measured.
    pub gain: Option<Gain>,
}

/// Bases of one kind together.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// What rows are of.
    pub kind: Kind,
    /// Layers taken together: a number or `all`, `head` for one basis a head.
    pub group: String,
    /// Mean over the bases, by columns.
    pub gain: Gain,
}

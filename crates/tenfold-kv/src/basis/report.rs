//! The report of a fit, for people and for JSON.

use std::collections::BTreeMap;

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
    /// One for each set.
    pub sets: Vec<SetReport>,
    /// Where a basis loses, and what to do about it: a sentence each.
    pub warnings: Vec<String>,
    /// Upper bound on the bytes of the file.
    pub bytes: u64,
    /// Highest rate that the file serves, in bits a value; less than requested if a cap on its bytes required it.
    pub bits: f64,
}

/// One basis.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct GroupReport {
    /// The set that it is for; `None` if all share it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
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

/// What bases are worth to one set.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct SetReport {
    /// Its name; `None` for files without one.
    pub name: Option<String>,
    /// Its share next to those of the others.
    pub weight: f64,
    /// Its rows.
    pub tokens: u64,
    /// Gain on those of its rows that the basis was not made from, mean over the bases of a kind by columns; empty if that was not
    /// measured.
    pub gains: BTreeMap<Kind, Gain>,
}

impl SetReport {
    /// A sentence for each kind whose basis saves less than means alone would; `own` if the basis was made for this set alone.
    pub(super) fn warnings(&self, own: bool) -> Vec<String> {
        let name = self.name.as_ref().map_or_else(String::new, |name| format!("set {name:?}: "));
        let advice = match own {
            true => "capture more text of this kind",
            false => "raise its weight, capture more of it, or fit each set a basis of its own (`each`)",
        };
        let worst = |gain: &Gain| {
            let lost = gain.at.iter().filter(|at| at.basis < at.means);
            lost.max_by(|a, b| (a.means - a.basis).total_cmp(&(b.means - b.basis))).cloned()
        };
        let lost = self.gains.iter().filter_map(|(kind, gain)| Some((kind, worst(gain)?)));
        lost.map(|(kind, at)| {
            format!(
                "{name}the basis of {kind} saves {:.2} bits a value at {} bits, and means alone save {:.2}; {advice}",
                at.basis, at.bits, at.means
            )
        })
        .collect()
    }
}

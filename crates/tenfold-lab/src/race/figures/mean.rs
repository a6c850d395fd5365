//! Curves of a kind: each coder's points averaged over the tensors.

use serde::Serialize;

use super::means;
use crate::metrics::gap_bits;
use crate::race::run::{Input, Row, TensorKind};

/// A point of a curve: of one tensor, or the mean over several.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Point {
    /// Number of the family among the entrants.
    pub family: usize,
    pub peer: String,
    pub target: Option<f64>,
    pub bits: f64,
    /// Geometric mean, as the axis is logarithmic.
    pub nmse: f64,
    pub gap: f64,
    /// Geometric mean of the largest error over the standard deviation.
    pub max_error: f64,
    /// Tensors in the mean.
    pub tensors: usize,
}

/// Points of the lossy members of every family over the tensors that `wanted` picks, bits rising within
/// a family. Members that lost nothing have no place on these axes and are left out.
pub(crate) fn points(families: &[&str], rows: &[Row], wanted: impl Fn(usize) -> bool) -> Vec<Point> {
    let mut out = Vec::new();
    for (family, id) in families.iter().enumerate() {
        let rows: Vec<&Row> = rows.iter().filter(|r| r.family == *id && wanted(r.input)).collect();
        let mut members: Vec<(&str, Option<f64>)> = Vec::new();
        for row in &rows {
            if !members.contains(&(&row.peer, row.target)) {
                members.push((&row.peer, row.target));
            }
        }
        let start = out.len();
        out.extend(members.into_iter().filter_map(|(peer, target)| {
            let of_member = rows.iter().filter(|r| r.peer == peer && r.target == target);
            let found: Vec<[f64; 3]> = of_member
                .filter_map(|r| r.measured.as_ref())
                .filter_map(|m| Some([m.bits, m.nmse.filter(|&n| n > 0.0)?.ln(), m.max_error_over_std?.ln()]))
                .collect();
            let mean = |i: usize| means(&found.iter().map(|f| f[i]).collect::<Vec<_>>());
            let (bits, nmse) = (mean(0)?, mean(1)?.exp());
            let peer = peer.to_string();
            let (gap, max_error) = (gap_bits(bits, nmse), mean(2)?.exp());
            Some(Point { family, peer, target, bits, nmse, gap, max_error, tensors: found.len() })
        }));
        out[start..].sort_by(|a, b| a.bits.total_cmp(&b.bits));
    }
    out
}

/// The kinds there are, in the order of tables.
pub(crate) fn kinds(inputs: &[Input]) -> Vec<TensorKind> {
    TensorKind::ALL.into_iter().filter(|&k| inputs.iter().any(|i| i.kind == k)).collect()
}

//! Bits above the Gaussian bound at each rate, averaged over the tensors of a kind.

use serde::Serialize;

use super::{curve, filter_rows, means};
use crate::metrics::gap_bits;
use crate::race::run::{Entrant, Input, Row, TensorKind};

/// A mean over tensors.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct GapCell {
    /// Mean of the bits above the bound.
    pub gap: f64,
    /// Tensors it covers.
    pub tensors: usize,
}

/// A family in a table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GapRow {
    /// Id of the family.
    pub family: String,
    /// Its name.
    pub title: String,
    /// A cell for each rate; `None` where the family has nothing.
    pub cells: Vec<Option<GapCell>>,
}

/// A table for the tensors of a kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GapTable {
    /// The kind.
    pub kind: TensorKind,
    /// Its tensors.
    pub tensors: usize,
    /// Bits a value, one for each cell.
    pub rates: Vec<f64>,
    /// The families that code lossily.
    pub rows: Vec<GapRow>,
}

/// A table for each kind there is.
pub(crate) fn gap_tables(
    inputs: &[Input],
    entrants: &[Entrant],
    rows: &[Row],
    rates: &[f64],
) -> Vec<GapTable> {
    let mut out = Vec::new();
    for kind in TensorKind::ALL {
        let members: Vec<usize> = (0..inputs.len()).filter(|&i| inputs[i].kind == kind).collect();
        if members.is_empty() {
            continue;
        }
        let lines = entrants.iter().map(|entrant| GapRow {
            family: entrant.id.clone(),
            title: entrant.title.clone(),
            cells: rates.iter().map(|&rate| cell(&members, &entrant.id, rows, rate)).collect(),
        });
        let lines = lines.filter(|line| line.cells.iter().any(Option::is_some)).collect();
        out.push(GapTable { kind, tensors: members.len(), rates: rates.to_vec(), rows: lines });
    }
    out
}

fn cell(inputs: &[usize], family: &str, rows: &[Row], rate: f64) -> Option<GapCell> {
    let gaps: Vec<f64> = inputs.iter().filter_map(|&i| gap_at(rows, i, family, rate)).collect();
    means(&gaps).map(|gap| GapCell { gap, tensors: gaps.len() })
}

/// What was measured for this rate or, where the coder cannot be aimed, what lies between its points.
fn gap_at(rows: &[Row], input: usize, family: &str, rate: f64) -> Option<f64> {
    if filter_rows(rows, input, family).any(|r| r.target.is_some()) {
        let mut aimed = filter_rows(rows, input, family).filter(|r| r.target == Some(rate));
        return aimed.find_map(|r| r.measured.as_ref()?.gap);
    }
    let ln = curve(rows, input, family).ln_nmse_at(rate).filter(|ln| ln.is_finite())?;
    Some(gap_bits(rate, ln.exp()))
}

//! Bits at equal error: how many bits each family takes to reach the error of a reference.

use serde::Serialize;

use super::{Curve, curve, filter_rows};
use crate::race::run::{Entrant, Input, Row, TensorKind};

/// A mean over tensors or points.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct EqualCell {
    /// Mean of the family's bits over the reference's at the same error.
    pub ratio: f64,
    /// Mean of the family's bits less the reference's.
    pub bits: f64,
    /// Tensors or points it covers.
    pub count: usize,
}

/// A family against the reference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EqualRow {
    /// Id of the family.
    pub family: String,
    /// Its name.
    pub title: String,
    /// For each rate, at the error that the reference has there; `None` where that error lies on no
    /// tensor between points of the family.
    pub cells: Vec<Option<EqualCell>>,
    /// At the error of each of the family's own points, where it lies between points of the reference:
    /// what there is to say of coders with a single rate.
    pub own: Option<EqualCell>,
}

/// Everybody against the reference, on the tensors of a kind or on all.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EqualTable {
    /// `None` for all kinds together.
    pub kind: Option<TensorKind>,
    /// Tensors on which the reference has points.
    pub tensors: usize,
    /// Rates of the reference, one for each cell.
    pub rates: Vec<f64>,
    /// The families that code lossily.
    pub rows: Vec<EqualRow>,
}

/// Tables for all tensors and for each kind; `None` if the reference has no points.
pub(crate) fn equal_error(
    inputs: &[Input],
    entrants: &[Entrant],
    rows: &[Row],
    rates: &[f64],
    reference: &str,
) -> Option<Vec<EqualTable>> {
    let kinds = TensorKind::ALL.into_iter().filter(|&k| inputs.iter().any(|i| i.kind == k)).map(Some);
    let tables: Vec<EqualTable> = std::iter::once(None)
        .chain(kinds)
        .map(|kind| {
            let members = (0..inputs.len()).filter(|&i| kind.is_none_or(|k| inputs[i].kind == k));
            let members = members.filter(|&i| !curve(rows, i, reference).points().is_empty());
            let members: Vec<usize> = members.collect();
            let lines = entrants.iter().map(|e| line(e, &members, rows, rates, reference));
            let lines = lines.filter(|l| l.own.is_some() || l.cells.iter().any(Option::is_some)).collect();
            EqualTable { kind, tensors: members.len(), rates: rates.to_vec(), rows: lines }
        })
        .filter(|table| table.tensors > 0)
        .collect();
    (!tables.is_empty()).then_some(tables)
}

fn line(entrant: &Entrant, inputs: &[usize], rows: &[Row], rates: &[f64], reference: &str) -> EqualRow {
    let mut at_rates = vec![Vec::new(); rates.len()];
    let mut own = Vec::new();
    for &input in inputs {
        let (theirs, family) = (curve(rows, input, reference), curve(rows, input, &entrant.id));
        for (&rate, pairs) in rates.iter().zip(&mut at_rates) {
            pairs.extend(at_rate(rows, input, reference, rate, &theirs, &family));
        }
        let points = family.points().iter();
        own.extend(points.filter_map(|&(bits, ln)| Some((bits, theirs.bits_at(ln)?))));
    }
    EqualRow {
        family: entrant.id.clone(),
        title: entrant.title.clone(),
        cells: at_rates.iter().map(|pairs| mean_of(pairs)).collect(),
        own: mean_of(&own),
    }
}

/// Bits of the family and of the reference at the error that the reference has at a rate. Where another
/// setting of the reference reaches that error with fewer bits, it is those that count.
fn at_rate(
    rows: &[Row],
    input: usize,
    reference: &str,
    rate: f64,
    theirs: &Curve,
    family: &Curve,
) -> Option<(f64, f64)> {
    let mut aimed = filter_rows(rows, input, reference).filter(|r| r.target == Some(rate));
    let ln = match aimed.find_map(|r| r.measured.as_ref()) {
        Some(m) => m.nmse?.ln(),
        None => theirs.ln_nmse_at(rate)?,
    };
    Some((family.bits_at(ln)?, theirs.bits_at(ln)?))
}

fn mean_of(pairs: &[(f64, f64)]) -> Option<EqualCell> {
    let ratios: Vec<f64> = pairs.iter().map(|p| p.0 / p.1).collect();
    let differences: Vec<f64> = pairs.iter().map(|p| p.0 - p.1).collect();
    Some(EqualCell { ratio: means(&ratios)?, bits: means(&differences)?, count: pairs.len() })
}

/// Arithmetic mean; `None` of nothing.
pub(crate) fn means(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

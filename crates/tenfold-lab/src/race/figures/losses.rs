//! Where ours loses: every point of another lossy coder that lies below our best curve.

use serde::Serialize;

use super::curve;
use crate::race::run::{Entrant, Row, TensorKind};

/// Our family that is held against everybody.
const OURS: &str = "best";
/// Less than this, as a part of the error, is rounding.
const TOLERANCE: f64 = 1e-6;

/// A point at which another coder has less error than ours at the same bits.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Loss {
    /// File of the tensor.
    pub file: String,
    /// Tensor.
    pub tensor: String,
    /// What it is.
    pub kind: TensorKind,
    /// Family that wins.
    pub family: String,
    /// Its member.
    pub peer: String,
    /// Bits a value.
    pub bits: f64,
    /// Its error.
    pub nmse: f64,
    /// Ours at the same bits.
    pub ours: f64,
}

/// All of them, and how much was compared.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Losses {
    /// Name of our coder; `None` if it did not run.
    pub ours: Option<String>,
    /// Points of other coders that were compared.
    pub compared: usize,
    /// Points outside the rates of our curve, which were not.
    pub outside: usize,
    /// Where ours loses, the largest ratio of errors first.
    pub found: Vec<Loss>,
}

/// Compares every measured point of lossy coders that are not ours with our curve at the same bits.
pub(crate) fn losses(entrants: &[Entrant], rows: &[Row]) -> Losses {
    let ours = entrants.iter().find(|e| e.ours && e.id == OURS);
    let mut out = Losses { ours: ours.map(|e| e.title.clone()), compared: 0, outside: 0, found: Vec::new() };
    let Some(ours) = ours else {
        return out;
    };
    for row in rows.iter().filter(|r| !r.lossless) {
        let rival = entrants.iter().any(|e| !e.ours && e.id == row.family);
        let Some((m, nmse)) = row.measured.as_ref().and_then(|m| Some((m, m.nmse?))).filter(|_| rival) else {
            continue;
        };
        let Some(ln) = curve(rows, row.input, &ours.id).ln_nmse_at(m.bits) else {
            out.outside += 1;
            continue;
        };
        out.compared += 1;
        if nmse * (1.0 + TOLERANCE) < ln.exp() {
            out.found.push(Loss {
                file: row.file.clone(),
                tensor: row.tensor.clone(),
                kind: row.kind,
                family: row.family.clone(),
                peer: row.peer.clone(),
                bits: m.bits,
                nmse,
                ours: ln.exp(),
            });
        }
    }
    out.found.sort_by(|a, b| (a.nmse / a.ours).total_cmp(&(b.nmse / b.ours)));
    out
}

impl Losses {
    /// The line that everything begins with.
    pub fn headline(&self) -> String {
        let Some(ours) = &self.ours else {
            return "tenfold best did not run, so nothing can be said on where ours loses.".to_string();
        };
        let outside = match self.outside {
            0 => String::new(),
            n => format!(" {n} more lie outside the rates of our curve and were not compared."),
        };
        match (self.compared, self.found.len()) {
            (0, _) => format!("No point of another lossy coder could be held against {ours}.{outside}"),
            (n, 0) => format!(
                "{ours} loses nowhere: it has the least error at each of the {n} points of other lossy coders.{outside}"
            ),
            (n, lost) => format!("{ours} loses at {lost} of {n} points of other lossy coders.{outside}"),
        }
    }
}

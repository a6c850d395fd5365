//! Everything a race found, with what is needed to repeat it.

use serde::Serialize;

use crate::bench::report::Origin;
use crate::race::RaceArgs;
use crate::race::figures::{EqualTable, GapTable, Losses, equal_error, gap_tables, losses};
use crate::race::run::{Absent, Entrant, Outcome, Row, TensorKind};

/// A tensor of the race.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TensorInfo {
    /// File.
    pub file: String,
    /// Name in the file.
    pub name: String,
    /// What it is.
    pub kind: TensorKind,
    /// Element type.
    pub dtype: String,
    /// Shape of what was coded.
    pub shape: Vec<usize>,
    /// Values that were coded.
    pub values: usize,
    /// Values in the file, of which the first rows were coded.
    pub values_in_file: usize,
    /// Changes with dtype, shape and values.
    pub fingerprint: String,
}

/// Everything a race found; `race.json` is this.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Where and how it was measured.
    #[serde(flatten)]
    pub origin: Origin,
    /// Where ours loses, in a line.
    pub headline: String,
    /// What a reader must know to judge the figures.
    pub notes: Vec<String>,
    /// Family that the others are held against.
    pub reference: String,
    /// Where ours loses.
    pub losses: Losses,
    /// The families that ran.
    pub families: Vec<Entrant>,
    /// The families that could not run, and why.
    pub not_available: Vec<Absent>,
    /// The tensors.
    pub tensors: Vec<TensorInfo>,
    /// Bits at equal error; `None` if the reference has no points.
    pub equal_error: Option<Vec<EqualTable>>,
    /// Gap to the Gaussian bound, by kind of tensor.
    pub gaps: Vec<GapTable>,
    /// Every measurement and every failure.
    pub rows: Vec<Row>,
}

impl Report {
    pub(crate) fn new(args: &RaceArgs, outcome: &Outcome) -> Self {
        let Outcome { inputs, entrants, absent, rows, .. } = outcome;
        let rates = args.table_rates();
        let losses = losses(entrants, rows);
        Report {
            origin: Origin::new("race", &args.command, outcome.commit.clone()),
            headline: losses.headline(),
            notes: notes(args, outcome),
            reference: args.reference.clone(),
            losses,
            families: entrants.clone(),
            not_available: absent.clone(),
            tensors: tensors(outcome),
            equal_error: equal_error(inputs, entrants, rows, &rates, &args.reference),
            gaps: gap_tables(inputs, entrants, rows, &rates),
            rows: rows.clone(),
        }
    }

    /// Rows without a measurement.
    pub fn failures(&self) -> impl Iterator<Item = (&Row, &str)> {
        self.rows.iter().filter_map(|row| Some((row, row.failure.as_deref()?)))
    }
}

fn tensors(outcome: &Outcome) -> Vec<TensorInfo> {
    let info = |input: &crate::race::run::Input| TensorInfo {
        file: input.file.clone(),
        name: input.name.clone(),
        kind: input.kind,
        dtype: input.tensor.dtype.name().to_string(),
        shape: input.tensor.shape.clone(),
        values: input.tensor.data.len() / input.tensor.dtype.size(),
        values_in_file: input.values_in_file,
        fingerprint: input.fingerprint.clone(),
    };
    outcome.inputs.iter().map(info).collect()
}

fn notes(args: &RaceArgs, outcome: &Outcome) -> Vec<String> {
    let mut notes = Vec::new();
    let cut =
        outcome.inputs.iter().filter(|i| i.tensor.data.len() / i.tensor.dtype.size() < i.values_in_file);
    let cut = cut.count();
    if let (1.., Some(limit)) = (cut, args.value_limit()) {
        notes.push(format!("tensors cut to their first whole rows of at most {limit} values: {cut}"));
    }
    if args.quick {
        notes.push("a quick run: a first look, whose figures mean little".to_string());
    }
    if outcome.kept > 0 {
        let mut commits: Vec<&str> = outcome.rows.iter().map(|r| r.commit.as_str()).collect();
        commits.sort_unstable();
        commits.dedup();
        let commits = commits.join(", ");
        let (kept, all) = (outcome.kept, outcome.rows.len());
        notes.push(format!("{kept} of {all} measurements are from an earlier run (commits: {commits})"));
    }
    if args.speed {
        notes.push(format!(
            "speeds: median of up to {} runs in one process, on 1 and on {} threads",
            args.timed_runs(),
            args.all_threads()
        ));
    }
    notes
}

//! Figures as rows of a table and of the report.

use std::io::Write;

use anyhow::Result;
use serde::Serialize;
use tenfold::Dtype;

use super::decode::Subject;
use super::rig::Times;
use crate::bench::Report;
use crate::bench::report::number;
use crate::bench::table::Table;

/// What was coded.
#[derive(Debug, Clone, Serialize)]
pub(super) struct About {
    pub tensor: String,
    pub values: usize,
    pub states: Option<u32>,
    pub classes: Option<u32>,
    pub bits: f64,
    pub ratio: f64,
    /// Error over variance, where it is not that of the CPU's blob.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nmse: Option<f64>,
}

impl From<&Subject> for About {
    fn from(subject: &Subject) -> About {
        About {
            tensor: subject.name.clone(),
            values: subject.values,
            states: subject.states,
            classes: subject.classes,
            bits: subject.blob.len() as f64 * 8.0 / subject.values as f64,
            ratio: subject.ratio(),
            nmse: None,
        }
    }
}

/// One measurement of a coder.
pub(super) struct Figure<'a> {
    pub what: &'a str,
    pub subject: About,
    pub times: Times,
    /// Least GB/s, where one is stated.
    pub least: Option<f64>,
}

impl Figure<'_> {
    fn bytes(&self) -> usize {
        self.subject.values * Dtype::Bf16.size()
    }

    /// GB/s of bf16.
    pub fn gb_s(&self) -> f64 {
        self.bytes() as f64 / 1e6 / self.times.median()
    }
}

#[derive(Serialize)]
struct Row<'a> {
    what: &'a str,
    #[serde(flatten)]
    subject: Option<&'a About>,
    bytes: usize,
    milliseconds: f64,
    gb_s: f64,
    times: &'a [f64],
}

/// All measurements of a run.
pub(super) struct Figures<'a> {
    report: &'a mut Report,
    table: Table,
}

impl<'a> Figures<'a> {
    pub fn new(report: &'a mut Report) -> Figures<'a> {
        let headings =
            ["on the device", "tensor", "values", "states", "classes", "bits", "ms", "GB/s", "bar"];
        Figures { report, table: Table::new(&headings) }
    }

    /// Keeps a copy of so many bytes; GB/s.
    pub fn copy(&mut self, what: &str, bytes: usize, times: &Times) -> Result<f64> {
        let gb_s = bytes as f64 / 1e6 / times.median();
        let dash = || "-".to_string();
        let [ms, speed] = [format!("{:.3}", times.median()), format!("{gb_s:.1}")];
        self.table.row([what.to_string(), dash(), dash(), dash(), dash(), dash(), ms, speed]);
        let milliseconds = times.median();
        self.report.row(&Row { what, subject: None, bytes, milliseconds, gb_s, times: &times.0 })?;
        Ok(gb_s)
    }

    /// Keeps a figure, beside its bar if it has one; GB/s of bf16.
    pub fn keep(&mut self, figure: Figure<'_>) -> Result<f64> {
        let gb_s = figure.gb_s();
        let verdict = figure.least.map(|bar| {
            let Figure { what, subject, .. } = &figure;
            let name = format!("{what}, {}, {}, {:.2} bits", subject.tensor, describe(subject), subject.bits);
            let pass = self.report.at_least(format!("{name}, GB/s of bf16"), gb_s, bar);
            format!("{} {}", number(bar), if pass { "pass" } else { "MISS" })
        });
        self.show(&figure, &verdict.unwrap_or_default());
        self.file(&figure)?;
        Ok(gb_s)
    }

    /// Puts a figure in the table alone, with a word in the last column.
    pub fn show(&mut self, figure: &Figure<'_>, word: &str) {
        let subject = &figure.subject;
        let or_dash = |n: Option<u32>| n.map_or("-".to_string(), |n| n.to_string());
        self.table.row([
            figure.what.to_string(),
            subject.tensor.clone(),
            subject.values.to_string(),
            or_dash(subject.states),
            or_dash(subject.classes),
            format!("{:.3}", subject.bits),
            format!("{:.3}", figure.times.median()),
            format!("{:.1}", figure.gb_s()),
            word.to_string(),
        ]);
    }

    /// Puts a figure in the report alone.
    pub fn file(&mut self, figure: &Figure<'_>) -> Result<()> {
        self.report.row(&Row {
            what: figure.what,
            subject: Some(&figure.subject),
            bytes: figure.bytes(),
            milliseconds: figure.times.median(),
            gb_s: figure.gb_s(),
            times: &figure.times.0,
        })
    }

    pub fn at_least(&mut self, what: String, value: f64, bar: f64) {
        self.report.at_least(what, value, bar);
    }

    pub fn note(&mut self, note: String) {
        self.report.note(note);
    }

    pub fn print(&self, out: &mut dyn Write) -> Result<()> {
        Ok(self.table.print(out)?)
    }
}

fn describe(subject: &About) -> String {
    let states = subject.states.map_or(String::new(), |n| format!(", {n} states"));
    match subject.values {
        n if n % (1 << 20) == 0 => format!("{} Mi values{states}", n >> 20),
        n => format!("{n} values{states}"),
    }
}

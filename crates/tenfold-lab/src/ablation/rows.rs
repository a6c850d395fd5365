//! Figures kept as rows and printed as tables, and in words what each stage gives.

use std::io::Write;

use anyhow::Result;
use serde::Serialize;

use super::cases::{Case, INTER, ORDER, WITHOUT};
use super::measure::Point;
use super::source::{Source, Subject};
use super::{Measured, source::Arrangement};
use crate::bench::{Report, table::Table};

#[derive(Serialize)]
struct Row<'a> {
    file: &'a str,
    tensor: &'a str,
    pictures: String,
    case: &'a str,
    prediction: bool,
    transform: bool,
    entropy: bool,
    inter: bool,
    values: usize,
    /// Absent where the goal is out of reach.
    bits: Option<f64>,
    nmse: Option<f64>,
    step: Option<f64>,
    bytes: Option<usize>,
}

/// Keeps every figure and prints tables and verdicts of a file.
pub(super) fn keep(
    source: &Source,
    measured: &Measured,
    report: &mut Report,
    out: &mut dyn Write,
) -> Result<()> {
    let still: Vec<Case> = ORDER.iter().chain(&WITHOUT).copied().collect();
    for (subjects, points, cases) in [
        (&source.tensors, &measured.tensors, &still[..]),
        (&source.sequences, &measured.sequences, &INTER[..]),
    ] {
        for (subject, points) in subjects.iter().zip(points) {
            for (case, point) in cases.iter().zip(points) {
                report.row(&row(&source.name, subject, case, point.as_ref()))?;
            }
        }
    }
    writeln!(out, "{}: bits a value, stage after stage, then all but one", source.name)?;
    print(&source.tensors, &measured.tensors, &still, out)?;
    let mut words = gains(&source.name, &source.tensors, &measured.tensors);
    for bands in [true, false] {
        let chosen = |s: &Subject| matches!(s.arrangement, Arrangement::Bands(_)) == bands;
        let pairs = source.sequences.iter().zip(&measured.sequences).filter(|(s, _)| chosen(s));
        let (subjects, points): (Vec<Subject>, Vec<_>) = pairs.map(|(s, p)| (s.clone(), p.clone())).unzip();
        if subjects.is_empty() {
            continue;
        }
        let what = if bands { "a tensor as bands of rows" } else { "tensors one after the other" };
        writeln!(out, "{}: {what}, bits a value", source.name)?;
        print(&subjects, &points, &INTER, out)?;
        if let [Some(alone), Some(inter), _] = means(&subjects, &points, INTER.len())[..] {
            words.push(format!("inter-frame {:+.3} ({what})", inter - alone));
        }
    }
    report.note(format!("{}: {}", source.name, words.join(", ")));
    Ok(())
}

fn row<'a>(file: &'a str, subject: &'a Subject, case: &'a Case, point: Option<&Point>) -> Row<'a> {
    Row {
        file,
        tensor: &subject.name,
        pictures: subject.arrangement.text(),
        case: case.name,
        prediction: case.stages.prediction,
        transform: case.stages.transform,
        entropy: case.stages.entropy,
        inter: case.stages.inter,
        values: subject.values(),
        bits: point.map(|p| p.bits(subject)),
        nmse: point.map(|p| p.nmse),
        step: point.map(|p| p.step),
        bytes: point.map(|p| p.bytes),
    }
}

fn print(
    subjects: &[Subject],
    points: &[Vec<Option<Point>>],
    cases: &[Case],
    out: &mut dyn Write,
) -> Result<()> {
    let headings: Vec<&str> =
        ["tensor", "pictures"].into_iter().chain(cases.iter().map(|c| c.name)).collect();
    let mut table = Table::new(&headings);
    let cell = |bits: Option<f64>| bits.map_or("-".to_string(), |b| format!("{b:.3}"));
    for (subject, points) in subjects.iter().zip(points) {
        let bits = points.iter().map(|p| cell(p.map(|p| p.bits(subject))));
        table.row(
            [shorten(&subject.name), subject.arrangement.text()]
                .into_iter()
                .chain(bits)
                .collect::<Vec<String>>(),
        );
    }
    let all = means(subjects, points, cases.len()).into_iter().map(cell);
    table.row(["all values".to_string(), String::new()].into_iter().chain(all).collect::<Vec<String>>());
    table.print(out)?;
    Ok(())
}

/// Long names of sequences by their ends.
fn shorten(name: &str) -> String {
    const MOST: usize = 48;
    let n = name.chars().count();
    if n <= MOST {
        return name.to_string();
    }
    let part = |skip: usize, take: usize| name.chars().skip(skip).take(take).collect::<String>();
    format!("{}…{}", part(0, MOST / 2), part(n - MOST / 2 + 1, MOST / 2))
}

/// Bits a value of each case over all subjects in which every case reached the goal.
fn means(subjects: &[Subject], points: &[Vec<Option<Point>>], cases: usize) -> Vec<Option<f64>> {
    let complete = || subjects.iter().zip(points).filter(|(_, p)| p.iter().all(Option::is_some));
    let values: usize = complete().map(|(s, _)| s.values()).sum();
    let bytes = |case: usize| complete().filter_map(|(_, p)| p[case]).map(|p| p.bytes).sum::<usize>();
    (0..cases).map(|c| (values > 0).then(|| bytes(c) as f64 * 8.0 / values as f64)).collect()
}

/// What each stage adds to the bits, once in order and once taken from all.
fn gains(file: &str, subjects: &[Subject], points: &[Vec<Option<Point>>]) -> Vec<String> {
    let bits = means(subjects, points, ORDER.len() + WITHOUT.len());
    let Some(bits) = bits.into_iter().collect::<Option<Vec<f64>>>() else {
        return vec![format!("no tensor of {file} reaches the error in every case")];
    };
    let mut out = vec![format!("{:.2} bits as samples", bits[0])];
    for (i, what) in ["quantiser", "entropy coding", "transform", "prediction"].into_iter().enumerate() {
        let mut text = format!("{what} {:+.3}", bits[i + 1] - bits[i]);
        if i > 0 {
            // WITHOUT has the stages of ORDER from the third on, in the same order.
            text += &format!(
                " (in its absence from all {:+.3})",
                bits[ORDER.len() + i - 1] - bits[ORDER.len() - 1]
            );
        }
        out.push(text);
    }
    out
}

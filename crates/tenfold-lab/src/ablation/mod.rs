//! What each stage of a video codec gives on tensors, and pictures of what the stages do.
//!
//! After Fig. 2b and Fig. 4 of LLM.265 (MICRO '25): values become samples, and stages are added one after the
//! other, or taken away one at a time from all, always at one and the same error over real values. Bytes are
//! real, headers and all, and every figure was decoded again before it counts. The codec is [`crate::intra`].
//!
//! `args` is asked, `source` turns tensors into pictures (`samples`), `cases` are the combinations, `measure`
//! finds the bits of one, `rows` keeps and prints, `pictures` draws.

mod args;
mod cases;
mod measure;
mod pictures;
mod rows;
mod samples;
mod source;

pub use args::AblationArgs;
pub use pictures::pictures;

use std::io::Write;

use anyhow::{Context, Result, ensure};
use rayon::prelude::*;

use crate::bench::{Report, progress};
use cases::{Case, INTER, ORDER, WITHOUT};
use measure::{Goal, Point};
use source::{Source, Subject};

/// Measures the tensors of all files, prints tables, and writes report and pictures where the arguments say.
pub fn run(args: &AblationArgs, out: &mut dyn Write) -> Result<Report> {
    args.validate()?;
    let mut report = Report::with_name("ablation", &args.command);
    report.note(format!(
        "bits a value at an nmse of {}, every byte counted and every stream decoded; samples of {} bits, range by \
         least squared error",
        args.nmse, args.depth
    ));
    report.note(
        "inter-frame is measured against the same pictures without it: cutting a tensor costs by itself",
    );
    for path in &args.files {
        let source = Source::load(path, args)?;
        source.skipped.iter().for_each(|why| report.note(why.as_str()));
        ensure!(!source.tensors.is_empty(), "{} has no tensor to measure", path.display());
        let measured = one_file(args, &source)?;
        rows::keep(&source, &measured, &mut report, out)?;
        out_of_reach(args, &source, &measured, &mut report);
        if let Some(dir) = &args.pictures {
            let mut files = 0;
            for (subject, points) in source.tensors.iter().zip(&measured.tensors) {
                // The last of the order is all stages of a still picture.
                if let Some(point) = &points[ORDER.len() - 1] {
                    files += pictures::draw(subject, point, dir)?.len();
                }
            }
            report.note(format!("{}: {files} pictures in {}", source.name, dir.display()));
        }
    }
    // Kept first: a reader that closes the pipe early must not cost the report.
    if let Some(path) = &args.json {
        report.save(path)?;
    }
    report.print_verdicts(out)?;
    Ok(report)
}

/// Says which tensors their samples alone spoil: outliers leave too few of them for the rest.
fn out_of_reach(args: &AblationArgs, source: &Source, measured: &Measured, report: &mut Report) {
    for (subject, points) in source.tensors.iter().zip(&measured.tensors) {
        // The first of the order are the samples as they are.
        if let Some(Some(alone)) = points.first().filter(|_| points.contains(&None)) {
            report.note(format!(
                "{}: out of reach in some cases; samples of {} bits alone err by an nmse of {:.4}, more bits may help",
                subject.name, args.depth, alone.nmse
            ));
        }
    }
}

/// Points of all cases, in the order of [`ORDER`] and [`WITHOUT`] for tensors, of [`INTER`] for sequences.
/// `None` where the goal is out of reach.
struct Measured {
    tensors: Vec<Vec<Option<Point>>>,
    sequences: Vec<Vec<Option<Point>>>,
}

fn one_file(args: &AblationArgs, source: &Source) -> Result<Measured> {
    let still: Vec<Case> = ORDER.iter().chain(&WITHOUT).copied().collect();
    let steps = source.tensors.len() * still.len() + source.sequences.len() * INTER.len();
    let bar = progress::bar(steps, args.quiet);
    let all = |subjects: &[Subject], cases: &[Case]| -> Result<Vec<Vec<Option<Point>>>> {
        let one = |subject: &Subject, case: &Case| {
            bar.set_message(format!("{}: {}", subject.name, case.name));
            let point = measure::measure(subject, *case, Goal::new(args))
                .with_context(|| format!("{}, {}", subject.name, case.name));
            bar.inc(1);
            point
        };
        let of = |s: &Subject| cases.par_iter().map(|c| one(s, c)).collect::<Result<Vec<_>>>();
        subjects.iter().map(of).collect()
    };
    let measured =
        Measured { tensors: all(&source.tensors, &still)?, sequences: all(&source.sequences, &INTER)? };
    bar.finish_and_clear();
    Ok(measured)
}

#[cfg(test)]
mod tests;

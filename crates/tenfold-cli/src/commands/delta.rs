//! `tenfold delta`.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use tenfold::{DecodeOptions, Effort};
use tenfold_archive::delta::{self, ApplyOptions, DeltaFile, DeltaReport, DeltaRow, MakeOptions, Tensors};
use tenfold_archive::{Archive, ReadOptions};

use super::{hint_force, read_options};
use crate::args::{
    DeltaApplyArgs, DeltaArgs, DeltaCommand, DeltaInspectArgs, DeltaMakeArgs, DeltaSquashArgs,
};
use crate::exit::{self, Usage};
use crate::print;
use crate::progress::Bar;
use crate::table::Table;

const HEADINGS: [&str; 7] = ["tensor", "how", "dtype", "shape", "changed", "share", "bytes"];

pub fn run(args: DeltaArgs, quiet: bool) -> anyhow::Result<u8> {
    match args.what {
        DeltaCommand::Make(args) => make(*args, quiet),
        DeltaCommand::Apply(args) => apply(args, quiet),
        DeltaCommand::Inspect(args) => inspect(args),
        DeltaCommand::Squash(args) => squash(args, quiet),
    }
}

fn make(args: DeltaMakeArgs, quiet: bool) -> anyhow::Result<u8> {
    let read = read_options(&args.decode)?;
    let mut options = make_options(&read, args.force);
    options.goal = args.goal.0;
    options.effort = args.effort.map(Effort::from).unwrap_or_default();
    options.exclude = args.exclude;
    let (base, new) = (open(&args.base, &read)?, open(&args.new, &read)?);
    let (base, new) = (tensors(&base, &read), tensors(&new, &read));
    let bar = Bar::new(quiet);
    let result = delta::make(&base, &new, &args.output, &options, &bar);
    drop(bar);
    let report = hint_force(result, &args.output, args.force)?;
    if args.json {
        print::json(&report)?;
    } else if !quiet {
        print::out(&summary(&report, &args.output, new.items().len(), new.bytes())?)?;
    }
    Ok(exit::SUCCESS)
}

fn apply(args: DeltaApplyArgs, quiet: bool) -> anyhow::Result<u8> {
    let read = read_options(&args.decode)?;
    let mut options = ApplyOptions::default()
        .with_threads(read.decode.threads)
        .with_limits(read.decode.limits.clone())
        .with_overwrite(args.force);
    options.only = args.only;
    let deltas = open_deltas(&args.deltas)?;
    let Some(output) = args.output else {
        let [delta] = deltas.as_slice() else {
            let message = "--in-place takes one delta at a time; join several with `tenfold delta squash`";
            return Err(Usage(message.into()).into());
        };
        let bar = Bar::new(quiet);
        let written = delta::update(&args.base, delta, &options, &bar)?;
        drop(bar);
        if !quiet {
            let base = args.base.display();
            print::out(&match written {
                0 => format!("{base}: the delta was applied before; nothing to do\n"),
                1 => format!("{base}: one file updated\n"),
                files => format!("{base}: {files} files updated\n"),
            })?;
        }
        return Ok(exit::SUCCESS);
    };
    let base = open(&args.base, &read)?;
    let bar = Bar::new(quiet);
    let result = delta::apply(&base, &deltas.iter().collect::<Vec<_>>(), &output, &options, &bar);
    drop(bar);
    hint_force(result, &output, args.force)?;
    Ok(exit::SUCCESS)
}

fn inspect(args: DeltaInspectArgs) -> anyhow::Result<u8> {
    let report = DeltaFile::open(&args.input)?.report();
    if args.json {
        print::json(&report)?;
    } else {
        print::out(&table(&report))?;
    }
    Ok(exit::SUCCESS)
}

fn squash(args: DeltaSquashArgs, quiet: bool) -> anyhow::Result<u8> {
    let read = read_options(&args.decode)?;
    let options = make_options(&read, args.force);
    let deltas = open_deltas(&args.deltas)?;
    let base = args.base.as_deref().map(|path| open(path, &read)).transpose()?;
    let base = base.as_ref().map(|base| tensors(base, &read));
    let bar = Bar::new(quiet);
    let deltas: Vec<&DeltaFile> = deltas.iter().collect();
    let result = delta::squash(&deltas, base.as_ref(), &args.output, &options, &bar);
    drop(bar);
    let report = hint_force(result, &args.output, args.force)?;
    if args.json {
        print::json(&report)?;
    } else if !quiet {
        let size = args.output.metadata()?.len();
        print::out(&format!(
            "{}: {} deltas in one, {} tensors, {}\n",
            args.output.display(),
            deltas.len(),
            report.total.tensors,
            print::bytes(size)
        ))?;
    }
    Ok(exit::SUCCESS)
}

fn open(path: &Path, read: &ReadOptions) -> anyhow::Result<Archive> {
    Ok(Archive::open(path)?.with_engine(read.engine.clone()))
}

/// The tensors of a model; the pool of threads is set around them all.
fn tensors<'a>(archive: &'a Archive, read: &ReadOptions) -> Tensors<'a> {
    Tensors::of_archive(archive, &DecodeOptions::default().with_limits(read.decode.limits.clone()))
}

fn open_deltas(paths: &[PathBuf]) -> anyhow::Result<Vec<DeltaFile>> {
    Ok(paths.iter().map(|path| DeltaFile::open(path)).collect::<Result<_, _>>()?)
}

fn make_options(read: &ReadOptions, force: bool) -> MakeOptions {
    MakeOptions::default()
        .with_threads(read.decode.threads)
        .with_limits(read.decode.limits.clone())
        .with_overwrite(force)
}

fn summary(report: &DeltaReport, output: &Path, tensors: usize, bytes: u64) -> anyhow::Result<String> {
    let size = output.metadata()?.len();
    let share = 100.0 * size as f64 / bytes.max(1) as f64;
    let loss = if report.exact { "every bit comes back" } else { "with loss" };
    Ok(format!(
        "{} of {tensors} tensors change, {} are removed: {} for {}, {share:.2} %; {loss}\n",
        report.total.tensors,
        report.removed.len(),
        print::bytes(size),
        print::bytes(bytes),
    ))
}

fn table(report: &DeltaReport) -> String {
    let mut text = format!(
        "base    {}\nresult  {}{}\n\n",
        report.base,
        report.result,
        if report.exact { "" } else { "  (with loss)" }
    );
    let mut table = Table::new(&HEADINGS, std::io::stdout().is_terminal());
    for row in &report.tensors {
        table.row(cells(row));
    }
    let mut total = vec![String::new(); HEADINGS.len()];
    total[0] = format!("total ({})", report.total.tensors);
    total[4] = report.total.changed.to_string();
    total[6] = print::bytes(report.total.bytes);
    table.footer(total);
    text.push_str(&table.render());
    for name in &report.removed {
        text.push_str(&format!("removed: {name}\n"));
    }
    text
}

fn cells(row: &DeltaRow) -> Vec<String> {
    let share = row.changed.zip(row.values).map(|(changed, values)| changed as f64 / values.max(1) as f64);
    let how = match &row.from {
        Some(from) => format!("{} of {from}", row.how.name()),
        None => row.how.name().into(),
    };
    vec![
        row.name.clone(),
        how,
        print::or_dash(row.dtype.clone(), |dtype| dtype),
        print::or_dash(row.shape.as_deref(), print::shape),
        print::or_dash(row.changed, |n| n.to_string()),
        print::or_dash(share, |share| format!("{:.2} %", 100.0 * share)),
        print::bytes(row.bytes),
    ]
}

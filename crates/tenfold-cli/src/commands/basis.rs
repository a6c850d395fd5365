//! `tenfold basis`.

use std::io::IsTerminal;

use serde::Serialize;
use tenfold_kv::basis::{
    BasisFile, FitOptions, Gain, Group, GroupReport, Grouping, Keys, Kind, Names, Report, Set, SetReport,
    fingerprint_model, fit, fit_sets, model_bytes,
};

use crate::args::{BasisArgs, BasisCommand, BasisFitArgs, BasisShowArgs, SetArg};
use crate::exit::{self, Usage};
use crate::print;
use crate::progress::Bar;
use crate::table::Table;

/// Largest fraction of a model's bytes that its bases may take.
const OF_MODEL: f64 = 0.02;

pub fn run(args: BasisArgs, quiet: bool) -> anyhow::Result<u8> {
    match args.what {
        BasisCommand::Fit(args) => run_fit(*args, quiet),
        BasisCommand::Show(args) => show(args),
    }
}

#[derive(Serialize)]
struct FitOutput {
    #[serde(flatten)]
    report: Report,
    model_bytes: Option<u64>,
}

fn run_fit(args: BasisFitArgs, quiet: bool) -> anyhow::Result<u8> {
    if let Some(out) = args.out.as_ref().filter(|out| !args.force && out.symlink_metadata().is_ok()) {
        return Err(Usage(format!("{} already exists; use --force to replace it", out.display())).into());
    }
    match (args.inputs.is_empty(), args.set.is_empty()) {
        (true, true) => return Err(Usage("state captured files, or sets of them with --set".into()).into()),
        (false, false) => {
            let text =
                "captured files belong to a set or to none: put all of them behind --set, or leave it out";
            return Err(Usage(text.into()).into());
        }
        _ => {}
    }
    let model_bytes = args.model.as_deref().map(model_bytes).transpose()?;
    let sets = gather_sets(&args.set)?;
    let options = options(&args, model_bytes, sets.len())?;
    let bar = Bar::new(quiet);
    let fitted = match sets.as_slice() {
        [] => fit(&args.inputs, &options, &bar),
        sets => fit_sets(sets, &options, &bar),
    }?;
    drop(bar);
    let mut report = fitted.report;
    if let Some(out) = &args.out {
        report.bytes = fitted.file.save(out, args.force)?;
    }
    if !quiet {
        report.warnings.iter().for_each(|warning| eprintln!("tenfold: warning: {warning}"));
    }
    if args.json {
        print::json(&FitOutput { report, model_bytes })?;
    } else if !quiet {
        print::out(&fit_text(&report, model_bytes, args.out.is_some(), args.bits))?;
    }
    Ok(exit::SUCCESS)
}

fn options(args: &BasisFitArgs, model_bytes: Option<u64>, sets: usize) -> anyhow::Result<FitOptions> {
    let mut options = FitOptions::default();
    options.kinds = args.kind.iter().map(|&kind| kind.into()).collect();
    options.grouping = if args.per_head { Grouping::Heads } else { args.group };
    options.compare = args.compare.clone();
    options.each = args.each;
    options.rank = args.rank;
    options.bits = args.bits;
    // Rounded down: a cap.
    let bases = if args.each { sets } else { 1 };
    let cap = model_bytes.map(|bytes| (bytes as f64 * OF_MODEL) as u64 * bases as u64);
    options.max_bytes = args.max_bytes.into_iter().chain(cap).min();
    options.keys = args.rope.clone().unwrap_or(Keys::Unknown);
    options.context = args.context;
    options.head_dim = args.head_dim;
    options.parts = args.parts;
    options.rates = args.rates.clone();
    options.metrics = args.metric.clone();
    options.ridge = args.ridge;
    options.threads = args.threads.threads;
    options.names = names(&args.name)?;
    options.model = match (&args.fingerprint, &args.model) {
        (Some(text), _) => Some(text.clone()),
        (None, Some(model)) => Some(fingerprint_model(model)?),
        (None, None) => None,
    };
    Ok(options)
}

/// Sets whose files may have been stated in several places.
fn gather_sets(given: &[SetArg]) -> anyhow::Result<Vec<Set>> {
    let mut sets: Vec<(Set, Option<f64>)> = Vec::new();
    for SetArg { name, files, weight } in given {
        let Some((set, known)) = sets.iter_mut().find(|(set, _)| set.name == *name) else {
            sets.push((Set::new(name, files.clone()), *weight));
            continue;
        };
        set.files.extend(files.iter().cloned());
        match (*known, *weight) {
            (Some(a), Some(b)) if a != b => {
                return Err(Usage(format!("--set {name} has two weights, {a} and {b}; state one")).into());
            }
            (a, b) => *known = a.or(b),
        }
    }
    Ok(sets.into_iter().map(|(set, weight)| set.with_weight(weight.unwrap_or(1.0))).collect())
}

fn names(given: &[String]) -> anyhow::Result<Names> {
    let mut names = Names::default();
    for text in given {
        let (kind, pattern) = text
            .split_once('=')
            .ok_or_else(|| Usage(format!("--name {text:?} must have the form KIND=NAME")))?;
        names = match kind {
            "keys_before_rope" => names.with_keys_before_rope(pattern)?,
            kind => names.with(kind.parse::<Kind>()?, pattern)?,
        };
    }
    Ok(names)
}

fn fit_text(report: &Report, model_bytes: Option<u64>, saved: bool, asked: f64) -> String {
    let rates = report.summaries.first().map_or(&[][..], |s| s.gain.at.as_slice());
    let gains: Vec<String> = std::iter::once("means".to_owned())
        .chain(std::iter::once("basis".to_owned()))
        .chain(rates.iter().map(|at| format!("at {} bits", at.bits)))
        .collect();
    let mut headings = vec!["basis", "columns", "tokens", "vectors", "bytes", "loss"];
    headings.extend(gains.iter().map(String::as_str));
    let mut table = Table::new(&headings, std::io::stdout().is_terminal());
    for group in &report.groups {
        table.row(cells(group, gains.len()));
    }
    let mut text = table.render();
    if !report.summaries.is_empty() {
        let mut headings = vec!["gain in bits a value", "layers a basis"];
        headings.extend(gains.iter().map(String::as_str));
        let mut table = Table::new(&headings, false);
        for summary in &report.summaries {
            let mut row = vec![summary.kind.to_string(), summary.group.clone()];
            row.extend(gain_cells(Some(&summary.gain), gains.len()));
            table.row(row);
        }
        text.push_str(&format!("\n{}", table.render()));
    }
    let named: Vec<&SetReport> = report.sets.iter().filter(|set| set.name.is_some()).collect();
    if !named.is_empty() {
        text.push_str(&format!("\n{}", sets_table(&named, &gains).render()));
    }
    let what = if saved { "the file takes" } else { "a file would take at most" };
    text.push_str(&format!("\n{what} {}", print::bytes(report.bytes)));
    if let Some(model) = model_bytes {
        text.push_str(&format!(", {:.2} % of the model", 100.0 * report.bytes as f64 / model as f64));
    }
    let served = if report.bits < asked { ", limited by the largest size allowed" } else { "" };
    text.push_str(&format!("; it serves up to {:.2} bits a value{served}\n", report.bits));
    text
}

/// Gains of each set on rows that were left out.
fn sets_table(sets: &[&SetReport], gains: &[String]) -> Table {
    let mut headings = vec!["set", "weight", "tokens", "gain of"];
    headings.extend(gains.iter().map(String::as_str));
    let mut table = Table::new(&headings, false);
    for set in sets {
        let name = set.name.clone().unwrap_or_default();
        let start = vec![name, set.weight.to_string(), set.tokens.to_string()];
        if set.gains.is_empty() {
            let mut row = start.clone();
            row.resize(headings.len(), "-".into());
            table.row(row);
        }
        for (kind, gain) in &set.gains {
            let mut row = start.clone();
            row.push(kind.to_string());
            row.extend(gain_cells(Some(gain), gains.len()));
            table.row(row);
        }
    }
    table
}

/// A basis as `keys 0-9`, or `keys 0-9 of code`.
fn basis_name(kind: Kind, of: &[usize], set: Option<&str>) -> String {
    let set = set.map_or_else(String::new, |set| format!(" of {set}"));
    format!("{kind} {}{set}", layers(of))
}

fn cells(group: &GroupReport, gains: usize) -> Vec<String> {
    let mut row = vec![
        basis_name(group.kind, &group.layers, group.set.as_deref()),
        group.cols.to_string(),
        group.tokens.to_string(),
        group.rank.to_string(),
        print::bytes(group.bytes),
        format!("{:.3}", group.loss),
    ];
    row.extend(gain_cells(group.gain.as_ref(), gains));
    row
}

fn gain_cells(gain: Option<&Gain>, count: usize) -> Vec<String> {
    match gain {
        Some(gain) => {
            let at = gain.at.iter().map(|at| at.basis);
            [gain.means, gain.basis].into_iter().chain(at).map(|v| format!("{v:.2}")).collect()
        }
        None => vec!["-".into(); count],
    }
}

/// Layers as `8`, `0-29` or `2,8,22`.
fn layers(layers: &[usize]) -> String {
    let (Some(first), Some(last)) = (layers.first(), layers.last()) else { return String::new() };
    if layers.len() > 1 && last - first + 1 == layers.len() {
        return format!("{first}-{last}");
    }
    layers.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

#[derive(Serialize)]
struct ShowOutput {
    bytes: u64,
    model: Option<String>,
    rope: Option<String>,
    head_dim: Option<usize>,
    sets: Vec<Option<String>>,
    groups: Vec<ShowGroup>,
}

#[derive(Serialize)]
struct ShowGroup {
    set: Option<String>,
    kind: Kind,
    layers: Vec<usize>,
    cols: usize,
    rank: usize,
    fingerprint: String,
}

fn show(args: BasisShowArgs) -> anyhow::Result<u8> {
    let file = BasisFile::open(&args.input)?;
    let sets = file.sets();
    let of_set = |set| file.groups_of(set).into_iter().map(move |group| (set, group));
    let groups =
        sets.iter().copied().flat_map(of_set).map(|(set, group): (Option<&str>, &Group)| ShowGroup {
            set: set.map(str::to_owned),
            kind: group.kind,
            layers: group.layers.clone(),
            cols: group.basis.cols(),
            rank: group.basis.rank(),
            fingerprint: group.basis.fingerprint().to_string(),
        });
    let output = ShowOutput {
        bytes: std::fs::metadata(&args.input)?.len(),
        model: file.model().map(str::to_owned),
        rope: file.rope().map(ToString::to_string),
        head_dim: file.head_dim(),
        sets: sets.iter().map(|set| set.map(str::to_owned)).collect(),
        groups: groups.collect(),
    };
    if args.json {
        print::json(&output)?;
    } else {
        print::out(&show_text(&output))?;
    }
    Ok(exit::SUCCESS)
}

fn show_text(output: &ShowOutput) -> String {
    let mut table =
        Table::new(&["basis", "columns", "vectors", "fingerprint"], std::io::stdout().is_terminal());
    for group in &output.groups {
        table.row(vec![
            basis_name(group.kind, &group.layers, group.set.as_deref()),
            group.cols.to_string(),
            group.rank.to_string(),
            group.fingerprint.clone(),
        ]);
    }
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".into());
    let named: Vec<&str> = output.sets.iter().flatten().map(String::as_str).collect();
    let sets = if named.is_empty() { String::new() } else { format!("; sets: {}", named.join(", ")) };
    format!(
        "{}{}; model: {}; rotary positions: {}{sets}\n",
        table.render(),
        print::bytes(output.bytes),
        known(&output.model),
        known(&output.rope)
    )
}

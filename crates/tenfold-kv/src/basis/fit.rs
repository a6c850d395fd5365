//! From captured tensors to a file of bases: the recipe.

use std::borrow::Cow;
use std::path::PathBuf;

use tenfold_archive::Progress;

use super::capture::{Captured, Turned};
use super::components::Components;
use super::file::BasisFile;
use super::gain::{Gain, leave_one_out};
use super::kind::Kind;
use super::metrics::Metrics;
use super::moments::Moments;
use super::options::{FitOptions, Grouping, Keys};
use super::press::{Measured, press};
use super::report::{Report, Summary};
use crate::error::{Error, Result, invalid};

/// Rows read at a time.
const ROWS: usize = 1024;

/// What a fit gives.
#[derive(Debug)]
#[non_exhaustive]
pub struct Fitted {
    /// The bases.
    pub file: BasisFile,
    /// Their gains and sizes.
    pub report: Report,
}

/// Finds bases for captured tensors.
pub fn fit(paths: &[PathBuf], options: &FitOptions, progress: &dyn Progress) -> Result<Fitted> {
    options.check()?;
    tenfold::engine::threads::install(options.threads, || fit_here(paths, options, progress))?
}

fn fit_here(paths: &[PathBuf], options: &FitOptions, progress: &dyn Progress) -> Result<Fitted> {
    let captured = Captured::open(paths, &options.names)?;
    let kinds = kinds(&captured, options)?;
    let metrics = options
        .metrics
        .as_ref()
        .map(|path| Metrics::open(path, &options.names, options.ridge))
        .transpose()?;
    let passes = 1 + options.compare.len() as u64;
    progress.start(passes * total_bytes(&captured, &kinds)?);

    let all = |grouping| -> Result<Vec<Measured>> {
        let mut out = Vec::new();
        for &kind in &kinds {
            for layers in group_layers(grouping, kind, &captured) {
                progress.message(&format!("{kind} of layers {layers:?}"));
                out.push(measure(&captured, kind, layers, grouping, options, metrics.as_ref(), progress)?);
            }
        }
        Ok(out)
    };
    let measured = all(options.grouping)?;
    let mut summaries = summarise(&measured, options.grouping);
    for &other in &options.compare {
        summaries.extend(summarise(&all(other)?, other));
    }
    progress.message("compressing vectors");
    let pressed = press(&measured, options, metrics.is_some())?;
    let groups = measured.iter().zip(&pressed.groups).map(|(m, p)| m.report(p)).collect();
    let bytes = pressed.file.max_bytes()?;
    Ok(Fitted { report: Report { groups, summaries, bytes, bits: pressed.bits }, file: pressed.file })
}

/// The kinds that are both requested and captured.
fn kinds(captured: &Captured, options: &FitOptions) -> Result<Vec<Kind>> {
    let there: Vec<Kind> = Kind::ALL.into_iter().filter(|&k| !captured.layers(k).is_empty()).collect();
    let kinds = if options.kinds.is_empty() { there.clone() } else { options.kinds.clone() };
    if let Some(missing) = kinds.iter().find(|kind| !there.contains(kind)) {
        return Err(invalid(format!("no {missing} were captured")));
    }
    match captured.find_turned() {
        Some(name) if options.keys == Keys::Unknown && kinds.contains(&Kind::Keys) => {
            Err(invalid(format!("keys {name:?} were captured after rotary positions: state them, or `none`")))
        }
        _ => Ok(kinds),
    }
}

fn group_layers(grouping: Grouping, kind: Kind, captured: &Captured) -> Vec<Vec<usize>> {
    grouping.groups(kind, &captured.layers(kind))
}

fn total_bytes(captured: &Captured, kinds: &[Kind]) -> Result<u64> {
    let mut total = 0;
    for &kind in kinds {
        for layer in captured.layers(kind) {
            total += captured.size(kind, layer)?.1;
        }
    }
    Ok(total)
}

/// Sums over the rows of a group, in parts, and their results.
fn measure(
    captured: &Captured,
    kind: Kind,
    layers: Vec<usize>,
    grouping: Grouping,
    options: &FitOptions,
    metrics: Option<&Metrics>,
    progress: &dyn Progress,
) -> Result<Measured> {
    let parts = gather(captured, kind, &layers, options, progress)?;
    let cols = parts[0].cols();
    let tokens = parts.iter().map(Moments::count).sum();
    let blocks = match (grouping, kind, options.head()) {
        (Grouping::Heads, Kind::Keys | Kind::Values, Some(head)) if cols.is_multiple_of(head) => cols / head,
        (Grouping::Heads, Kind::Keys | Kind::Values, Some(head)) => {
            return Err(invalid(format!(
                "{kind} of layers {layers:?} have {cols} columns, which heads of {head} do not divide"
            )));
        }
        _ => 1,
    };
    let metric = metrics.map(|m| m.combine(kind, &layers)).transpose()?;
    let width = cols / blocks;
    let mut found = Vec::with_capacity(blocks);
    let mut gains = Vec::new();
    for block in 0..blocks {
        let range = block * width..(block + 1) * width;
        let metric = metric.as_ref().map(|m| m.part(range.clone())).transpose()?;
        // Moments of many columns are large: no copy where there is nothing to cut out.
        let parts: Cow<'_, [Moments]> = match blocks {
            1 => Cow::Borrowed(&parts),
            _ => parts.iter().map(|p| p.columns(range.clone())).collect::<Result<_>>()?,
        };
        if parts.len() > 1 {
            gains.push(leave_one_out(&parts, metric.as_ref(), &options.rates)?);
        }
        let mut whole = Moments::new(width)?;
        parts.iter().try_for_each(|part| whole.merge(part))?;
        found.push(Components::from_moments(&whole, metric.as_ref())?);
    }
    let gain = (!gains.is_empty()).then(|| Gain::mean(&gains.iter().map(|g| (g, 1.0)).collect::<Vec<_>>()));
    Ok(Measured { kind, layers, cols, tokens, gain, blocks: found })
}

/// Reads the rows of a group; each tensor is cut into as many parts as are asked for.
fn gather(
    captured: &Captured,
    kind: Kind,
    layers: &[usize],
    options: &FitOptions,
    progress: &dyn Progress,
) -> Result<Vec<Moments>> {
    let mut cols = 0;
    let mut first = None;
    for &layer in layers {
        let (found, _) = captured.size(kind, layer)?;
        let expected = *first.get_or_insert(found);
        if found != expected {
            return Err(Error::Columns { tensor: format!("{kind} of layer {layer}"), found, expected });
        }
        cols += found;
    }
    let count = options.parts.max(1);
    let mut parts = (0..count).map(|_| Moments::new(cols)).collect::<Result<Vec<_>>>()?;
    let rope = match &options.keys {
        Keys::Rope(rope) => Some(rope),
        _ => None,
    };
    let turned = Turned { rope, context: options.context };
    captured.rows(kind, layers, &turned, ROWS, |rows| {
        let mut at = rows.first;
        let end = rows.first + rows.values.len() / cols;
        while at < end {
            let part = at * count / rows.of;
            // The first row of the next part.
            let until = ((part + 1) * rows.of).div_ceil(count).min(end);
            let values = &rows.values[(at - rows.first) * cols..(until - rows.first) * cols];
            parts[part].add(values, rows.name, at as u64)?;
            at = until;
        }
        progress.advance(rows.bytes);
        Ok(())
    })?;
    if parts.iter().any(|p| p.count() < 2) {
        let rows: u64 = parts.iter().map(Moments::count).sum();
        return Err(invalid(format!(
            "{rows} rows of {kind} are too few to fit a basis and measure it in {count} parts; capture more"
        )));
    }
    Ok(parts)
}

fn summarise(measured: &[Measured], grouping: Grouping) -> Vec<Summary> {
    let of_kind = |kind: Kind| {
        let of = measured.iter().filter(|m| m.kind == kind);
        let gains: Vec<(&Gain, f64)> = of.filter_map(|m| Some((m.gain.as_ref()?, m.cols as f64))).collect();
        (!gains.is_empty()).then(|| Summary { kind, group: grouping.name(), gain: Gain::mean(&gains) })
    };
    Kind::ALL.into_iter().filter_map(of_kind).collect()
}

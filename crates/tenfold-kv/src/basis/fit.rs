//! From captured tensors to a file of bases: the recipe.

use std::path::PathBuf;

use tenfold_archive::Progress;

use super::file::BasisFile;
use super::gain::Gain;
use super::kind::Kind;
use super::measure::{Measured, Measuring, Tested};
use super::metrics::Metrics;
use super::options::{FitOptions, Grouping};
use super::press::press;
use super::report::{Report, SetReport, Summary};
use super::sets::{Set, Source, kinds};
use crate::error::Result;

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
    tenfold::engine::threads::install(options.threads, || {
        fit_here(&Source::unnamed(paths, options)?, options, progress)
    })?
}

/// Finds bases for several kinds of text, which share them by their weights or, with [`FitOptions::each`], have their own.
pub fn fit_sets(sets: &[Set], options: &FitOptions, progress: &dyn Progress) -> Result<Fitted> {
    options.check()?;
    tenfold::engine::threads::install(options.threads, || {
        fit_here(&Source::open(sets, options)?, options, progress)
    })?
}

fn fit_here(sources: &[Source], options: &FitOptions, progress: &dyn Progress) -> Result<Fitted> {
    let kinds = kinds(sources, options)?;
    let metrics = options
        .metrics
        .as_ref()
        .map(|path| Metrics::open(path, &options.names, options.ridge))
        .transpose()?;
    let passes = 1 + options.compare.len() as u64;
    progress.start(passes * total_bytes(sources, &kinds)?);

    let all = |grouping: Grouping| -> Result<Vec<Measured>> {
        let mut out = Vec::new();
        for sources in sources.chunks(if options.each { 1 } else { sources.len() }) {
            let set = sources[0].name.as_deref().filter(|_| options.each);
            let metrics = metrics.as_ref();
            let measuring = Measuring { sources, set, grouping, options, metrics, progress };
            for &kind in &kinds {
                for layers in grouping.groups(kind, &sources[0].captured.layers(kind)) {
                    let of = set.map_or_else(String::new, |set| format!(" of {set}"));
                    progress.message(&format!("{kind} of layers {layers:?}{of}"));
                    out.push(measuring.measure(kind, layers)?);
                }
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
    let groups = measured.iter().zip(&pressed.groups).map(|(m, p)| p.report(m)).collect();
    let bytes = pressed.file.max_bytes()?;
    let sets: Vec<SetReport> = sources.iter().map(|source| report_set(source, &measured)).collect();
    let own = options.each || sources.len() == 1;
    let warnings = sets.iter().flat_map(|set| set.warnings(own)).collect();
    let report = Report { groups, summaries, sets, warnings, bytes, bits: pressed.bits };
    Ok(Fitted { report, file: pressed.file })
}

fn total_bytes(sources: &[Source], kinds: &[Kind]) -> Result<u64> {
    let mut total = 0;
    for source in sources {
        for &kind in kinds {
            for layer in source.captured.layers(kind) {
                total += source.captured.size(kind, layer)?.1;
            }
        }
    }
    Ok(total)
}

fn summarise(measured: &[Measured], grouping: Grouping) -> Vec<Summary> {
    let of_kind = |kind: Kind| {
        let of = measured.iter().filter(|m| m.kind == kind);
        let gains: Vec<(Gain, f64)> =
            of.filter_map(|m| Some((m.gain()?, m.cols as f64 * m.weight()))).collect();
        let gains: Vec<(&Gain, f64)> = gains.iter().map(|(gain, weight)| (gain, *weight)).collect();
        (!gains.is_empty()).then(|| Summary { kind, group: grouping.name(), gain: Gain::mean(&gains) })
    };
    Kind::ALL.into_iter().filter_map(of_kind).collect()
}

/// What the bases are worth to one set.
fn report_set(source: &Source, measured: &[Measured]) -> SetReport {
    let tested: Vec<(&Measured, &Tested)> =
        measured.iter().flat_map(|m| m.tested.iter().map(move |t| (m, t))).collect();
    let own = || tested.iter().filter(|(_, t)| t.set == source.name);
    let of_kind = |kind: Kind| {
        let of = own().filter(|(m, _)| m.kind == kind);
        let gains: Vec<(&Gain, f64)> =
            of.filter_map(|(m, t)| Some((t.gain.as_ref()?, m.cols as f64))).collect();
        (!gains.is_empty()).then(|| (kind, Gain::mean(&gains)))
    };
    SetReport {
        name: source.name.clone(),
        weight: source.weight,
        tokens: own().map(|(_, t)| t.tokens).max().unwrap_or(0),
        gains: Kind::ALL.into_iter().filter_map(of_kind).collect(),
    }
}

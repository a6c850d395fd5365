//! The drawings: performance over area, and energy over model size; and the page around them.

use super::inputs::{Inputs, Work};
use super::study::{PERFORMANCE, Study};
use crate::page::{Axis, Chart, Document, Scale, Series};

fn plain(value: f64) -> String {
    if value == value.trunc() && value.abs() < 1e6 { format!("{value}") } else { format!("{value:.2}") }
}

fn billions(value: f64) -> String {
    format!("{:.0} B", value / 1e9)
}

/// Performance over area: one front a scenario.
pub fn performance_chart(study: &Study) -> String {
    let series = study.fronts.iter().map(|front| Series {
        label: front.scenario.name(&study.inputs).to_owned(),
        points: front
            .points
            .iter()
            .map(|point| {
                let c = &point.configuration;
                let performance = point.outcome.tokens_per_second / study.unit;
                let text = format!(
                    "{performance:.2} at {:.0} mm²: {} ranks of {} stages, {} cards, {} codecs",
                    point.area, c.ranks, c.stages, c.nics, c.codecs
                );
                (point.area, performance, text)
            })
            .collect(),
        dashed: false,
        steps: true,
    });
    Chart {
        title: "Performance over area",
        x: Axis { label: "area of all dies, mm²", scale: Scale::Linear, show: &plain, ticks: Vec::new() },
        y: Axis { label: "performance", scale: Scale::Linear, show: &plain, ticks: Vec::new() },
        series: series.collect(),
        marks: Vec::new(),
    }
    .to_svg()
}

/// Tokens a joule over model size.
pub fn energy_chart(study: &Study) -> String {
    let mut series: Vec<Series> = study
        .fronts
        .iter()
        .map(|front| Series {
            label: front.scenario.name(&study.inputs).to_owned(),
            points: study
                .sizes
                .iter()
                .filter_map(|row| {
                    let gain = row.efficiency.iter().find(|(s, _)| *s == front.scenario)?.1;
                    Some((row.parameters, gain, format!("{}: {gain:.2}", row.name)))
                })
                .collect(),
            dashed: false,
            steps: false,
        })
        .collect();
    series.push(Series {
        label: "share of communication".into(),
        points: study
            .sizes
            .iter()
            .map(|row| (row.parameters, row.share, format!("{:.2}", row.share)))
            .collect(),
        dashed: true,
        steps: false,
    });
    Chart {
        title: "Energy efficiency over model size",
        x: Axis {
            label: "parameters",
            scale: Scale::Log,
            show: &billions,
            ticks: study.sizes.iter().map(|row| row.parameters).collect(),
        },
        y: Axis {
            label: "tokens a joule, over no compression",
            scale: Scale::Linear,
            show: &plain,
            ticks: Vec::new(),
        },
        series,
        marks: Vec::new(),
    }
    .to_svg()
}

/// The whole study as a page.
pub fn cluster_page(study: &Study) -> String {
    let Inputs { model, workload, gpu, .. } = &study.inputs;
    let work = match study.work {
        Work::Training => "training",
        Work::Inference => "inference",
    };
    let mut page = Document::new(&format!("Clusters for {work} of {}", model.name));
    page.paragraph(&format!(
        "{} configurations of GPUs ({}), network cards and codecs within {:.0} mm². Performance 1 is that of the smallest cluster without compression.",
        study.configurations, gpu.name, study.budget.area
    ));
    page.note(&format!(
        "Assumed: {} tokens a rank and step, microbatches of {}, utilisation {}, overlap of computing and communicating {}.",
        workload.tokens, workload.microbatch, workload.utilisation, workload.overlap
    ));
    page.drawing(&performance_chart(study));
    let or_dash = |value: Option<f64>| value.map_or("-".into(), |v| format!("{v:.2}"));
    let rows: Vec<Vec<String>> = (0..study.fronts.len())
        .map(|i| {
            let (scenario, bit, gain) = &study.energy[i];
            vec![
                scenario.name(&study.inputs).to_owned(),
                study.fronts[i].configurations.to_string(),
                or_dash(study.at_area[i].1),
                or_dash(study.at_performance[i].1),
                format!("{:.0}", bit.total()),
                format!("{gain:.2}"),
            ]
        })
        .collect();
    let smaller = format!("smaller at {PERFORMANCE}");
    let headings =
        ["scenario", "configurations", "faster in this area", &smaller, "pJ a bit", "less energy a bit"];
    page.table(&headings, &rows, |_| false);
    page.drawing(&energy_chart(study));
    page.heading("Under other assumptions");
    page.paragraph(&format!(
        "What {} gain over no compression if one assumption changes.",
        study.inputs.codec.name
    ));
    let rows: Vec<Vec<String>> = study
        .sensitivity
        .iter()
        .map(|row| vec![row.what.clone(), or_dash(row.at_area), or_dash(row.at_performance)])
        .collect();
    page.table(&["assumption", "faster in this area", &smaller], &rows, |row| row == 0);
    page.finish()
}

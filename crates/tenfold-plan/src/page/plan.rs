//! The page of a plan: time over bandwidth for raw and each way of coding.

use super::chart::{Axis, Chart, Scale, Series};
use super::html::Document;
use crate::model::{Hosts, Link, Overlap, forecast, forecast_raw};
use crate::report::{KindPlan, Plan};
use crate::unit::{show_bandwidth, show_bytes, show_seconds};

/// Bandwidths that are drawn, in powers of ten of bytes a second: 1 Mb/s to 1 Tb/s.
const DRAWN: (f64, f64) = (1.25e5, 1.25e11);
/// Points of a line.
const POINTS: usize = 121;

/// Draws a plan as a page.
pub fn plan_page(plan: &Plan) -> String {
    let mut page = Document::new("What to send how");
    let hosts = &plan.hosts;
    page.paragraph(&match hosts.shared {
        true => format!("Sender and receiver share the {} cores of one machine.", hosts.sender),
        false => format!("The sender has {} cores, the receiver {}.", hosts.sender, hosts.receiver),
    });
    for note in &plan.notes {
        page.note(note);
    }
    for kind in &plan.kinds {
        draw(&mut page, kind, hosts);
    }
    if !plan.checks.is_empty() {
        page.heading("Forecasts and runs");
        let rows: Vec<Vec<String>> = plan
            .checks
            .iter()
            .map(|check| {
                vec![
                    check.kind.clone(),
                    show_bandwidth(check.bytes_per_second),
                    check.way.clone(),
                    show_seconds(check.forecast),
                    show_seconds(check.measured),
                    format!("{:+.1} %", check.off * 100.0),
                ]
            })
            .collect();
        let headings = ["tensors", "link", "sent", "forecast", "measured", "off"];
        page.table(&headings, &rows, |row| plan.checks[row].chosen);
    }
    page.finish()
}

fn draw(page: &mut Document, kind: &KindPlan, hosts: &Hosts) {
    page.heading(&format!(
        "{}: {} in {} tensors",
        kind.name,
        show_bytes(kind.payload.bytes as f64),
        kind.tensors
    ));
    let latency = kind.links.first().map_or(0.0, |plan| plan.link.latency);
    let line = |label: &str, seconds: &dyn Fn(&Link) -> f64| {
        let points = (0..POINTS).filter_map(|i| {
            let at = DRAWN.0 * (DRAWN.1 / DRAWN.0).powf(i as f64 / (POINTS - 1) as f64);
            let link = Link::new(at).and_then(|link| link.with_latency(latency)).ok()?;
            Some((at, seconds(&link), String::new()))
        });
        Series { label: label.to_owned(), points: points.collect(), dashed: false, steps: false }
    };
    let mut series = vec![line("raw", &|link| forecast_raw(link, &kind.payload, hosts).seconds)];
    series.extend(kind.ways.iter().map(|way| {
        line(&way.rates.name, &|link| {
            forecast(link, &kind.payload, &way.rates, hosts, Overlap::Pipelined).seconds
        })
    }));
    // The choice of each link is a dot on its line, or on one of its own where two lanes are used.
    let mut lanes = Vec::new();
    for plan in &kind.links {
        let at = plan.choice.way.map_or(0, |way| way + 1);
        let text = format!(
            "{}: {} in {}",
            show_bandwidth(plan.link.bytes_per_second),
            kind.chosen(plan),
            show_seconds(plan.choice.forecast.seconds)
        );
        let point = (plan.link.bytes_per_second, plan.choice.forecast.seconds, text);
        match plan.choice.coded {
            None => series[at].points.push(point),
            Some(_) => lanes.push(point),
        }
    }
    if !lanes.is_empty() {
        series.push(Series { label: "in part raw".into(), points: lanes, dashed: true, steps: false });
    }
    for series in &mut series {
        series.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let ticks = (0..7).map(|e| 1.25e5 * 10f64.powi(e)).collect();
    let chart = Chart {
        title: "time over bandwidth; dots are the choice",
        x: Axis { label: "bandwidth of the link", scale: Scale::Log, show: &show_bandwidth, ticks },
        y: Axis { label: "time", scale: Scale::Log, show: &show_seconds, ticks: Vec::new() },
        series,
        marks: match kind.links.as_slice() {
            [one] => vec![(one.link.bytes_per_second, show_bandwidth(one.link.bytes_per_second))],
            _ => Vec::new(),
        },
    };
    page.drawing(&chart.to_svg());
    links(page, kind);
    ways(page, kind);
}

fn links(page: &mut Document, kind: &KindPlan) {
    let rows: Vec<Vec<String>> = kind
        .links
        .iter()
        .map(|plan| {
            vec![
                show_bandwidth(plan.link.bytes_per_second),
                kind.chosen(plan),
                show_seconds(plan.choice.forecast.seconds),
                show_seconds(plan.raw.seconds),
                format!("{:.2}", plan.choice.speedup),
                plan.choice.forecast.slowest.name().to_owned(),
                plan.choice.reason.text().to_owned(),
            ]
        })
        .collect();
    page.table(&["link", "send", "time", "raw", "speed-up", "slowest", "why"], &rows, |_| false);
}

fn ways(page: &mut Document, kind: &KindPlan) {
    if kind.ways.is_empty() {
        return;
    }
    let rows: Vec<Vec<String>> = kind
        .ways
        .iter()
        .map(|way| {
            vec![
                way.rates.name.clone(),
                format!("{:.2}", way.ratio),
                format!("{}/s", show_bytes(way.encode_rate)),
                format!("{}/s", show_bytes(way.decode_rate)),
                way.rates.nmse.map_or("-".into(), |nmse| format!("{nmse:.2e}")),
                match way.break_even {
                    None => "never".into(),
                    Some(at) if at.is_infinite() => "always".into(),
                    Some(at) => show_bandwidth(at),
                },
            ]
        })
        .collect();
    page.table(&["way", "ratio", "encode", "decode", "nmse", "pays below"], &rows, |_| false);
}

//! A plan as tables.

use tenfold_plan::{KindPlan, Plan, show_bandwidth, show_bytes, show_seconds};

use crate::print;
use crate::table::Table;

/// All kinds, and the checks.
pub(super) fn plan(plan: &Plan) -> String {
    let mut text = String::new();
    for kind in &plan.kinds {
        text += &one(kind);
        text.push('\n');
    }
    if !plan.checks.is_empty() {
        let mut table = Table::new(&["check", "bytes", "link", "forecast", "measured", "off", ""], false);
        for check in &plan.checks {
            table.row(vec![
                format!("{}: {}", check.kind, check.way),
                show_bytes(check.bytes as f64),
                show_bandwidth(check.bytes_per_second),
                show_seconds(check.forecast),
                show_seconds(check.measured),
                format!("{:+.1} %", check.off * 100.0),
                if check.chosen { "chosen".into() } else { String::new() },
            ]);
        }
        text += &table.render();
        text.push('\n');
    }
    for note in &plan.notes {
        text += &format!("{note}\n");
    }
    text
}

fn one(kind: &KindPlan) -> String {
    let mut text =
        format!("{}: {} in {} tensors\n", kind.name, show_bytes(kind.payload.bytes as f64), kind.tensors);
    if !kind.ways.is_empty() {
        let mut table = Table::new(&["way", "ratio", "nmse", "encode", "decode", "pays below"], false);
        for way in &kind.ways {
            table.row(vec![
                way.rates.name.clone(),
                format!("{:.2}", way.ratio),
                print::or_dash(way.rates.nmse, print::scientific),
                print::rate(way.encode_rate),
                print::rate(way.decode_rate),
                match way.break_even {
                    None => "never".into(),
                    Some(at) if at.is_infinite() => "always".into(),
                    Some(at) => show_bandwidth(at),
                },
            ]);
        }
        text += &table.render();
        text.push('\n');
    }
    let mut table = Table::new(&["link", "send", "time", "raw", "speed-up", "slowest", "why"], false);
    for plan in &kind.links {
        table.row(vec![
            show_bandwidth(plan.link.bytes_per_second),
            kind.chosen(plan),
            show_seconds(plan.choice.forecast.seconds),
            show_seconds(plan.raw.seconds),
            format!("{:.2}", plan.choice.speedup),
            plan.choice.forecast.slowest.name().to_owned(),
            plan.choice.reason.text().to_owned(),
        ]);
    }
    text + &table.render()
}

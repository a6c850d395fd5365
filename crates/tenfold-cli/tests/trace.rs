//! `--trace`: what was read, coded and written when.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::Bench;

/// Stages in a trace.
fn stages(bench: &Bench, name: &str) -> Vec<String> {
    let text = std::fs::read(bench.path(name)).unwrap();
    let trace: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let mut found: Vec<String> = events.iter().filter_map(|e| Some(e["cat"].as_str()?.to_owned())).collect();
    found.sort();
    found.dedup();
    found
}

#[test]
fn traces_have_the_stages_and_reports_their_sums() {
    let bench = Bench::new();
    common::write_model(&bench.path("m.safetensors"), 5, 64, 96);
    let goal = ["compress", "m.safetensors", "--bits", "3", "-o"];
    let text = bench.ok(&[&goal[..], &["s.safetensors", "--trace", "a.json"]].concat());
    assert!(text.contains("overlap") && text.contains("encode"), "{text}");
    assert_eq!(stages(&bench, "a.json"), ["encode", "read", "write"]);
    let text = bench.ok(&["decompress", "s.safetensors", "-o", "d.safetensors", "--trace", "b.json"]);
    assert!(text.contains("overlap") && text.contains("decode"), "{text}");
    assert_eq!(stages(&bench, "b.json"), ["decode", "read", "write"]);

    let report = bench.json(&[&goal[..], &["t.safetensors", "--json"]].concat());
    let summary = &report["summary"];
    assert!(summary["seconds"].as_f64().unwrap() > 0.0);
    assert!((0.0..=1.0).contains(&summary["overlap"].as_f64().unwrap()));
    assert_eq!(summary["stages"][1]["stage"], "encode");
    assert_eq!(summary["stages"][1]["bytes"], report["total"]["original_bytes"]);
    let part = bench.json(&[&goal[..], &["p.safetensors", "--part", "1/2", "--json"]].concat());
    assert_eq!(part["summary"]["stages"][0]["stage"], "read");
    assert!(
        bench
            .fails(6, &[&goal[..], &["u.safetensors", "--trace", "none/a.json"]].concat())
            .contains("none/a.json")
    );
}

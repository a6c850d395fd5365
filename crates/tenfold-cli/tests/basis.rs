//! `tenfold basis`: captured tensors to a file of bases, and what the file says.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

mod common;

use common::Bench;

const ROPE: &str = "base=100000,head=64,pairing=neighbours";

/// A bench with a real capture, `kv.safetensors`.
fn bench() -> Bench {
    let bench = Bench::new();
    let from = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/kv.safetensors");
    std::fs::copy(from, bench.path("kv.safetensors")).unwrap();
    bench
}

#[test]
fn bases_are_made_and_shown() {
    let bench = bench();
    let fit = ["basis", "fit", "kv.safetensors", "--rope", ROPE, "--out", "kv.basis"];
    let text = bench.ok(&[&fit[..], &["--compare", "all,head"]].concat());
    assert!(
        text.contains("keys 22") && text.contains("values 8") && text.contains("the file takes"),
        "{text}"
    );
    let shown = bench.json(&["basis", "show", "kv.basis", "--json"]);
    assert_eq!((&shown["rope"], &shown["head_dim"]), (&ROPE.into(), &64.into()));
    assert_eq!(shown["groups"].as_array().unwrap().len(), 3);
    let text = bench.ok(&["basis", "show", "kv.basis"]);
    assert!(text.contains(shown["groups"][0]["fingerprint"].as_str().unwrap()), "{text}");
    // A file of bases is a compressed model like others.
    assert!(bench.ok(&["inspect", "kv.basis"]).contains("keys.8.vectors"));
    assert!(bench.ok(&["verify", "kv.basis"]).contains("3 of 9 tensors are compressed"));
    let error = bench.fails(2, &fit);
    assert!(error.contains("--force"), "{error}");
    assert_eq!(bench.ok(&[&fit[..], &["--force", "--quiet"]].concat()), "");
}

#[test]
fn a_report_needs_no_file() {
    let bench = bench();
    let before = bench.list();
    let args =
        ["basis", "fit", "kv.safetensors", "--rope", ROPE, "--kind", "keys", "--group", "all", "--json"];
    let report = bench.json(&[&args[..], &["--compare", "1", "--parts", "2", "--rates", "1.5"]].concat());
    assert_eq!(bench.list(), before);
    assert_eq!(report["groups"][0]["layers"], serde_json::json!([8, 22]));
    assert_eq!(report["summaries"][1]["group"], "1");
    assert_eq!(report["groups"][0]["gain"]["at"][0]["bits"], 1.5);
    assert!(report["groups"][0]["gain"]["basis"].as_f64().unwrap() > 1.5);
    assert!(report["model_bytes"].is_null());
    let report = bench.json(&[&args[..], &["--parts", "0"]].concat());
    assert!(report["groups"][0]["gain"].is_null());
}

#[test]
fn a_model_caps_its_bases() {
    let bench = bench();
    // Large enough for 2 % to hold something.
    common::write_model(&bench.path("large.safetensors"), 2, 512, 512);
    let args = ["basis", "fit", "kv.safetensors", "--rope", ROPE, "--model", "large.safetensors"];
    let report = bench.json(&[&args[..], &["--out", "kv.basis", "--json"]].concat());
    let (bytes, model) = (report["bytes"].as_u64().unwrap(), report["model_bytes"].as_u64().unwrap());
    assert_eq!(bytes, std::fs::metadata(bench.path("kv.basis")).unwrap().len());
    assert!(bytes * 50 <= model, "{bytes} of {model}");
    assert!(report["bits"].as_f64().unwrap() < 4.0);
    let shown = bench.json(&["basis", "show", "kv.basis", "--json"]);
    assert_eq!(shown["model"].as_str().unwrap().len(), 32);
    bench.fails(5, &[&args[..], &["--max-bytes", "300"]].concat());
}

#[test]
fn failures_say_who_must_act() {
    let bench = bench();
    let fails = |code: i32, more: &[&str], words: &str| {
        let error = bench.fails(code, &[&["basis", "fit", "kv.safetensors"], more].concat());
        assert!(error.contains(words), "{error}");
    };
    fails(2, &[], "rotary positions");
    fails(2, &["--rope", "base=1"], "head");
    fails(2, &["--rope", "none", "--group", "0"], "number of layers");
    fails(2, &["--rope", "none", "--kind", "hidden"], "no hidden were captured");
    fails(2, &["--rope", "none", "--per-head"], "columns of a head");
    fails(2, &["--rope", "none", "--name", "values=v"], "{}");
    fails(2, &["--rope", "none", "--name", "queries=q.{}"], "none of keys, values, hidden");
    fails(6, &["--rope", "none", "--metric", "nowhere"], "nowhere");
    bench.fails(6, &["basis", "fit", "nowhere.safetensors"]);
    assert!(bench.fails(3, &["basis", "show", "kv.safetensors"]).contains("not a basis file"));
    std::fs::write(bench.path("bad.basis"), b"nonsense").unwrap();
    bench.fails(3, &["basis", "show", "bad.basis"]);
}

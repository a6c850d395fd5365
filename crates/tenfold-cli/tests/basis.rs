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
    // Each set may take as much.
    let sets = ["--set", "a=kv.safetensors", "--set", "b=kv.safetensors", "--each"];
    let each =
        bench.json(&[&["basis", "fit"], &args[3..], &sets, &["--out", "each.basis", "--json"]].concat());
    let twice = each["bytes"].as_u64().unwrap();
    assert!(twice > bytes && twice * 25 <= model, "{twice} of {model}");
}

/// Rows of eight columns. The second moves with the first, or hardly at all: a basis for the one mixes both columns, which the
/// other does not bear.
fn write_rows(path: &std::path::Path, together: f32, rows: usize) {
    let noise = |i: usize| ((i as u32).wrapping_mul(2_654_435_761) >> 8) as f32 / 8e6 - 1.0;
    let row = |i: usize| {
        let mut row: [f32; 8] = std::array::from_fn(|c| noise(8 * i + c));
        row[1] = together * row[0] + 0.01 * row[1];
        row
    };
    let entry = serde_json::json!({"dtype": "F32", "shape": [rows, 8], "data_offsets": [0, 32 * rows]});
    let header = serde_json::json!({"layers.0.v": entry}).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend((0..rows).flat_map(row).flat_map(f32::to_le_bytes));
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn sets_are_weighed_reported_and_warned_about() {
    let bench = Bench::new();
    write_rows(&bench.path("prose.st"), 1.0, 1000);
    write_rows(&bench.path("code.st"), 0.0, 200);
    write_rows(&bench.path("more.st"), 0.0, 200);
    let fit = ["basis", "fit", "--bits", "8", "--rates", "2"];
    let gains = |report: &serde_json::Value| -> Vec<f64> {
        let sets = report["sets"].as_array().unwrap();
        sets.iter().map(|set| set["gains"]["values"]["at"][0]["basis"].as_f64().unwrap()).collect()
    };
    let sets = ["--set", "prose=prose.st:50", "--set", "code=code.st", "--set", "code=more.st:1"];
    let shared = bench.json(&[&fit[..], &sets, &["--json"]].concat());
    let about = |set: &serde_json::Value| (set["name"].clone(), set["weight"].clone(), set["tokens"].clone());
    assert_eq!(about(&shared["sets"][0]), ("prose".into(), 50.0.into(), 1000.into()));
    assert_eq!(about(&shared["sets"][1]), ("code".into(), 1.0.into(), 400.into()));
    assert!(gains(&shared)[0] > gains(&shared)[1] + 0.3, "{shared}");
    let warnings = shared["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let warning = warnings[0].as_str().unwrap();
    assert!(warning.contains("set \"code\"") && warning.contains("raise its weight"), "{warning}");

    let run = bench.run(&[&fit[..], &sets].concat());
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(out.contains("gain of") && err.contains(&format!("tenfold: warning: {warning}")), "{out}{err}");

    let each = bench.json(&[&fit[..], &sets, &["--each", "--out", "each.basis", "--json"]].concat());
    assert!(each["warnings"].as_array().unwrap().is_empty());
    assert!(gains(&each)[1] > gains(&shared)[1] + 0.3, "{each}");
    assert_eq!((&each["groups"][0]["set"], &each["groups"][1]["set"]), (&"prose".into(), &"code".into()));
    let shown = bench.json(&["basis", "show", "each.basis", "--json"]);
    assert_eq!(shown["sets"], serde_json::json!(["prose", "code"]));
    let text = bench.ok(&["basis", "show", "each.basis"]);
    assert!(text.contains("values 0 of code") && text.contains("sets: prose, code"), "{text}");
    assert!(bench.ok(&["inspect", "each.basis"]).contains("values.0.set.code.vectors"));
}

#[test]
fn sets_that_make_no_sense_are_refused() {
    let bench = Bench::new();
    write_rows(&bench.path("a.st"), 1.0, 100);
    write_rows(&bench.path("few.st"), 1.0, 5);
    let fails = |more: &[&str], words: &str| {
        let error = bench.fails(2, &[&["basis", "fit"], more].concat());
        assert!(error.contains(words), "{error}");
    };
    fails(&[], "--set");
    fails(&["a.st", "--set", "a=a.st"], "a set or to none");
    fails(&["a.st", "--each"], "--set");
    fails(&["--set", "a.st"], "NAME=FILE");
    fails(&["--set", "a="], "file");
    fails(&["--set", "=a.st"], "letters, digits");
    fails(&["--set", "a.b=a.st"], "letters, digits");
    for weight in ["0", "-1", "nan", "inf"] {
        fails(&["--set", &format!("a=a.st:{weight}")], "positive");
    }
    fails(&["--set", "a=a.st:1", "--set", "a=a.st:2"], "two weights");
    fails(&["--set", "a=a.st", "--set", "b=few.st"], "set \"b\": 5 rows");
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

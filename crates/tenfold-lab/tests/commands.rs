//! Every command of the lab does what its help says.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

#[path = "../../tenfold-cli/tests/common/mod.rs"]
mod common;

use common::Bench;

#[test]
fn bench_reports_and_fails_only_when_asked_to() {
    let bench = Bench::new();
    // A header alone puts so small a tensor far above the bound.
    let args =
        ["bench", "gap", "--size", "64", "--bits", "3,4", "--effort", "balanced", "--json", "gap.json"];
    let text = bench.ok(&args);
    assert!(text.starts_with("effort") && text.contains("MISS"), "{text}");
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(bench.path("gap.json")).unwrap()).unwrap();
    assert_eq!(report["bench"], "gap");
    assert_eq!(report["command"], format!("tenfold-lab {}", args.join(" ")));
    assert_eq!(report["rows"].as_array().unwrap().len(), 2);
    for key in ["date", "commit", "version", "machine", "notes", "checks"] {
        assert!(!report[key].is_null(), "{key}");
    }
    let text = bench.fails(3, &[&args[..], &["--check"]].concat());
    assert!(text.contains("2 of 2 bars missed"), "{text}");
}

#[test]
fn bench_measures_files() {
    let bench = Bench::new();
    let base = ["bench", "files", "--no-peers", "--bits", "3", "--effort", "fast"];
    let text = bench.ok(&[&base[..], &["model.safetensors"]].concat());
    assert!(text.contains("layers.1.weight") && text.contains("whole file"), "{text}");
    assert!(!text.contains("norm.weight"), "too small to be compressed: {text}");
    bench.fails(2, &base);
    bench.fails(2, &["bench", "gap", "model.safetensors"]);
    bench.fails(6, &[&base[..], &["absent.safetensors"]].concat());
}

#[test]
fn bench_says_what_is_wrong_with_a_library() {
    let bench = Bench::new();
    bench.fails(2, &["bench", "gap", "--nvcomp", "libnvcomp.so.6"]);
    let text = bench.fails(6, &["bench", "cuda", "--nvcomp", "./absent.so.6"]);
    assert!(text.contains("cannot load nvCOMP from ./absent.so.6"), "{text}");
}

#[test]
fn the_ablation_measures_and_draws() {
    let bench = Bench::new();
    let args = ["ablation", "model.safetensors", "--quick", "--size", "2048", "--quiet"];
    let text = bench.ok(&[&args[..], &["--json", "a.json", "--pictures", "pictures"]].concat());
    assert!(text.contains("+entropy") && text.contains("-prediction"), "{text}");
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(bench.path("a.json")).unwrap()).unwrap();
    assert_eq!(report["bench"], "ablation");
    assert!(std::fs::read_dir(bench.path("pictures")).unwrap().count() >= 12);
    bench.fails(2, &["ablation", "model.safetensors", "--nmse", "2"]);
}

#[test]
fn an_engine_that_is_not_there_is_code_6_and_writes_nothing() {
    let bench = Bench::new();
    let before = bench.list();
    for command in [
        &["bench", "gap", "--quick", "--size", "64", "--engine", "cuda"][..],
        &["bench", "cuda", "--quick", "--json", "x.json"],
    ] {
        let text = bench.fails(6, &[command, &["--device", "999"]].concat());
        assert!(text.contains("no CUDA device"), "{command:?}: {text}");
    }
    assert_eq!(bench.list(), before);
}

#[test]
fn without_a_device_the_reason_is_told() {
    let bench = Bench::new();
    if let Err(error) = tenfold_cuda::Device::count() {
        let text = bench.fails(6, &["bench", "cuda", "--quick"]);
        assert!(text.contains(&error.to_string()), "{text}");
    }
}

#[test]
fn engines_that_make_no_sense_are_code_2() {
    let bench = Bench::new();
    let text = bench.fails(2, &["bench", "speed", "--engine", "cuda"]);
    assert!(text.contains("bench cuda"), "{text}");
    bench.fails(2, &["bench", "gap", "--size", "64,128"]);
    assert_eq!(bench.list(), ["model.safetensors"]);
}

#[test]
fn help_tells_of_exit_codes_and_shows_examples() {
    let bench = Bench::new();
    assert!(bench.ok(&["--help"]).contains("Exit codes:"));
    for command in ["bench", "race", "ablation"] {
        let text = bench.ok(&[command, "--help"]);
        assert!(text.contains("Example"), "{command}");
        assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
    }
    assert!(bench.ok(&["--version"]).starts_with("tenfold-lab "));
}

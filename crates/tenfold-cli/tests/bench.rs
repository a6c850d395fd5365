//! `tenfold bench` measures a user's own files, writes nothing and says what it left out.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

mod common;

use common::{Bench, write_model};

/// A coder of a report.
fn coder<'a>(report: &'a serde_json::Value, name: &str) -> &'a serde_json::Value {
    report["coders"].as_array().unwrap().iter().find(|c| c["coder"] == name).unwrap()
}

#[test]
fn rate_error_and_speed_stand_beside_zstd_and_a_copy() {
    let bench = Bench::new();
    let report = bench.json(&["bench", "model.safetensors", "--json", "--threads", "2"]);
    assert_eq!((&report["tensors"], &report["values"]), (&2.into(), &(2 * 64 * 96).into()));
    assert_eq!((&report["goal"], &report["number"]), (&"bits".into(), &3.0.into()));
    assert_eq!((&report["effort"], &report["engine"]), (&"balanced".into(), &"cpu".into()));
    assert_eq!((&report["threads"], &report["repeats"]), (&2.into(), &3.into()));
    let (ours, zstd, copy) = (coder(&report, "tenfold"), coder(&report, "zstd -3"), coder(&report, "copy"));
    assert!((ours["bits_per_value"].as_f64().unwrap() / 3.0 - 1.0).abs() < 0.02, "{ours}");
    let nmse = ours["nmse"].as_f64().unwrap();
    assert!(nmse > 0.005 && nmse < 0.04, "{ours}");
    for exact in [zstd, copy] {
        assert_eq!((&exact["mse"], &exact["max_error"]), (&0.0.into(), &0.0.into()), "{exact}");
    }
    assert_eq!((&copy["ratio"], &copy["bits_per_value"]), (&1.0.into(), &32.0.into()));
    assert!(copy["encode"].is_null());
    for speed in [&ours["encode"], &ours["decode"], &zstd["encode"], &zstd["decode"], &copy["decode"]] {
        assert!(speed.as_f64().unwrap() > 0.0, "{report}");
    }
    let text = bench.ok(&["bench", "model.safetensors"]);
    assert!(text.contains("zstd -3") && text.contains("B/s") && !text.contains("--max-values"), "{text}");
    assert_eq!(bench.list(), ["model.safetensors"], "nothing is written");
}

#[test]
fn goals_and_efforts_are_those_of_compress() {
    let bench = Bench::new();
    let base = ["bench", "model.safetensors", "--json", "--repeats", "1"];
    let ours = |more: &[&str]| coder(&bench.json(&[&base[..], more].concat()), "tenfold").clone();
    assert_eq!(ours(&["--lossless"])["mse"], 0.0);
    assert!(ours(&["--max-error", "0.01"])["max_error"].as_f64().unwrap() <= 0.01);
    assert!(ours(&["--nmse", "0.02", "--effort", "best"])["nmse"].as_f64().unwrap() <= 0.02);
    let rates =
        ["fast", "best"].map(|effort| ours(&["--nmse", "0.02", "--effort", effort])["bytes"].as_u64());
    assert!(rates[1] < rates[0], "{rates:?}");
}

#[test]
fn work_has_a_limit_that_is_told() {
    let bench = Bench::new();
    let report = bench.json(&["bench", "model.safetensors", "--json", "--max-values", "8000"]);
    assert_eq!((&report["values"], &report["values_in_files"]), (&(83 * 96).into(), &(2 * 64 * 96).into()));
    let text = bench.ok(&["bench", "model.safetensors", "--max-values", "8000"]);
    assert!(text.contains("--max-values"), "{text}");
    // Several files count as one, compressed ones too.
    bench.ok(&["compress", "model.safetensors", "-o", "small.safetensors", "--bits", "4"]);
    let both = bench.json(&["bench", "model.safetensors", "small.safetensors", "--json", "--repeats", "1"]);
    assert_eq!((&both["tensors"], &both["values"]), (&4.into(), &(4 * 64 * 96).into()));
}

#[test]
fn what_cannot_be_measured_is_named() {
    let bench = Bench::new();
    write_model(&bench.path("tiny.safetensors"), 1, 8, 8);
    let text = bench.fails(2, &["bench", "tiny.safetensors"]);
    assert!(text.contains("tiny.safetensors") && text.contains("no float tensor"), "{text}");
    bench.fails(2, &["bench"]);
    assert!(bench.fails(2, &["bench", "model.safetensors", "--qp", "20"]).contains("pictures"));
    bench.fails(2, &["bench", "model.safetensors", "--max-values", "0"]);
    bench.fails(2, &["bench", "model.safetensors", "--bits", "3", "--lossless"]);
    bench.fails(6, &["bench", "absent.safetensors"]);
    std::fs::write(bench.path("junk.safetensors"), "no tensors at all").unwrap();
    bench.fails(3, &["bench", "junk.safetensors"]);
    let text = bench.fails(6, &["bench", "model.safetensors", "--engine", "cuda", "--device", "999"]);
    assert!(text.contains("no CUDA device"), "{text}");
}

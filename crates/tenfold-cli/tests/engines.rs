//! Engines on the command line: which there are, and that one which is not there is never replaced in silence.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

mod common;

use common::Bench;

/// A device that no machine has, so that these tests mean the same with a GPU and without.
const NO_SUCH: [&str; 4] = ["--engine", "cuda", "--device", "999"];

fn has_device(bench: &Bench) -> bool {
    let list = bench.json(&["engines", "--json"]);
    list.as_array().unwrap().iter().any(|e| e["engine"] == "cuda" && e["available"] == true)
}

#[test]
fn engines_list_cuda_or_say_why_not() {
    let bench = Bench::new();
    let list = bench.json(&["engines", "--json"]);
    let cuda: Vec<_> = list.as_array().unwrap().iter().filter(|e| e["engine"] == "cuda").collect();
    assert!(!cuda.is_empty(), "{list}");
    for entry in cuda {
        assert_eq!((&entry["role"], &entry["name"]), (&"codec".into(), &"native".into()));
        if entry["available"] == true {
            assert!(entry["device"]["multiprocessors"].as_u64().unwrap() > 0, "{entry}");
            assert!(entry["device"]["memory"].as_u64().unwrap() > 0, "{entry}");
        } else {
            assert!(entry["detail"].as_str().unwrap().contains("no CUDA device: "), "{entry}");
        }
    }
    let table = bench.ok(&["engines"]);
    assert!(table.lines().any(|line| line.starts_with("cuda ")), "{table}");
}

#[test]
fn an_engine_that_is_not_there_is_code_6_and_writes_nothing() {
    let bench = Bench::new();
    bench.ok(&["compress", "model.safetensors", "-o", "small.safetensors", "--lossless"]);
    let before = bench.list();
    for command in [
        &["compress", "model.safetensors", "-o", "x.safetensors", "--bits", "3"][..],
        &["compress", "model.safetensors", "-o", "x.safetensors", "--lossless"],
        &["decompress", "small.safetensors", "-o", "x.safetensors"],
        &["verify", "small.safetensors"],
        &["compare", "model.safetensors", "small.safetensors"],
    ] {
        let text = bench.fails(6, &[command, &NO_SUCH].concat());
        assert!(text.contains("no CUDA device"), "{command:?}: {text}");
    }
    assert_eq!(bench.list(), before);
}

#[test]
fn without_a_device_the_reason_is_told() {
    let bench = Bench::new();
    if has_device(&bench) {
        return;
    }
    let list = bench.json(&["engines", "--json"]);
    let reason = list.as_array().unwrap().iter().find(|e| e["engine"] == "cuda").unwrap()["detail"].clone();
    let text = bench.fails(6, &["verify", "model.safetensors", "--engine", "cuda"]);
    assert!(text.contains(reason.as_str().unwrap()), "{text}");
}

#[test]
fn a_device_reads_what_the_cpu_wrote() {
    let bench = Bench::new();
    if !has_device(&bench) {
        return;
    }
    for goal in [&["--lossless"][..], &["--bits", "3"]] {
        let compress = ["compress", "model.safetensors", "-o", "small.safetensors", "--force"];
        bench.ok(&[&compress[..], goal].concat());
        bench.ok(&["verify", "small.safetensors", "--engine", "cuda"]);
        bench.ok(&["decompress", "small.safetensors", "-o", "a.safetensors", "--force", "--engine", "cuda"]);
        bench.ok(&["decompress", "small.safetensors", "-o", "b.safetensors", "--force"]);
        let read = |name| std::fs::read(bench.path(name)).unwrap();
        assert!(read("a.safetensors") == read("b.safetensors"));
    }
}

#[test]
fn engines_and_devices_that_make_no_sense_are_code_2() {
    let bench = Bench::new();
    let compress = ["compress", "model.safetensors", "-o", "x.safetensors", "--bits", "3"];
    let text = bench.fails(2, &[&compress[..], &["--device", "0"]].concat());
    assert!(text.contains("--engine cuda"), "{text}");
    let text = bench.fails(2, &[&compress[..], &["--codec", "h265", "--engine", "cuda"]].concat());
    assert!(text.contains("--codec"), "{text}");
    bench.fails(2, &[&compress[..], &["--engine", "tpu"]].concat());
    assert_eq!(bench.list(), ["model.safetensors"]);
}

//! Pictures on the command line, with codecs and without.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

mod common;

use common::Bench;

const COMPRESS: [&str; 5] = ["compress", "model.safetensors", "-o", "v.safetensors", "--force"];

fn compress<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&COMPRESS[..], more].concat()
}

#[test]
fn options_of_pictures_need_pictures() {
    let bench = Bench::new();
    for more in [&["--qp", "30"][..], &["--bits", "3", "--depth", "10"], &["--bits", "3", "--hadamard", "64"]]
    {
        assert!(bench.fails(2, &compress(more)).contains("--codec"), "{more:?}");
    }
    bench.fails(2, &compress(&["--bits", "3", "--codec", "h265", "--hadamard", "63"]));
    bench.fails(2, &compress(&["--bits", "3", "--codec", "h265", "--scale", "rows"]));
    bench.fails(2, &compress(&["--codec", "h265"]));
    assert!(bench.fails(2, &compress(&["--bits", "3", "--for", "nvdec"])).contains("--for"));
    bench.fails(2, &compress(&["--bits", "3", "--codec", "h265", "--for", "toaster"]));
    bench.fails(2, &compress(&["--bits", "3", "--codec", "h265", "--prepare", "auto"]));
    bench.fails(2, &compress(&["--max-error", "3", "--codec", "h265", "--prepare", "means"]));
    assert_eq!(bench.list(), ["model.safetensors"], "nothing half-written");
}

#[test]
#[cfg(not(feature = "video"))]
fn a_build_without_codecs_names_the_feature() {
    let bench = Bench::new();
    assert!(bench.fails(4, &compress(&["--bits", "3", "--codec", "h265"])).contains("feature `video`"));
    assert!(bench.ok(&["engines"]).contains("--features video") || cfg!(feature = "av1"));
}

#[test]
#[cfg(feature = "video")]
fn a_model_goes_into_pictures_and_back() {
    let bench = Bench::new();
    for (codec, name) in [("h264", "H.264"), ("h265", "H.265"), ("av1", "AV1")] {
        bench.ok(&compress(&["--bits", "3", "--codec", codec, "--effort", "fast"]));
        let report = bench.json(&["inspect", "v.safetensors", "--json"]);
        let coded = report["tensors"].as_array().unwrap().iter().filter(|t| t["codec"] == name).count();
        assert_eq!(coded, 2, "{report}");
        let bits = report["compressed"]["bits_per_value"].as_f64().unwrap();
        assert!((bits / 3.0 - 1.0).abs() < 0.02, "{codec}: {bits}");
        bench.ok(&["verify", "v.safetensors"]);
        bench.ok(&["compare", "model.safetensors", "v.safetensors", "--fail-above", "0.1"]);
        bench.ok(&["decompress", "v.safetensors", "-o", "back.safetensors", "--force"]);
        bench.ok(&["compare", "v.safetensors", "back.safetensors", "--fail-above", "0"]);
    }
    bench.fails(2, &["verify", "v.safetensors", "--decoder", "nobody"]);
    bench.fails(2, &compress(&["--lossless", "--codec", "h265"]));
    let options = [
        "--qp",
        "20",
        "--codec",
        "h265",
        "--depth",
        "10",
        "--scale",
        "columns",
        "--chroma",
        "--hadamard",
        "32",
    ];
    bench.ok(&compress(&options));
    bench.ok(&compress(&["--lossless-samples", "--codec", "h264", "--scale", "rows=16"]));
    bench.ok(&["compare", "model.safetensors", "v.safetensors", "--fail-above", "1e-3"]);
}

#[test]
#[cfg(feature = "video")]
fn pictures_for_hardware_and_behind_transforms() {
    let bench = Bench::new();
    let for_nvdec = ["--bits", "3", "--codec", "h265", "--effort", "fast", "--for", "nvdec"];
    let report = bench.json(&[&compress(&for_nvdec)[..], &["--json"]].concat());
    let pictures = &report["pictures"];
    assert!(pictures["chroma_bits"].as_f64().unwrap().abs() < 0.1, "{report}");
    let padding = pictures["padding"].as_f64().unwrap();
    let rows = report["tensors"].as_array().unwrap();
    let most = rows.iter().filter_map(|row| row["padding"].as_f64()).fold(0.0, f64::max);
    assert!(padding > 0.0 && padding <= most, "{report}");
    assert!(bench.ok(&compress(&for_nvdec)).contains("pictures for the hardware"));
    bench.ok(&["verify", "v.safetensors"]);
    let behind = ["--bits", "3", "--codec", "h265", "--effort", "fast", "--prepare", "means+hadamard:16"];
    let report = bench.json(&[&compress(&behind)[..], &["--json"]].concat());
    assert!(report["pictures"].is_null());
    let done = |row: &serde_json::Value| row["transforms"] == serde_json::json!(["means", "Hadamard"]);
    assert!(report["tensors"].as_array().unwrap().iter().any(done), "{report}");
    bench.ok(&["compare", "model.safetensors", "v.safetensors", "--fail-above", "0.1"]);
}

#[test]
fn engines_are_listed() {
    let bench = Bench::new();
    let list = bench.json(&["engines", "--json"]);
    let list = list.as_array().unwrap();
    assert_eq!((&list[0]["engine"], &list[0]["available"]), (&"cpu".into(), &true.into()));
    let x265 = list.iter().any(|e| e["name"] == "x265" && e["available"] == true);
    assert_eq!(x265, cfg!(feature = "video"));
    assert!(list.iter().all(|e| e["available"] == true || !e["detail"].as_str().unwrap().is_empty()));
}

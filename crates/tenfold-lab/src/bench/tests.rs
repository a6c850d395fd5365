//! Every bench runs in its quick form and reports what it says it does.

use std::path::PathBuf;

use super::*;
use crate::synth;
use tenfold::{Dtype, Effort};

fn quick(what: What) -> BenchArgs {
    let mut args = BenchArgs::new(what);
    args.quick = true;
    args.quiet = true;
    args.peers = false;
    args.repeats = Some(1);
    args.efforts = vec![Effort::Balanced];
    args
}

fn run_quietly(args: &BenchArgs) -> (Report, String) {
    let mut out = Vec::new();
    let report = run(args, &mut out).unwrap();
    (report, String::from_utf8(out).unwrap())
}

#[test]
fn gap_reports_a_row_a_rate() {
    let mut args = quick(What::Gap);
    args.sizes = vec![128];
    let (report, text) = run_quietly(&args);
    assert_eq!(report.rows.len(), 5);
    assert_eq!(report.checks.len(), 5);
    assert!(text.starts_with("effort"), "{text}");
}

#[test]
fn lossless_reports_ours_and_zstd() {
    let mut args = quick(What::Lossless);
    args.sizes = vec![1 << 16];
    let (report, _) = run_quietly(&args);
    assert!(report.rows.iter().any(|r| r["coder"] == "zstd -3"));
    assert!(report.rows.iter().any(|r| r["coder"] == "tenfold lossless"));
    assert_eq!(report.checks.len(), 1);
}

#[test]
fn calibrated_reports_seconds_and_losses() {
    let mut args = quick(What::Calibrated);
    args.sizes = vec![48];
    let (report, text) = run_quietly(&args);
    let row = &report.rows[0];
    assert!(row["engine"] == "cpu" && row["inputs"] == 48 && row["seconds"].as_f64() > Some(0.0), "{text}");
    assert!(row["loss"].as_f64() < row["plain"].as_f64(), "{text}");
}

#[test]
fn deltas_are_smaller_than_what_others_make() {
    let mut args = quick(What::Delta);
    args.peers = true;
    let (report, text) = run_quietly(&args);
    assert_eq!(report.rows.len(), 5 * 8 + 1, "{text}");
    for case in report.rows[..40].chunks(8) {
        assert!(case[0]["coder"] == "tenfold" && case[0]["apply_s"].as_f64() > Some(0.0));
        assert!(case[1..].iter().all(|other| other["bytes"].as_u64() > case[0]["bytes"].as_u64()), "{text}");
    }
    let bars: Vec<&str> = report.checks.iter().map(|check| check.what.as_str()).collect();
    assert!(bars.len() == 3 && bars[2] == "bytes, nothing changed" && report.checks[2].pass, "{bars:?}");
}

#[test]
fn deltas_between_files() {
    let folder = tempfile::tempdir().unwrap();
    let old: Vec<f32> = synth::values(synth::Shape::Gaussian, 0.02, 4096, 1);
    let new: Vec<f32> = old.iter().enumerate().map(|(i, v)| if i % 9 == 0 { v * 1.01 } else { *v }).collect();
    let mut args = quick(What::Delta);
    args.peers = true;
    for (name, values) in [("base", &old), ("step-1", &new)] {
        let tensor = synth::tensor(Dtype::Bf16, &[64, 64], values).unwrap();
        let view = safetensors::tensor::TensorView::new(safetensors::Dtype::BF16, tensor.shape, &tensor.data)
            .unwrap();
        let path = folder.path().join(format!("{name}.safetensors"));
        safetensors::serialize_to_file([("w", view)], None, &path).unwrap();
        args.files.push(path);
    }
    let (report, text) = run_quietly(&args);
    assert_eq!(report.rows.len(), 8, "{text}");
    assert!(report.rows[0]["case"] == "base → step-1" && report.checks[0].pass, "{text}");
    args.files.pop();
    assert!(run(&args, &mut Vec::new()).unwrap_err().to_string().contains("at least two files"));
}

#[test]
fn speed_says_when_a_peer_is_missing() {
    let mut args = quick(What::Speed);
    args.sizes = vec![128];
    args.peers = true;
    let (report, text) = run_quietly(&args);
    assert!(report.notes.iter().any(|n| n.contains("x265")), "{text}");
    assert!(report.checks.iter().any(|c| c.what.contains("zstd")));
    assert_eq!(report.checks.iter().any(|c| c.what.contains("x265")), cfg!(feature = "video"));
}

#[test]
fn files_measure_tensors_and_the_whole() {
    let tensor = synth::gaussian(Dtype::F32, &[128, 128], 0.1, 9).unwrap();
    let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![128, 128], &tensor.data);
    let path = std::env::temp_dir().join(format!("tenfold-lab-{}.safetensors", std::process::id()));
    safetensors::serialize_to_file([("layer.weight", view.unwrap())], None, &path).unwrap();
    let mut args = quick(What::Files);
    args.files = vec![path.clone()];
    args.bits = vec![3.0];
    let (report, text) = run_quietly(&args);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(report.rows.len(), 4, "tensor and whole file, equal and step");
    assert!(text.contains("layer.weight") && text.contains("whole file"));
    for row in &report.rows {
        assert!(row["bits"].as_f64().unwrap() < 3.1, "{row}");
    }
}

#[test]
fn pages_keep_to_their_caps() {
    let mut args = quick(What::Pages);
    args.files = vec![PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/kv.safetensors"))];
    let (report, text) = run_quietly(&args);
    let pages: Vec<&str> = report.rows.iter().filter_map(|r| r["pages"].as_str()).collect();
    assert_eq!(pages, ["random", "real"], "{text}");
    assert!(report.rows.iter().all(|r| r["exceeded"] == 0 && r["count"] == 30), "{text}");
}

#[test]
fn files_need_a_file() {
    let none = run(&quick(What::Files), &mut Vec::new()).unwrap_err();
    assert!(none.to_string().contains("at least one"));
    let mut args = quick(What::Files);
    args.files = vec![PathBuf::from("/nonexistent/x.safetensors")];
    assert!(run(&args, &mut Vec::new()).unwrap_err().to_string().contains("cannot read"));
}

#[test]
fn reports_are_saved_with_their_origin() {
    let path = std::env::temp_dir().join(format!("tenfold-report-{}.json", std::process::id()));
    let mut args = quick(What::Gap);
    args.sizes = vec![64];
    args.bits = vec![4.0];
    args.json = Some(path.clone());
    args.command = "tenfold-lab bench gap --size 64".to_string();
    run_quietly(&args);
    let kept: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(kept["command"], "tenfold-lab bench gap --size 64");
    for field in ["date", "commit", "machine", "rows", "checks"] {
        assert!(!kept[field].is_null(), "{field}");
    }
}

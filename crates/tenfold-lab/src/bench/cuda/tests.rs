//! The whole bench on the emulator: figures mean nothing there, but every step is taken and every output checked.

use super::*;
use crate::bench::What;

#[test]
fn every_step_is_taken_and_every_output_checked() {
    let weights = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/weights.safetensors");
    let mut args = BenchArgs::new(What::Cuda);
    (args.quick, args.quiet) = (true, true);
    args.sizes = vec![1 << 14];
    args.files = vec![weights.into()];
    let rig = Rig::new(Device::emulated(8 << 30), 2, 0).unwrap();
    let mut report = Report::new(&args);
    let mut out = Vec::new();
    measure(&rig, None, &args, &mut report, &mut out).unwrap();

    let rows = |what: &str| report.rows.iter().filter(|r| r["what"].as_str().unwrap().contains(what)).count();
    assert_eq!(rows("copy"), 2);
    assert_eq!(rows("encode lossless"), 1, "checked against the tensor");
    let sent = host::LANES.len();
    let decoded = 2 + 1 + TENSORS + 4;
    let pages = 2 * 4;
    assert_eq!(
        rows("decode"),
        2 * decoded + sent + pages,
        "two efforts, lossless, real tensors, weights four times; from the host; pages of two ranks, two efforts, one plan for all, keys by it"
    );
    assert_eq!(rows("encode pages"), pages);
    assert_eq!(rows("decode without checksums"), decoded);
    assert_eq!(rows("from pinned host memory"), 1 + sent, "a plain copy and a blob for each length of lanes");
    let host = report.checks.iter().filter(|c| c.what.contains("pinned host memory")).count();
    assert_eq!(host, 1, "the fastest alone has a bar");
    let share = report.checks.iter().filter(|c| c.what.starts_with("calibrated weights over")).count();
    assert_eq!(share, 1);
    let classes = report.rows.iter().filter(|r| r["classes"].as_u64() > Some(1)).count();
    assert!(classes > 0, "real tensors have classes");
    assert!(report.origin.machine.device.as_ref().unwrap().starts_with("emulator"));
    let out = String::from_utf8(out).unwrap();
    assert!(out.contains("N(0, 0.02)") && !out.contains("nvCOMP compress"));
    assert!(out.lines().any(|l| l.contains("--nvcomp")), "how to get the rows that are not there");
}

#[test]
fn a_device_too_small_for_a_case_leaves_it_out() {
    let mut args = BenchArgs::new(What::Cuda);
    (args.quick, args.quiet) = (true, true);
    args.sizes = vec![1 << 25];
    args.efforts = vec![Effort::Balanced];
    // Room for the copies, and for nothing that is larger.
    let rig = Rig::new(Device::emulated(130 << 20), 1, 0).unwrap();
    let mut report = Report::new(&args);
    measure(&rig, None, &args, &mut report, &mut Vec::new()).unwrap();
    assert_eq!(report.rows.len(), 2, "{:?}", report.rows);
    assert!(
        report.notes.iter().all(|n| n.contains("no room") || n.contains("not built")),
        "{:?}",
        report.notes
    );
}

#[test]
fn deltas_are_applied_in_every_way_and_checked() {
    let mut args = BenchArgs::new(What::Delta);
    (args.quick, args.quiet) = (true, true);
    let rig = Rig::new(Device::emulated(8 << 30), 1, 0).unwrap();
    let mut report = Report::new(&args);
    let mut out = Vec::new();
    delta::measure(&rig, None, &args, &mut report, &mut out).unwrap();
    assert_eq!(report.rows.len(), 2 * 9);
    assert!(report.checks.is_empty(), "a first look has no bars");
    let share = |row: &serde_json::Value| row["changed"].as_f64().unwrap() / row["values"].as_f64().unwrap();
    assert!((share(&report.rows[0]) - 0.1).abs() < 0.01 && (share(&report.rows[9]) - 0.01).abs() < 0.002);
    assert!(String::from_utf8(out).unwrap().contains("hybrid"));
}

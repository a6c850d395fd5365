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
    measure(&rig, &args, &mut report, &mut out).unwrap();

    let rows = |what: &str| report.rows.iter().filter(|r| r["what"].as_str().unwrap().contains(what)).count();
    assert_eq!(rows("copy"), 2);
    assert_eq!(rows("encode lossless"), 1, "checked against the tensor");
    assert_eq!(rows("decode"), 2 + 1 + TENSORS + 1, "two efforts, lossless, real tensors, from the host");
    assert_eq!(rows("from pinned host memory"), 2, "a plain copy and a blob");
    let classes = report.rows.iter().filter(|r| r["classes"].as_u64() > Some(1)).count();
    assert!(classes > 0, "real tensors have classes");
    assert!(report.machine.device.as_ref().unwrap().starts_with("emulator"));
    assert!(String::from_utf8(out).unwrap().contains("N(0, 0.02)"));
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
    measure(&rig, &args, &mut report, &mut Vec::new()).unwrap();
    assert_eq!(report.rows.len(), 2, "{:?}", report.rows);
    assert!(
        report.notes.iter().all(|n| n.contains("no room") || n.contains("not built")),
        "{:?}",
        report.notes
    );
}

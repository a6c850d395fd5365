//! Deltas that were made once read as they always did. Golden files are added, never edited.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

mod common;

use std::path::PathBuf;

use common::*;
use tempfile::tempdir;
use tenfold::{DecodeOptions, Goal};
use tenfold_archive::delta::{self, ApplyOptions, DeltaFile, How, MakeOptions, Tensors};
use tenfold_archive::{Archive, Silent, compare};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/delta").join(name)
}

fn old() -> Vec<Made> {
    vec![
        floats("trained", &[64, 70], 0.05),
        halves("half", &[64, 66], 0.02),
        floats("reshaped", &[12, 10], 0.1),
        floats("retyped", &[9], 0.1),
        halves("old name", &[33], 0.1),
        floats("gone", &[12], 1.0),
        bytes("ids", safetensors::Dtype::I64, &[1, 33]),
        floats("same", &[40], 1.0),
    ]
}

fn new() -> Vec<Made> {
    let old = old();
    vec![
        trained(&old[0], 10),
        trained(&old[1], 70),
        Made { shape: vec![120], ..trained(&old[2], 7) },
        halves("retyped", &[9], 0.1),
        renamed(&old[4], "new name"),
        trained(&old[6], 5),
        renamed(&old[7], "same"),
        floats("added", &[64, 64], 0.0),
    ]
}

/// All values of one tensor are others.
fn moved() -> Vec<Made> {
    let mut moved = old();
    moved[0].data.rotate_left(400);
    moved
}

#[test]
fn golden_deltas_make_what_they_made() {
    let dir = tempdir().unwrap();
    let [a, b, m, out] = ["a", "b", "m", "out"].map(|name| dir.path().join(name));
    write_standard(&a, &old(), &[("step", "1")]);
    write_standard(&b, &new(), &[("step", "2")]);
    write_standard(&m, &moved(), &[("step", "1")]);
    let base = Archive::open(&a).unwrap();
    let exact = DeltaFile::open(&golden("exact.safetensors")).unwrap();
    assert_eq!((exact.changes().len(), exact.removed()), (7, &["gone".to_owned(), "old name".into()][..]));
    delta::apply(&base, &[&exact], &out, &ApplyOptions::default(), &Silent).unwrap();
    assert!(same_tensors(&b, &out));
    assert_eq!(Archive::open(&out).unwrap().metadata()["step"], "2");

    let lossy = DeltaFile::open(&golden("lossy.safetensors")).unwrap();
    assert_eq!(lossy.changes().iter().map(|change| change.how).collect::<Vec<_>>(), [How::Difference]);
    let options = ApplyOptions::default().with_overwrite(true);
    delta::apply(&base, &[&lossy], &out, &options, &Silent).unwrap();
    let error = |path| compare(&m, path, &DecodeOptions::default(), &Silent).unwrap().total.mse;
    assert!(error(&out) < 0.1 * error(&a));
}

#[test]
#[ignore = "writes golden files, once"]
fn write_golden_deltas() {
    let dir = tempdir().unwrap();
    let [a, b, m] = ["a", "b", "m"].map(|name| dir.path().join(name));
    write_standard(&a, &old(), &[("step", "1")]);
    write_standard(&b, &new(), &[("step", "2")]);
    write_standard(&m, &moved(), &[("step", "1")]);
    let [a, b, m] = [a, b, m].map(|path| Archive::open(&path).unwrap());
    let decode = DecodeOptions::default();
    let [a, b, m] = [&a, &b, &m].map(|archive| Tensors::of_archive(archive, &decode));
    let options = MakeOptions::default();
    delta::make(&a, &b, &golden("exact.safetensors"), &options, &Silent).unwrap();
    delta::make(&a, &m, &golden("lossy.safetensors"), &options.with_goal(Goal::Bits(2.0)), &Silent).unwrap();
}

//! Completed bases: nothing is lost, whatever the rows, and pages of earlier versions can still be read.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::PathBuf;

use common::{rows, write};
use tenfold::{Goal, Tensor, TensorView};
use tenfold_archive::Silent;
use tenfold_kv::RowCodec;
use tenfold_kv::basis::{BasisFile, FitOptions, Kind, Rank, fit};
use tenfold_kv::page::{Chain, Group, Layer, Page, PageCodec};

const MEANS: [f64; 8] = [1.0, -2.0, 0.0, 4.0, 0.5, 0.0, 0.0, -1.0];
const DEVIATIONS: [f64; 8] = [8.0, 4.0, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01];

/// Two layers whose rows move along two directions, and what errors cost; a file of bases for them.
fn file(rank: Rank, metric: bool) -> BasisFile {
    let dir = tempfile::tempdir().unwrap();
    let capture = dir.path().join("rows.safetensors");
    let layer = |seed| rows(400, &MEANS, &DEVIATIONS, seed);
    let shape = vec![400, 2, 4];
    let names =
        ["layers.0.v", "layers.1.v", "layers.0.k_before_rope", "layers.1.k_before_rope", "layers.1.hidden"];
    let data: Vec<Vec<f32>> = (1..=5).map(layer).collect();
    let tensors: Vec<(&str, Vec<usize>, &[f32])> =
        names.iter().zip(&data).map(|(name, data)| (*name, shape.clone(), &data[..])).collect();
    write(&capture, &tensors);
    let mut options = FitOptions::default();
    options.rank = rank;
    if metric {
        let path = dir.path().join("metric.safetensors");
        // A matrix for each of two heads.
        let block = [4.0f32, 1.0, 0.0, 0.0, 1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.5, 0.0, 0.0, 0.5, 9.0];
        let blocks: Vec<f32> = block.iter().chain(&block).copied().collect();
        write(&path, &names.map(|name| (name, vec![2, 4, 4], &blocks[..])));
        options.metrics = Some(path);
    }
    fit(&[capture] as &[PathBuf], &options, &Silent).unwrap().file
}

fn page<'a>(data: &'a [f32], shape: &'a [usize; 2]) -> Page<'a> {
    let view = TensorView::from_slice(data, shape).unwrap();
    Page { layers: vec![Layer { keys: view, values: view }; 2], positions: None }
}

fn off(a: &[f32], b: &Tensor) -> f64 {
    let b = b.to_vec::<f32>().unwrap();
    let error: f64 = a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    (error / a.len() as f64).sqrt()
}

#[test]
fn rows_that_a_basis_never_saw_come_back_as_exactly_as_asked() {
    // Along directions that no vector was kept for.
    let foreign = rows(64, &[3.0; 8], &[0.5, 0.5, 9.0, 7.0, 5.0, 3.0, 2.0, 1.0], 77);
    for metric in [false, true] {
        for rank in [1, 2, 5] {
            let file = file(Rank::Count(rank), metric);
            let stored = &file.group(Kind::Keys, 0).unwrap().basis;
            assert!(stored.rank() < stored.cols());
            let codec = PageCodec::new(PageCodec::groups_of(&file, (1.0, 1.0)).unwrap()).unwrap();
            let mut sizes = Vec::new();
            for step in [1.0, 0.1, 0.01] {
                let bytes = codec.encode(&page(&foreign, &[64, 8]), Goal::Step(step)).unwrap();
                let reader = codec.reader(&bytes).unwrap();
                let (keys, values) = reader.layer(1).unwrap();
                // Errors of one unit cost one: where columns count more, errors are smaller.
                assert!(off(&foreign, &keys) < step, "{}", off(&foreign, &keys));
                assert!(off(&foreign, &values) < step);
                sizes.push(bytes.len());
            }
            assert!(sizes.is_sorted(), "{sizes:?}");
            let plain = Group { layers: 1, keys: Chain::default(), values: Chain::default() };
            let plain = PageCodec::new(vec![plain.clone(), plain]).unwrap();
            let without = plain.encode(&page(&foreign, &[64, 8]), Goal::Step(0.01)).unwrap().len();
            assert!(metric || sizes[2] < without * 21 / 20, "{} and {without}", sizes[2]);
        }
    }
}

#[test]
fn hidden_states_too() {
    let file = file(Rank::Count(2), false);
    let codec = RowCodec::hidden(&file, 1).unwrap();
    let foreign = rows(64, &[3.0; 8], &[0.5, 0.5, 9.0, 7.0, 5.0, 3.0, 2.0, 1.0], 78);
    let blob = codec.encode(&TensorView::from_slice(&foreign, &[64, 8]).unwrap(), Goal::Nmse(1e-5)).unwrap();
    assert!(off(&foreign, &codec.decode(&blob).unwrap()) < 0.03);
}

#[test]
fn what_is_not_finite_and_what_never_changes_survives() {
    let file = file(Rank::Count(1), true);
    let codec = PageCodec::new(PageCodec::groups_of(&file, (1.0, 1.0)).unwrap()).unwrap();
    let constant = vec![7.25f32; 64 * 8];
    let bytes = codec.encode(&page(&constant, &[64, 8]), Goal::Step(0.01)).unwrap();
    assert!(off(&constant, &codec.reader(&bytes).unwrap().layer(0).unwrap().0) < 0.01);
    let mut odd = rows(64, &MEANS, &DEVIATIONS, 79);
    (odd[5], odd[100], odd[300]) = (f32::NAN, f32::INFINITY, f32::NEG_INFINITY);
    for goal in [Goal::Step(0.01), Goal::MaxBytes(4000)] {
        let bytes = codec.encode(&page(&odd, &[64, 8]), goal).unwrap();
        let found = codec.reader(&bytes).unwrap().layer(0).unwrap().0.to_vec::<f32>().unwrap();
        assert!(found[5].is_nan() && found[100] == f32::INFINITY && found[300] == f32::NEG_INFINITY);
    }
}

#[test]
fn completed_bases_are_those_of_the_file_wherever_it_is_read() {
    let file = file(Rank::Count(2), true);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.basis");
    file.save(&path, false).unwrap();
    let again = BasisFile::open(&path).unwrap();
    for (a, b) in file.groups().iter().zip(again.groups()) {
        let (a, b) = (a.whole().unwrap(), b.whole().unwrap());
        assert_eq!((a.fingerprint(), a.rank()), (b.fingerprint(), b.cols()));
    }
    let group = &again.groups()[0];
    assert_ne!(group.whole().unwrap().fingerprint(), group.basis.fingerprint());
    assert!(again.find(group.whole().unwrap().fingerprint()).is_some());
}

#[test]
fn pages_of_earlier_versions_can_be_read() {
    let file = file(Rank::Count(2), false);
    let usual = rows(64, &MEANS, &DEVIATIONS, 80);
    let group = |layer: usize| {
        let chain = |kind| Chain::default().with_basis(file.group(kind, layer).unwrap().basis.clone());
        Group { layers: 1, keys: chain(Kind::Keys), values: chain(Kind::Values) }
    };
    let earlier = PageCodec::new(vec![group(0), group(1)]).unwrap();
    let bytes = earlier.encode(&page(&usual, &[64, 8]), Goal::Step(0.01)).unwrap();
    let codec = PageCodec::new(PageCodec::groups_of(&file, (1.0, 1.0)).unwrap()).unwrap();
    let (keys, _) = codec.reader(&bytes).unwrap().layer(1).unwrap();
    assert!(off(&usual, &keys) < 0.02);
}

#[test]
fn a_second_implementation_completes_the_same() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../conformance/complete.py");
    let out = std::process::Command::new("python3").arg("-B").arg(script).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(String::from_utf8_lossy(&out.stdout).starts_with("7 bases"));
}

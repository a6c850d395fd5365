//! Importance of columns: where it is read from, what it does to a model, what is refused.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

mod common;

use common::*;
use safetensors::tensor::Dtype;
use tempfile::tempdir;
use tenfold::engine::ErrorKind;
use tenfold::{DecodeOptions, Goal};
use tenfold_archive::{Alloc, Archive, CompressOptions, Importance, Silent, compress};

/// A vector of f32.
fn vector(name: &str, shape: &[usize], values: &[f32]) -> Made {
    let data = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Made { name: name.into(), dtype: Dtype::F32, shape: shape.into(), data }
}

/// Squares that jump from one to a hundred halfway.
fn squares(n: usize) -> Vec<f32> {
    (0..n).map(|j| if j < n / 2 { 1.0 } else { 100.0 }).collect()
}

/// Mean squared errors of the two halves of the columns of a tensor.
fn errors(original: &Made, archive: &Archive) -> (f64, f64) {
    let index = archive.find(&original.name).unwrap();
    let back = archive.read(index, &DecodeOptions::default()).unwrap();
    let cols = original.shape[1];
    let real = |b: &[u8]| f64::from(f32::from_le_bytes(b.try_into().unwrap()));
    let mut sums = [0.0, 0.0];
    for (i, (a, b)) in original.data.chunks_exact(4).zip(back.data.chunks_exact(4)).enumerate() {
        sums[usize::from(i % cols >= cols / 2)] += (real(a) - real(b)).powi(2);
    }
    (sums[0], sums[1])
}

#[test]
fn a_model_is_finer_where_it_counts_under_every_allocation() {
    let dir = tempdir().unwrap();
    let model = || [floats("layers.0.weight", &[96, 64], 0.05), floats("layers.1.weight", &[80, 128], 0.02)];
    let (input, output) = (dir.path().join("a.safetensors"), dir.path().join("b.safetensors"));
    write_standard(&input, &model(), &[]);
    let file = dir.path().join("channels.safetensors");
    write_standard(&file, &[vector("layers.0.weight", &[64], &squares(64))], &[]);
    let importance = Importance::read(&file).unwrap();
    for alloc in [Alloc::Equal, Alloc::Step, Alloc::Ramp(0.3)] {
        let options = CompressOptions::new(Goal::Bits(3.5))
            .with_alloc(alloc)
            .with_importance(importance.clone())
            .with_overwrite(true);
        let report = compress(&input, &output, &options, &Silent).unwrap();
        assert!((report.compressed.bits_per_value / 3.5 - 1.0).abs() < 0.02, "{alloc}: {report:?}");
        let archive = Archive::open(&output).unwrap();
        let (low, high) = errors(&model()[0], &archive);
        assert!(low > 30.0 * high, "{alloc}: {low} {high}");
        let (low, high) = errors(&model()[1], &archive);
        assert!(low < 1.5 * high && high < 1.5 * low, "{alloc}: {low} {high}");
    }
}

#[test]
fn matrices_of_llama_cpp_are_sums_over_counts() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("imatrix.safetensors");
    // Two experts, the second of which has seen nothing.
    let sums: Vec<f32> = squares(64).iter().map(|v| v * 50.0).chain([0.0; 64]).collect();
    write_standard(
        &file,
        &[
            vector("layers.0.weight.in_sum2", &[2, 64], &sums),
            vector("layers.0.weight.counts", &[2, 1], &[50.0, 0.0]),
        ],
        &[],
    );
    let expected = Importance::new([(
        "layers.0.weight".to_owned(),
        squares(64).iter().map(|&v| f64::from(v)).collect(),
    )]);
    assert_eq!(Importance::read(&file).unwrap(), expected.unwrap());
    write_standard(&file, &[vector("layers.0.weight.in_sum2", &[1, 64], &squares(64))], &[]);
    let error = Importance::read(&file).unwrap_err();
    assert!(error.kind() == ErrorKind::Data && error.to_string().contains("counts"), "{error}");
}

#[test]
fn mistakes_are_named() {
    let dir = tempdir().unwrap();
    let input = dir.path().join("a.safetensors");
    write_standard(&input, &small_model(), &[]);
    let squeeze = |vectors: Vec<(&str, Vec<f64>)>| {
        let vectors = vectors.into_iter().map(|(name, v)| (name.to_owned(), v));
        let importance = Importance::new(vectors)?;
        let options = CompressOptions::new(Goal::Bits(3.0)).with_importance(importance);
        compress(&input, &dir.path().join("b.safetensors"), &options, &Silent)
    };
    for (vectors, says) in [
        (vec![("layers.0.weight", vec![1.0; 95])], "96 columns"),
        (vec![("layer.0.weight", vec![1.0; 96])], "layer.0.weight"),
        (vec![("layers.0.weight", vec![-1.0; 96])], "-1"),
        (vec![("layers.0.weight", vec![f64::NAN; 96])], "NaN"),
    ] {
        let error = squeeze(vectors).unwrap_err();
        assert!(error.kind() == ErrorKind::Caller && error.to_string().contains(says), "{error}");
    }
    // The model in place of its importance.
    let empty = dir.path().join("empty.safetensors");
    write_standard(&empty, &[floats("layers.0.weight", &[64, 96], 0.05)], &[]);
    let error = Importance::read(&empty).unwrap_err();
    assert!(error.kind() == ErrorKind::Data && error.to_string().contains("a vector"), "{error}");
    write_standard(&empty, &[], &[]);
    assert_eq!(Importance::read(&empty).unwrap_err().kind(), ErrorKind::Data);
    write_standard(&empty, &[bytes("layers.0.weight", Dtype::I64, &[96])], &[]);
    assert!(Importance::read(&empty).unwrap_err().to_string().contains("floats"));
}

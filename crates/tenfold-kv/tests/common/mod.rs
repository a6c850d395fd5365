//! Captured files for tests.
#![allow(dead_code)] // each test file uses its share

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use tenfold::prepare::Basis;

/// A real capture: keys (behind and before rotary positions) and values.
pub fn kv() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/kv.safetensors")
}

/// Rotary positions of the model that it comes from.
pub const ROPE: &str = "base=100000,head=64,pairing=neighbours";

/// An orthonormal 8×8 matrix that mixes all columns.
pub fn hadamard() -> [[f64; 8]; 8] {
    let sign = |i: usize, j: usize| if (i & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
    std::array::from_fn(|i| std::array::from_fn(|j| sign(i, j) / 8f64.sqrt()))
}

/// Rows with these means whose components along the rows of [`hadamard`] have these deviations.
pub fn rows(count: usize, means: &[f64; 8], deviations: &[f64; 8], seed: u64) -> Vec<f32> {
    let mut rng = StdRng::seed_from_u64(seed);
    let basis = hadamard();
    let mut out = Vec::with_capacity(count * 8);
    for _ in 0..count {
        let z: [f64; 8] = std::array::from_fn(|k| deviations[k] * rng.sample::<f64, _>(StandardNormal));
        for c in 0..8 {
            out.push((means[c] + (0..8).map(|k| z[k] * basis[k][c]).sum::<f64>()) as f32);
        }
    }
    out
}

/// Writes tensors of f32.
pub fn write(path: &Path, tensors: &[(&str, Vec<usize>, &[f32])]) {
    let bytes: Vec<Vec<u8>> =
        tensors.iter().map(|(_, _, v)| v.iter().flat_map(|v| v.to_le_bytes()).collect()).collect();
    let views = tensors
        .iter()
        .zip(&bytes)
        .map(|((name, shape, _), bytes)| (*name, TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()));
    safetensors::serialize_to_file(views, None, path).unwrap();
}

/// A capture of two layers of eight columns, two heads each, with these rows.
pub fn capture(dir: &Path, name: &str, deviations: &[f64; 8], mean: f64, count: usize) -> PathBuf {
    let path = dir.join(format!("{name}.safetensors"));
    let layer = |seed| rows(count, &[mean; 8], deviations, seed);
    let shape = vec![count, 2, 4];
    let tensors = [
        ("layers.0.v", shape.clone(), &layer(1)[..]),
        ("layers.1.v", shape.clone(), &layer(2)[..]),
        ("layers.0.k_before_rope", shape.clone(), &layer(3)[..]),
        ("layers.1.k_before_rope", shape, &layer(4)[..]),
    ];
    write(&path, &tensors);
    path
}

/// A basis of the first cosines, with deviations that fall.
pub fn cosines(cols: usize, rank: usize) -> Arc<Basis> {
    let entry = |k: usize, i: usize| {
        let scale = (if k == 0 { 1.0 } else { 2.0 } / cols as f64).sqrt();
        (scale * (std::f64::consts::PI * (i as f64 + 0.5) * k as f64 / cols as f64).cos()) as f32
    };
    let vectors: Vec<f32> = (0..rank).flat_map(|k| (0..cols).map(move |i| entry(k, i))).collect();
    let deviations: Vec<f64> = (0..rank).map(|k| 0.95f64.powi(k as i32)).collect();
    Arc::new(Basis::orthonormal(&vec![0.1; cols], &vectors).unwrap().with_deviations(&deviations).unwrap())
}

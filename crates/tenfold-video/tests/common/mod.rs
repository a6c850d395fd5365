//! Tensors for the tests, and how far they are when they come back.
#![allow(dead_code, clippy::unwrap_used)] // each test uses some of it

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, StandardNormal};
use tenfold::{Dtype, Tensor};

pub fn gaussian(dtype: Dtype, shape: &[usize], seed: u64) -> Tensor {
    let mut rng = StdRng::seed_from_u64(seed);
    let n = shape.iter().product();
    let values: Vec<f64> =
        (0..n).map(|_| 0.02 * Distribution::<f64>::sample(&StandardNormal, &mut rng) + 0.1).collect();
    Tensor::from_f64(dtype, shape, &values).unwrap()
}

pub fn values(tensor: &Tensor) -> Vec<f64> {
    tensor.view().unwrap().to_f64().unwrap()
}

/// Mean squared error over variance.
pub fn nmse(a: &Tensor, b: &Tensor) -> f64 {
    let (x, y) = (values(a), values(b));
    assert_eq!(a.shape, b.shape);
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    let variance: f64 = x.iter().map(|v| (v - mean).powi(2)).sum();
    x.iter().zip(&y).map(|(a, b)| (a - b).powi(2)).sum::<f64>() / variance
}

pub fn bits(blob: &[u8], tensor: &Tensor) -> f64 {
    blob.len() as f64 * 8.0 / values(tensor).len() as f64
}

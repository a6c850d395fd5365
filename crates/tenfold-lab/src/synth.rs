//! Seeded test tensors: the same values on every machine and at every number of threads.

use half::{bf16, f16};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, StandardNormal};
use rayon::prelude::*;
use tenfold::{Dtype, Tensor};

use crate::values::F8Rounder;

/// Values made by one generator; each chunk has its own seed so that chunks can be made in parallel.
const CHUNK: usize = 1 << 18;

/// Shape of a distribution, at unit scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// N(0, 1).
    Gaussian,
    /// Two-sided exponential.
    Laplace,
    /// Uniform on −1 to 1.
    Uniform,
    /// Student's t with 3 degrees of freedom: rare values far out.
    HeavyTails,
    /// Nine of ten values are zero, the rest Gaussian.
    Sparse,
    /// Gaussian with a scale that spreads log-normally over stretches of 256 values, as rows of
    /// gradients do.
    Stretches,
    /// Gaussian around 100: far from zero.
    Shifted,
}

impl Shape {
    /// Every shape.
    pub const ALL: [Shape; 7] = [
        Shape::Gaussian,
        Shape::Laplace,
        Shape::Uniform,
        Shape::HeavyTails,
        Shape::Sparse,
        Shape::Stretches,
        Shape::Shifted,
    ];

    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Shape::Gaussian => "gaussian",
            Shape::Laplace => "laplace",
            Shape::Uniform => "uniform",
            Shape::HeavyTails => "heavy tails",
            Shape::Sparse => "sparse",
            Shape::Stretches => "stretches",
            Shape::Shifted => "shifted",
        }
    }
}

/// `n` values of a distribution times `scale`.
pub fn values(shape: Shape, scale: f32, n: usize, seed: u64) -> Vec<f32> {
    let mut out = vec![0f32; n];
    out.par_chunks_mut(CHUNK).enumerate().for_each(|(i, chunk)| {
        // Golden-ratio spacing keeps the seeds of neighbouring chunks and of neighbouring seeds apart.
        let mut rng = StdRng::seed_from_u64(seed ^ (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        fill(shape, scale, chunk, &mut rng);
    });
    out
}

fn fill(shape: Shape, scale: f32, out: &mut [f32], rng: &mut StdRng) {
    let normal = |rng: &mut StdRng| -> f32 { StandardNormal.sample(rng) };
    match shape {
        Shape::Gaussian => out.iter_mut().for_each(|v| *v = scale * normal(rng)),
        Shape::Shifted => out.iter_mut().for_each(|v| *v = scale * (100.0 + normal(rng))),
        Shape::Uniform => out.iter_mut().for_each(|v| *v = scale * rng.random_range(-1.0f32..1.0)),
        Shape::Laplace => out.iter_mut().for_each(|v| {
            let u: f32 = rng.random_range(-1.0f32..1.0);
            *v = -scale * u.signum() * (1.0 - u.abs()).max(f32::MIN_POSITIVE).ln();
        }),
        Shape::HeavyTails => out.iter_mut().for_each(|v| {
            let squares: f32 = (0..3).map(|_| normal(rng).powi(2)).sum();
            *v = scale * normal(rng) / (squares / 3.0).sqrt();
        }),
        Shape::Sparse => out.iter_mut().for_each(|v| {
            *v = if rng.random_range(0..10u32) == 0 { scale * normal(rng) } else { 0.0 };
        }),
        Shape::Stretches => {
            for stretch in out.chunks_mut(256) {
                let s = scale * normal(rng).exp();
                stretch.iter_mut().for_each(|v| *v = s * normal(rng));
            }
        }
    }
}

/// Rounds values to a float dtype. `None` for integers.
pub fn tensor(dtype: Dtype, shape: &[usize], values: &[f32]) -> Option<Tensor> {
    let data: Vec<u8> = match dtype {
        Dtype::F64 => values.iter().flat_map(|&v| f64::from(v).to_le_bytes()).collect(),
        Dtype::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        Dtype::F16 => values.iter().flat_map(|&v| f16::from_f32(v).to_le_bytes()).collect(),
        Dtype::Bf16 => values.iter().flat_map(|&v| bf16::from_f32(v).to_le_bytes()).collect(),
        Dtype::F8E4M3 | Dtype::F8E5M2 => {
            let rounder = F8Rounder::new(dtype)?;
            values.iter().map(|&v| rounder.round(f64::from(v))).collect()
        }
        _ => return None,
    };
    Some(Tensor { dtype, shape: shape.to_vec(), data })
}

/// N(0, `scale`²) of a float dtype and a shape; `None` for integers.
pub fn gaussian(dtype: Dtype, shape: &[usize], scale: f32, seed: u64) -> Option<Tensor> {
    tensor(dtype, shape, &values(Shape::Gaussian, scale, shape.iter().product(), seed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments() {
        let spread = |shape| {
            let v = values(shape, 2.0, 300_000, 7);
            let mean = v.iter().map(|&x| f64::from(x)).sum::<f64>() / v.len() as f64;
            let var = v.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / v.len() as f64;
            (mean, var)
        };
        for (shape, mean, var) in [
            (Shape::Gaussian, 0.0, 4.0),
            (Shape::Laplace, 0.0, 8.0),
            (Shape::Uniform, 0.0, 4.0 / 3.0),
            (Shape::Sparse, 0.0, 0.4),
            (Shape::Shifted, 200.0, 4.0),
        ] {
            let (m, v) = spread(shape);
            assert!((m - mean).abs() < 0.03 && (v / var - 1.0).abs() < 0.03, "{shape:?}: {m} {v}");
        }
    }

    #[test]
    fn seeds_repeat_and_differ() {
        let a = values(Shape::Gaussian, 1.0, CHUNK + 5, 1);
        assert_eq!(a, values(Shape::Gaussian, 1.0, CHUNK + 5, 1));
        assert_ne!(a, values(Shape::Gaussian, 1.0, CHUNK + 5, 2));
        assert_ne!(a[..5], a[CHUNK..]);
    }
}

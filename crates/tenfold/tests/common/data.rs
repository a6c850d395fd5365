//! Seeded tensors and slices of real ones.
//!
//! The generators are written out here rather than taken from a crate, so that a test sees the same
//! values whatever versions are installed.

use super::floats::{specials, to_bytes, to_reals};
use tenfold::{Dtype, Effort, EncodeOptions, Goal, TensorView};

/// SplitMix64.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def0)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// In (0, 1).
    pub fn uniform(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    pub fn normal(&mut self) -> f64 {
        let r = (-2.0 * self.uniform().ln()).sqrt();
        r * (std::f64::consts::TAU * self.uniform()).cos()
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.bits() as u8).collect()
    }
}

/// What the values of a tensor look like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    Gaussian,
    Laplace,
    /// Student's t with three degrees of freedom.
    HeavyTails,
    /// Gaussian rows, each with a scale of its own over four octaves.
    Rows,
    /// Nine of ten rows are zero, and half of the rest.
    Sparse,
    Constant,
    Ramp,
    /// Gaussian with a few values 750 deviations out.
    Outliers,
    /// Gaussian with a mean of ten deviations.
    Shifted,
}

pub const SMOOTH: [Kind; 6] =
    [Kind::Gaussian, Kind::Laplace, Kind::HeavyTails, Kind::Rows, Kind::Outliers, Kind::Shifted];
pub const KINDS: [Kind; 9] = [
    Kind::Gaussian,
    Kind::Laplace,
    Kind::HeavyTails,
    Kind::Rows,
    Kind::Sparse,
    Kind::Constant,
    Kind::Ramp,
    Kind::Outliers,
    Kind::Shifted,
];

impl Kind {
    /// `n` values of deviation about one, `cols` to a row.
    pub fn reals(self, n: usize, cols: usize, seed: u64) -> Vec<f64> {
        let mut r = Random::new(seed ^ (self as u64) << 32);
        let mut scale = 1.0;
        let mut alive = true;
        let value = |i: usize| {
            if i.is_multiple_of(cols.max(1)) {
                scale = (r.uniform() * 4.0 - 2.0).exp2();
                alive = r.below(10) == 0;
            }
            match self {
                Kind::Gaussian => r.normal(),
                Kind::Laplace => -r.uniform().ln() * if r.bits() & 1 == 0 { 0.7 } else { -0.7 },
                Kind::HeavyTails => {
                    let square: f64 = (0..3).map(|_| r.normal().powi(2)).sum();
                    r.normal() / (square / 3.0).sqrt()
                }
                Kind::Rows => r.normal() * scale,
                Kind::Sparse if alive && r.bits() & 1 == 0 => r.normal(),
                Kind::Sparse => 0.0,
                Kind::Constant => 1.25,
                Kind::Ramp => i as f64 / n as f64 * 3.0 - 1.0,
                Kind::Outliers if r.below(3000) == 0 => 750.0 * r.normal().signum(),
                Kind::Outliers => r.normal(),
                Kind::Shifted => r.normal() + 10.0,
            }
        };
        (0..n).map(value).collect()
    }
}

/// A tensor's dtype, shape and bytes.
#[derive(Debug, Clone)]
pub struct Sample {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub data: Vec<u8>,
}

impl Sample {
    pub fn new(dtype: Dtype, shape: &[usize], reals: &[f64]) -> Self {
        Sample { dtype, shape: shape.to_vec(), data: to_bytes(dtype, reals) }
    }

    pub fn make(dtype: Dtype, shape: &[usize], kind: Kind, seed: u64) -> Self {
        let n = shape.iter().product();
        Sample::new(dtype, shape, &kind.reals(n, shape.last().copied().unwrap_or(1), seed))
    }

    /// Any bytes at all (booleans stay 0 or 1).
    pub fn noise(dtype: Dtype, shape: &[usize], seed: u64) -> Self {
        let n: usize = shape.iter().product();
        let mut data = Random::new(seed).bytes(n * dtype.size());
        if dtype == Dtype::Bool {
            data.iter_mut().for_each(|b| *b &= 1);
        }
        Sample { dtype, shape: shape.to_vec(), data }
    }

    pub fn view(&self) -> TensorView<'_> {
        TensorView::new(self.dtype, &self.shape, &self.data).unwrap()
    }

    pub fn len(&self) -> usize {
        self.data.len() / self.dtype.size()
    }

    pub fn reals(&self) -> Vec<f64> {
        to_reals(self.dtype, &self.data)
    }

    pub fn try_encode(&self, goal: Goal, effort: Effort) -> tenfold::engine::Result<Vec<u8>> {
        tenfold::encode(&self.view(), &EncodeOptions::new(goal).with_effort(effort))
    }

    pub fn encode(&self, goal: Goal, effort: Effort) -> Vec<u8> {
        self.try_encode(goal, effort).unwrap_or_else(|e| panic!("{} {goal:?} {effort:?}: {e}", self.name()))
    }

    pub fn name(&self) -> String {
        format!("{} {:?}", self.dtype, self.shape)
    }

    /// Replaces about one element in `every` by a NaN with a payload, an infinity or a negative zero.
    pub fn sprinkle(mut self, every: usize, seed: u64) -> Self {
        let mut r = Random::new(seed);
        let size = self.dtype.size();
        let specials = specials(self.dtype);
        for element in self.data.chunks_exact_mut(size) {
            if r.below(every) == 0 {
                element.copy_from_slice(&specials[r.below(specials.len())]);
            }
        }
        self
    }
}

/// Slices of real tensors.
pub fn real_tensors() -> Vec<(String, Sample)> {
    let mut all = Vec::new();
    for file in ["weights", "kv", "activations", "gradients"] {
        let path = format!("{}/../../testdata/{file}.safetensors", env!("CARGO_MANIFEST_DIR"));
        let bytes = std::fs::read(&path).expect(&path);
        let tensors = safetensors::SafeTensors::deserialize(&bytes).expect(&path);
        for (name, t) in tensors.iter() {
            let dtype = match t.dtype() {
                safetensors::Dtype::F32 => Dtype::F32,
                safetensors::Dtype::BF16 => Dtype::Bf16,
                other => panic!("{path}: {name} is {other:?}"),
            };
            let sample = Sample { dtype, shape: t.shape().to_vec(), data: t.data().to_vec() };
            all.push((format!("{file}/{name}"), sample));
        }
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

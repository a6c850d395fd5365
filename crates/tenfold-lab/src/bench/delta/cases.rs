//! Two versions of a tensor, made up or real.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;
use tenfold::Dtype;

use crate::load;
use crate::synth::{self, Shape};

/// Values that are made at a time.
const PIECE: usize = 1 << 22;
/// Values of a cluster, and how many of them change.
const CLUSTER: (usize, f64) = (256, 0.5);

/// A tensor before and after.
pub(in crate::bench) struct Versions {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub old: Vec<u8>,
    pub new: Vec<u8>,
}

/// Which values change.
#[derive(Clone, Copy, PartialEq)]
pub(in crate::bench) enum Spread {
    /// Any of them.
    Uniform,
    /// Half of those in some stretches.
    Clustered,
}

impl Versions {
    pub fn values(&self) -> usize {
        self.old.len() / self.dtype.size()
    }

    /// Old and new elements.
    pub fn pairs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let size = self.dtype.size();
        self.old
            .chunks_exact(size)
            .zip(self.new.chunks_exact(size))
            .map(|(old, new)| (number(old), number(new)))
    }

    /// Bytes that places and new values take at least, if every place is as likely as any other and a value is told by the difference to
    /// the old one, given its exponent.
    pub fn entropy_bytes(&self) -> f64 {
        let exponent = match self.dtype {
            Dtype::F64 => 52,
            Dtype::F32 => 23,
            Dtype::F16 => 10,
            Dtype::Bf16 => 7,
            Dtype::F8E4M3 => 3,
            Dtype::F8E5M2 => 2,
            _ => 0,
        };
        let mut counts: HashMap<(u64, i64), f64> = HashMap::new();
        let mut classes: HashMap<u64, f64> = HashMap::new();
        let mut changed = 0f64;
        for (old, new) in self.pairs().filter(|(old, new)| old != new) {
            let class = old >> exponent;
            *counts.entry((class, new.wrapping_sub(old) as i64)).or_default() += 1.0;
            *classes.entry(class).or_default() += 1.0;
            changed += 1.0;
        }
        let share = changed / self.values().max(1) as f64;
        let plain = |p: f64| if p > 0.0 { -p * p.log2() } else { 0.0 };
        let places = self.values() as f64 * (plain(share) + plain(1.0 - share));
        let values: f64 = counts.iter().map(|((class, _), n)| -n * (n / classes[class]).log2()).sum();
        (places + values) / 8.0
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte))
}

/// Weights of N(0, 0.02), of which a share moves by about a hundredth of that, and by one step of its last place at least.
pub(in crate::bench) fn made(dtype: Dtype, shape: &[usize], share: f64, spread: Spread) -> Result<Versions> {
    let (values, size) = (shape.iter().product::<usize>(), dtype.size());
    let (mut old, mut new) = (Vec::with_capacity(values * size), Vec::with_capacity(values * size));
    for (piece, from) in (0..values).step_by(PIECE).enumerate() {
        let count = PIECE.min(values - from);
        let seed = 2 * piece as u64;
        let base = synth::values(Shape::Gaussian, 0.02, count, seed);
        let by = synth::values(Shape::Gaussian, 0.0002, count, seed + 1);
        let before = synth::tensor(dtype, &[count], &base).context("a float")?.data;
        let sums: Vec<f32> = base.par_iter().zip(&by).map(|(a, b)| a + b).collect();
        let mut after = synth::tensor(dtype, &[count], &sums).context("a float")?.data;
        let mut rng = StdRng::seed_from_u64(seed);
        let mut here = share;
        for (i, (old, new)) in before.chunks_exact(size).zip(after.chunks_exact_mut(size)).enumerate() {
            if spread == Spread::Clustered && i.is_multiple_of(CLUSTER.0) {
                here = if rng.random_range(0.0..CLUSTER.1) < share { CLUSTER.1 } else { 0.0 };
            }
            if rng.random_range(0.0..1.0) >= here {
                new.copy_from_slice(old);
            } else if old == new {
                new[0] ^= 1;
            }
        }
        old.extend_from_slice(&before);
        new.extend_from_slice(&after);
    }
    Ok(Versions { dtype, shape: shape.to_vec(), old, new })
}

/// Every tensor that two files have in common.
pub(super) fn of_files(old: &Path, new: &Path) -> Result<Vec<Versions>> {
    let (before, after) = (load::floats(old, 1)?, load::floats(new, 1)?);
    let mut found = Vec::new();
    for one in before {
        let same = |other: &&load::Named| {
            let (a, b) = (&one.tensor, &other.tensor);
            other.name == one.name && a.dtype == b.dtype && a.shape == b.shape
        };
        if let Some(other) = after.iter().find(same) {
            let (dtype, shape) = (one.tensor.dtype, one.tensor.shape);
            found.push(Versions { dtype, shape, old: one.tensor.data, new: other.tensor.data.clone() });
        }
    }
    ensure!(
        !found.is_empty(),
        "{} and {} have no float tensors in common: name versions of one model",
        old.display(),
        new.display()
    );
    Ok(found)
}

//! Real tensors, made as large as is asked.

use anyhow::{Context, Result};
use tenfold::prepare::{Preparation, Transform};
use tenfold::{Dtype, Effort, Goal, Tensor};

use super::decode::{BASE, Subject, options, tile_values};
use crate::load::Named;
use crate::synth;
use crate::values::to_f64;

/// Smaller tensors stay as they are in a model file.
pub(super) const LEAST: usize = 4096;
/// Most values that the CPU encodes.
const MOST: usize = 4 * BASE;

/// The largest tensors of a file, at most so many.
pub(super) fn largest(mut tensors: Vec<Named>, count: usize) -> Vec<Named> {
    tensors.sort_by_key(|t| std::cmp::Reverse(t.tensor.data.len()));
    tensors.truncate(count);
    tensors
}

/// A tensor in bf16, repeated to at least `size` values; also behind means of columns where the default takes these.
pub(super) fn subjects(named: &Named, size: usize, bits: f64, threads: usize) -> Result<Vec<Subject>> {
    let tensor = whole_tiles(&named.tensor, tile_values(size), size.min(BASE))?;
    let plain = options(size, Goal::Bits(bits), Effort::Balanced, threads);
    let usual = plain.clone().with_prepare(Preparation::ByEffort);
    let transforms = usual.transforms(&tensor.view()?)?;
    let mut subjects = vec![Subject::new(named.name.clone(), &tensor, size, plain)?];
    if matches!(transforms[..], [Transform::Means(_)]) {
        let name = format!("{}, means", named.name);
        subjects.push(Subject::new(name, &tensor, size, usual.with_transforms(transforms))?);
    }
    Ok(subjects)
}

/// At least so many values: the rows of a tensor over and over, in bf16, until tiles and rows end together. A few
/// columns are left out where that would never happen.
fn whole_tiles(tensor: &Tensor, tile: usize, values: usize) -> Result<Tensor> {
    let view = tensor.view()?;
    let columns = (1..=view.cols()).rev().find(|&c| lcm(tile, c) <= MOST.max(tile)).unwrap_or(1);
    let rows = values.div_ceil(columns).next_multiple_of(lcm(tile, columns) / columns);
    let all = to_f64(&view).context("not a float")?;
    let row = |r: usize| &all[r % view.rows() * view.cols()..][..columns];
    let stacked: Vec<f32> = (0..rows).flat_map(row).map(|&v| v as f32).collect();
    synth::tensor(Dtype::Bf16, &[rows, columns], &stacked).context("bf16 is a float")
}

fn lcm(a: usize, b: usize) -> usize {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn tiles_and_rows_end_together() {
        for (rows, columns) in [(128, 384), (100, 577), (3, 1), (7, 4096)] {
            let tensor = synth::gaussian(Dtype::F32, &[rows, columns], 1.0, 3).unwrap();
            let whole = whole_tiles(&tensor, 1 << 15, 100_000).unwrap();
            let (r, c) = (whole.shape[0], whole.shape[1]);
            assert!(r * c >= 100_000 && r * c % (1 << 15) == 0 && r * c <= MOST, "{r} × {c}");
            assert!(c <= columns && c * 10 >= columns * 9, "{c} of {columns} columns");
            assert_eq!(whole.data[..2 * c], whole.data[2 * c * rows..][..2 * c], "rows come again");
        }
    }
}

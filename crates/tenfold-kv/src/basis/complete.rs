//! Vectors for what a basis does not span: computed, not stored, and so the same on every machine.
//!
//! With M = L·Lᵀ rows are seen as y = Lᵀ·(x − mean), where an error of one unit costs one whatever its direction. There a basis
//! has the vectors V·L. Householder reflections that turn them into the first unit vectors turn the other unit vectors
//! into directions that are orthonormal and meet none of V·L; times L⁻¹ they are vectors for rows again. All of it is
//! plain arithmetic in f64 in a fixed order, and what comes out is rounded to f32 and to bf16. Normative: docs/kv.md, 'What a file does
//! not span'; conformance/complete.py does the same.

use half::bf16;
use rayon::prelude::*;

use super::metric::Metric;

/// Sums that a dot product runs in side by side.
const LANES: usize = 8;
/// Vectors that a reflection is applied to at once, while it is in the cache.
const TOGETHER: usize = 8;

/// Vectors that complete a basis of rows of `cols`, one after the other.
pub(super) fn complete(vectors: &[f32], cols: usize, metric: Option<&Metric>) -> Vec<f32> {
    let mut seen: Vec<f64> = vectors.iter().map(|&v| f64::from(v)).collect();
    if let Some(metric) = metric {
        seen.par_chunks_mut(cols).for_each(|row| metric.see(row));
    }
    reflect(&mut seen, cols);
    let rank = vectors.len() / cols;
    let mut more = vec![0.0; (cols - rank) * cols];
    more.chunks_exact_mut(cols).enumerate().for_each(|(i, row)| row[rank + i] = 1.0);
    more.par_chunks_mut(TOGETHER * cols).for_each(|rows| {
        for (k, reflection) in seen.chunks_exact(cols).enumerate().rev() {
            rows.chunks_exact_mut(cols).for_each(|row| apply(&reflection[k..], &mut row[k..]));
        }
        if let Some(metric) = metric {
            rows.chunks_exact_mut(cols).for_each(|row| metric.unsee(row));
        }
    });
    more.into_iter().map(|v| bf16::from_f32(v as f32).to_f32()).collect()
}

/// Puts in place of each row the reflection that turns what the ones before have made of it into a multiple of a unit
/// vector: u, so that x becomes x − u·(u·x). Row k leaves the first k columns alone.
fn reflect(rows: &mut [f64], cols: usize) {
    for k in 0..rows.len() / cols {
        let (done, rest) = rows.split_at_mut((k + 1) * cols);
        let row = &mut done[k * cols..];
        row[..k].fill(0.0);
        let row = &mut row[k..];
        let length = dot(row, row).sqrt();
        // A row that the ones before it span is left alone, like one of zeros.
        if length > 0.0 {
            row[0] += if row[0] < 0.0 { -length } else { length };
            let scale = (2.0 / dot(row, row)).sqrt();
            row.iter_mut().for_each(|v| *v *= scale);
        }
        let reflection = &*row;
        rest.par_chunks_mut(cols).for_each(|row| apply(reflection, &mut row[k..]));
    }
}

/// x − u·(u·x).
fn apply(u: &[f64], x: &mut [f64]) {
    let along = dot(u, x);
    x.iter_mut().zip(u).for_each(|(x, u)| *x -= along * u);
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; LANES];
    let (a, b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f64 = a.remainder().iter().zip(b.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a.zip(b) {
        for i in 0..LANES {
            sums[i] += a[i] * b[i];
        }
    }
    sums.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize) -> Vec<f32> {
        let mut state = 88172645463325252u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        (0..count).map(|_| bf16::from_f32(next()).to_f32()).collect()
    }

    /// u·M·v.
    fn inner(metric: Option<&Metric>, u: &[f32], v: &[f32]) -> f64 {
        let seen = |x: &[f32]| {
            let mut x: Vec<f64> = x.iter().map(|&v| f64::from(v)).collect();
            metric.inspect(|m| m.see(&mut x));
            x
        };
        dot(&seen(u), &seen(v))
    }

    #[test]
    fn what_is_added_is_orthonormal_in_the_metric_and_meets_nothing_that_was_there() {
        let (cols, rank) = (24, 7);
        let vectors = numbers(rank * cols);
        let weights: Vec<f64> = (0..cols).map(|c| 0.5 + c as f64).collect();
        for metric in [None, Some(Metric::from_columns(&weights).unwrap())] {
            let more = complete(&vectors, cols, metric.as_ref());
            assert_eq!(more.len(), (cols - rank) * cols);
            for (i, a) in more.chunks_exact(cols).enumerate() {
                for (j, b) in more.chunks_exact(cols).enumerate() {
                    let expected = f64::from(u8::from(i == j));
                    assert!((inner(metric.as_ref(), a, b) - expected).abs() < 0.02, "{i} {j}");
                }
                for b in vectors.chunks_exact(cols) {
                    assert!(inner(metric.as_ref(), a, b).abs() < 0.02, "{i}");
                }
            }
        }
    }

    #[test]
    fn vectors_that_depend_on_each_other_and_zeros_are_completed_too() {
        let cols = 16;
        let mut vectors = numbers(cols);
        vectors.extend_from_within(..);
        vectors.extend(vec![0.0; cols]);
        let more = complete(&vectors, cols, None);
        assert_eq!(more.len(), 13 * cols);
        assert!(more.iter().all(|v| v.is_finite()));
    }

    /// Readers name bases by a hash of all their numbers, so these must never change: conformance/bases.json, which a second
    /// implementation agrees with.
    #[test]
    fn the_same_on_every_machine() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../conformance/bases.json");
        let cases: Vec<serde_json::Value> =
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert_eq!(cases.len(), 7);
        for case in cases {
            let bytes = |key: &str| -> Vec<u8> {
                let digits = case[key].as_str().unwrap().as_bytes();
                let digit = |d: u8| char::from(d).to_digit(16).unwrap() as u8;
                digits.chunks_exact(2).map(|two| 16 * digit(two[0]) + digit(two[1])).collect()
            };
            let halves = |key: &str| -> Vec<f32> {
                bytes(key).as_chunks::<2>().0.iter().map(|b| bf16::from_le_bytes(*b).to_f32()).collect()
            };
            let cols = case["columns"].as_u64().unwrap() as usize;
            let metric = match case["size"].as_u64().unwrap() as usize {
                0 => None,
                size => {
                    let packed: Vec<f32> =
                        bytes("factor").as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
                    Some(Metric::unpack(&packed, size, cols).unwrap())
                }
            };
            let found = complete(&halves("vectors"), cols, metric.as_ref());
            assert!(found == halves("completed"), "{}", case["name"]);
        }
    }
}

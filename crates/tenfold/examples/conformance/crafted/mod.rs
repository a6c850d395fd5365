//! Golden vectors that the library's encoder never makes, written by the second writer.

mod levels;
mod planes;
mod values;

use super::common::Random;
use super::writer::Levels;
use super::{Made, Vector};

fn vector(
    name: impl Into<String>,
    note: &'static str,
    shows: &[&str],
    levels: impl Fn() -> Levels + 'static,
) -> Vector {
    let make = move || {
        let levels = levels();
        Made { blob: levels.blob(), data: levels.expected() }
    };
    let shows = shows.iter().map(|s| s.to_string()).collect();
    Vector { name: name.into(), note, shows, make: Box::new(make) }
}

/// Levels with a bell of this width.
pub fn bell(n: usize, width: f64, seed: u64) -> Vec<i32> {
    let mut r = Random::new(seed);
    (0..n).map(|_| (r.normal() * width).round() as i32).collect()
}

pub fn vectors() -> Vec<Vector> {
    let mut all = planes::vectors();
    all.extend(levels::machines());
    all.extend(levels::tables());
    all.extend(levels::classes());
    all.extend(values::sections());
    all.extend(values::values());
    all
}

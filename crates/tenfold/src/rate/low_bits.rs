//! How many low bits of each class's levels to leave uncoded.
//!
//! Fine steps make large levels whose low bits are noise. Splitting them off keeps the alphabet within a
//! byte; too many would cost values near zero their share.

use crate::entropy::class::ClassMap;
use crate::entropy::{MAX_CLASSES, MAX_LOW_BITS};
use crate::levels::LowBits;

/// Bits that an escaped level is thought to take.
const ESCAPE_BITS: f64 = 28.0;

/// Low bits of each class from a sample of (position, value in units); `step` is in units too.
pub(crate) fn fit(sample: &[(usize, f32)], step: f64, classes: Option<&ClassMap>) -> LowBits {
    let mut levels: Vec<Vec<i32>> = vec![Vec::new(); classes.map_or(1, ClassMap::classes)];
    let spacing = (0.5 / step) as f32;
    let mut class = Vec::new();
    for run in sample.chunk_by(|a, b| a.0 + 1 == b.0) {
        class.clear();
        class.resize(run.len(), 0u8);
        if let Some(map) = classes {
            map.fill(run[0].0, &mut class);
        }
        for (&(_, v), &c) in run.iter().zip(&class) {
            // A half more, towards zero: rounding proper is a call of a function on many machines.
            levels[c as usize].push((v * spacing + 0.5f32.copysign(v)) as i32);
        }
    }
    let mut bits = [0u8; MAX_CLASSES];
    for (b, levels) in bits.iter_mut().zip(&levels) {
        *b = best(levels);
    }
    LowBits::new(&bits)
}

/// The number of low bits that costs fewest bits in all.
fn best(levels: &[i32]) -> u8 {
    let wide = levels.iter().filter(|k| k.unsigned_abs() > 40).count();
    if wide * 100 < levels.len() {
        return 0;
    }
    let costs = (0..=MAX_LOW_BITS).map(|n| cost(levels, n));
    costs.enumerate().min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(n, _)| n as u8)
}

fn cost(levels: &[i32], low_bits: u32) -> f64 {
    let mut counts = [0u32; 256];
    for k in levels {
        let high = k >> low_bits;
        counts[if high.unsigned_abs() < 128 { high as u8 as usize } else { 0x80 }] += 1;
    }
    let total = levels.len() as f64;
    let used = counts.iter().filter(|&&c| c > 0).count() as f64;
    let coded: f64 = counts.iter().filter(|&&c| c > 0).map(|&c| c as f64 * (total / c as f64).log2()).sum();
    // Rare symbols are dearer than they look: their table has only so many slots.
    coded + counts[0x80] as f64 * ESCAPE_BITS + total * low_bits as f64 + used * total * 0.00012
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_levels_have_no_low_bits_and_large_ones_do() {
        let small: Vec<i32> = (0..4096).map(|i| i % 9 - 4).collect();
        assert_eq!(best(&small), 0);
        let large: Vec<i32> = (0..4096i32).map(|i| i.wrapping_mul(48_271) % 4000).collect();
        assert!((5..=8).contains(&best(&large)), "{}", best(&large));
        // Mostly zero: the few large ones are better escaped than the zeros burdened.
        let sparse: Vec<i32> = (0..4096i32).map(|i| if i % 80 == 0 { i * 50 } else { 0 }).collect();
        assert_eq!(best(&sparse), 0);
    }
}

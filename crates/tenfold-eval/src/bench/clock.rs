//! Time of repeated runs, and a yardstick for the machine.

use std::hint::black_box;
use std::time::Instant;

/// Seconds that a call takes, and what it returns.
pub(crate) fn timed<T>(call: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let result = call();
    (start.elapsed().as_secs_f64(), result)
}

/// Values an intra H.265 encoder (x265 `medium`, one thread, about 2.5 bits a value) codes a second
/// where [`score`] gives [`REFERENCE_SCORE`].
pub(super) const REFERENCE_SPEED: f64 = 0.9e6;

/// Score of a machine of [`REFERENCE_SPEED`].
pub(super) const REFERENCE_SCORE: f64 = 2.14e8;

/// Butterflies a second of 8-point Hadamard transforms in integers with branches on the result: much
/// like the inner loops of a video encoder's search, and as slow or fast as the core is right now.
pub(super) fn score() -> f64 {
    let mut block = [0i32; 64];
    let mut seed = 12345u32;
    let mut total = 0u64;
    const ROUNDS: usize = 100_000;
    let (seconds, ()) = timed(|| {
        for _ in 0..ROUNDS {
            for v in block.iter_mut() {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *v = (seed >> 24) as i32 - 128;
            }
            for row in 0..8 {
                transform(&mut block, row * 8, 1);
            }
            for column in 0..8 {
                transform(&mut block, column, 8);
            }
            total += block
                .iter()
                .map(|v| if v.abs() > 300 { u64::from(v.unsigned_abs()) } else { 1 })
                .sum::<u64>();
        }
    });
    black_box(total);
    (ROUNDS * 2 * 8 * 12) as f64 / seconds
}

fn transform(block: &mut [i32; 64], start: usize, stride: usize) {
    for half in [4, 2, 1] {
        for i in (0..8).filter(|i| i & half == 0) {
            let (a, b) = (start + i * stride, start + (i + half) * stride);
            (block[a], block[b]) = (block[a] + block[b], block[a] - block[b]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_yardstick_repeats() {
        // The best of a few runs is what the core does undisturbed; print it for a new reference.
        let best = |n| (0..n).map(|_| score()).fold(0.0, f64::max);
        let (a, b) = (best(10), best(10));
        println!("score {a:.4e} {b:.4e}");
        assert!((0.5..2.0).contains(&(a / b)), "{a} {b}");
    }
}

//! Encoding at a rate, rate control included, one thread: each effort, and the dtypes of real models.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use half::bf16;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, StandardNormal};
use tenfold::engine::estimate_bits;
use tenfold::{Effort, EncodeOptions, EncodePlan, Goal, TensorView, encode};

const SHAPE: [usize; 2] = [1024, 1024];
const VALUES: usize = SHAPE[0] * SHAPE[1];

fn main() {
    divan::main();
}

fn values() -> Vec<f32> {
    let mut rng = StdRng::seed_from_u64(1);
    (0..VALUES).map(|_| StandardNormal.sample(&mut rng)).collect()
}

fn options(effort: Effort) -> EncodeOptions {
    EncodeOptions::new(Goal::Bits(2.5)).with_effort(effort).with_threads(1)
}

#[divan::bench(args = [Effort::Fast, Effort::Balanced, Effort::Best], sample_count = 8)]
fn f32_at_2_5_bits(bencher: Bencher, effort: &Effort) {
    let values = values();
    bencher.counter(ItemsCount::new(VALUES)).bench_local(|| {
        let view = TensorView::from_slice(black_box(&values), &SHAPE)?;
        encode(&view, &options(*effort))
    });
}

#[divan::bench(args = [Effort::Fast, Effort::Balanced], sample_count = 8)]
fn bf16_at_2_5_bits(bencher: Bencher, effort: &Effort) {
    let values: Vec<bf16> = values().into_iter().map(bf16::from_f32).collect();
    bencher.counter(ItemsCount::new(VALUES)).bench_local(|| {
        let view = TensorView::from_slice(black_box(&values), &SHAPE)?;
        encode(&view, &options(*effort))
    });
}

/// The trellis alone, near enough: a given step needs no search.
#[divan::bench(args = [Effort::Fast, Effort::Balanced, Effort::Best], sample_count = 8)]
fn f32_at_a_step(bencher: Bencher, effort: &Effort) {
    let values = values();
    let options = EncodeOptions::new(Goal::Step(0.3)).with_effort(*effort).with_threads(1);
    bencher.counter(ItemsCount::new(VALUES)).bench_local(|| {
        let view = TensorView::from_slice(black_box(&values), &SHAPE)?;
        encode(&view, &options)
    });
}

/// Hidden states of some tokens: columns differ in size, and a few are far larger than the rest.
fn states(tokens: usize) -> Vec<bf16> {
    const COLS: usize = 576;
    let size = |col: usize| (1.0 + (col % 9) as f32) * if col.is_multiple_of(191) { 200.0 } else { 1.0 };
    let values = values().into_iter().cycle().take(tokens * COLS);
    values.enumerate().map(|(i, v)| bf16::from_f32(v * size(i % COLS))).collect()
}

#[divan::bench(args = [(64, false), (64, true), (910, false), (910, true)], sample_count = 20)]
fn states_at_2_5_bits_with_a_plan(bencher: Bencher, &(tokens, planned): &(usize, bool)) {
    let (values, shape) = (states(tokens), [tokens, 576]);
    let mut options = options(Effort::Fast);
    if planned {
        let other: Vec<bf16> = values.iter().rev().copied().collect();
        let columns: Vec<bf16> = other.chunks(576).flat_map(|row| row.iter().rev().copied()).collect();
        let plan = TensorView::from_slice(&columns, &shape).and_then(|view| EncodePlan::new(&view, &options));
        options.plan = plan.ok();
    }
    bencher.counter(ItemsCount::new(values.len())).bench_local(|| {
        let view = TensorView::from_slice(black_box(&values), &shape)?;
        encode(&view, &options)
    });
}

#[divan::bench(sample_count = 20)]
fn estimate(bencher: Bencher) {
    let values = values();
    bencher.bench_local(|| {
        let view = TensorView::from_slice(black_box(&values), &SHAPE)?;
        estimate_bits(&view, 0.3, Effort::Balanced, &[])
    });
}

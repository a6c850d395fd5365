//! Decoding, one thread: whole tensors of each effort and rate, and single rows.

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use half::bf16;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, StandardNormal};
use tenfold::engine::{Cpu, Engine};
use tenfold::{DecodeOptions, Effort, EncodeOptions, Goal, TensorView, decode_rows, encode, inspect};

const SHAPE: [usize; 2] = [2048, 1024];
const VALUES: usize = SHAPE[0] * SHAPE[1];

fn main() {
    divan::main();
}

fn blob(bits: f64, effort: Effort) -> Vec<u8> {
    let mut rng = StdRng::seed_from_u64(2);
    let normal = |_| bf16::from_f32(StandardNormal.sample(&mut rng));
    let values: Vec<bf16> = (0..VALUES).map(normal).collect();
    let options = EncodeOptions::new(Goal::Bits(bits)).with_effort(effort);
    TensorView::from_slice(&values, &SHAPE).and_then(|v| encode(&v, &options)).unwrap_or_default()
}

fn whole(bencher: Bencher, blob: &[u8]) {
    let options = DecodeOptions::default().with_threads(1);
    let mut out = vec![0u8; VALUES * 2];
    let counted = bencher.counter(BytesCount::new(out.len())).counter(ItemsCount::new(VALUES));
    counted.bench_local(|| Cpu.decode_into(black_box(blob), &options, &mut out));
}

#[divan::bench(args = [Effort::Fast, Effort::Balanced, Effort::Best], sample_count = 20)]
fn bf16_at_2_5_bits(bencher: Bencher, effort: &Effort) {
    whole(bencher, &blob(2.5, *effort));
}

#[divan::bench(args = [1.0, 4.0, 8.0], sample_count = 20)]
fn bf16_at_bits(bencher: Bencher, bits: f64) {
    whole(bencher, &blob(bits, Effort::Balanced));
}

#[divan::bench(args = [1, 64], sample_count = 50)]
fn rows(bencher: Bencher, rows: usize) {
    let blob = blob(2.5, Effort::Balanced);
    let options = DecodeOptions::default().with_threads(1);
    bencher
        .counter(ItemsCount::new(rows * SHAPE[1]))
        .bench_local(|| decode_rows(black_box(&blob), 1000..1000 + rows, &options));
}

#[divan::bench]
fn header(bencher: Bencher) {
    let blob = blob(2.5, Effort::Balanced);
    bencher.bench_local(|| inspect(black_box(&blob)));
}

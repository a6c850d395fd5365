//! Lossless bf16 and f32, one thread.

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use half::bf16;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, StandardNormal};
use tenfold::engine::{Cpu, Engine};
use tenfold::format::Element;
use tenfold::{DecodeOptions, EncodeOptions, Goal, TensorView, encode};

const SHAPE: [usize; 2] = [2048, 1024];
const VALUES: usize = SHAPE[0] * SHAPE[1];

fn main() {
    divan::main();
}

fn weights() -> Vec<f32> {
    let mut rng = StdRng::seed_from_u64(3);
    let normal = |_| -> f32 { StandardNormal.sample(&mut rng) };
    (0..VALUES).map(normal).map(|v| 0.02 * v).collect()
}

fn bf16_weights() -> Vec<bf16> {
    weights().into_iter().map(bf16::from_f32).collect()
}

fn encoding<T: Element>(bencher: Bencher, values: &[T]) {
    let options = EncodeOptions::new(Goal::Lossless).with_threads(1);
    bencher.counter(BytesCount::of_slice(values)).bench_local(|| {
        let view = TensorView::from_slice(black_box(values), &SHAPE)?;
        encode(&view, &options)
    });
}

fn decoding<T: Element>(bencher: Bencher, values: &[T]) {
    let options = EncodeOptions::new(Goal::Lossless);
    let blob = TensorView::from_slice(values, &SHAPE).and_then(|v| encode(&v, &options)).unwrap_or_default();
    let mut out = vec![0u8; size_of_val(values)];
    let options = DecodeOptions::default().with_threads(1);
    bencher
        .counter(BytesCount::of_slice(values))
        .bench_local(|| Cpu.decode_into(black_box(&blob), &options, &mut out));
}

#[divan::bench(sample_count = 10)]
fn encode_bf16(bencher: Bencher) {
    encoding(bencher, &bf16_weights());
}

#[divan::bench(sample_count = 10)]
fn encode_f32(bencher: Bencher) {
    encoding(bencher, &weights());
}

#[divan::bench(sample_count = 20)]
fn decode_bf16(bencher: Bencher) {
    decoding(bencher, &bf16_weights());
}

#[divan::bench(sample_count = 20)]
fn decode_f32(bencher: Bencher) {
    decoding(bencher, &weights());
}

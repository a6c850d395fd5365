use rand::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use tenfold::*;
fn cpu() -> f64 {
    std::fs::read_to_string("/proc/thread-self/schedstat")
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .parse::<f64>()
        .unwrap()
        * 1e-9
}
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let n = 1 << 24;
    let mut r = rand::rngs::StdRng::seed_from_u64(1);
    let x: Vec<half::bf16> = (0..n)
        .map(|_| {
            half::bf16::from_f32({
                let v: f32 = StandardNormal.sample(&mut r);
                v
            })
        })
        .collect();
    let shape = [4096, 4096];
    let v = TensorView::from_slice(&x, &shape).unwrap();
    let effort = match a[1].as_str() {
        "fast" => Effort::Fast,
        "best" => Effort::Best,
        _ => Effort::Balanced,
    };
    let bits: f64 = a[2].parse().unwrap();
    let reps: usize = a[3].parse().unwrap();
    let mut out = vec![0u8; n * 2];
    for _ in 0..reps {
        let t = cpu();
        let blob = encode(
            &v,
            &EncodeOptions::new(if bits == 0.0 { Goal::Lossless } else { Goal::Bits(bits) })
                .with_effort(effort)
                .with_threads(1),
        )
        .unwrap();
        let te = cpu() - t;
        let t = cpu();
        for _ in 0..4 {
            decode_into(&blob, &DecodeOptions::default().with_threads(1), &mut out).unwrap();
        }
        let td = (cpu() - t) / 4.0;
        println!(
            "enc {:.1} M/s dec {:.1} M/s = {:.2} GB/s",
            n as f64 / te / 1e6,
            n as f64 / td / 1e6,
            2e-9 * n as f64 / td
        );
    }
}

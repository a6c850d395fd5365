use rand::SeedableRng;
use rand_distr::{Distribution, StandardNormal};

use tenfold::*;
struct Instant(f64);
impl Instant { fn now() -> Self { Instant(cpu()) } fn elapsed(&self) -> D { D(cpu() - self.0) } }
struct D(f64);
impl D { fn as_secs_f64(&self) -> f64 { self.0 } }
fn cpu() -> f64 { std::fs::read_to_string("/proc/thread-self/schedstat").unwrap().split(' ').next().unwrap().parse::<f64>().unwrap() * 1e-9 }
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let n: usize = a.get(1).map_or(1 << 22, |s| s.parse().unwrap());
    let mut r = rand::rngs::StdRng::seed_from_u64(1);
    let x: Vec<f32> = (0..n).map(|_| StandardNormal.sample(&mut r)).collect();
    let b: Vec<half::bf16> = x.iter().map(|&v| half::bf16::from_f32(v * 0.02)).collect();
    let cols = if n >= 1 << 20 { 4096 } else { 64 };
    let shape = [n / cols, cols];
    let vf = TensorView::from_slice(&x, &shape).unwrap();
    let vb = TensorView::from_slice(&b, &shape).unwrap();
    for effort in [Effort::Fast, Effort::Balanced, Effort::Best] {
        for bits in [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0, 12.0] {
            if effort == Effort::Best && n > 1 << 22 && ![1.5, 2.0, 2.5, 3.0, 4.0].contains(&bits) { continue; }
            let t0 = Instant::now();
            let blob = encode(&vf, &EncodeOptions::new(Goal::Bits(bits)).with_effort(effort).with_threads(1)).unwrap();
            let te = t0.elapsed().as_secs_f64();
            let mut y = vec![0f32; n];
            decode_into(&blob, &DecodeOptions::default().with_threads(1), bytemuck::cast_slice_mut(&mut y)).unwrap();
            let t0 = Instant::now();
            decode_into(&blob, &DecodeOptions::default().with_threads(1), bytemuck::cast_slice_mut(&mut y)).unwrap();
            let td = t0.elapsed().as_secs_f64();
            let mse = x.iter().zip(&y).map(|(a, b)| ((a - b) as f64).powi(2)).sum::<f64>() / n as f64;
            let real = blob.len() as f64 * 8.0 / n as f64;
            let i = inspect(&blob).unwrap();
            println!("{:9} {bits:5} -> {real:.4} ({:+.2}%) gap {:.4}  enc {:6.1} M/s dec {:6.1} M/s  classes {:?} low {:?} tiles {}", effort.name(), (real / bits - 1.0) * 100.0, real - 0.5 * (1.0 / mse).log2(), n as f64 / te / 1e6, n as f64 / td / 1e6, i.classes.unwrap_or(0), i.low_bits, i.tiles);
        }
    }
    for _ in 0..2 {
        let t0 = Instant::now();
        let blob = encode(&vb, &EncodeOptions::new(Goal::Lossless).with_threads(1)).unwrap();
        let te = t0.elapsed().as_secs_f64();
        let mut out = vec![0u8; n * 2];
        let t0 = Instant::now();
        decode_into(&blob, &DecodeOptions::default().with_threads(1), &mut out).unwrap();
        let td = t0.elapsed().as_secs_f64();
        assert!(out == bytemuck::cast_slice::<_, u8>(&b));
        println!("lossless ratio {:.4} enc {:.2} GB/s dec {:.2} GB/s", n as f64 * 2.0 / blob.len() as f64, n as f64 * 2e-9 / te, n as f64 * 2e-9 / td);
        let blob = encode(&vb, &EncodeOptions::new(Goal::Bits(2.5)).with_threads(1)).unwrap();
        let t0 = Instant::now();
        decode_into(&blob, &DecodeOptions::default().with_threads(1), &mut out).unwrap();
        println!("bf16 2.5 dec {:.2} GB/s", n as f64 * 2e-9 / t0.elapsed().as_secs_f64());
    }
}

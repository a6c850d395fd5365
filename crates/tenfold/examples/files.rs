use tenfold::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let bits: f64 = a[1].parse().unwrap();
    for f in &a[2..] {
        let b = std::fs::read(f).unwrap();
        let n = u64::from_le_bytes(b[..8].try_into().unwrap()) as usize;
        let h = String::from_utf8(b[8..8 + n].to_vec()).unwrap();
        for part in h.split("\":{\"dtype\":\"").skip(1).zip(h.split("\":{\"dtype\":\"")) {
            let name = part.1.rsplit('"').next().unwrap();
            let dt = part.0.split('"').next().unwrap();
            let nums = |k: &str| -> Vec<usize> {
                let s = part.0.split(k).nth(1).unwrap();
                s[..s.find(']').unwrap()]
                    .trim_start_matches(['"', ':', '[', ' '])
                    .split(',')
                    .map(|v| v.trim().parse().unwrap())
                    .collect()
            };
            let shape = nums("shape");
            let off = nums("data_offsets");
            let data = &b[8 + n + off[0]..8 + n + off[1]];
            let d = if dt == "F32" { Dtype::F32 } else { Dtype::Bf16 };
            let v = TensorView::new(d, &shape, data).unwrap();
            let x: Vec<f64> = if d == Dtype::F32 {
                data.chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap()) as f64).collect()
            } else {
                data.chunks(2).map(|c| half::bf16::from_le_bytes(c.try_into().unwrap()).to_f64()).collect()
            };
            let m = x.iter().sum::<f64>() / x.len() as f64;
            let var = x.iter().map(|v| (v - m).powi(2)).sum::<f64>() / x.len() as f64;
            let ms = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
            print!("{name:45} {shape:?} ");
            for e in [Effort::Fast, Effort::Balanced, Effort::Best] {
                let blob = encode(&v, &EncodeOptions::new(Goal::Bits(bits)).with_effort(e)).unwrap();
                let y = decode(&blob, &DecodeOptions::default()).unwrap();
                let y: Vec<f64> = if d == Dtype::F32 {
                    y.data.chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap()) as f64).collect()
                } else {
                    y.data
                        .chunks(2)
                        .map(|c| half::bf16::from_le_bytes(c.try_into().unwrap()).to_f64())
                        .collect()
                };
                let mse = x.iter().zip(&y).map(|(a, b)| (a - b).powi(2)).sum::<f64>() / x.len() as f64;
                let i = inspect(&blob).unwrap();
                print!(
                    " | {:.3} gap {:+.3} c{}",
                    i.bits_per_value(),
                    i.bits_per_value() - 0.5 * (var / mse).log2(),
                    i.classes.unwrap_or(0)
                );
            }
            // scalar + ideal entropy order 0
            let (mut lo, mut hi) = (ms.sqrt() * 1e-3, ms.sqrt() * 100.0);
            let mut best = (0.0, 0.0);
            for _ in 0..40 {
                let s = (lo * hi as f64).sqrt();
                let mut h = std::collections::HashMap::new();
                let mut c = std::collections::HashMap::<i64, (f64, f64, f64)>::new();
                for v in &x {
                    let k = (v.abs() / s + 0.4) as i64 * if *v < 0.0 { -1 } else { 1 };
                    *h.entry(k).or_insert(0f64) += 1.0;
                    let e = c.entry(k).or_default();
                    e.0 += 1.0;
                    e.1 += v;
                    e.2 += v * v;
                }
                let hh: f64 =
                    h.values().map(|n| n * (x.len() as f64 / n).log2()).sum::<f64>() / x.len() as f64;
                let se: f64 = c.values().map(|t| t.2 - t.1 * t.1 / t.0).sum::<f64>() / x.len() as f64;
                best = (hh, se);
                if hh > bits { lo = s } else { hi = s }
            }
            println!(" | ideal {:.3} gap {:+.3}", best.0, best.0 - 0.5 * (var / best.1).log2());
        }
    }
}

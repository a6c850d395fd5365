//! Every path of the encoder's search, and of dequantisation, against the plain one.

use super::cost::CostTable;
use super::machine::Machine;
use super::scalar::{self, Thresholds};
use super::trellis::{self, Search, Workspace};
use crate::entropy::MAX_LANES;
use crate::levels::Dequant;
use crate::simd::Isa;
use crate::simd::wide::WIDTH;
use crate::view::Dtype;
use rand::{RngExt, SeedableRng, rngs::StdRng};

fn values(rng: &mut StdRng, rows: usize) -> Vec<[f32; WIDTH]> {
    (0..rows)
        .map(|r| {
            std::array::from_fn(|_| {
                let v: f32 = rng.random_range(-3.0..3.0);
                if r % 9 == 0 { v * 9000.0 } else { v * v * v }
            })
        })
        .collect()
}

#[test]
fn every_path_finds_the_plain_levels() {
    let mut rng = StdRng::seed_from_u64(11);
    let rows = 2 * 60;
    let u = values(&mut rng, rows);
    let class: Vec<[u8; WIDTH]> = (0..rows).map(|r| [(r % 5) as u8; WIDTH]).collect();
    let counts: Vec<[u64; 256]> = (0..10)
        .map(|t| std::array::from_fn(|s| (4000 / (1 + (s as u8 as i8).unsigned_abs() as u64)) >> (t % 3)))
        .collect();
    let costs = CostTable::from_counts(&counts, &Default::default(), 0.27);
    for log2_states in [0, 2, 3, 4, 5, 6, 7, 8] {
        let machine = Machine::new(log2_states).unwrap();
        let mut plain = Vec::new();
        for path in Isa::available() {
            let mut out = vec![[0i32; WIDTH]; rows];
            if machine == Machine::SCALAR {
                scalar::search(path, &Thresholds::new(&costs), &u, &class, &mut out);
            } else {
                let search = Search {
                    machine,
                    costs: &costs,
                    u: &u,
                    class: &class,
                    groups: 2,
                    start: &[0; MAX_LANES],
                };
                trellis::search(path, &search, &mut Workspace::default(), &mut out);
            }
            if path == Isa::Plain {
                assert!(out.iter().flatten().any(|k| k.abs() > 1000));
                plain = out;
            } else {
                assert!(out == plain, "{path:?} differs with 2^{log2_states} states");
            }
        }
    }
}

#[test]
fn every_path_reconstructs_the_plain_elements() {
    let mut rng = StdRng::seed_from_u64(12);
    let m: Vec<i32> =
        (0..1003).map(|i| rng.random_range(-12..=12) * if i % 50 == 0 { 500_000 } else { 1 }).collect();
    for dtype in [Dtype::F8E4M3, Dtype::F8E5M2, Dtype::F16, Dtype::Bf16, Dtype::F32, Dtype::F64] {
        for offsets in [[0i8; 8], [3, -4, 9, 0, -64, 64, 1, -1]] {
            let dequant = Dequant::new(dtype, 0.0123, &offsets);
            let mut plain = vec![0u8; m.len() * dtype.size()];
            dequant.write(Isa::Plain, &m, &mut plain);
            for path in Isa::available() {
                let mut out = vec![0u8; plain.len()];
                dequant.write(path, &m, &mut out);
                assert!(out == plain, "{path:?} differs for {dtype}");
            }
        }
    }
}

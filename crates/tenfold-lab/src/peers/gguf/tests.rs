//! Blocks against the reader: what the quantiser thinks it stored is what comes back, and no search does
//! worse than the plain choice.

use super::*;
use crate::metrics::Fidelity as Measured;
use crate::synth::{self, Shape};
use tenfold::Dtype;

const ALL: [Gguf; 8] =
    [Gguf::Q4_0, Gguf::Q5_0, Gguf::Q8_0, Gguf::Q2_K, Gguf::Q3_K, Gguf::Q4_K, Gguf::Q5_K, Gguf::Q6_K];

fn expand(kind: Gguf, raw: &[u8]) -> Vec<f32> {
    let layout = layout(kind.number()).unwrap();
    let mut out = vec![0; raw.len() / layout.bytes * layout.values * 4];
    layout.expand(raw, &mut out);
    out.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

#[test]
fn blocks_have_the_size_of_the_layout() {
    for kind in ALL {
        let layout = layout(kind.number()).unwrap();
        let mut out = Vec::new();
        kind.block()(&vec![1.0; layout.values], &mut out);
        assert_eq!(out.len(), layout.bytes, "{kind:?}");
        assert_eq!(kind.bits(), layout.bytes as f64 * 8.0 / layout.values as f64);
    }
}

#[test]
fn each_value_goes_to_its_own_place() {
    // A single value away from zero must come back where it was: a misplaced bit plane, nibble or scale
    // would move it.
    for kind in ALL {
        let n = layout(kind.number()).unwrap().values;
        for at in 0..n {
            for v in [900.0f32, -700.0] {
                let mut x = vec![0.0; n];
                x[at] = v;
                let mut raw = Vec::new();
                kind.block()(&x, &mut raw);
                let back = expand(kind, &raw);
                assert!((back[at] / v - 1.0).abs() < 0.02, "{kind:?} at {at}: {} for {v}", back[at]);
                let stray = back.iter().enumerate().filter(|b| b.0 != at).fold(0f32, |m, b| m.max(b.1.abs()));
                assert!(stray <= 0.02 * v.abs(), "{kind:?} at {at}: {stray}");
            }
        }
    }
}

#[test]
fn values_are_the_nearest_that_the_stored_scales_allow() {
    // Sub-blocks of very different sizes use all scales and minima; under what a block stores, no value may
    // be more than half a step off unless it is clamped at an end.
    let x: Vec<f32> = synth::values(Shape::Stretches, 10.0, 256 * 40, 5);
    for kind in ALL {
        let n = layout(kind.number()).unwrap().values;
        for chunk in x.chunks(n) {
            let mut raw = Vec::new();
            kind.block()(chunk, &mut raw);
            let back = expand(kind, &raw);
            for (sub, got) in chunk.chunks(16).zip(back.chunks(16)) {
                let mut seen = got.to_vec();
                seen.sort_by(f32::total_cmp);
                seen.dedup();
                // Each value went to the nearest of those that its sub-block uses at all.
                for (v, g) in sub.iter().zip(got) {
                    let best = seen.iter().map(|s| (s - v).abs()).fold(f32::MAX, f32::min);
                    assert!((g - v).abs() <= best * 1.001 + 1e-6, "{kind:?}: {g} for {v}, {best}");
                }
            }
        }
    }
}

#[test]
fn errors_are_those_of_good_quantisers() {
    // NMSE on Gaussian values: bounds a little above what the search reaches, well below plain rounding.
    let bounds = [0.0073, 0.0018, 3.0e-5, 0.083, 0.025, 0.0060, 0.0015, 4.6e-4];
    let tensor = synth::gaussian(Dtype::F32, &[128, 512], 1e-8, 3).unwrap();
    let view = tensor.view().unwrap();
    for (kind, bound) in ALL.into_iter().zip(bounds) {
        let bytes = kind.encode(&view).unwrap();
        assert_eq!(bytes.len(), 10 + 3 + (kind.bits() * 65_536.0 / 8.0) as usize);
        let back = kind.decode(&bytes).unwrap();
        let nmse = Measured::between(&view, &back.view().unwrap()).unwrap().nmse();
        assert!(nmse < bound && nmse > bound * 0.6, "{kind:?}: {nmse} against {bound}");
    }
}

#[test]
fn constants_come_back() {
    for kind in ALL {
        for v in [0.0f32, 3.5, -3.5] {
            let tensor = plain::tensor(vec![300], vec![v; 300]);
            let bytes = kind.encode(&tensor.view().unwrap()).unwrap();
            let back = kind.decode(&bytes).unwrap();
            let off = Measured::between(&tensor.view().unwrap(), &back.view().unwrap()).unwrap().max_error;
            assert!(off <= 0.02 * f64::from(v.abs()), "{kind:?} {v}: {off}");
        }
    }
}

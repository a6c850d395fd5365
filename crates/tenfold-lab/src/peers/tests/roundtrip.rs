//! Same shape, the values or something near them, less error for more bytes.

use half::{bf16, f16};
use tenfold::{Dtype, Tensor, TensorView};

use super::super::{Fidelity, Peer, PeerError, ZipNn, families};
use super::{everybody, real_tensors};
use crate::metrics;
use crate::synth;

/// E2M3 and E4M3 have the same mantissa, and the latter saturates earlier, so two bits more gain nothing.
const SLACK: f64 = 1.05;

/// Codes and decodes; checks the shape and, for lossless peers, every bit.
fn around(peer: &dyn Peer, tensor: &Tensor) -> (usize, Tensor) {
    let what = format!("{} on {:?} {}", peer.name(), tensor.shape, tensor.dtype);
    let bytes = peer.encode(&tensor.view().unwrap()).unwrap_or_else(|e| panic!("{what}: {e}"));
    let back = peer.decode(&bytes).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(back.shape, tensor.shape, "{what}");
    match peer.abilities().fidelity {
        Fidelity::Lossless => assert!(back == *tensor, "{what}: bits differ"),
        Fidelity::Lossy => {
            assert!(back.dtype == tensor.dtype || back.dtype == Dtype::F32, "{what}");
            let view = back.view().unwrap();
            let values = crate::values::to_f64(&view).unwrap();
            assert!(values.iter().all(|v| v.is_finite()), "{what}");
        }
    }
    (bytes.len(), back)
}

#[test]
fn any_shape_and_dtype_comes_back() {
    let shapes: [&[usize]; 7] = [&[], &[1], &[7], &[1000], &[33, 17], &[3, 5, 64], &[2, 1, 3, 2, 40]];
    for (_, members) in everybody() {
        for peer in [members.first(), members.last()].into_iter().flatten() {
            for (i, shape) in shapes.into_iter().enumerate() {
                for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
                    let tensor = synth::gaussian(dtype, shape, 0.02, i as u64).unwrap();
                    around(&**peer, &tensor);
                }
            }
        }
    }
}

#[test]
fn empty_tensors_come_back_or_are_refused() {
    for (_, members) in everybody() {
        let tensor = Tensor { dtype: Dtype::F32, shape: vec![0, 7], data: vec![] };
        match members[0].encode(&tensor.view().unwrap()) {
            Ok(bytes) => assert_eq!(members[0].decode(&bytes).unwrap().shape, [0, 7]),
            Err(e) => assert!(matches!(e, PeerError::Unsupported(_)), "{}: {e}", members[0].name()),
        }
    }
}

#[test]
fn more_bytes_mean_less_error_on_real_tensors() {
    for (family, members) in everybody() {
        for (name, tensor) in real_tensors() {
            let view = tensor.view().unwrap();
            let mut points: Vec<(usize, f64)> = members
                .iter()
                .map(|peer| {
                    let (bytes, back) = around(&**peer, &tensor);
                    let f = metrics::Fidelity::between(&view, &back.view().unwrap()).unwrap();
                    (bytes, f.nmse())
                })
                .collect();
            points.sort_by(|a, b| a.partial_cmp(b).unwrap());
            let (coarsest, finest) = (points[0].1, points[points.len() - 1].1);
            // Beside outliers a finer step may turn neighbours that were zeros into something worse, and
            // the coarsest may be no better than zeros.
            let falls = points.windows(2).all(|w| w[1].1 <= w[0].1 * SLACK) || name == "activations";
            let sane = coarsest < 1.5 && finest < 0.05 && finest <= coarsest;
            assert!(falls && sane, "{} on {name}: {points:?}", family.id);
        }
    }
}

#[test]
fn numbers_that_are_none_are_kept_or_refused() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut values = synth::values(synth::Shape::Gaussian, 1.0, 640, 1);
        values[77] = bad;
        let tensor = synth::tensor(Dtype::F32, &[10, 64], &values).unwrap();
        for (_, members) in everybody() {
            let Err(e) = members[0].encode(&tensor.view().unwrap()) else {
                let back = members[0].decode(&members[0].encode(&tensor.view().unwrap()).unwrap()).unwrap();
                let got = crate::values::to_f64(&back.view().unwrap()).unwrap()[77];
                assert!(got == f64::from(bad) || got.is_nan() && bad.is_nan(), "{}", members[0].name());
                continue;
            };
            assert!(matches!(e, PeerError::Unsupported(_)), "{}: {e}", members[0].name());
        }
    }
}

#[test]
fn integers_are_refused_by_lossy_peers() {
    let numbers = [1u8, 2, 3, 250];
    let view = TensorView::from_slice(&numbers, &[4]).unwrap();
    for (_, members) in everybody().into_iter().filter(|(_, m)| m[0].abilities().fidelity == Fidelity::Lossy)
    {
        assert!(members[0].encode(&view).is_err(), "{}", members[0].name());
    }
}

#[test]
fn lossless_peers_keep_every_bit_pattern_of_two_bytes() {
    let bits: Vec<u16> = (0..=u16::MAX).collect();
    let halves: Vec<f16> = bits.iter().map(|&b| f16::from_bits(b)).collect();
    let brains: Vec<bf16> = bits.iter().map(|&b| bf16::from_bits(b)).collect();
    let tensors = [
        TensorView::from_slice(&halves, &[256, 256]).unwrap(),
        TensorView::from_slice(&brains, &[256, 256]).unwrap(),
    ];
    for (_, members) in
        everybody().into_iter().filter(|(_, m)| m[0].abilities().fidelity == Fidelity::Lossless)
    {
        for view in &tensors {
            let tensor =
                Tensor { dtype: view.dtype(), shape: view.shape().to_vec(), data: view.data().to_vec() };
            around(&*members[0], &tensor);
        }
    }
}

#[test]
fn zipnn_comes_back_or_says_what_to_install() {
    match ZipNn.probe() {
        Ok(()) => {
            around(&ZipNn, &synth::gaussian(Dtype::Bf16, &[64, 100], 0.02, 1).unwrap());
            around(&ZipNn, &synth::gaussian(Dtype::F32, &[7], 0.02, 1).unwrap());
            assert!(matches!(ZipNn.decode(b"\x00\x01\x07\x00\x00\x00nonsense"), Err(PeerError::Corrupt(_))));
        }
        Err(e) => assert!(e.to_string().contains("pip install zipnn"), "{e}"),
    }
}

#[test]
fn what_is_missing_says_so_everywhere() {
    let tensor = synth::gaussian(Dtype::F32, &[8, 8], 1.0, 1).unwrap();
    for family in families() {
        for peer in family.members(&[2.0]).iter().filter(|p| p.probe().is_err()) {
            let e = peer.encode(&tensor.view().unwrap()).unwrap_err();
            assert!(matches!(e, PeerError::NotAvailable(_)), "{}: {e}", peer.name());
        }
    }
}

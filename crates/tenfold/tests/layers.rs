//! Layered blobs: what comes back, how errors shrink, and what is refused.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "common/allocations.rs"]
mod allocations;
mod common;

use allocations::peak;
use common::{EFFORTS, FLOATS, Kind, Sample, decode, forge, max_error, mse, parts, seal, specials, to_reals};
use tenfold::engine::{Cpu, Engine, ErrorKind, Limits};
use tenfold::format::{Codec, max_encoded_len, max_layered_len};
use tenfold::prepare::{Axis, Delta, Hadamard, Transform, Weights};
use tenfold::{DecodeOptions, Dtype, Effort, EncodeOptions, Error, Goal, TensorView};

const ROUND_8: Goal = Goal::RoundToNearest { bits: 8 };

fn layered(goals: &[Goal]) -> EncodeOptions {
    goals[1..].iter().fold(EncodeOptions::new(goals[0]), |options, &goal| options.with_residual(goal))
}

fn encode(s: &Sample, options: &EncodeOptions) -> Vec<u8> {
    tenfold::encode(&s.view(), options).unwrap_or_else(|e| panic!("{}: {e}", s.name()))
}

fn first(blob: &[u8], layers: usize) -> Vec<u8> {
    tenfold::decode(blob, &DecodeOptions::default().with_layers(layers)).unwrap().data
}

#[test]
fn every_float_comes_back_closer_with_each_layer() {
    for dtype in FLOATS {
        for effort in EFFORTS {
            let s = Sample::make(dtype, &[40, 64], Kind::Gaussian, 1);
            let options = layered(&[Goal::Bits(2.0), Goal::Bits(2.0), Goal::Bits(2.0)]).with_effort(effort);
            let blob = encode(&s, &options);
            let info = tenfold::inspect(&blob).unwrap();
            assert_eq!((info.codec, info.dtype, &info.shape), (Codec::Layers, dtype, &s.shape));
            assert_eq!((info.layers.len(), info.tiles, info.step), (3, 3, None));
            assert_eq!(info.header_bytes + info.layers.iter().sum::<u64>(), blob.len() as u64);
            let errors: Vec<f64> =
                (1..=3).map(|n| mse(&s.reals(), &to_reals(dtype, &first(&blob, n)))).collect();
            assert_eq!(first(&blob, 3), decode(&blob).data);
            assert_eq!(first(&blob, 99), first(&blob, 0));
            assert!(errors[0] > 0.0 && errors[0] < 0.2, "{dtype}: {errors:?}");
            // Rounding to few bits of mantissa is an error that no layer makes good.
            let coarse = matches!(dtype, Dtype::F8E4M3 | Dtype::F8E5M2);
            let shrinks =
                |w: &[f64]| if coarse { w[1] < w[0] / 2.0 || w[1] == 0.0 } else { w[1] < w[0] / 6.0 };
            assert!(errors.windows(2).all(shrinks), "{dtype}: {errors:?}");
        }
    }
}

/// Layers are blobs of working values, and their sum is what they say.
#[test]
fn layers_are_blobs_that_add_up() {
    for dtype in FLOATS {
        let s = Sample::make(dtype, &[23, 31], Kind::Laplace, 2);
        let blob = encode(&s, &layered(&[Goal::Bits(3.0), ROUND_8]));
        let (wide, layers) = (dtype == Dtype::F64, parts(&blob));
        let values = |l: &[u8]| {
            let t = decode(l);
            assert_eq!((t.dtype, &t.shape), (if wide { Dtype::F64 } else { Dtype::F32 }, &s.shape));
            to_reals(t.dtype, &t.data)
        };
        let sum = values(layers[0]).into_iter().zip(values(layers[1]));
        let sum: Vec<f64> =
            sum.map(|(a, b)| if wide { a + b } else { f64::from(a as f32 + b as f32) }).collect();
        assert_eq!(common::to_bytes(dtype, &sum), decode(&blob).data, "{dtype}");
    }
}

#[test]
fn what_is_not_finite_comes_back_bit_by_bit() {
    for dtype in FLOATS {
        let mut s = Sample::make(dtype, &[30, 32], Kind::Gaussian, 3);
        let odd = specials(dtype);
        let size = dtype.size();
        for (i, element) in odd.iter().enumerate() {
            s.data[(i * 37 + 5) * size..][..size].copy_from_slice(element);
        }
        let row = Transform::Weights(Weights::new(Axis::Columns, (0..32).map(|j| j - 16).collect()));
        for transforms in [vec![], vec![row]] {
            let options = layered(&[Goal::Bits(3.0), Goal::Bits(3.0), ROUND_8]).with_transforms(transforms);
            let back = decode(&encode(&s, &options)).data;
            let both = s.data.chunks_exact(size).zip(back.chunks_exact(size));
            for (i, ((x, y), v)) in both.zip(s.reals()).enumerate() {
                let finite = to_reals(dtype, y)[0].is_finite();
                assert!(
                    if v.is_finite() { finite } else { x == y },
                    "{dtype} value {i}: {x:x?} became {y:x?}"
                );
            }
        }
    }
}

/// Sums near the end of the range are limited, not infinite.
#[test]
fn large_values_stay_finite() {
    for dtype in FLOATS {
        let top = to_reals(dtype, &specials(dtype).concat());
        let top = top.into_iter().filter(|v| v.is_finite()).fold(0.0, f64::max);
        let reals: Vec<f64> = Kind::Gaussian.reals(2000, 50, 4).iter().map(|v| v.signum() * top).collect();
        let s = Sample::new(dtype, &[40, 50], &reals);
        let back = to_reals(dtype, &decode(&encode(&s, &layered(&[Goal::Bits(1.0), Goal::Bits(2.0)]))).data);
        assert!(back.iter().all(|v| v.is_finite()), "{dtype}");
    }
}

#[test]
fn shapes_of_every_kind() {
    let shapes: [&[usize]; 8] = [&[], &[0], &[4, 0], &[1], &[255], &[300], &[2, 3, 70], &[1, 1, 1, 257]];
    for dtype in [Dtype::Bf16, Dtype::F32, Dtype::F64] {
        for shape in shapes {
            let s = Sample::make(dtype, shape, Kind::Gaussian, 5);
            let options = layered(&[Goal::Bits(4.0), Goal::Bits(4.0), ROUND_8]);
            let blob = encode(&s, &options);
            let back = decode(&blob);
            assert_eq!((back.dtype, &back.shape[..]), (dtype, shape));
            assert!(mse(&s.reals(), &to_reals(dtype, &back.data)) < 1e-3 || s.len() == 0, "{}", s.name());
            let most = max_layered_len(dtype, shape, 3).unwrap();
            assert!(blob.len() <= most, "{}: {} > {most}", s.name(), blob.len());
            let mut room = vec![0; most];
            assert_eq!(Cpu.encode_into(&s.view(), &options, &mut room).unwrap(), blob.len());
            assert_eq!(room[..blob.len()], blob);
            Cpu.verify(&blob, &DecodeOptions::default()).unwrap();
        }
    }
}

#[test]
fn rows_threads_and_engines_agree() {
    let s = Sample::make(Dtype::Bf16, &[90, 33], Kind::Rows, 6).sprinkle(300, 7);
    let delta = Transform::Delta(Delta::new(8).unwrap());
    for transforms in [vec![], vec![delta], vec![Transform::Hadamard(Hadamard::new(4, 1).unwrap())]] {
        let options = layered(&[Goal::Bits(3.0), ROUND_8]).with_transforms(transforms).with_lane_values(32);
        let blob = encode(&s, &options);
        assert_eq!(blob, encode(&s, &options.clone().with_threads(2)));
        let whole = decode(&blob).data;
        let mut odd = vec![0u8; whole.len() + 1];
        // Memory that no f32 could lie at.
        Cpu.decode_into(&blob, &DecodeOptions::default().with_threads(1), &mut odd[1..]).unwrap();
        assert_eq!(odd[1..], whole);
        for rows in [0..1, 7..9, 0..90, 89..90, 12..12, 3..77] {
            for layers in [0, 1] {
                let options = DecodeOptions::default().with_layers(layers);
                let part = tenfold::decode_rows(&blob, rows.clone(), &options).unwrap();
                assert_eq!(part.data, first(&blob, layers)[rows.start * 66..rows.end * 66], "{rows:?}");
                let mut out = vec![0; part.data.len()];
                Cpu.decode_rows_into(&blob, rows.clone(), &options, &mut out).unwrap();
                assert_eq!(out, part.data);
            }
        }
        assert_eq!(Cpu.decode(&blob, &DecodeOptions::default()).unwrap().data, whole);
    }
    let f32s = Sample::make(Dtype::F32, &[50, 20], Kind::Gaussian, 8);
    let blob = encode(&f32s, &layered(&[Goal::Bits(3.0), ROUND_8]));
    let mut odd = vec![0u8; f32s.data.len() + 1];
    Cpu.decode_into(&blob, &DecodeOptions::default(), &mut odd[1..]).unwrap();
    assert_eq!(odd[1..], decode(&blob).data);
}

#[test]
fn goals_are_those_of_their_layers() {
    for dtype in [Dtype::Bf16, Dtype::F32] {
        let s = Sample::make(dtype, &[64, 256], Kind::Gaussian, 9);
        let n = s.len() as f64;
        let bits = |l: &[u8]| l.len() as f64 * 8.0 / n;
        let near =
            |got: f64, want: f64| assert!((got / want - 1.0).abs() < 0.02, "{dtype}: {got}, not {want}");
        let blob = encode(&s, &layered(&[Goal::Bits(3.5), Goal::Bits(2.5)]));
        near(bits(parts(&blob)[0]), 3.5);
        near(bits(parts(&blob)[1]), 2.5);
        // A ratio is that of the tensor's own bytes.
        let blob = encode(&s, &layered(&[Goal::Ratio(4.0), Goal::Ratio(8.0)]));
        near(bits(parts(&blob)[0]), dtype.size() as f64 * 2.0);
        near(bits(parts(&blob)[1]), dtype.size() as f64);
        let blob = encode(&s, &layered(&[Goal::MaxBytes(4000), Goal::MaxBytes(3000)]));
        assert!(parts(&blob)[0].len() <= 4000 && parts(&blob)[1].len() <= 3000);
    }
    let s = Sample::make(Dtype::F32, &[64, 256], Kind::Gaussian, 10);
    let blob = encode(&s, &layered(&[Goal::Bits(2.0), Goal::MaxError(0.01)]));
    assert!(max_error(&s.reals(), &to_reals(Dtype::F32, &decode(&blob).data)) <= 0.01 * 1.001);
    let blob = encode(&s, &layered(&[Goal::Bits(2.0), Goal::Mse(1e-5)]));
    assert!(mse(&s.reals(), &to_reals(Dtype::F32, &decode(&blob).data)) <= 1.001e-5);
}

#[test]
fn rounding_keeps_to_half_a_space() {
    for dtype in FLOATS {
        for bits in 2..=16u8 {
            let s = Sample::make(dtype, &[50, 40], Kind::Laplace, 11).sprinkle(200, 12);
            let blob = encode(&s, &EncodeOptions::new(Goal::RoundToNearest { bits }));
            let finite = |v: &&f64| v.is_finite();
            let reals = s.reals();
            let top = reals.iter().filter(finite).fold(0.0, |m: f64, v| m.max(v.abs()));
            let bound = top / ((1u32 << bits) - 2) as f64;
            let back = to_reals(dtype, &decode(&blob).data);
            let off = reals.iter().zip(&back).filter(|(x, _)| x.is_finite());
            let off = off.fold(0.0, |m: f64, (x, y)| m.max((x - y).abs()));
            assert!(off <= bound * (1.0 + 1e-12), "{dtype} {bits}: {off} > {bound}");
        }
    }
    let s = Sample::make(Dtype::F32, &[256, 64], Kind::Gaussian, 13);
    let blob = encode(&s, &EncodeOptions::new(ROUND_8));
    let bits = tenfold::inspect(&blob).unwrap().bits_per_value();
    assert!((5.0..7.5).contains(&bits), "{bits}");
}

#[test]
fn zeros_and_tiny_values_round() {
    for dtype in FLOATS {
        for shape in [&[400][..], &[3], &[0], &[]] {
            let zeros = Sample::new(dtype, shape, &vec![0.0; shape.iter().product()]);
            for options in
                [EncodeOptions::new(ROUND_8), layered(&[Goal::Bits(3.0), ROUND_8, Goal::Nmse(0.1)])]
            {
                assert_eq!(decode(&encode(&zeros, &options)).data, zeros.data, "{}", zeros.name());
            }
        }
    }
    let tiny = Sample::new(Dtype::F64, &[600], &vec![5e-324; 600]);
    assert_eq!(decode(&encode(&tiny, &EncodeOptions::new(ROUND_8))).data, tiny.data);
    let nan = Sample { dtype: Dtype::F32, shape: vec![500], data: f32::NAN.to_le_bytes().repeat(500) };
    assert_eq!(decode(&encode(&nan, &EncodeOptions::new(ROUND_8))).data, nan.data);
    assert_eq!(decode(&encode(&nan, &layered(&[Goal::Bits(3.0), ROUND_8]))).data, nan.data);
}

#[test]
fn what_cannot_be_asked_for_is_refused() {
    let s = Sample::make(Dtype::F32, &[300], Kind::Gaussian, 14);
    let ints = Sample::noise(Dtype::I32, &[300], 14);
    let refused = |s: &Sample, options: &EncodeOptions| {
        let e = tenfold::encode(&s.view(), options).unwrap_err();
        assert!(matches!(e, Error::InvalidArgument(_)), "{e:?}");
    };
    refused(&ints, &layered(&[Goal::Bits(3.0), Goal::Bits(3.0)]));
    refused(&ints, &EncodeOptions::new(ROUND_8));
    refused(&s, &layered(&[Goal::Lossless, Goal::Bits(3.0)]));
    refused(&s, &layered(&[Goal::Bits(3.0), Goal::Lossless]));
    refused(&s, &layered(&[Goal::Bits(3.0), Goal::Bits(0.0)]));
    refused(&s, &layered(&[Goal::Bits(2.0); 9]));
    for bits in [0, 1, 17, 32, 255] {
        refused(&s, &EncodeOptions::new(Goal::RoundToNearest { bits }));
        refused(&s, &layered(&[Goal::Bits(3.0), Goal::RoundToNearest { bits }]));
    }
    let transforms = vec![Transform::Hadamard(Hadamard::new(4, 1).unwrap())];
    refused(&s, &EncodeOptions::new(ROUND_8).with_transforms(transforms.clone()));
    encode(&s, &layered(&[Goal::Bits(3.0), ROUND_8]).with_transforms(transforms));
    assert_eq!(parts(&encode(&s, &layered(&[Goal::Bits(2.0); 8]))).len(), 8);
    for layers in [0, 1, 9] {
        assert_eq!(max_layered_len(Dtype::F32, &[3], layers).unwrap_err().kind(), ErrorKind::Caller);
    }
    assert_eq!(max_layered_len(Dtype::Bf16, &[1 << 40, 1 << 40], 2).unwrap_err().kind(), ErrorKind::Caller);
    assert!(max_encoded_len(Dtype::F32, &[300]).unwrap() < max_layered_len(Dtype::F32, &[300], 2).unwrap());
}

#[test]
fn forged_layers_are_refused() {
    let s = Sample::make(Dtype::F32, &[20, 15], Kind::Gaussian, 15);
    let layer = s.encode(Goal::Bits(4.0), Effort::Fast);
    let exact = s.encode(Goal::Lossless, Effort::Fast);
    let whole = forge(Dtype::Bf16, &[20, 15], 2, &[&layer, &exact]);
    assert_eq!(decode(&whole).shape, [20, 15]);
    decode(&forge(Dtype::F32, &[20, 15], 8, &[&layer[..]; 8]));
    let corrupt = |name: &str, blob: &[u8]| {
        let e = tenfold::decode(blob, &DecodeOptions::default()).expect_err(name);
        assert!(matches!(e, Error::Corrupt(_)), "{name}: {e:?}");
        assert_eq!(Cpu.verify(blob, &DecodeOptions::default()).unwrap_err(), e);
        tenfold::decode_rows(blob, 0..1, &DecodeOptions::default()).expect_err(name);
    };
    for (count, layers) in [(0, 0), (1, 1), (9, 9), (255, 9), (2, 1), (3, 2), (2, 3)] {
        corrupt("count", &forge(Dtype::F32, &[20, 15], count, &vec![&layer[..]; layers]));
    }
    let wide = Sample::make(Dtype::F64, &[20, 15], Kind::Gaussian, 16).encode(Goal::Bits(4.0), Effort::Fast);
    let narrow =
        Sample::make(Dtype::Bf16, &[20, 15], Kind::Gaussian, 16).encode(Goal::Bits(4.0), Effort::Fast);
    let other = Sample::make(Dtype::F32, &[15, 20], Kind::Gaussian, 16).encode(Goal::Bits(4.0), Effort::Fast);
    for bad in [&wide, &narrow, &other, &whole] {
        corrupt("second layer", &forge(Dtype::Bf16, &[20, 15], 2, &[&layer, bad]));
        corrupt("first layer", &forge(Dtype::Bf16, &[20, 15], 2, &[bad, &layer]));
    }
    corrupt("dtype of f64", &forge(Dtype::F64, &[20, 15], 2, &[&layer, &layer]));
    corrupt("integers", &forge(Dtype::I32, &[20, 15], 2, &[&layer, &layer]));
    let more = [&layer[..], &[0; 4]].concat();
    corrupt("bytes behind a layer", &forge(Dtype::F32, &[20, 15], 2, &[&more, &layer]));
    corrupt("a layer cut off", &forge(Dtype::F32, &[20, 15], 2, &[&layer[..layer.len() - 4], &layer]));
    corrupt("nothing", &forge(Dtype::F32, &[20, 15], 2, &[&[], &layer]));
    corrupt("no blob", &forge(Dtype::F32, &[20, 15], 2, &[&[1; 40], &layer]));
    let mut carried = layer.clone();
    carried[5] = 17;
    seal(&mut carried, tenfold::inspect(&layer).unwrap().tiles as usize);
    corrupt("pictures", &forge(Dtype::F32, &[20, 15], 2, &[&layer, &carried]));
    // Steps stand before layers' own codecs only.
    let mut transforms = whole.clone();
    transforms.splice(14..15, [1, 1, 5, 4, 1, 0, 0, 0]);
    let shift = (transforms.len() - whole.len()) as u32;
    let header = u32::from_le_bytes(whole[8..12].try_into().unwrap()) + shift;
    transforms[8..12].copy_from_slice(&header.to_le_bytes());
    seal(&mut transforms, 2);
    let e = tenfold::decode(&transforms, &DecodeOptions::default()).unwrap_err();
    assert!(matches!(e, Error::UnsupportedFeature { what: "preparation step", id: 1 }), "{e:?}");
    // What a coarse look leaves out may be anything.
    let bad = forge(Dtype::F32, &[20, 15], 2, &[&layer, &other]);
    assert_eq!(first(&bad, 1), decode(&layer).data);
}

/// Layers that lie, every checksum right: any answer but a panic, and rows agree with the whole.
#[test]
fn any_byte_of_a_layer_may_lie() {
    let s = Sample::make(Dtype::F32, &[20, 15], Kind::Gaussian, 20).sprinkle(60, 21);
    let layers = [s.encode(Goal::Bits(5.0), Effort::Fast), s.encode(Goal::Lossless, Effort::Fast)];
    let options =
        DecodeOptions::default().with_threads(1).with_limits(Limits::default().with_max_bytes(1 << 20));
    let mut decoded = 0;
    for (which, layer) in layers.iter().enumerate() {
        let tiles = tenfold::inspect(layer).unwrap().tiles as usize;
        for at in 4..layer.len() {
            for change in [1u8, 2, 16, 64, 128, 255] {
                let mut bad = layers.clone();
                bad[which][at] ^= change;
                seal(&mut bad[which], tiles);
                let blob = forge(Dtype::Bf16, &[20, 15], 2, &[&bad[0], &bad[1]]);
                let rows = tenfold::decode_rows(&blob, 3..5, &options);
                if let Ok(tensor) = tenfold::decode(&blob, &options) {
                    assert_eq!(rows.unwrap().data, tensor.data[90..150]);
                    decoded += 1;
                }
            }
        }
    }
    assert!(decoded > 1000, "{decoded}");
}

#[test]
fn layers_keep_to_the_limits() {
    let s = Sample::make(Dtype::Bf16, &[20, 15], Kind::Gaussian, 17);
    let blob = encode(&s, &layered(&[Goal::Bits(3.0), ROUND_8]));
    let limited = |n| DecodeOptions::default().with_limits(Limits::default().with_max_bytes(n));
    tenfold::decode(&blob, &limited(1200)).unwrap();
    // Enough for the tensor, not for its layers, whose elements are wider.
    for bytes in [599, 600, 1199] {
        let e = tenfold::decode(&blob, &limited(bytes)).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Limit, "{e}");
    }
}

#[test]
fn a_huge_claim_takes_no_memory() {
    let layer = Sample::make(Dtype::F32, &[20, 15], Kind::Gaussian, 18).encode(Goal::Bits(4.0), Effort::Fast);
    // 2^33 values: within the limit, and no layer has them.
    let huge = forge(Dtype::F32, &[1 << 33], 2, &[&layer, &layer]);
    let (result, taken) = peak(|| tenfold::decode(&huge, &DecodeOptions::default()));
    assert_eq!(result.unwrap_err(), Error::Corrupt("shape of a layer"));
    assert!(taken < 1 << 20, "{taken}");
}

#[test]
fn layers_stop_when_told() {
    let s = Sample::make(Dtype::F32, &[300], Kind::Gaussian, 19);
    let stop = tenfold::engine::Stop::new();
    let options = layered(&[Goal::Bits(3.0), ROUND_8]);
    let blob = encode(&s, &options);
    stop.stop();
    let view: TensorView<'_> = s.view();
    assert_eq!(tenfold::encode(&view, &options.with_stop(stop.clone())), Err(Error::Stopped));
    let decoding = DecodeOptions::default().with_stop(stop);
    assert_eq!(tenfold::decode(&blob, &decoding).unwrap_err(), Error::Stopped);
}

//! Whatever goes in comes back with its shape, its dtype, its specials and a small error.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests
#![cfg(feature = "video")]

mod common;

use common::{gaussian, nmse, values};
use tenfold::engine::Engine;
use tenfold::prepare::Hadamard;
use tenfold::{DecodeOptions, Dtype, Effort, EncodeOptions, Goal, Tensor, TensorView};
use tenfold_video::{Chroma, Quality, Scaling, Standard, Video, VideoOptions};

fn fast(goal: Goal) -> EncodeOptions {
    EncodeOptions::new(goal).with_effort(Effort::Fast)
}

#[test]
fn every_standard_dtype_and_shape() {
    let shapes: [&[usize]; 5] = [&[100, 70], &[3, 50, 40], &[5000], &[2, 3000], &[1]];
    for (i, standard) in [Standard::H264, Standard::H265, Standard::Av1].into_iter().enumerate() {
        for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16, Dtype::F64, Dtype::F8E4M3] {
            let tensor = gaussian(dtype, shapes[(i + dtype.size()) % 5], 3);
            let video = VideoOptions::new(standard).with_quality(Quality::Qp(20));
            let blob =
                tenfold_video::encode(&tensor.view().unwrap(), &fast(Goal::Bits(4.0)), &video).unwrap();
            let back = tenfold_video::decode(&blob, &DecodeOptions::default()).unwrap();
            assert_eq!((back.dtype, &back.shape), (dtype, &tensor.shape));
            if tensor.shape != [1] {
                assert!(nmse(&tensor, &back) < 0.02, "{standard} {dtype}: {}", nmse(&tensor, &back));
            }
            let info = tenfold::inspect(&blob).unwrap();
            assert_eq!(info.codec.name(), standard.to_string());
        }
    }
}

#[test]
fn every_way_of_making_samples() {
    let tensor = gaussian(Dtype::F32, &[200, 96], 4);
    let view = tensor.view().unwrap();
    let base = VideoOptions::new(Standard::H265).with_quality(Quality::Qp(16));
    for video in [
        base.clone().with_scaling(Scaling::Rows(16)),
        base.clone().with_scaling(Scaling::Columns),
        base.clone().with_depth(10),
        base.clone().with_depth(12),
        base.clone().with_chroma(Chroma::Constant),
        // A rotation gathers the mean in a few coefficients, which widen the range of samples.
        base.clone().with_hadamard(Hadamard::new(6, 1).unwrap()).with_quality(Quality::Qp(8)),
        base.clone().with_encoder("x265").with_scaling(Scaling::Rows(100_000)),
    ] {
        let blob = tenfold_video::encode(&view, &fast(Goal::Bits(4.0)), &video).unwrap();
        let back = tenfold_video::decode(&blob, &DecodeOptions::default()).unwrap();
        assert!(nmse(&tensor, &back) < 0.01, "{video:?}: {}", nmse(&tensor, &back));
    }
}

#[test]
fn samples_are_kept_exactly_when_asked() {
    for standard in [Standard::H264, Standard::H265, Standard::Av1] {
        let bytes: Vec<u8> = (0..70 * 90u32).map(|i| (i * i % 251) as u8).collect();
        let view = TensorView::from_slice(&bytes, &[70, 90]).unwrap();
        let blob = tenfold_video::encode(&view, &fast(Goal::Lossless), &VideoOptions::new(standard)).unwrap();
        assert_eq!(tenfold_video::decode(&blob, &DecodeOptions::default()).unwrap().data, bytes);
        let tensor = gaussian(Dtype::F32, &[70, 90], 8);
        let video = VideoOptions::new(standard).with_quality(Quality::Lossless);
        let blob = tenfold_video::encode(&tensor.view().unwrap(), &fast(Goal::Bits(4.0)), &video).unwrap();
        let back = tenfold_video::decode(&blob, &DecodeOptions::default()).unwrap();
        assert!(nmse(&tensor, &back) < 2e-4, "rounding and clipping alone: {}", nmse(&tensor, &back));
    }
}

#[test]
fn specials_survive_and_do_no_harm() {
    let mut wanted = values(&gaussian(Dtype::F32, &[64, 64], 5));
    (wanted[0], wanted[77], wanted[4095]) = (f64::NAN, f64::INFINITY, f64::NEG_INFINITY);
    let narrow: Vec<f32> = wanted.iter().map(|&v| v as f32).collect();
    let view = TensorView::from_slice(&narrow, &[64, 64]).unwrap();
    for video in [
        VideoOptions::new(Standard::H264),
        VideoOptions::new(Standard::H264).with_hadamard(Hadamard::new(6, 1).unwrap()),
    ] {
        let blob = tenfold_video::encode(&view, &fast(Goal::Bits(4.0)), &video).unwrap();
        let back = tenfold_video::decode(&blob, &DecodeOptions::default()).unwrap().to_vec::<f32>().unwrap();
        assert!(back[0].is_nan());
        assert_eq!((back[77], back[4095]), (f32::INFINITY, f32::NEG_INFINITY));
        assert!(back.iter().zip(&narrow).all(|(a, b)| !b.is_finite() || (a - b).abs() < 0.02));
    }
}

#[test]
fn rows_and_engines_agree_with_the_whole() {
    // Two pictures, cut in the middle of a row.
    let tensor = gaussian(Dtype::Bf16, &[1100, 1000], 6);
    let view = tensor.view().unwrap();
    let video = VideoOptions::new(Standard::H264).with_quality(Quality::Qp(40));
    let engine = Video::new(video);
    let blob = engine.encode(&view, &fast(Goal::Bits(2.0))).unwrap();
    assert!(tenfold::inspect(&blob).unwrap().tiles >= 2);
    let options = DecodeOptions::default();
    let whole = engine.decode(&blob, &options).unwrap();
    for rows in [0..1, 500..620, 1099..1100, 7..7] {
        let part = Video::reader().decode_rows(&blob, rows.clone(), &options).unwrap();
        assert_eq!(part.shape, [rows.len(), 1000]);
        assert_eq!(part.data, whole.data[rows.start * 2000..rows.end * 2000]);
    }
    assert!(engine.decode_rows(&blob, 0..1101, &options).is_err());
    let one = engine.decode(&blob, &DecodeOptions::default().with_threads(1)).unwrap();
    assert_eq!(one, whole);
    engine.verify(&blob, &options).unwrap();
    // Native blobs pass through.
    let native = tenfold::encode(&view, &fast(Goal::Bits(2.0))).unwrap();
    assert_eq!(engine.decode(&native, &options).unwrap(), tenfold::decode(&native, &options).unwrap());
}

#[test]
fn empty_tensors_are_blobs_too() {
    let empty = Tensor { dtype: Dtype::F32, shape: vec![0, 7], data: vec![] };
    let view = empty.view().unwrap();
    let video = VideoOptions::new(Standard::Av1);
    let blob = tenfold_video::encode(&view, &fast(Goal::Bits(2.0)), &video).unwrap();
    assert_eq!(tenfold_video::decode(&blob, &DecodeOptions::default()).unwrap(), empty);
}

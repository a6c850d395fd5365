//! Goals are met: rates within 2 %, errors and caps always.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests
#![cfg(feature = "video")]

mod common;

use common::{bits, gaussian, nmse, values};
use tenfold::{DecodeOptions, Dtype, Effort, EncodeOptions, Error, Goal, Tensor};
use tenfold_video::{Scaling, Standard, VideoOptions};

fn run(tensor: &Tensor, goal: Goal, video: &VideoOptions) -> (Vec<u8>, Tensor) {
    let options = EncodeOptions::new(goal).with_effort(Effort::Fast);
    let blob = tenfold_video::encode(&tensor.view().unwrap(), &options, video).unwrap();
    let back = tenfold_video::decode(&blob, &DecodeOptions::default()).unwrap();
    (blob, back)
}

#[test]
fn bits_are_met_within_two_percent() {
    let tensor = gaussian(Dtype::Bf16, &[256, 200], 1);
    for standard in [Standard::H264, Standard::H265, Standard::Av1] {
        for wanted in [0.8, 1.5, 2.5, 4.0, 7.0] {
            let (blob, _) = run(&tensor, Goal::Bits(wanted), &VideoOptions::new(standard));
            let got = bits(&blob, &tensor);
            assert!((got / wanted - 1.0).abs() < 0.02, "{standard} {wanted}: {got}");
        }
    }
    let (blob, _) = run(&tensor, Goal::Ratio(6.0), &VideoOptions::new(Standard::H264));
    assert!((bits(&blob, &tensor) * 6.0 / 16.0 - 1.0).abs() < 0.02);
}

#[test]
fn several_pictures_meet_the_rate_together() {
    let tensor = gaussian(Dtype::Bf16, &[3000, 1000], 2);
    let (blob, _) = run(&tensor, Goal::Bits(2.0), &VideoOptions::new(Standard::H264));
    let got = bits(&blob, &tensor);
    assert!((got / 2.0 - 1.0).abs() < 0.02, "{got}");
    assert_eq!(tenfold::inspect(&blob).unwrap().tiles, 3);
}

#[test]
fn errors_stay_below_the_goal() {
    let tensor = gaussian(Dtype::F32, &[256, 200], 3);
    for standard in [Standard::H264, Standard::H265, Standard::Av1] {
        let video = VideoOptions::new(standard);
        for wanted in [0.2, 0.01, 0.0005] {
            let (blob, back) = run(&tensor, Goal::Nmse(wanted), &video);
            let got = nmse(&tensor, &back);
            assert!(
                got <= wanted && got > 0.8 * wanted,
                "{standard} {wanted}: {got}, {}",
                bits(&blob, &tensor)
            );
        }
        let (_, back) = run(&tensor, Goal::MaxError(0.01), &video);
        let worst = values(&tensor).iter().zip(values(&back)).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(worst <= 0.01 && worst > 0.003, "{standard}: {worst}");
    }
    let video = VideoOptions::new(Standard::H265).with_scaling(Scaling::Columns);
    let (_, back) = run(&tensor, Goal::Mse(4e-6), &video);
    assert!(nmse(&tensor, &back) * 4e-4 <= 4.2e-6);
}

#[test]
fn caps_are_never_exceeded() {
    let tensor = gaussian(Dtype::F32, &[128, 128], 4);
    let video = VideoOptions::new(Standard::H265);
    for cap in [1000, 3000, 9000] {
        let (blob, _) = run(&tensor, Goal::MaxBytes(cap), &video);
        assert!(blob.len() <= cap && blob.len() * 10 > cap * 9, "{cap}: {}", blob.len());
    }
    let options = EncodeOptions::new(Goal::MaxBytes(100)).with_effort(Effort::Fast);
    let error = tenfold_video::encode(&tensor.view().unwrap(), &options, &video).unwrap_err();
    assert!(matches!(error, tenfold_video::Error::Tensor(Error::DoesNotFit { cap: 100, .. })), "{error}");
}

#[test]
fn what_cannot_be_is_refused_with_a_way_out() {
    let tensor = gaussian(Dtype::F32, &[64, 64], 5);
    let refused = |goal: Goal, video: VideoOptions| {
        let options = EncodeOptions::new(goal).with_effort(Effort::Fast);
        let error = tenfold_video::encode(&tensor.view().unwrap(), &options, &video).unwrap_err();
        assert_eq!(error.kind(), tenfold::engine::ErrorKind::Caller, "{error}");
        error.to_string()
    };
    let h264 = || VideoOptions::new(Standard::H264);
    assert!(refused(Goal::Lossless, h264()).contains("native codec"));
    assert!(refused(Goal::Step(0.1), h264()).contains("quantiser"));
    assert!(refused(Goal::Bits(14.0), h264()).contains("10-bit samples reach"));
    assert!(refused(Goal::Bits(2.0), h264().with_depth(12)).contains("12-bit"));
    assert!(refused(Goal::Bits(2.0), h264().with_encoder("x265")).contains("x264"));
    assert!(refused(Goal::Bits(-1.0), h264()).contains("positive"));
    let ints = tenfold::TensorView::from_slice(&[1i32, 2, 3], &[3]).unwrap();
    let error = tenfold_video::encode(&ints, &EncodeOptions::new(Goal::Lossless), &h264()).unwrap_err();
    assert!(error.to_string().contains("i32"), "{error}");
}

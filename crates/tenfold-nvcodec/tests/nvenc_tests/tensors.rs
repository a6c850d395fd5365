//! From a tensor to a blob by NVENC, and back by software and by NVDEC.

use tenfold::{DecodeOptions, Dtype, EncodeOptions, Goal, Tensor};
use tenfold_nvcodec::nvenc::use_device;
use tenfold_nvcodec::{Decoder, register};
use tenfold_video::codec::Chroma;
use tenfold_video::{Quality, VideoOptions};

use super::common::{ALL, device, picture, runs, settings, software, turn};

/// Normal values, about.
fn tensor(dtype: Dtype, rows: usize, columns: usize, seed: u64) -> Tensor {
    let mut format = settings(tenfold_video::Standard::H265, 10).format;
    (format.width, format.height) = (columns, rows);
    let sums: Vec<Vec<u16>> = (0..4).map(|i| picture(&format, 4 * seed + i)).collect();
    let value = |i: usize| sums.iter().map(|s| f64::from(s[i]) - 512.0).sum::<f64>() / 4096.0;
    let values: Vec<f64> = (0..rows * columns).map(value).collect();
    Tensor::from_f64(dtype, &[rows, columns], &values).unwrap()
}

#[test]
fn tensors_meet_their_goals_and_all_decoders_agree() {
    let turn = turn();
    register();
    {
        let device = device();
        use_device(Some(&device)).unwrap();
        let engine = Decoder::new(&device).unwrap();
        for standard in ALL.into_iter().filter(|s| runs(*s)) {
            let tensor = tensor(Dtype::Bf16, 200, 256, 1);
            let view = tensor.view().unwrap();
            let video =
                VideoOptions::new(standard).with_encoder("nvenc").with_chroma(Chroma::Constant).with_depth(8);
            let goal = EncodeOptions::new(Goal::Bits(3.0)).with_effort(tenfold::Effort::Fast);
            let blob = tenfold_video::encode(&view, &goal, &video).unwrap();
            let bits = blob.len() as f64 * 8.0 / (200.0 * 256.0);
            assert!((bits / 3.0 - 1.0).abs() < 0.02, "{standard}: {bits}");
            let name = software(standard).unwrap().name();
            let back = tenfold_video::decode_with(&blob, &DecodeOptions::default(), Some(name)).unwrap();
            assert!(engine.decode(&blob, &DecodeOptions::default()).unwrap() == back, "{standard}");
            let apart = |a: &Tensor, b: &Tensor| {
                let (a, b) = (a.view().unwrap().to_f64().unwrap(), b.view().unwrap().to_f64().unwrap());
                let squares = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>();
                squares(&mut a.iter().zip(&b).map(|(a, b)| a - b)) / squares(&mut a.iter().copied())
            };
            assert!(apart(&tensor, &back) < 0.05, "{standard}: {}", apart(&tensor, &back));
        }
        use_device(None).unwrap();
    }
    turn.check();
}

#[test]
fn bytes_are_kept_by_lossless_samples() {
    let turn = turn();
    register();
    {
        let device = device();
        use_device(Some(&device)).unwrap();
        let engine = Decoder::new(&device).unwrap();
        for standard in ALL.into_iter().filter(|s| runs(*s) && *s != tenfold_video::Standard::Av1) {
            let data: Vec<u8> =
                (0..200 * 256).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 26) as u8).collect();
            let tensor = Tensor { dtype: Dtype::U8, shape: vec![200, 256], data };
            let video = VideoOptions::new(standard)
                .with_encoder("nvenc")
                .with_chroma(Chroma::Constant)
                .with_quality(Quality::Lossless);
            let goal = EncodeOptions::new(Goal::Lossless).with_effort(tenfold::Effort::Fast);
            let blob = tenfold_video::encode(&tensor.view().unwrap(), &goal, &video).unwrap();
            assert!(engine.decode(&blob, &DecodeOptions::default()).unwrap() == tensor, "{standard}");
        }
        use_device(None).unwrap();
    }
    turn.check();
}

#[test]
fn two_threads_share_the_engines() {
    let turn = turn();
    register();
    {
        let device = device();
        use_device(Some(&device)).unwrap();
        for standard in ALL.into_iter().filter(|s| runs(*s)) {
            let video =
                VideoOptions::new(standard).with_encoder("nvenc").with_chroma(Chroma::Constant).with_depth(8);
            let fixed = if standard == tenfold_video::Standard::Av1 { 90 } else { 24 };
            let video = video.with_quality(Quality::Qp(fixed));
            let goal = EncodeOptions::new(Goal::Bits(3.0)).with_effort(tenfold::Effort::Fast);
            let run = |seed: u64| {
                let tensor = tensor(Dtype::F32, 200, 256, seed);
                let blobs: Vec<Vec<u8>> = (0..3)
                    .map(|_| tenfold_video::encode(&tensor.view().unwrap(), &goal, &video).unwrap())
                    .collect();
                assert!(blobs.iter().all(|b| *b == blobs[0]));
                blobs[0].clone()
            };
            let (one, two) = std::thread::scope(|scope| {
                let (one, two) = (scope.spawn(|| run(1)), scope.spawn(|| run(2)));
                (one.join().unwrap(), two.join().unwrap())
            });
            assert_ne!(one, two);
        }
        use_device(None).unwrap();
    }
    turn.check();
}

//! Pictures for decoders in hardware: what they are, that any decoder reads them, and what that costs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests
#![cfg(feature = "video")]

mod common;

use std::sync::Arc;

use common::{gaussian, nmse};
use tenfold::engine::{Engine, Limits};
use tenfold::format::carry::Opened;
use tenfold::{DecodeOptions, Dtype, Effort, EncodeOptions, Goal, Tensor};
use tenfold_video::{Costs, Hardware, Quality, Standard, Video, VideoOptions};

/// The first fields of the parameters of pictures: depth, chroma, width, height.
fn format(blob: &[u8]) -> (u8, u8, usize, usize) {
    let opened = Opened::read(blob, &Limits::default()).unwrap();
    let mut r = tenfold::format::carry::Reader::new(&opened.parcel.params);
    let [depth, chroma] = r.array().unwrap();
    (depth, chroma, r.varint().unwrap() as usize, r.varint().unwrap() as usize)
}

#[test]
fn pictures_for_hardware_are_whole_blocks_with_chroma() {
    let options = EncodeOptions::new(Goal::Bits(2.5)).with_effort(Effort::Fast);
    for (standard, block) in [(Standard::H264, 16), (Standard::H265, 32), (Standard::Av1, 64)] {
        for shape in [[3, 5], [700, 200], [100, 1001]] {
            let tensor = gaussian(Dtype::Bf16, &shape, 1);
            let video = VideoOptions::new(standard).with_hardware(Hardware::Nvdec);
            let done = tenfold_video::encode_with_report(&tensor.view().unwrap(), &options, &video);
            if shape[0] == 3 {
                // So few values cannot meet a rate.
                continue;
            }
            let done = done.unwrap();
            let (depth, chroma, width, height) = format(&done.blob);
            assert_eq!((depth, chroma, width % block, height % block), (8, 1, 0, 0), "{standard} {shape:?}");
            assert!(width >= 144 && height >= 144, "{standard}: {width}×{height}");
            let padding = tenfold::inspect(&done.blob).unwrap().padding().unwrap();
            assert!((padding - done.padding).abs() < 1e-12);
            // Chroma that never changes costs next to nothing.
            let chroma = done.chroma_bits.unwrap();
            assert!(chroma.abs() < 0.05, "{standard}: {chroma}");
            let back = tenfold_video::decode(&done.blob, &DecodeOptions::default()).unwrap();
            assert!(nmse(&tensor, &back) < 0.1);
        }
    }
}

#[test]
fn tiny_tensors_fit_into_the_smallest_picture() {
    let tensor = gaussian(Dtype::F32, &[3, 5], 2);
    for standard in [Standard::H264, Standard::H265, Standard::Av1] {
        let video = VideoOptions::new(standard).with_hardware(Hardware::Nvdec).with_quality(Quality::Qp(20));
        let options = EncodeOptions::new(Goal::Bits(3.0)).with_effort(Effort::Fast);
        let blob = tenfold_video::encode(&tensor.view().unwrap(), &options, &video).unwrap();
        let (_, _, width, height) = format(&blob);
        assert!((144..=192).contains(&width) && (144..=192).contains(&height), "{width}×{height}");
        assert!(nmse(&tensor, &tenfold_video::decode(&blob, &DecodeOptions::default()).unwrap()) < 0.1);
    }
}

#[test]
fn what_the_engines_lack_is_refused() {
    let tensor = gaussian(Dtype::F32, &[200, 200], 3);
    let bytes = Tensor { dtype: Dtype::U8, shape: vec![200, 200], data: tensor.data[..40_000].to_vec() };
    let nvdec = |standard| VideoOptions::new(standard).with_hardware(Hardware::Nvdec);
    let options = EncodeOptions::new(Goal::Bits(3.0)).with_effort(Effort::Fast);
    let exact = EncodeOptions::new(Goal::Lossless).with_effort(Effort::Fast);
    for error in [
        tenfold_video::encode(&tensor.view().unwrap(), &options, &nvdec(Standard::H264).with_depth(10)),
        tenfold_video::encode(&bytes.view().unwrap(), &exact, &nvdec(Standard::H264)),
        tenfold_video::encode(&tensor.view().unwrap(), &options, &nvdec(Standard::H265).with_side(100)),
        tenfold_video::encode(&tensor.view().unwrap(), &options, &nvdec(Standard::H265).with_side(4096)),
    ] {
        assert_eq!(error.unwrap_err().kind(), tenfold::engine::ErrorKind::Caller);
    }
    let blob = tenfold_video::encode(&bytes.view().unwrap(), &exact, &nvdec(Standard::H265)).unwrap();
    assert_eq!(tenfold_video::decode(&blob, &DecodeOptions::default()).unwrap(), bytes);
    let blob =
        tenfold_video::encode(&tensor.view().unwrap(), &options, &nvdec(Standard::H265).with_side(160))
            .unwrap();
    assert_eq!(format(&blob), (8, 1, 160, 160));
}

#[test]
fn an_engine_adds_up_what_hardware_costs() {
    let costs = Arc::new(Costs::default());
    assert!(costs.padding().is_none() && costs.chroma_bits().is_none());
    let engine = Video::new(VideoOptions::new(Standard::H265).with_hardware(Hardware::Nvdec))
        .with_costs(costs.clone());
    let options = EncodeOptions::new(Goal::Bits(3.0)).with_effort(Effort::Fast);
    for shape in [[160, 160], [170, 170]] {
        engine.encode(&gaussian(Dtype::F32, &shape, 4).view().unwrap(), &options).unwrap();
    }
    let padding = costs.padding().unwrap();
    assert!(padding > 0.0 && padding < 1.0, "{padding}");
    assert!(costs.chroma_bits().unwrap().abs() < 0.05);
}

//! Hardware codecs, where there are any: the same samples as software, or a skip that says why.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests
#![cfg(feature = "video")]

mod common;

use common::{bits, gaussian, nmse};
use tenfold::{DecodeOptions, Dtype, EncodeOptions, Goal};
use tenfold_video::{Chroma, Quality, Standard, VideoOptions};

/// Pictures as every engine takes them: not small, 4:2:0, 8 bits.
fn options(standard: Standard) -> VideoOptions {
    VideoOptions::new(standard).with_depth(8).with_chroma(Chroma::Constant)
}

fn is_software(name: &str) -> bool {
    ["libav", "dav1d", "aom", "rav1d", "x264", "x265", "svt-av1", "rav1e"].contains(&name)
}

#[test]
fn decoders_give_the_samples_of_software() {
    // Two pictures.
    let tensor = gaussian(Dtype::Bf16, &[1100, 1000], 1);
    for standard in [Standard::H264, Standard::H265, Standard::Av1] {
        let video =
            options(standard).with_quality(Quality::Qp(if standard == Standard::Av1 { 30 } else { 28 }));
        let goal = EncodeOptions::new(Goal::Bits(2.0)).with_effort(tenfold::Effort::Fast);
        let blob = tenfold_video::encode(&tensor.view().unwrap(), &goal, &video).unwrap();
        let whole = tenfold_video::decode(&blob, &DecodeOptions::default()).unwrap();
        let hardware = tenfold_video::decoders();
        for decoder in hardware.iter().filter(|d| d.standard() == standard && !is_software(d.name())) {
            if let Err(why) = decoder.probe() {
                println!("skipped: {standard} decoder {}: {why}", decoder.name());
                continue;
            }
            let back = tenfold_video::decode_with(&blob, &DecodeOptions::default(), Some(decoder.name()));
            let back = back.unwrap_or_else(|e| panic!("{standard} {}: {e}", decoder.name()));
            assert!(back == whole, "{standard} {} differs from software", decoder.name());
            println!("tested: {standard} decoder {}", decoder.name());
        }
    }
}

#[test]
fn encoders_meet_a_rate() {
    let tensor = gaussian(Dtype::Bf16, &[1100, 1000], 2);
    for encoder in tenfold_video::encoders().iter().filter(|e| !is_software(e.name())) {
        let (name, standard) = (encoder.name(), encoder.standard());
        if let Err(why) = encoder.abilities() {
            println!("skipped: {standard} encoder {name}: {why}");
            continue;
        }
        let goal = EncodeOptions::new(Goal::Bits(2.5));
        let video = options(standard).with_encoder(name);
        let blob = tenfold_video::encode(&tensor.view().unwrap(), &goal, &video).unwrap();
        assert!((bits(&blob, &tensor) / 2.5 - 1.0).abs() < 0.02, "{name}");
        let back = tenfold_video::decode(&blob, &DecodeOptions::default()).unwrap();
        assert!(nmse(&tensor, &back) < 0.2, "{name}: {}", nmse(&tensor, &back));
        println!("tested: {standard} encoder {name}");
    }
}

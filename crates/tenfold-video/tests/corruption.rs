//! Damaged blobs, and blobs whose checksums are right but whose pictures are not what they say.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests
#![cfg(feature = "video")]

mod common;

use common::gaussian;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tenfold::engine::{ErrorKind, Limits};
use tenfold::format::carry::Opened;
use tenfold::{DecodeOptions, Dtype, Effort, EncodeOptions, Goal};
use tenfold_video::{Quality, Standard, VideoOptions};

fn blob(standard: Standard) -> Vec<u8> {
    let tensor = gaussian(Dtype::Bf16, &[48, 40], 1);
    let video = VideoOptions::new(standard).with_quality(Quality::Qp(30));
    let options = EncodeOptions::new(Goal::Bits(2.0)).with_effort(Effort::Fast);
    tenfold_video::encode(&tensor.view().unwrap(), &options, &video).unwrap()
}

fn kind(blob: &[u8]) -> Option<ErrorKind> {
    tenfold_video::decode(blob, &DecodeOptions::default()).err().map(|e| e.kind())
}

const STANDARDS: [Standard; 3] = [Standard::H264, Standard::H265, Standard::Av1];

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    for standard in STANDARDS {
        let good = blob(standard);
        assert_eq!(kind(&good), None);
        for i in 0..good.len() {
            let mut bad = good.clone();
            bad[i] ^= 1 << (i % 8);
            assert!(kind(&bad).is_some(), "{standard} byte {i}");
            assert!(kind(&good[..i]).is_some(), "{standard} cut at {i}");
        }
    }
}

/// Takes a blob apart and puts it together again with something changed, checksums right.
fn forged(good: &[u8], change: impl FnOnce(&mut Vec<u8>, &mut Vec<Vec<u8>>)) -> Vec<u8> {
    let opened = Opened::read(good, &Limits::default()).unwrap();
    let mut tiles: Vec<Vec<u8>> =
        (0..opened.parcel.tiles()).map(|i| opened.tile(i).unwrap().to_vec()).collect();
    let mut parcel = opened.parcel;
    change(&mut parcel.params, &mut tiles);
    parcel.write(tiles).unwrap()
}

#[test]
fn forged_pictures_are_data_errors() {
    let mut rng = StdRng::seed_from_u64(2);
    for standard in STANDARDS {
        let good = blob(standard);
        let payload = forged(&good, |_, _| ()).len();
        assert_eq!(payload, good.len());
        for cut in 1..40 {
            // Cut payloads: what a decoder makes up does not pass for what was written.
            let bad = forged(&good, |_, tiles| {
                let len = tiles[0].len() * cut / 40;
                tiles[0].truncate(len);
            });
            assert_eq!(kind(&bad), Some(ErrorKind::Data), "{standard} {cut}");
        }
        for _ in 0..200 {
            let bad = forged(&good, |params, tiles| {
                let bytes = if rng.random_bool(0.3) { params } else { &mut tiles[0] };
                let at = rng.random_range(0..bytes.len());
                bytes[at] ^= 1 << rng.random_range(0..8);
            });
            // A flipped bit may be one that means nothing; anything else is the data's fault.
            assert!(matches!(kind(&bad), None | Some(ErrorKind::Data)), "{standard}: {:?}", kind(&bad));
        }
    }
}

#[test]
fn streams_of_another_size_or_standard_are_refused() {
    let small = blob(Standard::H265);
    let large = {
        let tensor = gaussian(Dtype::Bf16, &[800, 800], 1);
        let video = VideoOptions::new(Standard::H265).with_quality(Quality::Qp(40));
        let options = EncodeOptions::new(Goal::Bits(2.0)).with_effort(Effort::Fast);
        tenfold_video::encode(&tensor.view().unwrap(), &options, &video).unwrap()
    };
    let other = Opened::read(&large, &Limits::default()).unwrap();
    let sets = other.parcel.params.windows(3).position(|w| w == [0, 0, 1]).unwrap();
    let (sets, picture) = (other.parcel.params[sets..].to_vec(), other.tile(0).unwrap().to_vec());
    let bad = forged(&small, |params, tiles| {
        let own = params.windows(3).position(|w| w == [0, 0, 1]).unwrap();
        params.truncate(own);
        params.extend(sets);
        tiles[0] = picture;
    });
    assert_eq!(kind(&bad), Some(ErrorKind::Data));
    let h264 = Opened::read(&small, &Limits::default()).unwrap();
    let mut parcel = h264.parcel.clone();
    parcel.codec = tenfold::format::Codec::H264;
    assert_eq!(kind(&parcel.write(vec![h264.tile(0).unwrap().to_vec()]).unwrap()), Some(ErrorKind::Data));
}

#[test]
fn shapes_too_large_to_multiply_are_empty_or_refused() {
    let opened = blob(Standard::H264);
    let mut parcel = Opened::read(&opened, &Limits::default()).unwrap().parcel;
    parcel.shape = vec![1 << 40, 1 << 40, 0];
    let forged = parcel.clone().write(vec![]).unwrap();
    let options = DecodeOptions::default();
    assert_eq!(tenfold_video::decode(&forged, &options).unwrap().data, []);
    assert_eq!(tenfold_video::decode_rows(&forged, 5..7, &options).unwrap().shape, [2, 0]);
    parcel.shape = vec![1 << 40, 1 << 40];
    assert!(parcel.write(vec![]).map(|b| kind(&b)).map_or(true, |k| k.is_some()));
}

#[test]
fn limits_come_before_memory() {
    let good = blob(Standard::H264);
    let options = DecodeOptions::default().with_limits(Limits::default().with_max_bytes(100));
    let error = tenfold_video::decode(&good, &options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
}

//! Promises of the codec as a whole.

use super::*;
use crate::synth::{self, Shape};

/// All sixteen combinations.
fn combinations() -> Vec<Stages> {
    (0..16).map(|bits| Stages::from_bits(bits).unwrap()).collect()
}

fn noise(width: usize, height: usize, depth: u8, seed: u64) -> Picture {
    let (middle, top) = (f32::from(1u16 << (depth - 1)), f32::from((1u16 << depth) - 1));
    let values = synth::values(Shape::Gaussian, middle / 4.0, width * height, seed);
    let samples = values.iter().map(|v| (v + middle).round().clamp(0.0, top) as u16).collect();
    Picture::new(width, height, depth, samples).unwrap()
}

/// Waves of a few dozen samples with an edge across, moved by `shift` samples.
fn smooth(width: usize, height: usize, depth: u8, shift: usize) -> Picture {
    let scale = f64::from(1u16 << (depth - 8));
    let value = |x: f64, y: f64| {
        let wave = 60.0 * (x / 17.0).sin() * (y / 23.0).cos() + 0.5 * x;
        let edge = if x + 0.6 * y > 60.0 { 30.0 } else { 0.0 };
        (scale * (100.0 + wave + edge)).clamp(0.0, 255.0 * scale).round() as u16
    };
    let samples = (0..width * height).map(|i| value((i % width + shift) as f64, (i / width) as f64));
    Picture::new(width, height, depth, samples.collect()).unwrap()
}

fn mse(a: &[Picture], b: &[Picture]) -> f64 {
    let pairs = a.iter().zip(b).flat_map(|(a, b)| a.samples().iter().zip(b.samples()));
    let (sum, n) =
        pairs.fold((0.0, 0), |(s, n), (&a, &b)| (s + (f64::from(a) - f64::from(b)).powi(2), n + 1));
    sum / f64::from(n)
}

fn bits(encoded: &Encoded) -> f64 {
    let samples: usize = encoded.decoded.iter().map(|p| p.samples().len()).sum();
    encoded.bytes.len() as f64 * 8.0 / samples as f64
}

#[test]
fn every_combination_decodes_to_what_the_encoder_says() {
    for stages in combinations() {
        // Sizes that are no multiple of anything, two pictures.
        let inputs = [
            (12.0, [noise(45, 38, 8, 1), noise(45, 38, 8, 2)]),
            (0.7, [smooth(30, 38, 8, 0), smooth(30, 38, 8, 3)]),
            (90.5, [smooth(45, 38, 12, 0), smooth(45, 38, 12, 3)]),
        ];
        for (step, pictures) in inputs {
            let encoded = encode(&pictures, &Settings::new(stages, step)).unwrap();
            assert_eq!(decode(&encoded.bytes).unwrap(), encoded.decoded, "{stages:?}");
            let error = mse(&pictures, &encoded.decoded);
            // A uniform quantiser errs by step²/12; a dead zone and rounding to samples add to that.
            assert!(error < step * step / 5.0 + 0.5, "{stages:?}, step {step}: {error}");
        }
    }
}

#[test]
fn smooth_pictures_need_prediction_and_transform() {
    let picture = [smooth(128, 96, 8, 0)];
    let at = |stages| bits(&encode(&picture, &Settings::new(stages, 6.0)).unwrap());
    let all = at(Stages::INTRA);
    let without_transform = at(Stages { transform: false, ..Stages::INTRA });
    let without_prediction = at(Stages { prediction: false, ..Stages::INTRA });
    let without_both = at(Stages { transform: false, prediction: false, ..Stages::INTRA });
    let without_entropy = at(Stages { entropy: false, ..Stages::INTRA });
    assert!(all < 0.9 * without_prediction, "{all} {without_prediction}");
    assert!(all < without_transform, "{all} {without_transform}");
    assert!(all < 0.25 * without_both, "{all} {without_both}");
    assert!(all < 0.25 * without_entropy, "{all} {without_entropy}");
}

#[test]
fn moving_pictures_need_the_previous_one() {
    let pictures: Vec<Picture> = (0..3).map(|i| smooth(96, 64, 8, 5 * i)).collect();
    let at = |stages| encode(&pictures, &Settings::new(stages, 6.0)).unwrap();
    let still = at(Stages::INTRA);
    let moving = at(Stages { inter: true, ..Stages::INTRA });
    assert!(bits(&moving) < 0.8 * bits(&still), "{} {}", bits(&moving), bits(&still));
    let motion = moving.blocks[1].iter().filter(|b| matches!(b.kind, Kind::Inter(5, 0))).count();
    assert!(motion > 0);
    assert!(moving.blocks[0].iter().all(|b| matches!(b.kind, Kind::Intra(_))));
}

#[test]
fn noise_comes_near_the_bound() {
    // N(0, 32²) at a step of 19: about 2.6 bits.
    let picture = [noise(128, 128, 8, 7)];
    for stages in [Stages::INTRA, Stages { prediction: false, transform: false, ..Stages::INTRA }] {
        let encoded = encode(&picture, &Settings::new(stages, 19.0)).unwrap();
        let nmse = mse(&picture, &encoded.decoded) / (32.0 * 32.0);
        let gap = crate::metrics::gap_bits(bits(&encoded), nmse);
        // An ideal scalar quantiser lies 0.25 above; models have to be learnt from 16384 values.
        assert!(gap > 0.2 && gap < 0.36, "{stages:?}: gap {gap}");
    }
}

#[test]
fn blocks_tile_the_picture_and_tell_what_was_coded() {
    let picture = [smooth(70, 50, 8, 0)];
    let encoded = encode(&picture, &Settings::new(Stages::INTRA, 9.0)).unwrap();
    let mut covered = vec![0u8; 72 * 52];
    for block in &encoded.blocks[0] {
        assert_eq!(block.levels.len(), block.side * block.side);
        for y in block.y..block.y + block.side {
            covered[y * 72 + block.x..][..block.side].iter_mut().for_each(|c| *c += 1);
        }
    }
    assert!(covered.iter().all(|&c| c == 1));
    let sides: std::collections::BTreeSet<usize> = encoded.blocks[0].iter().map(|b| b.side).collect();
    assert!(sides.len() > 1, "{sides:?}");
    // Where a block has no level, prediction and picture are the same.
    for block in encoded.blocks[0].iter().filter(|b| b.levels.iter().all(|&l| l == 0)) {
        assert_eq!(encoded.predicted[0].at(block.x, block.y), encoded.decoded[0].at(block.x, block.y));
    }
    assert!(mse(&picture, &encoded.predicted) > mse(&picture, &encoded.decoded));
}

#[test]
fn every_flip_and_every_cut_is_an_error() {
    for stages in [Stages::INTRA, Stages::NONE, Stages { inter: true, ..Stages::INTRA }] {
        let pictures = [noise(20, 12, 8, 3), noise(20, 12, 8, 4)];
        let bytes = encode(&pictures, &Settings::new(stages, 40.0)).unwrap().bytes;
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut]).is_err(), "{stages:?}: cut at {cut}");
        }
        for i in 0..8 * bytes.len() {
            let mut bad = bytes.clone();
            bad[i / 8] ^= 1 << (i % 8);
            assert!(decode(&bad).is_err(), "{stages:?}: bit {i}");
        }
    }
}

/// The same damage with the checksum made to fit: what a hostile stream would look like.
#[test]
fn damage_behind_a_fitting_checksum_stays_harmless() {
    use super::stream::Header;
    for stages in combinations() {
        let pictures = [noise(36, 20, 8, 3), noise(36, 20, 8, 4)];
        let bytes = encode(&pictures, &Settings::new(stages, 40.0)).unwrap().bytes;
        let (header, payload) = Header::read(&bytes).unwrap();
        for i in (0..8 * payload.len()).step_by(31) {
            let mut bad = payload.to_vec();
            bad[i / 8] ^= 1 << (i % 8);
            if let Ok(pictures) = decode(&header.write(&bad)) {
                assert_eq!((pictures.len(), pictures[0].width(), pictures[0].height()), (2, 36, 20));
            }
        }
        // The coder may do without its last four bytes if they say nothing new.
        for cut in (0..payload.len() - 4).step_by(7) {
            assert!(
                decode(&header.write(&payload[..cut])).is_err(),
                "{stages:?}: {cut} of {}",
                payload.len()
            );
        }
        let mut longer = payload.to_vec();
        longer.extend([1; 9]);
        assert_eq!(decode(&header.write(&longer)), Err(IntraError::Corrupt("bytes left over")), "{stages:?}");
        // Extremes of the header with a payload of noise.
        for (step, smallest) in [(1, 2), (1 << 20, 5), (256, 3)] {
            let step = super::quantise::Step::from_stored(step).unwrap();
            let wild = Header { step, smallest, ..header.clone() };
            let garbage: Vec<u8> = (0..payload.len()).map(|i| (i * i * 37 + i) as u8).collect();
            let _ = decode(&wild.write(&garbage));
        }
    }
}

#[test]
fn what_cannot_be_coded_is_refused() {
    let settings = Settings::new(Stages::INTRA, 4.0);
    assert!(matches!(encode(&[], &settings), Err(IntraError::Unsupported(_))));
    let mixed = [noise(8, 8, 8, 1), noise(8, 12, 8, 1)];
    assert!(matches!(encode(&mixed, &settings), Err(IntraError::Unsupported(_))));
    assert!(encode(&mixed[..1], &Settings::new(Stages::INTRA, f64::NAN)).is_err());
}

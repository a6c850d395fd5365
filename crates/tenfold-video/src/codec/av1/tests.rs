//! Promises of the AV1 encoder and decoder together: what goes in comes out, each picture alone, and no
//! bytes do worse than an error.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Normal};
use tenfold::Effort;

use super::{Rav1d, Rav1e};
use crate::Error;
use crate::codec::stream::obu::{Units, kind};
use crate::codec::{Chroma, Coded, Decoder, Encoder, Format, Quality, Settings};

fn gray(width: usize, height: usize, depth: u8) -> Format {
    Format { width, height, depth, chroma: Chroma::None }
}

fn at(format: Format, qp: u32) -> Settings {
    Settings { format, quality: Quality::Qp(qp), effort: Effort::Fast, inter: false }
}

/// Noise like that of weights: a spread of about an eighth of the range.
fn noise(format: &Format, seed: u64) -> Vec<u16> {
    let top = f64::from((1u32 << format.depth) - 1);
    let normal = Normal::new(top / 2.0, top / 8.5).unwrap();
    let mut rng = StdRng::seed_from_u64(seed);
    (0..format.samples()).map(|_| normal.sample(&mut rng).round().clamp(0.0, top) as u16).collect()
}

fn encode(settings: &Settings, pictures: &[Vec<u16>]) -> Coded {
    let pictures: Vec<&[u16]> = pictures.iter().map(Vec::as_slice).collect();
    Rav1e.encode(settings, &pictures).unwrap()
}

fn decode(format: &Format, sets: &[u8], pictures: &[Vec<u8>]) -> crate::Result<Vec<u16>> {
    let mut out = vec![0; format.samples() * pictures.len()];
    let pictures: Vec<&[u8]> = pictures.iter().map(Vec::as_slice).collect();
    Rav1d.decode(format, sets, &pictures, &mut out).map(|()| out)
}

fn mse(a: &[u16], b: &[u16]) -> f64 {
    assert_eq!(a.len(), b.len());
    let sum: f64 = a.iter().zip(b).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)).sum();
    sum / a.len() as f64
}

fn is_stream<T: std::fmt::Debug>(result: crate::Result<T>) {
    assert!(matches!(result, Err(Error::Stream { .. })), "{result:?}");
}

fn is_refused<T: std::fmt::Debug>(result: crate::Result<T>) {
    assert!(matches!(result, Err(Error::Refused { .. })), "{result:?}");
}

#[test]
fn pictures_come_back_at_every_size_and_depth() {
    for (width, height) in [(16, 16), (17, 31), (64, 64), (130, 70), (16, 200)] {
        for (depth, chroma) in
            [(8, Chroma::None), (10, Chroma::None), (12, Chroma::None), (8, Chroma::Constant)]
        {
            let format = Format { width, height, depth, chroma };
            let picture = noise(&format, 1);
            let coded = encode(&at(format, 60), std::slice::from_ref(&picture));
            let back = decode(&format, &coded.parameter_sets, &coded.pictures).unwrap();
            // A step of this quantiser is about a sixtieth of the range.
            let step = f64::from(1u32 << depth) / 60.0;
            let error = mse(&picture, &back);
            assert!(error < step * step / 4.0, "{format:?}: {error}");
        }
    }
}

#[test]
fn error_and_size_follow_the_quantiser() {
    for depth in [8, 10, 12] {
        let format = gray(96, 64, depth);
        let picture = noise(&format, 2);
        let mut last = (-1.0, usize::MAX);
        for qp in [0, 40, 80, 120, 160, 200, 255] {
            let coded = encode(&at(format, qp), std::slice::from_ref(&picture));
            let back = decode(&format, &coded.parameter_sets, &coded.pictures).unwrap();
            let now = (mse(&picture, &back), coded.pictures[0].len());
            assert!(now.0 > last.0 && now.1 < last.1, "{depth} bits at {qp}: {now:?} after {last:?}");
            last = now;
        }
    }
}

#[test]
fn each_picture_decodes_alone_with_the_one_header() {
    let format = gray(64, 48, 8);
    let pictures: Vec<_> = (0..3).map(|i| noise(&format, i)).collect();
    for effort in [Effort::Fast, Effort::Balanced, Effort::Best] {
        let settings = Settings { effort, ..at(format, 100) };
        let coded = encode(&settings, &pictures);
        let all = decode(&format, &coded.parameter_sets, &coded.pictures).unwrap();
        for (i, all) in all.chunks(format.samples()).enumerate() {
            let alone = encode(&settings, &pictures[i..=i]);
            assert_eq!(alone.parameter_sets, coded.parameter_sets);
            assert_eq!(alone.pictures[0], coded.pictures[i]);
            assert_eq!(decode(&format, &coded.parameter_sets, &coded.pictures[i..=i]).unwrap(), all);
        }
    }
}

#[test]
fn headers_are_kept_apart_from_pictures() {
    let format = gray(64, 48, 10);
    let coded = encode(&at(format, 100), &[noise(&format, 3), noise(&format, 4)]);
    let kinds = |data| Units::new(data).map(|u| u.unwrap().kind).collect::<Vec<_>>();
    assert_eq!(kinds(&coded.parameter_sets), [kind::SEQUENCE_HEADER]);
    assert!(coded.pictures.iter().all(|p| kinds(p) == [kind::FRAME]));
}

#[test]
fn a_picture_may_lean_on_the_one_before() {
    let format = gray(64, 64, 8);
    let pictures = vec![noise(&format, 5); 3];
    let coded = encode(&Settings { inter: true, ..at(format, 60) }, &pictures);
    assert!(coded.pictures[1].len() < coded.pictures[0].len() / 2);
    let back = decode(&format, &coded.parameter_sets, &coded.pictures).unwrap();
    assert!(mse(&pictures.concat(), &back) < 16.0);
    is_stream(decode(&format, &coded.parameter_sets, &coded.pictures[1..]));
}

#[test]
fn what_the_encoder_cannot_do_is_refused() {
    let format = gray(64, 64, 8);
    let picture = noise(&format, 6);
    let refused = |settings: Settings, picture: &[u16]| is_refused(Rav1e.encode(&settings, &[picture]));
    refused(Settings { quality: Quality::Lossless, ..at(format, 0) }, &picture);
    refused(at(format, 256), &picture);
    refused(at(gray(64, 64, 9), 100), &picture);
    refused(at(gray(15, 64, 8), 100), &picture[..15 * 64]);
    refused(at(gray(64, 15, 8), 100), &picture[..15 * 64]);
    refused(at(gray(8193, 16, 8), 100), &vec![0; 8193 * 16]);
    refused(at(format, 100), &picture[1..]);
    refused(at(format, 100), &[256; 64 * 64]);
    is_refused(Rav1e.encode(&at(format, 100), &[]));
}

#[test]
fn streams_of_another_format_are_corrupt() {
    let format = gray(64, 48, 8);
    let Coded { parameter_sets, pictures } = encode(&at(format, 100), &[noise(&format, 7)]);
    for other in [
        gray(48, 64, 8),
        gray(65, 48, 8),
        gray(64, 47, 8),
        gray(64, 48, 10),
        Format { chroma: Chroma::Constant, ..format },
    ] {
        is_stream(decode(&other, &parameter_sets, &pictures));
        // The header is of the format, the picture of another.
        let header = encode(&at(other, 100), &[noise(&other, 8)]).parameter_sets;
        if let Ok(back) = decode(&other, &header, &pictures) {
            // A still's size stands in the sequence header alone: such a picture decodes to something.
            assert_eq!(back.len(), other.samples());
        }
    }
}

#[test]
fn missing_extra_and_misplaced_units_are_corrupt() {
    let format = gray(64, 48, 8);
    let Coded { parameter_sets: sets, pictures } = encode(&at(format, 100), &[noise(&format, 9)]);
    let good = &pictures[0];
    decode(&format, &sets, &pictures).unwrap();
    is_stream(decode(&format, &[], &pictures));
    is_stream(decode(&format, good, &pictures));
    is_stream(decode(&format, &[&sets[..], &sets].concat(), &pictures));
    is_stream(decode(&format, &sets, &[vec![]]));
    is_stream(decode(&format, &sets, &[vec![], good.clone()]));
    is_stream(decode(&format, &sets, &[[&good[..], good].concat()]));
    is_stream(decode(&format, &sets, &[[&sets[..], good].concat()]));
    is_stream(decode(&format, &sets, &[[&good[..], &[0]].concat()]));
    is_stream(decode(&format, &sets, &[[&good[..], &[kind::TILE_GROUP << 3 | 2, 1, 0]].concat()]));
    is_stream(decode(&format, &sets, &[vec![0xff; 100]]));
    let mut short = vec![0; format.samples() - 1];
    is_refused(Rav1d.decode(&format, &sets, &[good], &mut short));
    is_refused(Rav1d.decode(&gray(1 << 40, 1 << 40, 8), &sets, &[good], &mut short));
}

#[test]
fn truncated_pictures_are_corrupt() {
    let format = gray(80, 64, 8);
    let Coded { parameter_sets: sets, pictures } = encode(&at(format, 80), &[noise(&format, 10)]);
    let whole = &pictures[0];
    for i in 0..20 {
        is_stream(decode(&format, &sets, &[whole[..whole.len() * i / 20].to_vec()]));
        // The unit's size made to fit again: the decoder itself meets the end.
        if let Some(payload) = Units::new(whole).next().unwrap().unwrap().payload.get(..whole.len() * i / 20)
        {
            let mut cut =
                vec![kind::FRAME << 3 | 2, payload.len() as u8 & 127 | 128, (payload.len() >> 7) as u8];
            cut.extend_from_slice(payload);
            let _ = decode(&format, &sets, &[cut]);
        }
    }
    for end in 0..sets.len() {
        is_stream(decode(&format, &sets[..end], &pictures));
    }
}

#[test]
fn flipped_bytes_do_no_harm() {
    let mut rng = StdRng::seed_from_u64(11);
    for depth in [8, 10] {
        let format = gray(80, 64, depth);
        let coded = encode(&at(format, 80), &[noise(&format, 12)]);
        for i in 0..250 {
            let Coded { mut parameter_sets, mut pictures } = coded.clone();
            // Most of the harm is in headers, which are few bytes.
            let target = if i % 5 == 0 { &mut parameter_sets } else { &mut pictures[0] };
            let reach = if i % 2 == 0 { target.len().min(24) } else { target.len() };
            target[rng.random_range(0..reach)] ^= rng.random_range(1..=255u8);
            if let Err(e) = decode(&format, &parameter_sets, &pictures) {
                assert!(matches!(e, Error::Stream { .. }), "{e:?}");
            }
        }
    }
}

//! Every software encoder into the software decoders, and hostile streams.

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::super::{Chroma, Coded, Decoder, Encoder, Format, Quality, Settings, Standard};
use super::{LibavDecoder, LibavEncoder, decoders, encoders};
use crate::error::Error;

fn encoder(name: &str) -> &'static LibavEncoder {
    encoders().iter().find(|e| e.name == name).unwrap()
}

fn decoder(standard: Standard) -> &'static LibavDecoder {
    decoders().iter().find(|d| d.standard == standard).unwrap()
}

fn noise(format: &Format, seed: u64) -> Vec<u16> {
    let mut rng = StdRng::seed_from_u64(seed);
    let top = (1u32 << format.depth) - 1;
    let one = |r: &mut StdRng| (0..4).map(|_| r.random_range(0..=top)).sum::<u32>() / 4;
    (0..format.samples()).map(|_| one(&mut rng) as u16).collect()
}

fn settings(format: Format, quality: Quality) -> Settings {
    Settings { format, quality, effort: tenfold::Effort::Fast, inter: false }
}

fn decode(standard: Standard, format: &Format, coded: &Coded) -> Result<Vec<u16>, Error> {
    let pictures: Vec<&[u8]> = coded.pictures.iter().map(Vec::as_slice).collect();
    let mut out = vec![0; format.samples() * pictures.len()];
    decoder(standard).decode(format, &coded.parameter_sets, &pictures, &mut out)?;
    Ok(out)
}

fn mse(a: &[u16], b: &[u16]) -> f64 {
    a.iter().zip(b).map(|(&x, &y)| (f64::from(x) - f64::from(y)).powi(2)).sum::<f64>() / a.len() as f64
}

#[test]
fn software_codecs_give_back_what_they_took() {
    for (name, sides) in [("x264", (50, 34)), ("x265", (70, 33)), ("aom", (50, 34)), ("svt-av1", (128, 64))] {
        let encoder = encoder(name);
        let abilities = encoder.abilities().unwrap();
        for &depth in &abilities.depths {
            for &chroma in &abilities.chroma {
                let format = Format { width: sides.0, height: sides.1, depth, chroma };
                // 4:2:0 has whole pairs of samples.
                let format = if chroma == Chroma::Constant {
                    Format { width: sides.0 & !1, height: sides.1 & !1, ..format }
                } else {
                    format
                };
                let pictures = [noise(&format, 1), noise(&format, 2), noise(&format, 3)];
                let views: Vec<&[u16]> = pictures.iter().map(Vec::as_slice).collect();
                let unit = f64::from(1u32 << (depth - 8));
                let mut last = (f64::INFINITY, 0);
                for share in [0.75, 0.4] {
                    let qp = (f64::from(encoder.max_qp) * share) as u32;
                    let coded = encoder.encode(&settings(format, Quality::Qp(qp)), &views).unwrap();
                    let back = decode(encoder.standard, &format, &coded).unwrap();
                    let error = mse(&pictures.concat(), &back) / unit / unit;
                    let bytes: usize = coded.pictures.iter().map(Vec::len).sum();
                    assert!(
                        error < last.0 && bytes > last.1,
                        "{name} {depth} {chroma:?} {qp}: {error} {bytes}"
                    );
                    last = (error, bytes);
                    // Each picture decodes alone.
                    let alone = Coded { pictures: vec![coded.pictures[1].clone()], ..coded.clone() };
                    let alone = decode(encoder.standard, &format, &alone).unwrap();
                    assert_eq!(alone, back[format.samples()..2 * format.samples()]);
                    // And pictures coded in different calls share their parameter sets.
                    let again = encoder.encode(&settings(format, Quality::Qp(qp)), &views[2..]).unwrap();
                    assert_eq!(again.parameter_sets, coded.parameter_sets, "{name}");
                }
                assert!(last.0 < 60.0, "{name} {depth} {chroma:?}: {}", last.0);
                if abilities.lossless {
                    let coded = encoder.encode(&settings(format, Quality::Lossless), &views).unwrap();
                    let back = decode(encoder.standard, &format, &coded).unwrap();
                    assert_eq!(mse(&pictures.concat(), &back), 0.0, "{name} {depth} {chroma:?}");
                }
            }
        }
    }
}

#[test]
fn damaged_streams_are_errors_and_never_more() {
    let mut rng = StdRng::seed_from_u64(5);
    for name in ["x264", "x265", "aom"] {
        let encoder = encoder(name);
        let format = Format { width: 96, height: 64, depth: 8, chroma: Chroma::None };
        let picture = noise(&format, 4);
        let qp = Quality::Qp(encoder.max_qp / 2);
        let coded = encoder.encode(&settings(format, qp), &[&picture]).unwrap();
        let whole = decode(encoder.standard, &format, &coded).unwrap();
        for share in 0..20 {
            let mut cut = coded.clone();
            let len = cut.pictures[0].len() * share / 20;
            cut.pictures[0].truncate(len);
            // Some decoders make up the end of a picture; the checksum of the samples, kept in the
            // blob, is there for that.
            match decode(encoder.standard, &format, &cut) {
                Ok(made_up) => assert_ne!(made_up, whole, "{name} cut at {len}"),
                Err(e) => assert!(matches!(e, Error::Stream { .. }), "{name} cut at {len}: {e}"),
            }
        }
        for _ in 0..300 {
            let mut bad = coded.clone();
            for _ in 0..rng.random_range(1..4) {
                let bytes = if rng.random_bool(0.3) { &mut bad.parameter_sets } else { &mut bad.pictures[0] };
                let at = rng.random_range(0..bytes.len());
                bytes[at] ^= 1 << rng.random_range(0..8);
            }
            // A picture of some sort or an error: what counts is that it returns.
            let _ = decode(encoder.standard, &format, &bad);
        }
        for other in [
            Format { width: 64, ..format },
            Format { height: 96, ..format },
            Format { depth: 10, ..format },
            Format { width: 16, height: 16, ..format },
        ] {
            let result = decode(encoder.standard, &other, &coded);
            assert!(matches!(result, Err(Error::Stream { .. })), "{name} as {other:?}");
        }
        let twice = Coded { pictures: vec![Vec::new(), coded.pictures[0].clone()], ..coded };
        assert!(decode(encoder.standard, &format, &twice).is_err());
    }
}

#[test]
fn what_an_encoder_cannot_do_is_said() {
    let x264 = encoder("x264");
    let format = Format { width: 64, height: 64, depth: 12, chroma: Chroma::None };
    let picture = noise(&format, 1);
    let refuse = |s: Settings| match x264.encode(&s, &[&picture]) {
        Err(Error::Refused { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    assert!(refuse(settings(format, Quality::Qp(20))).contains("12-bit"));
    let small = Format { depth: 8, width: 8, ..format };
    assert!(refuse(settings(small, Quality::Qp(20))).contains("8×64"));
    let coarse = Format { depth: 8, ..format };
    assert!(refuse(settings(coarse, Quality::Qp(52))).contains("52"));
}

#[test]
fn every_name_answers_a_probe() {
    for encoder in encoders() {
        match encoder.abilities() {
            Ok(abilities) => assert!(!abilities.depths.is_empty()),
            Err(Error::NotAvailable { name, reason }) => assert!(name == encoder.name && !reason.is_empty()),
            Err(other) => panic!("{}: {other}", encoder.name),
        }
    }
    for decoder in decoders() {
        match decoder.probe() {
            Ok(()) => {}
            Err(Error::NotAvailable { name, reason }) => assert!(name == decoder.name && !reason.is_empty()),
            Err(other) => panic!("{}: {other}", decoder.name),
        }
    }
}

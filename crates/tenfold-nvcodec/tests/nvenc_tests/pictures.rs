//! Pictures of the host and of the device come back, in order and whatever is on its way.

use tenfold_cuda::{Buffer, Stream};
use tenfold_nvcodec::nvenc::Encoder;
use tenfold_nvcodec_standin::Fault;
use tenfold_video::codec::{Chroma, Format, Quality, Settings};

use super::common::{ALL, decode, device, distance, picture, runs, settings, turn};

#[test]
fn pictures_come_back() {
    let turn = turn();
    {
        let encoder = Encoder::new(&device()).unwrap();
        for standard in ALL.into_iter().filter(|s| runs(*s)) {
            let depths: &[u8] = if encoder.can(standard).unwrap().ten_bits { &[8, 10] } else { &[8] };
            for &depth in depths {
                let settings = settings(standard, depth);
                // More than two rings hold.
                let pictures: Vec<Vec<u16>> = (0..20).map(|i| picture(&settings.format, i)).collect();
                let views: Vec<&[u16]> = pictures.iter().map(Vec::as_slice).collect();
                let coded = encoder.encode(standard, &settings, &views).unwrap();
                assert_eq!(coded.pictures.len(), 20);
                let back = decode(standard, &settings.format, &coded);
                let apart = distance(&pictures.concat(), &back, depth);
                assert!(apart < 0.02, "{standard} {depth}: {apart}");
                // One alone is coded as it is among others.
                let alone = encoder.encode(standard, &settings, &views[7..8]).unwrap();
                assert_eq!(alone.parameter_sets, coded.parameter_sets);
                assert_eq!(decode(standard, &settings.format, &alone), back[7 * 256 * 192..8 * 256 * 192]);
            }
        }
        let counts = turn.counts();
        if counts.encoded > 0 {
            assert!(counts.most_in_flight >= 2, "{counts:?}");
            assert!(counts.most_sessions >= 2, "{counts:?}");
        }
    }
    turn.check();
}

#[test]
fn eight_pictures_are_on_their_way_at_a_time() {
    let turn = turn();
    let Some(standard) = super::common::any() else { return };
    {
        let encoder = Encoder::new(&device()).unwrap();
        let settings = settings(standard, 8);
        let mut lane = encoder.start(standard, &settings).unwrap();
        let pictures: Vec<Vec<u16>> = (0..9).map(|i| picture(&settings.format, i)).collect();
        // The engine takes its time, and submitting does not wait for it.
        turn.set(Fault::EncodeHang, 1);
        for picture in &pictures[..8] {
            assert!(!lane.is_full());
            lane.submit_samples(picture).unwrap();
        }
        assert!(lane.is_full());
        assert!(lane.submit_samples(&pictures[8]).is_err(), "there is no room");
        assert_eq!(turn.counts().mapped, 8);
        turn.set(Fault::EncodeHang, 0);
        let mut coded: Vec<Vec<u8>> = Vec::new();
        while let Some(picture) = lane.result().unwrap() {
            coded.push(picture);
        }
        assert_eq!((coded.len(), lane.in_flight()), (8, 0));
        lane.submit_samples(&pictures[8]).unwrap();
        coded.extend(lane.result().unwrap());
        drop(lane);
        let views: Vec<&[u16]> = pictures.iter().map(Vec::as_slice).collect();
        assert!(encoder.encode(standard, &settings, &views).unwrap().pictures == coded);
    }
    turn.check();
}

#[test]
fn lossless_samples_are_exact() {
    let turn = turn();
    {
        let encoder = Encoder::new(&device()).unwrap();
        for standard in ALL.into_iter().filter(|s| runs(*s)) {
            let settings = Settings { quality: Quality::Lossless, ..settings(standard, 8) };
            let samples = picture(&settings.format, 5);
            let coded = encoder.encode(standard, &settings, &[&samples]);
            if !encoder.can(standard).unwrap().lossless {
                let why = coded.unwrap_err().to_string();
                assert!(why.contains("lossless"), "{why}");
                continue;
            }
            assert!(decode(standard, &settings.format, &coded.unwrap()) == samples, "{standard}");
        }
    }
    turn.check();
}

#[test]
fn samples_of_the_device_are_coded_as_those_of_the_host() {
    let turn = turn();
    {
        let device = device();
        let encoder = Encoder::new(&device).unwrap();
        for standard in ALL.into_iter().filter(|s| runs(*s)) {
            for depth in [8, 10] {
                if depth == 10 && !encoder.can(standard).unwrap().ten_bits {
                    continue;
                }
                let mut settings = settings(standard, depth);
                // Rows that are no multiple of 4 bytes.
                settings.format.width = 258;
                let pictures: Vec<Vec<u16>> = (0..3).map(|i| picture(&settings.format, i)).collect();
                let views: Vec<&[u16]> = pictures.iter().map(Vec::as_slice).collect();
                let host = encoder.encode(standard, &settings, &views).unwrap();
                let mut lane = encoder.start(standard, &settings).unwrap();
                let mut coded = Vec::new();
                for picture in &pictures {
                    let bytes: Vec<u8> = match depth {
                        8 => picture.iter().map(|&s| s as u8).collect(),
                        _ => picture.iter().flat_map(|&s| (s << 6).to_le_bytes()).collect(),
                    };
                    let luma = Buffer::from_slice(&device, &bytes).unwrap();
                    assert_eq!(lane.result().unwrap(), None);
                    // SAFETY: the emulator's streams do everything at once, so that the memory may go.
                    unsafe { lane.submit(luma.slice(), Stream::DEFAULT).unwrap() };
                    assert_eq!((lane.in_flight(), lane.is_full()), (1, false));
                    coded.extend(lane.result().unwrap());
                }
                assert!(coded == host.pictures, "{standard} {depth}");
                assert_eq!(lane.parameter_sets(), host.parameter_sets);
            }
        }
    }
    turn.check();
}

#[test]
fn what_the_engine_cannot_do_is_refused_before_it_is_tried() {
    let turn = turn();
    {
        let encoder = Encoder::new(&device()).unwrap();
        for standard in ALL {
            let good = settings(standard, 8);
            let with = |format: Format| Settings { format, ..good };
            let max = if standard == tenfold_video::Standard::Av1 { 255 } else { 51 };
            let bad = [
                (with(Format { width: 64, height: 64, ..good.format }), "64 × 64"),
                (with(Format { width: 10_000, ..good.format }), "10000"),
                (with(Format { width: 257, ..good.format }), "odd"),
                (with(Format { depth: 12, ..good.format }), "12 bits"),
                (with(Format { chroma: Chroma::None, ..good.format }), "4:0:0"),
                (Settings { quality: Quality::Qp(max + 1), ..good }, "quantiser"),
                (Settings { inter: true, ..good }, "predicted"),
            ];
            for (settings, word) in bad {
                let why = encoder.start(standard, &settings).err().expect(word).to_string();
                assert!(why.contains(word), "{standard}: {why}");
            }
            let why = encoder.encode(standard, &good, &[&[1; 7]]).unwrap_err().to_string();
            assert!(why.contains("7 samples"), "{why}");
            let loud = vec![256; good.format.samples()];
            let why = encoder.encode(standard, &good, &[&loud]).unwrap_err().to_string();
            assert!(why.contains("256"), "{why}");
        }
        assert_eq!(turn.counts().sessions, 0);
    }
    turn.check();
}

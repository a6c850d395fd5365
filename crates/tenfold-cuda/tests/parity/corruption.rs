//! Damaged blobs: a device refuses what the CPU refuses, and what the CPU takes it decodes alike.

use tenfold::engine::ErrorKind;
use tenfold::{DecodeOptions, Dtype, EncodeOptions, Goal};

use crate::Case;
use crate::common::{Kind, Sample, seal, small_blobs};
use crate::device::Subject;

pub fn cases() -> Vec<Case> {
    vec![
        ("flipped bits".into(), flips),
        ("flipped bits behind fresh checksums".into(), sealed_flips),
        ("flipped bits in tiles that are decoded two at a time".into(), flips_in_pairs),
        ("a header's checksum counts before what the header says".into(), checksum_first),
        ("long headers".into(), long_headers),
        ("truncations".into(), truncations),
    ]
}

/// Whether a device says that it needs a chain for a blob.
pub fn by_a_chain(error: &tenfold::Error) -> bool {
    error.kind() == ErrorKind::Unsupported && error.to_string().contains("undone by a chain")
}

/// Compares what both make of some bytes, the device without the host's help.
pub fn compare(subject: &Subject, name: &str, bytes: &[u8]) {
    let wanted = tenfold::decode(bytes, &DecodeOptions::default());
    let (dtype, len) = match tenfold::inspect(bytes) {
        Ok(i) if i.values < 1 << 22 => (i.dtype, i.values as usize * i.dtype.size()),
        _ => (Dtype::F32, 64),
    };
    let mut found = subject.decode_raw(bytes, dtype, 0, None, len);
    // Where the CPU could not say how large the tensor is, the device may know.
    if let Err(tenfold::Error::BufferTooSmall { need, .. }) = found
        && need < 1 << 24
    {
        found = subject.decode_raw(bytes, dtype, 0, None, need as usize);
    }
    match (wanted, found) {
        (Ok(w), Ok(f)) => assert!(w.data == f, "{name}: other bytes"),
        // Steps that are undone by a chain are refused by their number where there is none, whatever they hold.
        (_, Err(f)) if by_a_chain(&f) => {}
        (Err(w), Err(f)) => {
            // A tensor too large to make is refused by its size here and by the output's there.
            let large = matches!(w, tenfold::Error::LimitExceeded { .. });
            assert!(large || w.kind() == f.kind(), "{name}: {f}, not {w}");
        }
        (w, f) => panic!("{name}: {:?}, not {:?}", f.map(|_| ()), w.map(|_| ())),
    }
}

/// Those that a device decodes by itself.
fn blobs() -> Vec<(&'static str, Vec<u8>)> {
    let decodes = |blob: &[u8]| tenfold_cuda::can_decode(&tenfold::inspect(blob).unwrap()).is_ok();
    small_blobs().into_iter().filter(|(_, blob)| decodes(blob)).collect()
}

fn flips(subject: &Subject) {
    for (name, blob) in blobs() {
        let stride = (blob.len() / 40).max(1);
        for at in (0..blob.len()).step_by(stride) {
            let mut bytes = blob.clone();
            bytes[at] ^= 1 << (at % 8);
            compare(subject, &format!("{name}: bit of byte {at}"), &bytes);
        }
    }
}

fn sealed_flips(subject: &Subject) {
    for (name, blob) in blobs() {
        let tiles = tenfold::inspect(&blob).unwrap().tiles as usize;
        let header = tenfold::inspect(&blob).unwrap().header_bytes as usize;
        // Every byte of the header counts; the tiles' by the dozen.
        let stride = (blob.len() / 150).max(1);
        for at in (12..header).chain((header..blob.len()).step_by(stride)) {
            for bit in [at % 8, (at + 5) % 8] {
                let mut bytes = blob.clone();
                bytes[at] ^= 1 << bit;
                seal(&mut bytes, tiles);
                compare(subject, &format!("{name}: bit {bit} of byte {at}, sealed"), &bytes);
            }
        }
    }
}

fn flips_in_pairs(subject: &Subject) {
    let sample = Sample::make(Dtype::Bf16, &[150 * 1024 + 77], Kind::Gaussian, 6);
    let options = EncodeOptions::new(Goal::Lossless).with_lane_values(32);
    let blob = tenfold::encode(&sample.view(), &options).unwrap();
    let info = tenfold::inspect(&blob).unwrap();
    assert_eq!(info.tiles, 151);
    for at in (info.header_bytes as usize..blob.len()).step_by(4001).chain(blob.len() - 40..blob.len()) {
        let mut bytes = blob.clone();
        bytes[at] ^= 1 << (at % 8);
        compare(subject, &format!("bit of byte {at}"), &bytes);
        seal(&mut bytes, info.tiles as usize);
        compare(subject, &format!("bit of byte {at}, sealed"), &bytes);
    }
}

/// A device reads a header while it adds it up.
fn checksum_first(subject: &Subject) {
    for (name, blob) in blobs() {
        let header = tenfold::inspect(&blob).unwrap().header_bytes as usize;
        for at in (5..8).chain(12..header) {
            let mut bytes = blob.clone();
            bytes[at] = !bytes[at];
            // And it is too long besides.
            bytes.extend([0; 4]);
            let said = subject.decode_raw(&bytes, Dtype::F32, 0, None, 64).unwrap_err();
            let is_checksum = matches!(said, tenfold::Error::Corrupt("header checksum"));
            assert!(is_checksum, "{name}: byte {at}: {said}");
        }
    }
}

/// A long header is added up by those who decode.
fn long_headers(subject: &Subject) {
    let shape = [70_000, 16];
    let mut reals = Sample::make(Dtype::F32, &shape, Kind::Gaussian, 5).reals();
    for (i, v) in reals.iter_mut().enumerate() {
        *v *= 3f64.powi((i / 16 * 7919 % 9) as i32);
    }
    let sample = Sample::new(Dtype::Bf16, &shape, &reals);
    let blob = tenfold::encode(&sample.view(), &EncodeOptions::new(Goal::Bits(2.0))).unwrap();
    let header = tenfold::inspect(&blob).unwrap().header_bytes as usize;
    assert!(header > 33 << 10, "{header} bytes of header");
    compare(subject, "whole", &blob);
    let flip = |at: usize| {
        let mut bytes = blob.clone();
        bytes[at] ^= 0x10;
        bytes
    };
    for at in (12..60).step_by(5).chain((60..header).step_by(9_001)).chain([header - 5, header - 1]) {
        // Also where no value is wanted.
        for (count, len) in [(None, sample.data.len()), (Some(0), 0)] {
            let said = subject.decode_raw(&flip(at), Dtype::Bf16, 0, count, len).unwrap_err();
            assert!(matches!(said, tenfold::Error::Corrupt("header checksum")), "byte {at}: {said}");
        }
    }
    for at in (header..blob.len()).step_by(blob.len() / 10) {
        compare(subject, &format!("byte {at}"), &flip(at));
    }
}

fn truncations(subject: &Subject) {
    for (name, blob) in blobs() {
        let stride = (blob.len() / 30).max(1);
        for len in (0..blob.len()).step_by(stride) {
            compare(subject, &format!("{name}: {len} bytes"), &blob[..len]);
        }
        let mut longer = blob.clone();
        longer.extend([0; 4]);
        compare(subject, &format!("{name}: four bytes more"), &longer);
    }
}

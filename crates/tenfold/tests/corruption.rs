//! Damage is noticed: every flipped bit, every missing and every added byte gives a typed error.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Random, small_blobs};
use tenfold::engine::{Cpu, Engine, ErrorKind};
use tenfold::{DecodeOptions, Error};

fn decode(blob: &[u8]) -> tenfold::engine::Result<tenfold::Tensor> {
    tenfold::decode(blob, &DecodeOptions::default().with_threads(1))
}

/// Whether decoding and all its relatives refuse a blob.
fn refused(name: &str, blob: &[u8]) -> Error {
    let options = DecodeOptions::default().with_threads(1);
    let e = decode(blob).expect_err(name);
    assert!(matches!(e.kind(), ErrorKind::Data | ErrorKind::Unsupported | ErrorKind::Limit), "{name}: {e:?}");
    assert_eq!(Cpu.verify(blob, &options).expect_err(name), e);
    let _ = tenfold::inspect(blob);
    let _ = tenfold::decode_rows(blob, 0..1, &options);
    e
}

#[test]
fn every_flipped_bit_is_noticed() {
    for (name, blob) in small_blobs() {
        decode(&blob).unwrap();
        for bit in 0..blob.len() * 8 {
            let mut bad = blob.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            refused(&format!("{name}, bit {bit} of {}", blob.len() * 8), &bad);
        }
    }
}

#[test]
fn every_truncation_is_noticed() {
    for (name, blob) in small_blobs() {
        for len in 0..blob.len() {
            let e = refused(&format!("{name}, {len} of {} bytes", blob.len()), &blob[..len]);
            assert_eq!(e.kind(), ErrorKind::Data, "{name}, {len} of {} bytes: {e}", blob.len());
            if len >= 12 {
                assert!(
                    matches!(e, Error::Truncated { have, need } if have == len as u64 && need > have),
                    "{name}: {e}"
                );
            }
        }
    }
}

#[test]
fn added_bytes_are_noticed() {
    for (name, blob) in small_blobs() {
        for more in [&[0u8][..], &[0; 4], &[0xff; 3], &[0; 1000], b"TNFD"] {
            let e = refused(name, &[&blob, more].concat());
            assert_eq!(e.kind(), ErrorKind::Data, "{name}: {e}");
        }
        refused(name, &[&blob[..], &blob[..]].concat());
        refused(name, &blob[1..]);
    }
}

#[test]
fn swapped_and_overwritten_parts_are_noticed() {
    let mut r = Random::new(5);
    for (name, blob) in small_blobs() {
        for _ in 0..300 {
            let mut bad = blob.clone();
            let (a, b) = (r.below(blob.len()), r.below(blob.len()));
            let len = 1 + r.below((blob.len() - a.max(b)).min(40));
            if r.bits() & 1 == 0 {
                bad.copy_within(a..a + len, b);
            } else {
                bad[a..a + len].fill(r.bits() as u8);
            }
            if bad != blob {
                refused(name, &bad);
            }
        }
    }
}

#[test]
fn bytes_that_are_no_blob_are_refused() {
    assert_eq!(decode(b"").unwrap_err(), Error::NotABlob);
    assert_eq!(decode(b"nonsense").unwrap_err(), Error::NotABlob);
    assert_eq!(decode(&[0; 100]).unwrap_err(), Error::NotABlob);
    let mut r = Random::new(6);
    for len in 0..400 {
        let mut bytes = r.bytes(len);
        refused("noise", &bytes);
        // The same with a start that looks right.
        bytes.splice(0..len.min(5), *b"TNFD\x01");
        refused("noise with a magic number", &bytes);
    }
}

//! What a blob asks for is checked before memory is taken, and what this build cannot read is named.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "common/allocations.rs"]
mod allocations;
mod common;

use allocations::peak;
use common::{Kind, Sample, seal};
use tenfold::engine::{Cpu, Engine, ErrorKind, Limits};
use tenfold::{DecodeOptions, Dtype, Effort, Error, Goal};

/// A header written by hand: dtype, shape and everything after it, then the checksum. No tiles.
fn header(codec: u8, dtype: Dtype, shape: &[u64], rest: &[u8]) -> Vec<u8> {
    let mut out = b"TNFD\x01".to_vec();
    out.extend([codec, dtype.id(), shape.len() as u8, 0, 0, 0, 0]);
    for &d in shape {
        let mut v = d;
        while v >= 0x80 {
            out.push(v as u8 | 0x80);
            v >>= 7;
        }
        out.push(v as u8);
    }
    out.extend_from_slice(rest);
    out.resize(out.len().next_multiple_of(4), 0);
    out.extend_from_slice(&[0; 4]);
    let len = out.len() as u32;
    out[8..12].copy_from_slice(&len.to_le_bytes());
    seal(&mut out, 0);
    out
}

/// No preparation, 32 lanes of 2^17 steps, no tables: the largest tiles there are.
const PLANES: [u8; 7] = [0, 5, 0x80, 0x80, 0x08, 0, 0];

fn limited(max_bytes: u64) -> DecodeOptions {
    DecodeOptions::default().with_threads(1).with_limits(Limits::default().with_max_bytes(max_bytes))
}

#[test]
fn the_handmade_header_is_right() {
    let none = tenfold::decode(&header(1, Dtype::F32, &[0, 7], &PLANES), &limited(0)).unwrap();
    assert_eq!((none.shape, none.data), (vec![0, 7], vec![]));
}

#[test]
fn a_huge_claim_is_refused_before_memory_is_taken() {
    let claims: [&[u64]; 7] = [
        &[1 << 60],
        &[1 << 30, 1 << 30],
        &[1 << 20, 1 << 20, 1 << 20],
        &[u64::MAX],
        &[u64::MAX, u64::MAX],
        &[1 << 40],
        &[3, 1 << 61],
    ];
    for shape in claims {
        for dtype in [Dtype::U8, Dtype::F32, Dtype::F64] {
            for codec in [1, 2] {
                let blob = header(codec, dtype, shape, &PLANES);
                for options in [DecodeOptions::default(), limited(u64::MAX)] {
                    let (result, taken) = peak(|| tenfold::decode(&blob, &options));
                    let e = result.unwrap_err();
                    assert!(matches!(e.kind(), ErrorKind::Limit | ErrorKind::Data), "{shape:?}: {e}");
                    assert!(taken < 65536, "{shape:?} {dtype}: {taken} bytes");
                    let (result, taken) = peak(|| tenfold::decode_rows(&blob, 0..1, &options));
                    assert!(result.is_err() && taken < 65536);
                    let (result, taken) = peak(|| Cpu.decode_into(&blob, &options, &mut []));
                    assert!(result.is_err() && taken < 65536);
                }
                let (_, taken) = peak(|| tenfold::inspect(&blob));
                assert!(taken < 65536, "{shape:?} {dtype}: {taken} bytes to inspect");
            }
        }
    }
    // Where the shape itself is possible, the limit is what the error names.
    let e =
        tenfold::decode(&header(1, Dtype::F32, &[1 << 60], &PLANES), &DecodeOptions::default()).unwrap_err();
    assert!(
        matches!(e, Error::LimitExceeded { asked, limit, .. } if asked == 1 << 62 && limit == 64 << 30),
        "{e}"
    );
}

#[test]
fn the_callers_limit_is_obeyed_to_the_byte() {
    for goal in [Goal::Lossless, Goal::Bits(2.0)] {
        let s = Sample::make(Dtype::F32, &[100, 300], Kind::Gaussian, 1);
        let blob = s.encode(goal, Effort::Fast);
        let bytes = s.data.len() as u64;
        assert_eq!(tenfold::decode(&blob, &limited(bytes)).unwrap().data.len() as u64, bytes);
        for less in [bytes - 1, 1000, 0] {
            let (result, taken) = peak(|| tenfold::decode(&blob, &limited(less)));
            assert_eq!(
                result.unwrap_err(),
                Error::LimitExceeded { what: "a tensor size in bytes", asked: bytes, limit: less }
            );
            assert!(taken < 65536, "{taken}");
            let mut out = vec![0; s.data.len()];
            assert_eq!(
                Cpu.decode_into(&blob, &limited(less), &mut out).unwrap_err().kind(),
                ErrorKind::Limit
            );
            assert_eq!(
                tenfold::decode_rows(&blob, 0..1, &limited(less)).unwrap_err().kind(),
                ErrorKind::Limit
            );
        }
    }
}

#[test]
fn decoding_takes_little_more_than_the_tensor() {
    for goal in [Goal::Lossless, Goal::Bits(2.0)] {
        let s = Sample::make(Dtype::F32, &[1024, 1024], Kind::Rows, 1);
        let blob = s.encode(goal, Effort::Fast);
        let options = DecodeOptions::default().with_threads(1);
        let (_, taken) = peak(|| tenfold::decode(&blob, &options).unwrap());
        assert!(taken < s.data.len() + (2 << 20), "{goal:?}: {taken} bytes");
        let (_, taken) = peak(|| tenfold::decode_rows(&blob, 500..501, &options).unwrap());
        assert!(taken < 2 << 20, "{goal:?}: {taken} bytes for a row");
        let mut out = vec![0; s.data.len()];
        let (_, taken) = peak(|| Cpu.decode_into(&blob, &options, &mut out).unwrap());
        assert!(taken < 2 << 20, "{goal:?}: {taken} bytes beside the caller's");
    }
}

#[test]
fn the_number_of_dimensions_is_limited() {
    let ones = |n: usize| {
        Sample::make(Dtype::F32, &vec![1; n], Kind::Gaussian, 1).encode(Goal::Lossless, Effort::Fast)
    };
    let options = DecodeOptions::default();
    assert_eq!(tenfold::decode(&ones(16), &options).unwrap().shape.len(), 16);
    let e = tenfold::decode(&ones(17), &options).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Limit, "{e}");
    let mut limits = Limits::default();
    limits.max_dims = 255;
    let wide = DecodeOptions::default().with_limits(limits.clone());
    assert_eq!(tenfold::decode(&ones(255), &wide).unwrap().shape.len(), 255);
    limits.max_dims = 1;
    let narrow = DecodeOptions::default().with_limits(limits);
    assert_eq!(tenfold::decode(&ones(2), &narrow).unwrap_err().kind(), ErrorKind::Limit);
    assert_eq!(tenfold::decode(&ones(1), &narrow).unwrap().shape, [1]);
    // More than a header can say is the caller's fault.
    let s = Sample::make(Dtype::F32, &[1; 256], Kind::Gaussian, 1);
    let e = tenfold::encode(&s.view(), &tenfold::EncodeOptions::new(Goal::Lossless)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Caller);
}

#[test]
fn inspection_needs_the_header_only() {
    for (goal, effort) in [
        (Goal::Lossless, Effort::Fast),
        (Goal::Bits(2.0), Effort::Balanced),
        (Goal::Bits(10.0), Effort::Fast),
    ] {
        let s = Sample::make(Dtype::Bf16, &[500, 400], Kind::Rows, 1);
        let blob = s.encode(goal, effort);
        let info = tenfold::inspect(&blob).unwrap();
        assert_eq!((info.version, info.dtype, &info.shape[..]), (1, Dtype::Bf16, &[500, 400][..]));
        assert_eq!((info.values, info.blob_bytes), (200_000, blob.len() as u64));
        assert!((info.bits_per_value() - blob.len() as f64 * 8.0 / 200_000.0).abs() < 1e-12);
        assert!((info.ratio() - 400_000.0 / blob.len() as f64).abs() < 1e-12);
        assert_eq!(info.tiles, info.values.div_ceil(info.tile_values));
        assert!(info.lanes.is_power_of_two() && info.lanes <= 32);
        let lossy = goal != Goal::Lossless;
        assert_eq!(info.step.is_some(), lossy);
        assert_eq!(info.states, lossy.then_some(if effort == Effort::Balanced { 8 } else { 1 }));
        assert_eq!(info.classes.is_some(), lossy);
        assert_eq!(info.low_bits.is_some(), lossy);
        let head = &blob[..info.header_bytes as usize];
        assert_eq!(tenfold::inspect(head).unwrap(), info);
        assert_eq!(tenfold::inspect(&head[..head.len() - 1]).unwrap_err().kind(), ErrorKind::Data);
        let e = tenfold::decode(head, &DecodeOptions::default()).unwrap_err();
        assert_eq!(e, Error::Truncated { need: blob.len() as u64, have: head.len() as u64 });
    }
}

/// Changes a byte, makes the checksums right, and returns the error.
fn changed(blob: &[u8], at: usize, value: u8) -> Error {
    let tiles = tenfold::inspect(blob).unwrap().tiles as usize;
    let mut bad = blob.to_vec();
    bad[at] = value;
    seal(&mut bad, tiles);
    let e = tenfold::decode(&bad, &DecodeOptions::default()).unwrap_err();
    assert_eq!(tenfold::inspect(&bad).unwrap_err(), e);
    e
}

#[test]
fn what_this_build_does_not_have_is_named() {
    let s = Sample::make(Dtype::F32, &[700], Kind::Gaussian, 1);
    let lossless = s.encode(Goal::Lossless, Effort::Fast);
    let lossy = s.encode(Goal::Bits(3.0), Effort::Balanced);
    for blob in [&lossless, &lossy] {
        for version in [0, 2, 3, 255] {
            let e = changed(blob, 4, version);
            assert_eq!(e, Error::UnsupportedVersion { found: version, supported: tenfold::format::VERSION });
            assert!(
                e.to_string().contains(&format!("version {version}")) && e.to_string().contains("newer"),
                "{e}"
            );
            // Nothing behind the version is looked at: a later format may put its checksums elsewhere.
            assert_eq!(tenfold::inspect(&[b"TNFD", &[version][..], &[7; 40]].concat()).unwrap_err(), e);
        }
        // Where the preparation chain starts: behind the two bytes of 700.
        for (at, value, what) in [
            (5, 0, "codec"),
            (5, 3, "codec"),
            (5, 255, "codec"),
            (6, 9, "dtype"),
            (6, 200, "dtype"),
            (14, 1, "preparation"),
        ] {
            let e = changed(blob, at, value);
            assert_eq!(e.kind(), ErrorKind::Unsupported, "{what} {value}: {e}");
            assert!(e.to_string().contains(what), "{e}");
            if at < 12 {
                assert!(e.to_string().contains(&value.to_string()), "{e}");
            }
        }
    }
    for states in [1, 9, 255] {
        let e = changed(&lossy, 15, states);
        assert_eq!(e, Error::UnsupportedFeature { what: "trellis", id: states as u64 });
        assert_eq!(e.kind(), ErrorKind::Unsupported);
    }
}

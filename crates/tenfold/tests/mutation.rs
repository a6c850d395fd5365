//! Blobs that lie but whose checksums are right: any answer but a panic, and no memory beyond the limit.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "common/allocations.rs"]
mod allocations;
mod common;

use allocations::peak;
use common::{Random, seal, small_blobs};
use tenfold::DecodeOptions;
use tenfold::engine::Limits;

/// Bytes of a decoded tensor that these tests allow.
const LIMIT: u64 = 1 << 20;
/// What a decoder may take on top: tables (16 classes, two quantisers, 4096 slots of four bytes), a tile's
/// planes and its merged values, a copy of the directory.
const TABLES: usize = 1 << 20;

fn options() -> DecodeOptions {
    DecodeOptions::default().with_threads(1).with_limits(Limits::default().with_max_bytes(LIMIT))
}

/// Tries all ways to read a blob. Returns whether it decodes.
fn read(name: &str, blob: &[u8]) -> bool {
    let options = options();
    let (result, taken) = peak(|| tenfold::decode(blob, &options));
    let most = 3 * LIMIT as usize + TABLES + 4 * blob.len();
    assert!(taken <= most, "{name}: {taken} bytes taken, {most} allowed");
    let (info, taken) = peak(|| tenfold::inspect(blob));
    assert!(taken <= TABLES + 16 * blob.len(), "{name}: inspecting takes {taken} bytes");
    let rows = tenfold::decode_rows(blob, 0..1, &options);
    if let Ok(t) = &result {
        assert!(t.data.len() as u64 <= LIMIT);
        t.view().expect("shape and bytes agree");
        let info = info.expect("what decodes can be inspected");
        assert_eq!((info.dtype, &info.shape), (t.dtype, &t.shape));
        if !t.data.is_empty() {
            let row = rows.expect("what decodes has rows");
            assert!(t.data.starts_with(&row.data), "{name}: a row differs from the whole");
        }
    }
    result.is_ok()
}

#[test]
fn any_byte_of_header_and_tiles_may_lie() {
    let mut decoded = 0;
    let mut tried = 0;
    for (name, blob) in small_blobs() {
        let tiles = tenfold::inspect(&blob).unwrap().tiles as usize;
        for at in 4..blob.len() {
            let mut bad = blob.clone();
            for change in 1..=255u8 {
                // All values where one byte decides much, a few where it is one of many.
                if at >= 80 && !matches!(change, 1 | 2 | 4 | 8 | 16 | 32 | 64 | 128 | 255 | 127) {
                    continue;
                }
                bad.copy_from_slice(&blob);
                bad[at] ^= change;
                seal(&mut bad, tiles);
                tried += 1;
                decoded += read(&format!("{name}, byte {at} ^ {change:#x}"), &bad) as usize;
            }
        }
    }
    // Some lies cannot be told from truth; if none or all passed, the seal would be broken.
    assert!(decoded * 100 > tried && decoded < tried, "{decoded} of {tried}");
}

#[test]
fn many_bytes_may_lie_at_once() {
    let mut r = Random::new(9);
    for (name, blob) in small_blobs() {
        let info = tenfold::inspect(&blob).unwrap();
        let header = info.header_bytes as usize;
        for turn in 0..3000 {
            let mut bad = blob.clone();
            for _ in 0..1 + r.below(4) {
                let at = if r.bits() & 1 == 0 { 12 + r.below(header - 12) } else { r.below(blob.len()) };
                let value = [r.bits() as u8, 0, 0xff, 0x80, 0x7f][r.below(5)];
                bad[at] = value;
            }
            bad[..8].copy_from_slice(&blob[..8]);
            bad[8..12].copy_from_slice(&blob[8..12]);
            seal(&mut bad, info.tiles as usize);
            read(&format!("{name}, turn {turn}"), &bad);
        }
    }
}

#[test]
fn another_dtype_or_codec_may_be_claimed() {
    for (name, blob) in small_blobs() {
        let tiles = tenfold::inspect(&blob).unwrap().tiles as usize;
        for codec in 0..=255 {
            for dtype in (0..30).chain([127, 255]) {
                let mut bad = blob.clone();
                (bad[5], bad[6]) = (codec, dtype);
                seal(&mut bad, tiles);
                read(&format!("{name} as codec {codec}, dtype {dtype}"), &bad);
            }
        }
    }
}

#[test]
fn parts_of_one_blob_may_sit_in_another() {
    let blobs = small_blobs();
    for (a_name, a) in &blobs {
        for (b_name, b) in &blobs {
            let (ia, ib) = (tenfold::inspect(a).unwrap(), tenfold::inspect(b).unwrap());
            // The header of one over the tiles of the other.
            let mut bad = [&a[..ia.header_bytes as usize], &b[ib.header_bytes as usize..]].concat();
            seal(&mut bad, ia.tiles as usize);
            read(&format!("{a_name} over {b_name}"), &bad);
        }
    }
}

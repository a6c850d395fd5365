//! Rows can be read without the rest, and come out as a full decode gives them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::ops::Range;

use common::{FLOATS, Kind, Random, Sample, decode};
use tenfold::engine::{Cpu, Engine, ErrorKind};
use tenfold::{DecodeOptions, Dtype, Effort, EncodeOptions, Goal, Tensor};

fn rows(blob: &[u8], range: Range<usize>) -> tenfold::engine::Result<Tensor> {
    tenfold::decode_rows(blob, range, &DecodeOptions::default())
}

/// Reads rows and compares them with the same part of `all`.
fn check(blob: &[u8], all: &Tensor, range: Range<usize>) {
    let cols = all.shape.last().copied().unwrap_or(1);
    let size = cols * all.dtype.size();
    let part = rows(blob, range.clone()).unwrap();
    assert_eq!(part.dtype, all.dtype);
    assert_eq!(part.shape, [range.len(), cols], "{range:?}");
    assert!(
        part.data == all.data[range.start * size..range.end * size],
        "{:?} {:?}: {range:?}",
        all.dtype,
        all.shape
    );
    let mut room = vec![0xa5; part.data.len()];
    Cpu.decode_rows_into(blob, range, &DecodeOptions::default(), &mut room).unwrap();
    assert!(room == part.data);
}

#[test]
fn a_buffer_of_another_length_is_refused() {
    let s = Sample::make(Dtype::F32, &[50, 20], common::KINDS[0], 1);
    let blob = tenfold::encode(&s.view(), &EncodeOptions::new(Goal::Bits(3.0))).unwrap();
    for len in [0, 159, 161, 4000] {
        let error = Cpu.decode_rows_into(&blob, 3..5, &DecodeOptions::default(), &mut vec![0; len]);
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Caller, "{len}");
    }
}

#[test]
fn any_range_of_rows_is_a_slice_of_the_whole() {
    let mut r = Random::new(1);
    let shapes: [&[usize]; 7] =
        [&[400, 33], &[2500, 7], &[9000, 1], &[3, 5000], &[1, 3000], &[5, 6, 7, 11], &[3000]];
    for (i, dtype) in FLOATS.into_iter().chain([Dtype::I32, Dtype::U8]).enumerate() {
        for (j, shape) in shapes.into_iter().enumerate() {
            let s = Sample::make(dtype, shape, common::KINDS[(i + j) % 5], (i + j) as u64).sprinkle(40, 3);
            let goals = [Goal::Lossless, Goal::Bits(2.0), Goal::Bits(6.9), Goal::MaxError(0.01)];
            for goal in &goals[..if dtype.is_float() { 4 } else { 1 }] {
                let options = EncodeOptions::new(*goal).with_lane_values([32, 0, 90][(i + j) % 3]);
                let blob = tenfold::encode(&s.view(), &options).unwrap();
                let all = decode(&blob);
                let count = s.view().rows();
                check(&blob, &all, 0..count);
                check(&blob, &all, 0..1);
                check(&blob, &all, count - 1..count);
                for _ in 0..12 {
                    let from = r.below(count);
                    let to = from + r.below(count - from + 1);
                    check(&blob, &all, from..to);
                }
            }
        }
    }
}

#[test]
fn ranges_at_the_borders_of_tiles_are_right() {
    for (goal, effort) in
        [(Goal::Lossless, Effort::Fast), (Goal::Bits(3.0), Effort::Fast), (Goal::Bits(2.0), Effort::Balanced)]
    {
        // A column wide: rows are values, so every border can be hit.
        let s = Sample::make(Dtype::Bf16, &[40_000, 1], Kind::HeavyTails, 5).sprinkle(30, 5);
        let options = EncodeOptions::new(goal).with_effort(effort).with_lane_values(64);
        let blob = tenfold::encode(&s.view(), &options).unwrap();
        let all = decode(&blob);
        let info = tenfold::inspect(&blob).unwrap();
        assert!(info.tiles > 3);
        let tile = info.tile_values as usize;
        for border in (tile..40_000).step_by(tile).chain([tile / 2, tile + 2048, 40_000 - 3]) {
            for (before, after) in [(0, 1), (1, 0), (1, 1), (tile.min(border), 2), (2, tile), (0, 0)] {
                check(&blob, &all, border - before..(border + after).min(40_000));
            }
        }
    }
}

#[test]
fn empty_ranges_and_empty_tensors_have_no_values() {
    let s = Sample::make(Dtype::F32, &[50, 30], Kind::Gaussian, 1);
    for goal in [Goal::Lossless, Goal::Bits(2.0)] {
        let blob = s.encode(goal, Effort::Fast);
        for at in [0, 25, 50] {
            let none = rows(&blob, at..at).unwrap();
            assert_eq!((none.shape, none.data.len()), (vec![0, 30], 0));
        }
    }
    for shape in [&[0, 5][..], &[5, 0], &[0], &[2, 0, 3], &[3, 2, 0]] {
        let s = Sample::make(Dtype::F32, shape, Kind::Gaussian, 1);
        let blob = s.encode(Goal::Lossless, Effort::Fast);
        let count = s.view().rows();
        check(&blob, &decode(&blob), 0..count);
        assert_eq!(rows(&blob, 0..count + 1).unwrap_err().kind(), ErrorKind::Caller);
    }
    let scalar = Sample::make(Dtype::F32, &[], Kind::Gaussian, 1);
    let blob = scalar.encode(Goal::Lossless, Effort::Fast);
    assert_eq!(rows(&blob, 0..1).unwrap().data, scalar.data);
}

#[test]
#[allow(clippy::reversed_empty_ranges)]
fn ranges_outside_the_tensor_are_the_callers_fault() {
    let s = Sample::make(Dtype::F32, &[50, 30], Kind::Gaussian, 1);
    for goal in [Goal::Lossless, Goal::Bits(2.0)] {
        let blob = s.encode(goal, Effort::Fast);
        for range in [0..51, 50..51, 51..51, 10..9, usize::MAX..usize::MAX, 0..usize::MAX, usize::MAX..0] {
            let e = rows(&blob, range.clone()).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Caller, "{range:?}: {e}");
        }
    }
}

#[test]
fn a_row_needs_its_own_tiles_only() {
    for (goal, effort) in [(Goal::Lossless, Effort::Fast), (Goal::Bits(2.0), Effort::Balanced)] {
        let s = Sample::make(Dtype::F32, &[1000, 100], Kind::Gaussian, 1);
        let options = EncodeOptions::new(goal).with_effort(effort).with_lane_values(100);
        let blob = tenfold::encode(&s.view(), &options).unwrap();
        let info = tenfold::inspect(&blob).unwrap();
        assert!(info.tiles >= 8);
        let all = decode(&blob);
        let directory = info.header_bytes as usize - 4 - 8 * info.tiles as usize;
        let mut start = info.header_bytes as usize;
        for tile in 0..info.tiles as usize {
            let entry = directory + 8 * tile;
            let len = u32::from_le_bytes(blob[entry..entry + 4].try_into().unwrap()) as usize;
            let mut bad = blob.clone();
            bad[start + len / 2] ^= 1;
            start += len;
            let values =
                tile * info.tile_values as usize..((tile + 1) * info.tile_values as usize).min(s.len());
            for row in (0..1000).step_by(17) {
                let touches = row * 100 < values.end && (row + 1) * 100 > values.start;
                match rows(&bad, row..row + 1) {
                    Ok(part) => {
                        assert!(!touches, "row {row} of the broken tile {tile} decodes");
                        assert!(part.data == all.data[row * 400..(row + 1) * 400]);
                    }
                    Err(e) => {
                        assert!(touches, "row {row} needs tile {tile}: {e}");
                        assert_eq!(e.kind(), ErrorKind::Data);
                    }
                }
            }
        }
        assert_eq!(start, blob.len());
    }
}

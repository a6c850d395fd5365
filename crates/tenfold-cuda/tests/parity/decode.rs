//! Random tensors of every dtype, rate and effort, encoded on the CPU.

use tenfold::engine::Engine;
use tenfold::{DecodeOptions, Dtype, Effort, EncodeOptions, Goal};
use tenfold_cuda::DecodeSettings;

use crate::Case;
use crate::common::{FLOATS, Kind, Sample};
use crate::device::Subject;

pub fn cases() -> Vec<Case> {
    vec![
        ("lossy blobs decode to the same bits".into(), lossy),
        ("lossless blobs decode to the same bits".into(), lossless),
        ("lossless tiles of two bytes, of every kind".into(), halves),
        ("rows and columns of every width".into(), widths),
        ("more tiles than a warp adds up at once".into(), many_tiles),
        ("windows of values".into(), windows),
        ("few multiprocessors".into(), few_multiprocessors),
        ("other dtypes than the blob's".into(), converted),
        ("real tensors".into(), real),
    ]
}

pub fn same(subject: &Subject, blob: &[u8], what: &str) {
    let wanted = tenfold::decode(blob, &DecodeOptions::default()).unwrap();
    let found = subject.engine().decode(blob, &DecodeOptions::default());
    let found = found.unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!((found.dtype, &found.shape), (wanted.dtype, &wanted.shape), "{what}");
    if found.data != wanted.data {
        let at = found.data.iter().zip(&wanted.data).position(|(a, b)| a != b).unwrap();
        panic!("{what}: byte {at} of {} differs", wanted.data.len());
    }
}

fn lossy(subject: &Subject) {
    let shapes: &[&[usize]] = &[&[1, 300], &[37, 129], &[100, 384], &[3, 5, 1111], &[70_001]];
    let kinds = [Kind::Gaussian, Kind::Laplace, Kind::Rows];
    let mut seed = 0;
    for dtype in FLOATS {
        for (s, shape) in shapes.iter().enumerate() {
            for effort in [Effort::Fast, Effort::Balanced, Effort::Best] {
                seed += 1;
                let bits = [0.7, 1.5, 2.5, 4.0, 7.0, 12.0][seed as usize % 6];
                let kind = kinds[(s + seed as usize) % kinds.len()];
                let sample = Sample::make(dtype, shape, kind, seed);
                let sample = if seed % 4 == 0 { sample.sprinkle(997, seed) } else { sample };
                let lane = [0, 32, 256][seed as usize % 3];
                let options = EncodeOptions::new(Goal::Bits(bits)).with_effort(effort).with_lane_values(lane);
                let blob = tenfold::encode(&sample.view(), &options).unwrap();
                same(
                    subject,
                    &blob,
                    &format!("{dtype} {shape:?} {kind:?} {bits} bits {effort:?} lanes of {lane}"),
                );
            }
        }
    }
}

/// Multiprocessors that are left to others.
fn few_multiprocessors(subject: &Subject) {
    let sample = Sample::make(Dtype::Bf16, &[96, 512], Kind::Rows, 5);
    let lossy = EncodeOptions::new(Goal::Bits(2.5)).with_effort(Effort::Balanced).with_lane_values(64);
    for options in [lossy.clone(), lossy.with_minor(0), EncodeOptions::new(Goal::Lossless)] {
        let blob = tenfold::encode(&sample.view(), &options).unwrap();
        let wanted = tenfold::decode(&blob, &DecodeOptions::default()).unwrap().data;
        for count in [1, 3, 1000] {
            let settings = DecodeSettings::default().with_multiprocessors(count);
            let found = subject.decode_by(&blob, sample.dtype, wanted.len(), &settings, |request| request);
            assert!(found.unwrap() == wanted, "{:?} on {count}", options.goal);
        }
    }
}

/// Every way of finding a value's class: rows that are whole steps or not, whole groups of steps or not, and so wide that
/// there is no room for what would be quickest.
fn widths(subject: &Subject) {
    let growing = |i: usize| 0.05 * 1.4f64.powi((i * 7919 % 11) as i32);
    let level = |_: usize| 1.0;
    type Scale<'a> = &'a dyn Fn(usize) -> f64;
    let scales: [(&str, Scale, Scale); 3] =
        [("rows", &growing, &level), ("columns", &level, &growing), ("both", &growing, &growing)];
    for (seed, width) in [96, 128, 160, 192, 224, 256, 384, 577, 1536, 8192].into_iter().enumerate() {
        let rows = (60_000 / width).max(24);
        for (name, row, column) in scales {
            let plain = Sample::make(Dtype::F32, &[rows, width], Kind::Gaussian, seed as u64).reals();
            let mut values: Vec<f64> =
                plain.iter().enumerate().map(|(i, v)| v * row(i / width) * column(i % width)).collect();
            // Far from all others: escapes.
            for i in (500..values.len()).step_by(7001) {
                values[i] *= 3000.0;
            }
            for dtype in [Dtype::Bf16, Dtype::F32] {
                let sample = Sample::new(dtype, &[rows, width], &values);
                for lane in [256, 1022] {
                    let options = EncodeOptions::new(Goal::Bits(2.5)).with_lane_values(lane);
                    let blob = tenfold::encode(&sample.view(), &options).unwrap();
                    let classes = tenfold::inspect(&blob).unwrap().classes.unwrap();
                    assert!(classes > 1, "{width} {name}: one class");
                    same(subject, &blob, &format!("{dtype} {rows} × {width} {name}, lanes of {lane}"));
                }
            }
        }
    }
}

fn lossless(subject: &Subject) {
    for (seed, dtype) in Dtype::ALL.into_iter().enumerate() {
        for shape in [&[9usize][..], &[64, 100], &[40_003]] {
            for lane in [0, 32] {
                let sample = match dtype.is_float() {
                    true => Sample::make(dtype, shape, Kind::Gaussian, seed as u64).sprinkle(50, 1),
                    false => Sample::noise(dtype, shape, seed as u64),
                };
                let options = EncodeOptions::new(Goal::Lossless).with_lane_values(lane);
                let blob = tenfold::encode(&sample.view(), &options).unwrap();
                same(subject, &blob, &format!("{dtype} {shape:?} lanes of {lane}"));
            }
        }
    }
}

/// A kernel of its own takes two such tiles at a time, where their low bytes are stored and their high bytes coded: more
/// tiles than warps and fewer, ends of every length, tiles of other kinds among them, and none of that kind at all.
fn halves(subject: &Subject) {
    let one_value = |data: &mut [u8], tiles: &[usize], tile: usize| {
        for &t in tiles {
            data[2 * t * tile..2 * (t + 1) * tile]
                .chunks_mut(2)
                .for_each(|v| v.copy_from_slice(&[0x80, 0x3f]));
        }
    };
    for (seed, dtype) in [Dtype::Bf16, Dtype::F16, Dtype::I16].into_iter().enumerate() {
        for (lane, tiles, end) in [
            (32, 150, 0),
            (32, 149, 1),
            (32, 65, 255),
            (32, 2, 200),
            (64, 70, 300),
            (40, 70, 1277),
            (36, 70, 5),
        ] {
            let tile = 32 * lane;
            let shape = [tiles * tile + end];
            let mut sample = match dtype.is_float() {
                true => Sample::make(dtype, &shape, Kind::Gaussian, seed as u64),
                false => Sample::noise(dtype, &shape, seed as u64),
            };
            for others in [&[][..], &[1], &[0, 1, tiles - 1], &[tiles / 2]] {
                one_value(&mut sample.data, others, tile);
                let options = EncodeOptions::new(Goal::Lossless).with_lane_values(lane as u32);
                let blob = tenfold::encode(&sample.view(), &options).unwrap();
                same(
                    subject,
                    &blob,
                    &format!("{dtype}, {tiles} tiles of {tile} and {end}, others {others:?}"),
                );
            }
        }
    }
    // High bytes of all values alike: no table, and nothing for that kernel.
    let data = (0..40_000u32).flat_map(|i| [(i * 77) as u8, 0x3f]).collect();
    let sample = Sample { dtype: Dtype::Bf16, shape: vec![40_000], data };
    let blob = sample.encode(Goal::Lossless, Effort::Fast);
    same(subject, &blob, "low bytes only");
    // Not the whole of it.
    let sample = Sample::make(Dtype::Bf16, &[100, 1024], Kind::Gaussian, 9);
    let options = EncodeOptions::new(Goal::Lossless).with_lane_values(32);
    let blob = tenfold::encode(&sample.view(), &options).unwrap();
    for first in [0, 1, 1024, 1030] {
        let count = 102_400 - first;
        let found = subject.decode_raw(&blob, Dtype::Bf16, first, Some(count), count as usize * 2).unwrap();
        assert!(found == sample.data[first as usize * 2..], "from {first} on");
    }
}

/// More than seven warps of 32 lanes, each with a run of 64 tiles.
fn many_tiles(subject: &Subject) {
    let (tiles, tile) = (7 * 32 * 64 + 777, 1024);
    let data: Vec<u8> = (0..tiles * tile - 5)
        .map(|i| {
            // Most tiles hold one value, so that this is quick.
            let t = i / tile;
            if t % 50 == 7 { (i % 251) as u8 } else { t as u8 }
        })
        .collect();
    let sample = Sample { dtype: Dtype::U8, shape: vec![data.len()], data };
    let options = EncodeOptions::new(Goal::Lossless).with_lane_values(32);
    let blob = tenfold::encode(&sample.view(), &options).unwrap();
    assert_eq!(tenfold::inspect(&blob).unwrap().tiles, tiles as u64);
    same(subject, &blob, "many tiles");
}

fn windows(subject: &Subject) {
    let sample = Sample::make(Dtype::Bf16, &[300, 77], Kind::Rows, 3);
    for goal in [Goal::Bits(2.0), Goal::Bits(9.0), Goal::Lossless] {
        let options = EncodeOptions::new(goal).with_lane_values(64);
        let blob = tenfold::encode(&sample.view(), &options).unwrap();
        let all = tenfold::decode(&blob, &DecodeOptions::default()).unwrap().data;
        for (first, count) in
            [(0, 1), (5, 100), (2047, 3), (2048, 2048), (23_000, 100), (23_100, 0), (0, 23_100)]
        {
            let found =
                subject.decode_raw(&blob, Dtype::Bf16, first, Some(count), count as usize * 2).unwrap();
            let at = first as usize * 2;
            assert!(found == all[at..at + count as usize * 2], "{goal:?}: {count} values from {first}");
        }
        assert!(subject.decode_raw(&blob, Dtype::Bf16, 23_000, Some(101), 202).is_err());
        assert!(subject.decode_raw(&blob, Dtype::Bf16, 0, None, 100).is_err());
        assert!(subject.decode_raw(&blob, Dtype::I16, 0, None, 46_200).is_err());
    }
}

/// A lossy blob of one dtype decodes to another as if it had been made for that.
fn converted(subject: &Subject) {
    let sample = Sample::make(Dtype::F32, &[50, 100], Kind::Laplace, 4).sprinkle(331, 5);
    let blob = tenfold::encode(&sample.view(), &EncodeOptions::new(Goal::Bits(3.0))).unwrap();
    let reals = tenfold::decode(&blob, &DecodeOptions::default()).unwrap();
    let reals: Vec<f64> = reals.to_vec::<f32>().unwrap().into_iter().map(f64::from).collect();
    for dtype in [Dtype::F16, Dtype::Bf16, Dtype::F8E4M3, Dtype::F8E5M2] {
        let size = dtype.size();
        let found = subject.decode_raw(&blob, dtype, 0, None, 5000 * size).unwrap();
        let wanted = Sample::new(dtype, &[50, 100], &reals).data;
        for ((f, w), real) in found.chunks(size).zip(wanted.chunks(size)).zip(&reals) {
            // What is not finite has more than one form.
            assert!(f == w || !real.is_finite(), "{dtype}: {real} became {f:?}, not {w:?}");
        }
    }
}

fn real(subject: &Subject) {
    for (name, sample) in crate::common::real_tensors() {
        for (effort, goal) in [
            (Effort::Balanced, Goal::Bits(2.5)),
            (Effort::Fast, Goal::Bits(4.0)),
            (Effort::Balanced, Goal::Lossless),
        ] {
            let blob = sample.encode(goal, effort);
            same(subject, &blob, &format!("{name} {goal:?} {effort:?}"));
        }
    }
}

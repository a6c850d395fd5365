//! Lossy blobs behind transforms that are undone on the way: means, weights of columns and rows, kept elements.

use tenfold::engine::{Engine, ErrorKind};
use tenfold::format::Codec;
use tenfold::prepare::{Axis, Means, Transform, Weights};
use tenfold::{DecodeOptions, Dtype, Effort, EncodeOptions, Goal, format};

use crate::Case;
use crate::common::{FLOATS, Kind, Random, Sample, seal};
use crate::corruption::compare;
use crate::decode::same;
use crate::device::Subject;

pub fn cases() -> Vec<Case> {
    vec![
        ("prepared: every dtype, axis and order".into(), chains),
        ("prepared: classes, low bits, escapes, zeros".into(), kinds),
        ("prepared: exact values are weighted too".into(), exact),
        ("prepared: the whole range of weights".into(), range),
        ("prepared: means that are large, wide or behind zeros".into(), large_means),
        ("prepared: windows of values".into(), windows),
        ("prepared: other dtypes than the blob's".into(), converted),
        ("prepared: kept elements by the thousand".into(), kept),
        ("prepared: flipped bits".into(), flips),
        ("prepared: transforms that are not as they must be".into(), wrong_steps),
        ("prepared: means that are not as they must be".into(), wrong_means),
    ]
}

/// Weights up to some eighths of an octave.
fn weights(axis: Axis, len: usize, most: usize, seed: u64) -> Transform {
    let mut r = Random::new(seed);
    let eighths = (0..len).map(|_| (r.below(2 * most + 1) as i64 - most as i64) as i8);
    Transform::Weights(Weights::new(axis, eighths.collect()))
}

fn means(cols: usize, seed: u64) -> Transform {
    let mut r = Random::new(seed);
    Transform::Means(Means::new(&(0..cols).map(|_| r.normal() as f32).collect::<Vec<_>>()))
}

/// Means that bf16 is too coarse for.
fn wide_means(cols: usize) -> Transform {
    let one: Vec<f32> = (0..cols).map(|i| 1000.3 + i as f32 * 0.7).collect();
    let means = Means::measure(&[one.clone(), one].concat(), cols);
    assert!(means.values().iter().any(|&m| Means::new(&[m]).values() != [m]));
    Transform::Means(means)
}

/// Chains that a device undoes on the way, for a tensor of this shape: weights alone first, then with means.
fn all_chains(shape: &[usize], most: usize, seed: u64) -> [Vec<Transform>; 8] {
    let cols = shape.last().copied().unwrap_or(1);
    let columns = weights(Axis::Columns, cols, most, seed);
    let rows = weights(Axis::Rows, shape.iter().rev().skip(1).product(), most, seed + 1);
    let means = means(cols, seed + 2);
    [
        vec![columns.clone()],
        vec![rows.clone()],
        vec![columns.clone(), rows.clone()],
        vec![rows.clone(), columns.clone()],
        vec![means.clone()],
        vec![means.clone(), columns.clone()],
        vec![columns.clone(), means.clone()],
        vec![rows, means, columns],
    ]
}

/// A lossy blob.
fn encode(sample: &Sample, transforms: &[Transform], goal: Goal, effort: Effort, lane: u32) -> Vec<u8> {
    let options = EncodeOptions::new(goal).with_effort(effort).with_lane_values(lane);
    let blob = tenfold::encode(&sample.view(), &options.with_transforms(transforms.to_vec())).unwrap();
    let info = tenfold::inspect(&blob).unwrap();
    assert_eq!(info.codec, Codec::Levels, "{} {goal:?}: lossless", sample.name());
    assert!(info.transforms.ends_with(transforms));
    blob
}

fn has_kept(blob: &[u8]) -> bool {
    matches!(tenfold::inspect(blob).unwrap().transforms.first(), Some(Transform::Kept(_)))
}

fn chains(subject: &Subject) {
    let shapes: [&[usize]; 5] = [&[2, 300], &[37, 129], &[90, 256], &[3, 5, 411], &[7001, 3]];
    let mut done = 0;
    for dtype in FLOATS {
        for shape in shapes {
            for (i, transforms) in all_chains(shape, 20, done).into_iter().enumerate() {
                // Means of two rows take more than what they stand for.
                if i >= 4 && shape[0] == 2 {
                    continue;
                }
                done += u64::from(i < 4);
                let seed = if i < 4 { done } else { done + i as u64 };
                let sample = Sample::make(dtype, shape, Kind::Gaussian, seed);
                let sample = if seed % 2 == 0 { sample.sprinkle(97, seed) } else { sample };
                let effort = [Effort::Fast, Effort::Balanced][seed as usize % 2];
                let lane = [0, 32, 64][seed as usize % 3];
                let blob = encode(&sample, &transforms, Goal::Bits(2.5), effort, lane);
                assert_eq!(has_kept(&blob), seed % 2 == 0);
                let what = format!("{} {:?}, lanes of {lane}", sample.name(), transforms[0].name());
                same(subject, &blob, &what);
                let rows = tenfold::inspect(&blob).unwrap().rows() as usize;
                for range in [0..1, rows / 2..rows / 2 + 1, rows / 3..rows, rows - 1..rows, 1..1] {
                    let options = DecodeOptions::default();
                    let found = subject.engine().decode_rows(&blob, range.clone(), &options).unwrap();
                    let wanted = tenfold::decode_rows(&blob, range.clone(), &options).unwrap();
                    assert!(found == wanted, "{what}: rows {range:?}");
                }
            }
        }
    }
}

fn kinds(subject: &Subject) {
    let cases = [
        (Kind::Rows, [64, 640], 2.0, Effort::Balanced),
        (Kind::Rows, [300, 50], 1.5, Effort::Fast),
        (Kind::Gaussian, [40, 100], 11.0, Effort::Fast),
        (Kind::Outliers, [100, 300], 4.0, Effort::Balanced),
        (Kind::Sparse, [200, 64], 0.3, Effort::Balanced),
        (Kind::Gaussian, [1, 5], 4.0, Effort::Fast),
    ];
    let (mut classes, mut low) = (0, 0);
    for (i, (kind, shape, bits, effort)) in cases.into_iter().enumerate() {
        for (j, transforms) in all_chains(&shape, 12, i as u64).into_iter().enumerate() {
            let dtype = [Dtype::F32, Dtype::Bf16, Dtype::F64][j % 3];
            let sample = Sample::make(dtype, &shape, kind, i as u64).sprinkle(401, 3);
            let options = EncodeOptions::new(Goal::Bits(bits)).with_effort(effort).with_lane_values(32);
            let blob = tenfold::encode(&sample.view(), &options.with_transforms(transforms)).unwrap();
            let info = tenfold::inspect(&blob).unwrap();
            classes = classes.max(info.classes.unwrap_or(0));
            low = low.max(info.low_bits.unwrap_or(0));
            same(subject, &blob, &format!("{} {kind:?} at {bits} bits", sample.name()));
        }
    }
    assert!(classes > 1 && low > 0, "{classes} classes, {low} low bits");
}

fn exact(subject: &Subject) {
    for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F64] {
        // No level is that large; runs of it, over the seams of tiles and rows.
        let mut reals = Kind::Gaussian.reals(70 * 130, 130, 4);
        reals
            .iter_mut()
            .enumerate()
            .filter(|(i, _)| i % 700 < 3 || i / 100 == 20)
            .for_each(|(_, v)| *v = -1e30);
        let sample = Sample::new(dtype, &[70, 130], &reals).sprinkle(211, 8);
        for transforms in all_chains(&[70, 130], 24, 6) {
            for step in [0.1, 1e9] {
                let blob = encode(&sample, &transforms, Goal::Step(step), Effort::Fast, 32);
                same(subject, &blob, &format!("{dtype}, step {step}"));
            }
        }
    }
}

fn range(subject: &Subject) {
    let all: Vec<i8> = (i8::MIN..=i8::MAX).collect();
    for dtype in FLOATS {
        // Up to the largest numbers and down to the smallest that are not zero.
        let mut r = Random::new(7);
        let most = match dtype {
            Dtype::F8E4M3 | Dtype::F8E5M2 | Dtype::F16 => 12.0,
            _ => 100.0,
        };
        let mut lossy = 0;
        let reals: Vec<f64> =
            (0..20 * 256).map(|_| r.normal() * (r.uniform() * most - 0.5 * most).exp2()).collect();
        let sample = Sample::new(dtype, &[20, 256], &reals);
        let columns = Transform::Weights(Weights::new(Axis::Columns, all.clone()));
        for transforms in [vec![columns.clone()], vec![weights(Axis::Rows, 20, 127, 5), columns]] {
            for step in [1e-3, 1e3] {
                let options = EncodeOptions::new(Goal::Step(step)).with_transforms(transforms.clone());
                let blob = tenfold::encode(&sample.view(), &options).unwrap();
                lossy += u32::from(tenfold::inspect(&blob).unwrap().codec == Codec::Levels);
                same(subject, &blob, &format!("{dtype}, step {step}"));
            }
        }
        assert!(lossy > 0, "{dtype}: all lossless");
    }
}

/// Means as large as a dtype goes, so that sums leave its range; means in f32; and tiles without levels, which are not zeros.
fn large_means(subject: &Subject) {
    let shape = [40, 130];
    for dtype in FLOATS {
        let most = match dtype {
            Dtype::F8E4M3 => 440.0,
            Dtype::F8E5M2 | Dtype::F16 => 50_000.0,
            _ => 1e38,
        };
        let large = Means::new(&(0..130).map(|i| most * (i as f32 * 0.7).sin()).collect::<Vec<_>>());
        let weights = weights(Axis::Columns, 130, 20, 3);
        for transforms in [
            vec![Transform::Means(large.clone())],
            vec![weights.clone(), Transform::Means(large)],
            vec![wide_means(130)],
            vec![wide_means(130), weights],
        ] {
            // The means themselves and nothing else in most tiles; a few values at the end.
            let Some(values) = transforms.iter().find_map(|t| match t {
                Transform::Means(m) => Some(m.values()),
                _ => None,
            }) else {
                panic!("no means")
            };
            let mut reals: Vec<f64> = values.iter().map(|&m| f64::from(m)).cycle().take(40 * 130).collect();
            reals[5000..].iter_mut().enumerate().for_each(|(i, v)| *v *= 1.0 + f64::from((i as f32).sin()));
            let sample = Sample::new(dtype, &shape, &reals);
            let step = f64::from(most) / 8.0;
            let options = EncodeOptions::new(Goal::Step(step)).with_effort(Effort::Fast).with_lane_values(32);
            let blob = tenfold::encode(&sample.view(), &options.with_transforms(transforms)).unwrap();
            same(subject, &blob, &sample.name());
        }
    }
}

fn windows(subject: &Subject) {
    let shape = [100, 77];
    for dtype in [Dtype::Bf16, Dtype::F64, Dtype::F8E5M2] {
        let sample = Sample::make(dtype, &shape, Kind::Laplace, 3).sprinkle(53, 2);
        for (i, transforms) in all_chains(&shape, 16, 9).into_iter().enumerate() {
            let blob = encode(&sample, &transforms, Goal::Bits(2.0), Effort::Balanced, 32);
            let all = tenfold::decode(&blob, &DecodeOptions::default()).unwrap().data;
            let size = dtype.size();
            for (first, count) in
                [(0, 1), (5, 100), (1023, 3), (1024, 1024), (7001, 699), (7700, 0), (1, 7699)]
            {
                let len = count as usize * size;
                let found = subject.decode_raw(&blob, dtype, first, Some(count), len).unwrap();
                let at = first as usize * size;
                assert!(found == all[at..at + len], "{dtype}, chain {i}: {count} values from {first}");
            }
        }
    }
}

/// Levels behind transforms say the same whatever the dtype is: a blob with another dtype in its header is what a device must
/// make of it.
fn converted(subject: &Subject) {
    let shape = [60, 90];
    let floats = [Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::F8E4M3, Dtype::F8E5M2];
    for (i, dtype) in floats.into_iter().enumerate() {
        let plain = Sample::make(dtype, &shape, Kind::Outliers, i as u64);
        let transforms = &all_chains(&shape, 24, 1)[3 + i];
        let step = |sample: &Sample| {
            let blob = encode(sample, transforms, Goal::Step(1.0), Effort::Fast, 32);
            assert_eq!(has_kept(&blob), sample.data != plain.data);
            blob
        };
        let blob = step(&plain);
        let odd = plain.clone().sprinkle(71, 4);
        let kept = step(&odd);
        for to in floats {
            let mut other = blob.clone();
            other[6] = to.id();
            seal(&mut other, 0);
            let wanted = tenfold::decode(&other, &DecodeOptions::default()).unwrap().data;
            let found = subject.decode_raw(&blob, to, 0, None, wanted.len()).unwrap();
            assert!(found == wanted, "{dtype} to {to}");
            // Elements that were kept stay what they are, if the other dtype can say it.
            let found = subject.decode_raw(&kept, to, 0, None, wanted.len()).unwrap();
            let found = Sample { dtype: to, shape: shape.to_vec(), data: found }.reals();
            for (i, (f, w)) in found.iter().zip(odd.reals()).enumerate().filter(|(_, (_, w))| !w.is_finite())
            {
                let infinite = w.is_infinite() && to != Dtype::F8E4M3;
                assert!(
                    if infinite { *f == w } else { f.is_nan() },
                    "{dtype} to {to}: value {i} is {f}, not {w}"
                );
            }
        }
    }
    let sample = Sample::make(Dtype::F64, &shape, Kind::Gaussian, 1);
    let blob = encode(&sample, &all_chains(&shape, 9, 1)[0], Goal::Bits(3.0), Effort::Fast, 0);
    let refused = subject.decode_raw(&blob, Dtype::F32, 0, None, 4 * 5400).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Caller);
}

/// Runs alone, in crowds, and longer than tiles; a header so long that its checksum is left to those who decode.
fn kept(subject: &Subject) {
    let shape = [300, 200];
    for dtype in [Dtype::F32, Dtype::F64] {
        let mut reals = Kind::Gaussian.reals(60_000, 200, 2);
        for (i, v) in reals.iter_mut().enumerate() {
            if (1..9000).contains(&i) && i % 2 == 0 || (20_000..24_500).contains(&i) || i % 997 < 40 {
                *v = f64::NAN;
            }
        }
        *reals.last_mut().unwrap() = f64::NAN;
        let sample = Sample::new(dtype, &shape, &reals);
        let blob = encode(&sample, &all_chains(&shape, 10, 3)[0], Goal::Bits(4.0), Effort::Fast, 32);
        let info = tenfold::inspect(&blob).unwrap();
        assert!(info.header_bytes > 33 << 10, "{} bytes of header", info.header_bytes);
        same(subject, &blob, &format!("{dtype}"));
        // A run in the middle that is wrong, with the header's checksum right and not.
        for at in [80_000, 70_001, 40_000, 1000] {
            let mut bytes = blob.clone();
            bytes[at % info.header_bytes as usize] ^= 0x80;
            compare(subject, &format!("{dtype}: byte {at}"), &bytes);
            seal(&mut bytes, info.tiles as usize);
            compare(subject, &format!("{dtype}: byte {at}, sealed"), &bytes);
        }
    }
}

/// Small blobs with every step.
fn small() -> Vec<(String, Vec<u8>)> {
    let mut out = Vec::new();
    let dtypes = [Dtype::F32, Dtype::F16, Dtype::F64, Dtype::F8E5M2, Dtype::Bf16, Dtype::F32];
    for (i, dtype) in dtypes.into_iter().enumerate() {
        let sample = Sample::make(dtype, &[19, 23], Kind::Gaussian, i as u64).sprinkle(90, 3);
        let transforms = &all_chains(&[19, 23], 20, 2)[i + 2];
        let blob = encode(&sample, transforms, Goal::Bits(2.5), Effort::Balanced, 32);
        assert!(has_kept(&blob));
        out.push((sample.name(), blob));
    }
    out
}

fn flips(subject: &Subject) {
    for (name, blob) in small() {
        let info = tenfold::inspect(&blob).unwrap();
        let (tiles, header) = (info.tiles as usize, info.header_bytes as usize);
        for at in (0..blob.len()).step_by(3) {
            let mut bytes = blob.clone();
            bytes[at] ^= 1 << (at % 8);
            compare(subject, &format!("{name}: bit of byte {at}"), &bytes);
        }
        for at in (12..header).chain((header..blob.len()).step_by(5)) {
            for bit in [at % 8, (at + 3) % 8, (at + 5) % 8] {
                let mut bytes = blob.clone();
                bytes[at] ^= 1 << bit;
                seal(&mut bytes, tiles);
                compare(subject, &format!("{name}: bit {bit} of byte {at}, sealed"), &bytes);
            }
        }
        for len in (0..blob.len()).step_by(17) {
            compare(subject, &format!("{name}: {len} bytes"), &blob[..len]);
        }
    }
}

/// Where the transforms of a blob of shape [n, n], n < 128, are: each as the range from its number to its end.
fn places(blob: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut at = format::FIXED + 3;
    (0..blob[format::FIXED + 2])
        .map(|_| {
            let (start, mut len, mut shift) = (at, 0, 0);
            at += 1;
            loop {
                len |= usize::from(blob[at] & 0x7f) << shift;
                (at, shift) = (at + 1, shift + 7);
                if blob[at - 1] < 0x80 {
                    break;
                }
            }
            at += len;
            start..at
        })
        .collect()
}

fn wrong_steps(subject: &Subject) {
    let shape = [24, 24];
    let sample = Sample::make(Dtype::F16, &shape, Kind::Gaussian, 1).sprinkle(60, 3);
    let blob = encode(&sample, &all_chains(&shape, 20, 2)[3], Goal::Bits(2.5), Effort::Fast, 32);
    let info = tenfold::inspect(&blob).unwrap();
    let transforms = places(&blob);
    let [kept, first, second] = &transforms[..] else { panic!("{} transforms", transforms.len()) };
    let runs = kept.end - (kept.len() - 2) / 16 * 16;
    assert_eq!((blob[kept.start], blob[first.start]), (format::TRANSFORM_KEPT, format::TRANSFORM_WEIGHTS));
    assert!(kept.end - runs >= 48);
    let found = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = blob.clone();
        change(&mut bytes);
        seal(&mut bytes, info.tiles as usize);
        let wanted = tenfold::decode(&bytes, &DecodeOptions::default());
        (subject.decode_raw(&bytes, Dtype::F16, 0, None, 24 * 24 * 2).map(drop), wanted.map(drop))
    };
    let same_error = |what: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let (found, wanted) = found(change);
        assert!(wanted.is_err(), "{what}: the CPU takes it");
        assert_eq!(found, wanted, "{what}");
    };
    for id in [0, 3, 255] {
        same_error("first id", &|b| b[kept.start] = id);
        same_error("last id", &|b| b[second.start] = id);
    }
    // Steps that are undone by a chain are refused by their number where there is none, whatever they hold.
    for id in (1..=10).filter(|&id| format::knows_transform(id)) {
        let known = [
            format::TRANSFORM_KEPT,
            format::TRANSFORM_WEIGHTS,
            format::TRANSFORM_MEANS,
            format::TRANSFORM_TRANSPOSED,
        ];
        if !known.contains(&id) {
            let (found, _) = found(&|b| b[kept.start] = id);
            assert_eq!(found.unwrap_err().kind(), ErrorKind::Unsupported);
        }
    }
    for axis in [2, 3, 255] {
        same_error("axis", &|b| b[second.start + 2] = axis);
    }
    for by in [1, 2, 0x7f] {
        same_error("length of weights", &|b| b[first.start + 1] ^= by);
        same_error("length of runs", &|b| b[kept.start + 1] ^= by);
    }
    same_error("endless length", &|b| b[kept.start + 1..kept.start + 11].fill(0xff));
    for count in [1, 2, 4, 255] {
        same_error("number of transforms", &|b| b[format::FIXED + 2] = count);
    }
    same_error("kept last", &|b| {
        let all = [&blob[first.clone()], &blob[second.clone()], &blob[kept.clone()]].concat();
        b[kept.start..second.end].copy_from_slice(&all);
    });
    for run in [0, 1, (kept.end - runs) / 16 - 1] {
        let at = runs + run * 16;
        same_error("empty run", &|b| b[at + 8..at + 12].fill(0));
        same_error("far run", &|b| b[at + 5] = 1);
        same_error("run without end", &|b| b[at..at + 12].fill(0xff));
        same_error("long run", &|b| b[at + 10] = 1);
        same_error("bytes behind an element", &|b| b[at + 15] = 1);
        same_error("order", &|b| {
            let swapped = [&blob[runs + 16..runs + 32], &blob[runs..runs + 16]].concat();
            b[runs..runs + 32].copy_from_slice(&swapped);
        });
    }
    // What a device has no room for, it says: twice the same axis.
    let (found, wanted) = found(&|b| b[second.start + 2] = b[first.start + 2]);
    assert_eq!(wanted, Ok(()));
    assert_eq!(found.unwrap_err().kind(), ErrorKind::Unsupported);

    // No step stands before planes.
    let sample = Sample::make(Dtype::F16, &shape, Kind::Gaussian, 1);
    let planes = sample.encode(Goal::Lossless, Effort::Fast);
    let mut bytes = planes.clone();
    bytes[format::FIXED + 2] = 1;
    seal(&mut bytes, tenfold::inspect(&planes).unwrap().tiles as usize);
    compare(subject, "before planes", &bytes);
}

fn wrong_means(subject: &Subject) {
    let shape = [24, 24];
    let sample = Sample::make(Dtype::F16, &shape, Kind::Gaussian, 1);
    for (means, size) in [(means(24, 1), 2), (wide_means(24), 4)] {
        let blob = encode(&sample, &[means], Goal::Step(0.5), Effort::Fast, 32);
        let tiles = tenfold::inspect(&blob).unwrap().tiles as usize;
        let [place] = &places(&blob)[..] else { panic!("not one transform") };
        let first = place.end - 24 * size;
        assert_eq!((blob[place.start], blob[first - 1]), (format::TRANSFORM_MEANS, size as u8));
        let same_error = |what: &str, change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = blob.clone();
            change(&mut bytes);
            seal(&mut bytes, tiles);
            let wanted = tenfold::decode(&bytes, &DecodeOptions::default()).unwrap_err();
            let found = subject.decode_raw(&bytes, Dtype::F16, 0, None, 24 * 24 * 2).unwrap_err();
            assert_eq!(found, wanted, "{what}, {size} bytes each");
        };
        for kind in [0, 1, 3, 6 - size as u8, 255] {
            same_error("bytes of a mean", &|b| b[first - 1] = kind);
        }
        for by in [1, 2, 4, 0x7f] {
            same_error("length", &|b| b[place.start + 1] ^= by);
        }
        for at in [0, 13, 23] {
            let end = first + (at + 1) * size;
            same_error("infinite", &|b| b[end - 2..end].copy_from_slice(&[0x80, 0x7f]));
            same_error("not a number", &|b| b[end - 2..end].copy_from_slice(&[0xff, 0xff]));
        }
    }
}

use super::*;
use crate::error::Error;
use crate::simd::Isa;
use crate::view::{Dtype, TensorView};

/// Numbers that look random and are the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        check::mix(1, self.0)
    }

    /// In 0 … 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Nearly Gaussian.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

/// Weights and what a step of training makes of a share of them.
fn trained(values: usize, share: f64, step: f64, seed: u64) -> (Vec<f32>, Vec<f32>) {
    let mut r = Random(seed);
    let base: Vec<f32> = (0..values).map(|_| (0.02 * r.normal()) as f32).collect();
    let trained = |v: &f32| if r.unit() < share { v + (0.02 * step * r.normal()) as f32 } else { *v };
    let new = base.iter().map(trained).collect();
    (base, new)
}

fn to_bf16(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| half::bf16::from_f32(*v).to_le_bytes()).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn made(dtype: Dtype, shape: &[usize], old: &[u8], new: &[u8]) -> Vec<u8> {
    let view = |data| TensorView::new(dtype, shape, data).unwrap();
    make(&view(old), &view(new), &Default::default()).unwrap()
}

fn one_thread(verify: Verify) -> DeltaOptions {
    DeltaOptions::default().with_threads(1).with_verify(verify)
}

#[test]
fn every_dtype_comes_back_at_every_density() {
    let mut r = Random(3);
    for dtype in Dtype::ALL {
        for (values, share) in [(1, 1.0), (33, 0.5), (5000, 0.0), (5000, 0.001), (70_000, 0.1), (9000, 1.0)] {
            let size = dtype.size();
            let old: Vec<u8> = (0..values * size).map(|_| r.next() as u8).collect();
            let mut new = old.clone();
            for value in new.chunks_exact_mut(size) {
                if r.unit() < share {
                    value[0] = value[0].wrapping_add(1 + (r.next() % 5) as u8);
                }
            }
            let shape = [values];
            let blob = made(dtype, &[values], &old, &new);
            let view = TensorView::new(dtype, &shape, &old).unwrap();
            assert_eq!(
                apply(&blob, &view, &Default::default()).unwrap().data,
                new,
                "{dtype} {values} {share}"
            );
            let changed = old.chunks(size).zip(new.chunks(size)).filter(|(a, b)| a != b).count();
            assert_eq!(inspect(&blob).unwrap().changed, changed as u64);
            assert_eq!(made(dtype, &[values], &old, &new), blob);
            let alone =
                make(&view, &TensorView::new(dtype, &[values], &new).unwrap(), &one_thread(Verify::Whole));
            assert_eq!(alone.unwrap(), blob, "whatever the threads");
        }
    }
    let empty = made(Dtype::F32, &[0, 7], &[], &[]);
    assert!(apply_in_place(&empty, Dtype::F32, &[0, 7], &mut [], &Default::default()).is_ok());
}

#[test]
fn every_instruction_set_decodes_the_same() {
    fn decoded<const SIZE: usize>(isa: Isa, blob: &[u8], base: &[u8]) -> Vec<(Vec<u32>, Vec<u8>, bool)> {
        let delta = read::Delta::open(blob, &Default::default()).unwrap();
        let tables = tile::Tables::new(isa, delta.change().unwrap(), delta.numbers);
        let mut scratch = tile::Scratch::default();
        let tiles = (0..delta.frame.tiles()).filter_map(|number| {
            let (tile, range) = (delta.tile(number).unwrap()?, delta.range(number));
            let base = &base[SIZE * range.start..][..SIZE * range.len];
            let found = scratch.decode::<SIZE>(&delta, &tables, &tile, base).unwrap().unwrap();
            Some((found.places, found.values, found.is_new))
        });
        tiles.collect()
    }
    let mut r = Random(23);
    for dtype in Dtype::ALL {
        // Near and far from each other; fewer than a chunk, some chunks, and a rest.
        for (values, share) in [(40, 0.7), (20_000, 0.01), (30_000, 0.1), (5000, 1.0)] {
            let size = dtype.size();
            let old: Vec<u8> = (0..values * size).map(|_| r.next() as u8).collect();
            let mut new = old.clone();
            for value in new.chunks_exact_mut(size) {
                // A step or two, or another value.
                match (r.unit() < share, r.next() % 3) {
                    (false, _) => {}
                    (true, 0) => value.fill(r.next() as u8),
                    (true, step) => value[0] ^= step as u8,
                }
            }
            let blob = made(dtype, &[values], &old, &new);
            for base in [&old, &new] {
                let all = Isa::available().into_iter().map(|isa| match size {
                    1 => decoded::<1>(isa, &blob, base),
                    2 => decoded::<2>(isa, &blob, base),
                    4 => decoded::<4>(isa, &blob, base),
                    _ => decoded::<8>(isa, &blob, base),
                });
                let all: Vec<_> = all.collect();
                assert!(all.iter().all(|one| *one == all[0]), "{dtype} {values} {share}");
            }
        }
    }
}

#[test]
fn an_unchanged_tensor_takes_next_to_nothing() {
    let (base, _) = trained(4096, 0.0, 0.05, 1);
    let data = bytes(&base);
    assert!(made(Dtype::F32, &[64, 64], &data, &data).len() <= 64);
}

/// Bits of numbers by how often each occurs.
fn entropy<T: std::hash::Hash + Eq>(numbers: impl Iterator<Item = T>) -> f64 {
    let mut counts = std::collections::HashMap::new();
    let mut all = 0u64;
    numbers.for_each(|n| {
        *counts.entry(n).or_insert(0u64) += 1;
        all += 1;
    });
    counts.values().map(|&n| n as f64 * (all as f64 / n as f64).log2()).sum()
}

#[test]
fn steps_of_training_take_little_more_than_their_entropy() {
    let (base, new) = trained(1 << 22, 0.01, 0.05, 5);
    let (old, new) = (to_bf16(&base), to_bf16(&new));
    let pairs: Vec<(u64, u64)> =
        (0..1 << 22).map(|i| (scan::element::<2>(&old, i), scan::element::<2>(&new, i))).collect();
    let changed = pairs.iter().filter(|(a, b)| a != b).count();
    let p = changed as f64 / pairs.len() as f64;
    let places = -(pairs.len() as f64) * (p * p.log2() + (1.0 - p) * (1.0 - p).log2());
    // New values given the exponents of old ones.
    let some: Vec<&(u64, u64)> = pairs.iter().filter(|(a, b)| a != b).collect();
    let both = entropy(some.iter().map(|(a, b)| (a >> 7 & 255, *b as i64 - *a as i64)));
    let values = both - entropy(some.iter().map(|(a, _)| a >> 7 & 255));
    let blob = made(Dtype::Bf16, &[1 << 22], &old, &new);
    let ratio = 8.0 * blob.len() as f64 / (places + values);
    assert!(ratio < 1.05, "{ratio:.4} times the entropy of {changed} changes");
}

#[test]
fn other_bases_are_refused_and_stay_as_they_are() {
    let (base, new) = trained(50_000, 0.05, 0.05, 7);
    let (old, new) = (bytes(&base), bytes(&new));
    let blob = made(Dtype::F32, &[50_000], &old, &new);
    let changed = base.iter().zip(new.chunks_exact(4)).position(|(a, b)| a.to_le_bytes() != b).unwrap();
    let same = base.iter().zip(new.chunks_exact(4)).position(|(a, b)| a.to_le_bytes() == b).unwrap();
    for (place, verify) in [(changed, Verify::Touched), (changed, Verify::Whole), (same, Verify::Whole)] {
        let mut wrong = old.clone();
        wrong[4 * place] ^= 1;
        let before = wrong.clone();
        let error =
            apply_in_place(&blob, Dtype::F32, &[50_000], &mut wrong, &one_thread(verify)).unwrap_err();
        assert!(matches!(error, Error::WrongBase { .. }), "{error}");
        assert_eq!(wrong, before);
    }
    let other = |dtype, shape: &[usize], data: &[u8]| {
        prepare(&blob, dtype, shape, data, &Default::default()).err().unwrap().to_string()
    };
    assert!(other(Dtype::F32, &[25_000, 2], &old).contains("the delta is for a tensor of f32 [50000]"));
    assert!(other(Dtype::I32, &[50_000], &old).contains("i32"));
    assert!(matches!(crate::decode(&blob, &Default::default()), Err(Error::NeedsBase)));
    let tensor = crate::encode(
        &TensorView::new(Dtype::F32, &[50_000], &old).unwrap(),
        &crate::EncodeOptions::new(crate::Goal::Lossless),
    );
    assert!(inspect(&tensor.unwrap()).unwrap_err().to_string().contains("not a delta"));
}

#[test]
fn an_interrupted_application_is_completed() {
    let (base, new) = trained(300_000, 0.3, 0.05, 9);
    let (old, new) = (to_bf16(&base), to_bf16(&new));
    let shape = [300_000];
    let blob = made(Dtype::Bf16, &shape, &old, &new);
    for verify in [Verify::Whole, Verify::Touched] {
        let options = one_thread(verify);
        let pending = prepare(&blob, Dtype::Bf16, &shape, &old, &options).unwrap();
        assert!(pending.tiles() > 3);
        for tiles in 0..=pending.tiles() {
            let mut data = old.clone();
            pending.write(0..tiles, &mut data).unwrap();
            let applied = apply_in_place(&blob, Dtype::Bf16, &shape, &mut data, &options).unwrap();
            assert_eq!(data, new);
            assert_eq!(applied.written + applied.before, inspect(&blob).unwrap().changed);
            assert_eq!(applied.before == 0, tiles == 0);
        }
        // Any order of tiles.
        let mut data = old.clone();
        for tile in (0..pending.tiles()).rev() {
            pending.write(tile..tile + 1, &mut data).unwrap();
        }
        assert_eq!(data, new);
    }
}

#[test]
fn every_flipped_bit_and_every_truncation_is_noticed() {
    let (base, new) = trained(3000, 0.05, 0.05, 11);
    let (old, new) = (to_bf16(&base), to_bf16(&new));
    let blob = made(Dtype::Bf16, &[3000], &old, &new);
    let fails = |blob: &[u8]| {
        let mut data = old.clone();
        let result = apply_in_place(blob, Dtype::Bf16, &[3000], &mut data, &one_thread(Verify::Touched));
        assert_eq!(data, old);
        result.unwrap_err();
    };
    for bit in 0..8 * blob.len() {
        let mut bad = blob.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        fails(&bad);
    }
    (0..blob.len()).for_each(|len| fails(&blob[..len]));
    fails(&[&blob[..], &[0]].concat());
}

#[test]
fn the_workload_of_a_tenth_changed_is_small() {
    let (base, new) = trained(1 << 22, 0.1, 0.01, 13);
    let blob = made(Dtype::F32, &[1024, 4096], &bytes(&base), &bytes(&new));
    let mib = blob.len() as f64 / (1 << 20) as f64;
    assert!(mib < 1.30, "{mib:.3} MiB");
}

#[test]
fn tiles_are_small_but_keep_all_lanes_busy() {
    for (values, share, tile) in [
        // The workload: a tile a core and more, and 96 changes a lane.
        (1 << 22, 0.1, 1 << 15),
        (1 << 22, 0.01, 1 << 19),
        (3_000_000, 0.01, 1 << 19),
        (1 << 20, 0.9, 1 << 12),
        // Too few changes for all lanes: one tile.
        (100_000, 0.01, 1 << 17),
    ] {
        let (base, new) = trained(values, share, 0.01, 13);
        let blob = made(Dtype::F32, &[values], &bytes(&base), &bytes(&new));
        let (info, layout) =
            (inspect(&blob).unwrap(), DeltaLayout::read(&blob, &Default::default()).unwrap());
        assert_eq!(info.tile_values, tile, "{share} of {values}");
        if info.tiles > 1 {
            assert_eq!(layout.lanes_log(), 5, "{share} of {values}");
        }
    }
}

#[test]
fn layouts_say_where_tiles_are_and_what_they_change() {
    let (base, new) = trained(50_000, 0.3, 0.05, 21);
    let (old, new) = (to_bf16(&base), to_bf16(&new));
    let view = |data| TensorView::new(Dtype::Bf16, &[50_000], data).unwrap();
    let blob = make(&view(&old), &view(&new), &DeltaOptions::default().with_tile_values(4096)).unwrap();
    let layout = DeltaLayout::read(&blob, &Default::default()).unwrap();
    let changed: usize = layout.tiles().iter().map(|tile| tile.changes).sum();
    assert_eq!(changed as u64, inspect(&blob).unwrap().changed);
    assert!(layout.tables().all(|of| of.iter().map(|&f| u32::from(f)).sum::<u32>() == 1 << params::LOG));
    // From a copy of the base and from one of the result.
    for copy in [&old, &new] {
        let mut lists: Vec<(Vec<u8>, Vec<u8>)> =
            layout.tiles().iter().map(|t| (vec![0; 4 * t.changes], vec![0; 2 * t.changes])).collect();
        let rooms = lists.iter_mut().enumerate();
        let rooms = rooms.map(|(tile, (places, values))| TileRoom { tile, places, values }).collect();
        let told = std::sync::Mutex::new(Vec::new());
        layout
            .decode(rooms, copy, &DeltaOptions::default(), &|tile| told.lock().unwrap().push(tile))
            .unwrap();
        let mut told = told.into_inner().unwrap();
        told.sort_unstable();
        assert_eq!(told, (0..layout.tiles().len()).collect::<Vec<_>>());
        let mut data = old.clone();
        for (tile, (places, values)) in layout.tiles().iter().zip(&lists) {
            for (place, value) in places.chunks(4).zip(values.chunks(2)) {
                let at = tile.start + u32::from_le_bytes(place.try_into().unwrap()) as usize;
                data[2 * at..][..2].copy_from_slice(value);
            }
        }
        assert_eq!(data, new);
    }
    // Another copy, and one of another size.
    let mut lists = vec![0; 6 * layout.tiles()[0].changes];
    let mut refused = |copy: &[u8]| {
        let (places, values) = lists.split_at_mut(4 * layout.tiles()[0].changes);
        let rooms = vec![TileRoom { tile: 0, places, values }];
        layout.decode(rooms, copy, &DeltaOptions::default(), &|_| ()).unwrap_err()
    };
    assert!(matches!(refused(&vec![1; old.len()]), Error::WrongBase { .. }));
    assert!(matches!(refused(&old[2..]), Error::InvalidArgument(_)));
}

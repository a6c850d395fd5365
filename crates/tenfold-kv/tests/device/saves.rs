//! Pages that a device makes of tokens in blocks.

use std::sync::Arc;

use crate::bench::*;
use crate::common::cosines;
use half::bf16;
use tenfold::engine::ErrorKind;
use tenfold::prepare::Basis;
use tenfold::{Dtype, Effort, Goal};
use tenfold_cuda::{Buffer, Device, DevicePool, PoolLayout, Stream};
use tenfold_kv::device::{DevicePages, Given};
use tenfold_kv::page::{Chain, Choice, Group, PageCodec};

/// Pages of a codec from tokens at positions: each as good as the CPU's, about as large, and read by both.
fn check_saves(codec: &PageCodec, layout: PoolLayout, positions: &[u64], noisy: usize) -> Vec<Vec<u8>> {
    let bench = Bench::new(codec, layout);
    let slots = slots(16 * positions.len(), 11);
    let given: Vec<_> =
        positions.iter().enumerate().map(|(page, &first)| states(16, first, page == noisy)).collect();
    given.iter().zip(slots.chunks(16)).for_each(|(layers, slots)| bench.put(layers, slots));
    let made: Vec<Vec<u8>> =
        bench.save(&slots, positions, 0.1).into_iter().map(|page| page.unwrap()).collect();
    for (number, made) in made.iter().enumerate() {
        let wanted = page(codec, 16, positions[number], number == noisy, Goal::Step(0.1));
        let (ours, theirs) = (errors(codec, made, &given[number]), errors(codec, &wanted, &given[number]));
        for side in 0..2 {
            assert!(
                ours[side] < 1.15 * theirs[side] + 1e-6,
                "page {number}, side {side}: {ours:?}, {theirs:?}"
            );
        }
        // Small pages have much of a header.
        let (bytes, least) = (made.len(), wanted.len());
        assert!(bytes < least * 5 / 4 + 200, "page {number}: {bytes} and {least}");
        // And a device reads it.
        assert!(bench.load(&[made], &slots[..16]).into_iter().all(|said| said.is_ok()));
        bench.compare(codec, made, &slots[..16], "its own");
        bench.put(&given[0], &slots[..16]);
    }
    made
}

#[test]
fn pages_of_the_device_are_those_of_the_cpu_in_bytes_and_error() {
    for layout in layouts() {
        check_saves(&codec(), layout, &[0, 500, 1 << 20], 1);
    }
}

/// A basis that knows nothing of slow waves: unit vectors.
fn units() -> Arc<Basis> {
    let mut vectors = vec![0f32; COLS * COLS];
    (0..COLS).for_each(|k| vectors[k * COLS + k] = 1.0);
    let basis = Basis::orthonormal(&[0.0; COLS], &vectors).unwrap();
    let deviations: Vec<f64> = (0..COLS).map(|k| if k < 4 { 1.0 } else { 1e-3 }).collect();
    Arc::new(basis.with_deviations(&deviations).unwrap())
}

/// Rows that four unit vectors make.
fn rough(tokens: usize) -> Vec<bf16> {
    let mut normal = random(5);
    let row =
        |_| (0..COLS).map(|c| bf16::from_f32(if c < 4 { 3.0 * normal() } else { 0.0 })).collect::<Vec<_>>();
    (0..tokens).flat_map(row).collect()
}

#[test]
fn pages_have_a_part_of_a_basis_where_it_does_and_the_best_of_several() {
    let codec = codec();
    let made = check_saves(&codec, layouts()[0], &[0, 500, 1 << 20], 1);
    let cpu: Vec<Vec<u8>> = [0, 500, 1 << 20]
        .iter()
        .enumerate()
        .map(|(number, &first)| page(&codec, 16, first, number == 1, Goal::Step(0.1)))
        .collect();
    // Blobs name their bases.
    let count = |page: &[u8], basis: &Basis| {
        page.windows(16).filter(|bytes| **bytes == basis.fingerprint().0).count()
    };
    let choices = codec.groups().iter().flat_map(|group| &group.keys.bases);
    for choice in choices {
        let part = &choice.part.as_ref().unwrap().basis;
        for (number, (ours, theirs)) in made.iter().zip(&cpu).enumerate() {
            assert_eq!(count(ours, &choice.basis), count(theirs, &choice.basis), "page {number}");
            assert_eq!(count(ours, part), count(theirs, part), "page {number}");
        }
    }
    // Both kinds are there.
    let all = |pick: fn(&Choice) -> &Basis| {
        let choices = || codec.groups().iter().flat_map(|group| &group.keys.bases);
        choices().map(|choice| cpu.iter().map(|page| count(page, pick(choice))).sum::<usize>()).sum::<usize>()
    };
    assert!(all(|choice| &choice.basis) > 0 && all(|choice| &choice.part.as_ref().unwrap().basis) > 0);

    // Pages of another kind have the other basis.
    let chain = || Chain::default().with_basis(cosines(COLS, COLS)).with_basis(units());
    let group = Group { layers: 1, keys: chain(), values: chain() };
    let both = PageCodec::new(vec![group; LAYERS]).unwrap().with_effort(Effort::Fast);
    let device = Device::open(0).unwrap_or_else(|_| Device::emulated(1 << 30));
    let pages = DevicePages::new(&device, &both).unwrap();
    let save = pages.save(16, &[0.1; 3], &[[COLS; 2]; LAYERS], Dtype::Bf16).unwrap();
    let (smooth, rough) = (states(16, 3, false), rough(16));
    let rows: Vec<bf16> = [&smooth[0][0], &rough, &smooth[1][0]].into_iter().flatten().copied().collect();
    let bytes: Vec<u8> = rows.iter().flat_map(|v| v.to_le_bytes()).collect();
    let memory = Buffer::from_slice(&device, &bytes).unwrap();
    let pool = DevicePool::new(&device, &[memory.slice()], PoolLayout::new(48, 1, 1, 2 * COLS)).unwrap();
    let slots: Vec<u8> = (0..48u64).flat_map(u64::to_le_bytes).collect();
    let slots = Buffer::from_slice(&device, &slots).unwrap();
    let found = Buffer::new(&device, save.look_len(&pages, (0, 0)).unwrap()).unwrap();
    let work = Buffer::new(&device, save.look_workspace_len(&pages, (0, 0)).unwrap()).unwrap();
    let mut seen = vec![0; found.slice().len];
    // SAFETY: all of it is ours and lives until it has been read back.
    unsafe {
        let (slots, to, work) = (slots.slice(), found.slice(), work.slice());
        let given = Given { slots, positions: slots, steps: slots };
        save.queue_look(&pages, (0, 0), &pool, &given, to, work, Stream::DEFAULT).unwrap();
    }
    found.read(&mut seen, Stream::DEFAULT).unwrap();
    let batches = save.batches(&pages, &[&seen[..]; 2 * LAYERS]).unwrap();
    let of_keys: Vec<&[usize]> =
        batches.iter().filter(|b| (b.group, b.side) == (0, 0)).map(|b| &b.pages[..]).collect();
    assert_eq!(of_keys, [&[0, 2][..], &[1]]);
}

#[test]
fn exact_tokens_stay_exact_and_efforts_and_bare_columns_are_made_too() {
    let exact = codec().with_exact(3, 2);
    let made = check_saves(&exact, layouts()[0], &[0, 500], 1);
    for (number, made) in made.iter().enumerate() {
        let first = [0, 500][number];
        let given = states(16, first, number == 1);
        for (layer, (keys, values)) in exact.reader(made).unwrap().all().unwrap().into_iter().enumerate() {
            for (side, tensor) in [keys, values].iter().enumerate() {
                let found = tensor.to_vec::<bf16>().unwrap();
                assert_eq!(found[..3 * COLS], given[layer][side][..3 * COLS]);
                assert_eq!(found[14 * COLS..], given[layer][side][14 * COLS..]);
            }
        }
    }
    // All of a page is exact: it is the CPU's, byte for byte.
    let all = codec().with_exact(16, 0);
    let made = check_saves(&all, layouts()[1], &[7], 1);
    assert_eq!(made[0], page(&all, 16, 7, false, Goal::Step(0.1)));
    check_saves(&codec().with_effort(Effort::Balanced), layouts()[0], &[0, 500], 1);
    check_saves(&bare(), layouts()[2], &[0, 500], 1);
}

#[test]
fn pages_that_a_device_does_not_make() {
    let bench = Bench::new(&codec(), layouts()[0]);
    // A value that is not finite; the other page is as it should be.
    let slots = slots(32, 12);
    let mut layers = states(32, 0, false);
    layers[1][0][COLS * 20] = bf16::NAN;
    bench.put(&layers, &slots);
    let made = bench.save(&slots, &[0, 16], 0.1);
    assert!(made[0].is_some() && made[1].is_none());
    let columns = GROUPS.map(|layers| [layers * COLS; 2]);
    for (tokens, step, columns) in [(0, 0.1, columns), (16, f64::NAN, columns), (16, 0.1, [[COLS; 2]; 2])] {
        let error = bench.pages.save(tokens, &[0.1, step], &columns, Dtype::Bf16).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Caller);
    }
    let save = bench.pages.save(16, &[0.1; 2], &columns, Dtype::Bf16).unwrap();
    assert!(save.exact_len(2, 0).is_err() && save.look_len(&bench.pages, (0, 2)).is_err());
    assert!(save.look_workspace_len(&bench.pages, (9, 0)).is_err());
    assert!(save.batches(&bench.pages, &[]).is_err());
    assert!(save.batches(&bench.pages, &[&[], &[], &[], &[]]).is_err());
    assert!(save.ladder(&bench.pages, &[Some(100)], &[]).is_err());
}

#[test]
fn pages_have_steps_of_their_own() {
    for codec in [codec(), bare()] {
        let bench = Bench::new(&codec, layouts()[0]);
        let slots = slots(48, 20);
        bench.put(&states(48, 0, false), &slots);
        let steps = [0.1, 0.4, 0.1];
        let made = bench.save_at(&slots, &[0, 16, 32], &steps);
        for (page, step) in steps.into_iter().enumerate() {
            let alone = bench.save(&slots[16 * page..][..16], &[16 * page as u64], step);
            assert_eq!(made[page], alone[0], "page {page}");
        }
        assert!(made[1].as_ref().unwrap().len() < made[0].as_ref().unwrap().len());
    }
}

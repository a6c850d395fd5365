//! Stored pages into the blocks of a device, and what is refused.

use std::sync::Arc;

use crate::bench::*;
use crate::common::cosines;
use half::bf16;
use tenfold::engine::ErrorKind;
use tenfold::prepare::{Basis, Positions};
use tenfold::{Dtype, Goal, TensorView};
use tenfold_kv::device::DevicePages;
use tenfold_kv::page::{Chain, Group, Layer, Page, PageCodec};

#[test]
fn other_floats_are_decoded_and_encoded_too() {
    let (plain, exact) = (codec(), codec().with_exact(3, 1));
    for dtype in [Dtype::F8E4M3, Dtype::F8E5M2, Dtype::F16] {
        for layout in layouts_of(dtype) {
            let bench = Bench::of(&plain, layout, dtype);
            // Pages of the CPU's.
            let layers = states(16, 64, false);
            let lossless = page_of(dtype, &plain, &layers, 64, Goal::Lossless);
            let pages = [
                page_of(dtype, &plain, &layers, 64, Goal::Step(0.05)),
                page_of(dtype, &exact, &states(16, 80, true), 80, Goal::Step(0.05)),
                lossless.clone(),
                page_of(dtype, &bare(), &layers, 0, Goal::Step(0.1)),
            ];
            let all = slots(64, 15);
            let borrowed: Vec<&[u8]> = pages.iter().map(Vec::as_slice).collect();
            assert_eq!(bench.pages.plan(&borrowed).unwrap().dtype(), Some(dtype));
            assert!(bench.load(&borrowed, &all).into_iter().all(|said| said.is_ok()));
            for (number, (page, slots)) in pages.iter().zip(all.chunks(16)).enumerate() {
                bench.compare(&plain, page, slots, &format!("{dtype}, {layout:?}, page {number}"));
            }
            // Lossless tokens, and those without a basis, are the CPU's to the bit.
            for (page, slots) in [(2, &all[32..48]), (3, &all[48..])] {
                let cpu = plain.reader(&pages[page]).unwrap().all().unwrap();
                for (token, &slot) in slots.iter().enumerate() {
                    let own = floats(dtype, &cpu[1].0.data)[token * COLS..][..COLS].to_vec();
                    assert_eq!(bench.row(1, 0, slot as usize), own, "{dtype}, page {page}, token {token}");
                }
            }
            // Pages of the device's.
            bench.put(&layers, &all[..16]);
            let made = bench.save(&all[..16], &[64], 0.1).remove(0).unwrap();
            let wanted = page_of(dtype, &plain, &layers, 64, Goal::Step(0.1));
            let (ours, theirs) = (errors(&plain, &made, &layers), errors(&plain, &wanted, &layers));
            for side in 0..2 {
                assert!(ours[side] < 1.1 * theirs[side] + 1e-6, "{dtype}: {ours:?}, {theirs:?}");
            }
            assert!(made.len() < wanted.len() * 5 / 4 + 200, "{dtype}: {} and {}", made.len(), wanted.len());
            assert!(bench.load(&[&made], &all[..16]).into_iter().all(|said| said.is_ok()));
            bench.compare(&plain, &made, &all[..16], "its own");
            // What is not finite is the host's.
            let mut odd = states(16, 64, false);
            odd[0][1][5] = bf16::NAN;
            bench.put(&odd, &all[..16]);
            assert!(bench.save(&all[..16], &[64], 0.1).remove(0).is_none());
            // A pool has what its pages have.
            let other = Bench::new(&plain, layouts()[0]);
            let pages = other.pages.plan(&[&lossless]).unwrap();
            assert_eq!(refusal(&other, &pages), ErrorKind::Unsupported);
            assert_eq!(
                other
                    .pages
                    .plan(&[&lossless, &page(&plain, 16, 0, false, Goal::Lossless)])
                    .unwrap_err()
                    .kind(),
                ErrorKind::Unsupported
            );
        }
    }
}

#[test]
fn tokens_come_out_in_their_slots() {
    let plain = codec();
    let exact = codec().with_exact(3, 1);
    // Behind the part of the basis and behind all of it, with and without exact tokens, of several lengths, and one that is lossless.
    let pages = [
        page(&plain, 16, 64, false, Goal::Step(0.05)),
        page(&plain, 16, 80, true, Goal::Step(0.05)),
        page(&exact, 16, 0, false, Goal::Step(0.05)),
        page(&plain, 5, 96, true, Goal::Bits(5.0)),
        page(&plain, 16, 200, false, Goal::MaxBytes(4000)),
        page(&plain, 4, 300, true, Goal::Lossless),
        page(&exact, 4, 400, true, Goal::Step(0.1)),
        page(&bare(), 8, 0, true, Goal::Step(0.1)),
    ];
    let tokens = [16, 16, 16, 5, 16, 4, 4, 8];
    let all = slots(tokens.iter().sum(), 5);
    for layout in layouts() {
        let bench = Bench::new(&plain, layout);
        let borrowed: Vec<&[u8]> = pages.iter().map(Vec::as_slice).collect();
        assert!(bench.load(&borrowed, &all).into_iter().all(|said| said.is_ok()));
        let mut left = &all[..];
        for (number, (page, count)) in pages.iter().zip(tokens).enumerate() {
            let (own, rest) = left.split_at(count);
            bench.compare(&plain, page, own, &format!("{layout:?}, page {number}"));
            left = rest;
        }
        // Nobody's slots are as they were.
        let free = (0..128).find(|slot| !all.contains(slot)).unwrap();
        let untouched = f32::from(bf16::from_le_bytes([0xa5, 0xa5]));
        assert!(bench.row(2, 1, free as usize).iter().all(|&v| v == untouched));
    }
}

#[test]
fn a_damaged_page_is_told_and_others_are_not_touched_by_it() {
    let codec = codec();
    let good = page(&codec, 8, 0, false, Goal::Step(0.05));
    let mut bad = page(&codec, 8, 8, false, Goal::Step(0.05));
    // In the last tile of the last blob.
    let at = bad.len() - 6;
    bad[at] ^= 0x10;
    let bench = Bench::new(&codec, layouts()[0]);
    let slots = slots(24, 6);
    let said = bench.load(&[&good, &bad, &good], &slots);
    assert!(said[0].is_ok() && said[2].is_ok());
    assert_eq!(said[1].as_ref().unwrap_err().kind(), ErrorKind::Data);
    bench.compare(&codec, &good, &slots[..8], "before");
    bench.compare(&codec, &good, &slots[16..], "behind");
}

#[test]
fn what_a_device_does_not_decode_is_refused_before_anything_is_queued() {
    let codec = codec();
    let bench = Bench::new(&codec, layouts()[0]);
    let good = page(&codec, 8, 0, false, Goal::Step(0.05));
    let kind = |page: &[u8]| bench.pages.plan(&[page]).unwrap_err().kind();
    assert_eq!(kind(&good[..good.len() - 4]), ErrorKind::Data);
    assert_eq!(kind(&[&good[..], &[0; 4]].concat()), ErrorKind::Data);
    assert_eq!(kind(b"TNFPxxxx"), ErrorKind::Unsupported);
    assert_eq!(kind(b""), ErrorKind::Data);
    // Of f32, of another codec's groups, of a basis that is not there.
    let shape = [8, COLS];
    let wide: Vec<f32> = (0..8 * COLS).map(|i| (i as f32 * 0.3).sin()).collect();
    let view = TensorView::from_slice(&wide, &shape).unwrap();
    let layers = vec![Layer { keys: view, values: view }; LAYERS];
    let wide = Page { layers, positions: Some(Positions::From(0)) };
    assert_eq!(kind(&codec.encode(&wide, Goal::Step(0.05)).unwrap()), ErrorKind::Unsupported);
    let one = Group { layers: 3, keys: Chain::default(), values: Chain::default() };
    let other = PageCodec::new(vec![one]).unwrap();
    assert_eq!(kind(&page(&other, 8, 0, false, Goal::Step(0.05))), ErrorKind::Caller);
    let foreign = |layers: usize| {
        let cols = COLS * layers;
        let vectors: Vec<f32> = (0..cols * cols).map(|i| f32::from(u8::from(i / cols == i % cols))).collect();
        let chain =
            Chain::default().with_basis(Arc::new(Basis::orthonormal(&vec![0.0; cols], &vectors).unwrap()));
        Group { layers, keys: chain.clone(), values: chain }
    };
    let foreign = PageCodec::new(GROUPS.map(foreign).to_vec()).unwrap();
    let error = bench.pages.plan(&[&page(&foreign, 8, 0, false, Goal::Step(0.05))]).unwrap_err();
    assert!(error.to_string().contains("basis"), "{error}");
    // Exact tokens of another width than the bases have.
    let wider = |layers: usize| {
        let chain = Chain::default().with_basis(cosines(2 * COLS * layers, COLS));
        Group { layers, keys: chain.clone(), values: chain }
    };
    let wider = PageCodec::new(GROUPS.map(wider).to_vec()).unwrap();
    let wide = DevicePages::new(&bench.device, &wider).unwrap();
    let lossless = page(&codec, 8, 0, false, Goal::Lossless);
    assert_eq!(wide.plan(&[&lossless]).unwrap_err().kind(), ErrorKind::Data);
    // A plan for the pages of another codec.
    let none = DevicePages::new(&bench.device, &bare()).unwrap();
    assert!(bench.pages.plan(&[&good]).unwrap().workspace_len(&none).is_err());
    let save = bench.pages.save(8, &[0.1], &GROUPS.map(|layers| [layers * COLS; 2]), Dtype::Bf16).unwrap();
    let batches = save.batches(&bench.pages, &[&[0; 8][..]; 2 * GROUPS.len()]).unwrap();
    assert!(save.workspace_len(&none, &batches[0]).is_err());
    // Nothing to do.
    assert!(bench.load(&[], &[]).is_empty());
    // Slots and memory of other sizes.
    let load = bench.pages.plan(&[&good]).unwrap();
    assert!(load.stage(0..2, &[&good], &[0; 7], &mut vec![0; load.staged_len()]).is_err());
    assert!(load.stage(0..2, &[&good], &[0; 8], &mut vec![0; load.staged_len() - 1]).is_err());
    assert!(load.statuses(2..3).is_err() && load.staged(1..3).is_err() && load.check(0..1, &[0; 3]).is_err());
    assert_eq!((bench.pages.layers(), bench.pages.groups()), (3, 2));
}

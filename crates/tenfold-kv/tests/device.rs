//! Pages of the CPU on a device: their tokens come out in the blocks of a pool, as the CPU decodes them but for roundings, and what is
//! damaged or foreign is refused.
#![cfg(feature = "emulator")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unsafe_code)]

mod common;

use std::ops::Range;
use std::sync::Arc;

use common::cosines;
use half::bf16;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tenfold::engine::ErrorKind;
use tenfold::prepare::{Basis, Positions, Rope};
use tenfold::{Effort, Goal, TensorView};
use tenfold_cuda::{Buffer, DecodeSettings, Device, DevicePool, PoolLayout, Stream};
use tenfold_kv::device::{Blocks, DevicePages, Load, Part, queue};
use tenfold_kv::page::{BasisPart, Chain, Choice, Group, Layer, Page, PageCodec};

const COLS: usize = 32;
const GROUPS: [usize; 2] = [2, 1];
const LAYERS: usize = 3;
const LAYERS_OF: [Range<usize>; 2] = [0..2, 2..3];
const HEADS: usize = 2;
/// What a device may be off by, of a row's largest magnitude: 2^-7, and as much again where rows are turned.
const BOUND: f32 = 1.0 / 64.0;

fn random(seed: u64) -> impl FnMut() -> f32 {
    let mut r = StdRng::seed_from_u64(seed);
    move || (0..6).map(|_| r.random::<f32>()).sum::<f32>() - 3.0
}

fn codec() -> PageCodec {
    let group = |layers: usize| {
        let cols = COLS * layers;
        let without = std::iter::once(cols / 2..cols).collect();
        let part = BasisPart { basis: cosines(cols, cols / 2), without };
        let choice = Choice::from(cosines(cols, cols)).with_part(part);
        let rope = Rope::new(COLS / HEADS, 1e4).unwrap();
        Group {
            layers,
            keys: Chain::default().with_basis(choice.clone()).with_rope(rope),
            values: Chain::default().with_basis(choice),
        }
    };
    PageCodec::new(GROUPS.map(group).to_vec()).unwrap().with_effort(Effort::Fast)
}

/// The same groups without bases.
fn bare() -> PageCodec {
    let group = |layers| Group { layers, keys: Chain::default(), values: Chain::default() };
    PageCodec::new(GROUPS.map(group).to_vec()).unwrap()
}

/// Keys and values of layers, that few cosines make, or noise.
fn states(tokens: usize, first: u64, noise: bool) -> Vec<[Vec<bf16>; 2]> {
    let mut normal = random(first + tokens as u64);
    (0..LAYERS)
        .map(|_| {
            [0, 1].map(|_| {
                let mut rows = Vec::new();
                for _ in 0..tokens {
                    let (a, b) = (normal(), normal());
                    let slow = |c: usize| a + b * (c as f32 * 0.1).sin();
                    rows.extend((0..COLS).map(|c| bf16::from_f32(if noise { normal() } else { slow(c) })));
                }
                rows
            })
        })
        .collect()
}

/// A page of the CPU's.
fn page(codec: &PageCodec, tokens: usize, first: u64, noise: bool, goal: Goal) -> Vec<u8> {
    let layers = states(tokens, first, noise);
    let shape = [tokens, COLS];
    let view = |v| TensorView::from_slice(v, &shape).unwrap();
    let layers = layers.iter().map(|[k, v]| Layer { keys: view(k), values: view(v) }).collect();
    codec.encode(&Page { layers, positions: Some(Positions::From(first)) }, goal).unwrap()
}

/// Pools of all layers, keys and values, and what decodes into them.
struct Bench {
    device: Device,
    pages: DevicePages,
    layout: PoolLayout,
    memory: Vec<[Buffer; 2]>,
}

impl Bench {
    fn new(codec: &PageCodec, layout: PoolLayout) -> Bench {
        // A real one where there is one.
        let device = Device::open(0).unwrap_or_else(|_| Device::emulated(1 << 30));
        let pages = DevicePages::new(&device, codec).unwrap();
        let bytes = layout.blocks * layout.block_stride;
        let layer = |_| [0, 1].map(|_| Buffer::from_slice(&device, &vec![0xa5; bytes]).unwrap());
        let memory = (0..LAYERS).map(layer).collect();
        Bench { device, pages, layout, memory }
    }

    /// Keys and values of some layers.
    fn pools(&self, layers: std::ops::Range<usize>) -> (DevicePool, DevicePool) {
        let pool = |side: usize| {
            let layers: Vec<_> = self.memory[layers.clone()].iter().map(|l| l[side].slice()).collect();
            DevicePool::new(&self.device, &layers, self.layout).unwrap()
        };
        (pool(0), pool(1))
    }

    /// Decodes all groups; what was said of each page.
    fn load(&self, pages: &[&[u8]], slots: &[i64]) -> Vec<Result<(), tenfold_kv::Error>> {
        let load = self.pages.plan(pages).unwrap();
        assert_eq!((load.tokens(), load.pages()), (slots.len(), pages.len()));
        // Together, and group by group.
        let together = self.load_groups(&load, &load.waves(), pages, slots);
        let alone = self.load_groups(&load, &[0..1, 1..2], pages, slots);
        let ok = |verdicts: &[Result<(), tenfold_kv::Error>]| {
            verdicts.iter().map(Result::is_ok).collect::<Vec<_>>()
        };
        assert_eq!(ok(&together), ok(&alone));
        alone
    }

    fn load_groups(
        &self,
        load: &Load,
        waves: &[Range<usize>],
        pages: &[&[u8]],
        slots: &[i64],
    ) -> Vec<Result<(), tenfold_kv::Error>> {
        let workspace = Buffer::new(&self.device, load.workspace_len(&self.pages).unwrap()).unwrap();
        let mut verdicts: Vec<Result<(), tenfold_kv::Error>> = pages.iter().map(|_| Ok(())).collect();
        for wave in waves {
            let mut staged = vec![0; load.staged(wave.clone()).unwrap().len()];
            load.stage(wave.clone(), pages, slots, &mut staged).unwrap();
            let staged = Buffer::from_slice(&self.device, &staged).unwrap();
            let pools: Vec<_> = wave.clone().map(|group| self.pools(LAYERS_OF[group].clone())).collect();
            let blocks = pools.iter().map(|(keys, values)| Blocks { keys, values }).collect();
            let said = Buffer::new(&self.device, 16 * load.statuses(wave.clone()).unwrap()).unwrap();
            let settings = DecodeSettings::default();
            let (stream, work) = (Stream::DEFAULT, workspace.slice());
            let (from, status) = (staged.slice(), said.slice());
            // SAFETY: all of it is ours and lives to the end of this function.
            unsafe {
                let part = Part { pages: &self.pages, load, groups: wave.clone(), staged: from, blocks };
                queue(&[part], &settings, status, work, stream).unwrap();
            }
            let mut statuses = vec![0; said.slice().len];
            said.read(&mut statuses, stream).unwrap();
            for (all, one) in verdicts.iter_mut().zip(load.check(wave.clone(), &statuses).unwrap()) {
                if all.is_ok() {
                    *all = one;
                }
            }
        }
        verdicts
    }

    /// A slot of a layer, heads side by side.
    fn row(&self, layer: usize, side: usize, slot: usize) -> Vec<f32> {
        let buffer = &self.memory[layer][side];
        let mut bytes = vec![0; buffer.slice().len];
        buffer.read(&mut bytes, Stream::DEFAULT).unwrap();
        let l = &self.layout;
        let token = slot / l.block * l.block_stride + slot % l.block * l.token_stride;
        let head = |h: usize| bytes[token + h * l.head_stride..][..l.head].as_chunks::<2>().0.to_vec();
        (0..l.heads).flat_map(head).map(|b| bf16::from_le_bytes(b).to_f32()).collect()
    }

    /// Holds what is in a page's slots against what the CPU decodes. A row is that of all layers of a group.
    fn compare(&self, codec: &PageCodec, page: &[u8], slots: &[i64], what: &str) {
        let exact = codec.reader(page).unwrap().exact();
        let all = codec.reader(page).unwrap().all().unwrap();
        let floats = |tensor: &tenfold::Tensor| -> Vec<f32> {
            tensor.to_vec::<bf16>().unwrap().into_iter().map(bf16::to_f32).collect()
        };
        for (side, layers) in [0..2, 2..3].into_iter().flat_map(|l| [(0, l.clone()), (1, l)]) {
            let tensors: Vec<Vec<f32>> =
                all[layers.clone()].iter().map(|(k, v)| floats([k, v][side])).collect();
            for (token, &slot) in slots.iter().enumerate() {
                let own = |tensor: &Vec<f32>| tensor[token * COLS..][..COLS].to_vec();
                let wanted: Vec<f32> = tensors.iter().flat_map(own).collect();
                let found: Vec<f32> =
                    layers.clone().flat_map(|layer| self.row(layer, side, slot as usize)).collect();
                if token < exact.0 || token >= slots.len() - exact.1 {
                    assert_eq!(found, wanted, "{what}: exact token {token}");
                }
                let most = wanted.iter().fold(0f32, |m, v| m.max(v.abs()));
                let off = found.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(
                    off <= BOUND * most,
                    "{what}: {layers:?}, side {side}, token {token}: {off} of {most}"
                );
            }
        }
    }
}

impl Bench {
    /// Puts tokens into the pools, as the host does it.
    fn put(&self, layers: &[[Vec<bf16>; 2]], slots: &[i64]) {
        let l = &self.layout;
        for (memory, layer) in self.memory.iter().zip(layers) {
            for (buffer, rows) in memory.iter().zip(layer) {
                let mut bytes = vec![0; buffer.slice().len];
                buffer.read(&mut bytes, Stream::DEFAULT).unwrap();
                for (&slot, row) in slots.iter().zip(rows.chunks(COLS)) {
                    let slot = slot as usize;
                    let token = slot / l.block * l.block_stride + slot % l.block * l.token_stride;
                    for (head, part) in row.chunks(COLS / HEADS).enumerate() {
                        let part: Vec<u8> = part.iter().flat_map(|v| v.to_le_bytes()).collect();
                        bytes[token + head * l.head_stride..][..l.head].copy_from_slice(&part);
                    }
                }
                buffer.write(&bytes, Stream::DEFAULT).unwrap();
            }
        }
    }

    /// Pages that the device makes of the tokens in slots.
    fn save(&self, slots: &[i64], positions: &[u64], step: f64) -> Vec<Result<Vec<u8>, tenfold_kv::Error>> {
        let save = self.pages.save(positions.len(), slots.len() / positions.len(), step).unwrap();
        let upload = |bytes: Vec<u8>| Buffer::from_slice(&self.device, &bytes).unwrap();
        let held_slots = upload(slots.iter().flat_map(|s| s.to_le_bytes()).collect());
        let held_positions = upload(positions.iter().flat_map(|p| p.to_le_bytes()).collect());
        let workspace = Buffer::new(&self.device, save.workspace_len(&self.pages).unwrap()).unwrap();
        let mut made: Vec<Result<Vec<[Vec<u8>; 2]>, tenfold_kv::Error>> =
            positions.iter().map(|_| Ok(Vec::new())).collect();
        let mut first = 0;
        for (group, &layers) in GROUPS.iter().enumerate() {
            let (keys, values) = self.pools(first..first + layers);
            let blocks = Blocks { keys: &keys, values: &values };
            let blobs = Buffer::new(&self.device, save.blobs_len(&self.pages, group).unwrap()).unwrap();
            let said = Buffer::new(&self.device, 16 * save.statuses()).unwrap();
            let (slots, positions) = (held_slots.slice(), held_positions.slice());
            let (to, status, work) = (blobs.slice(), said.slice(), workspace.slice());
            // SAFETY: all of it is ours and lives to the end of this block.
            unsafe {
                let stream = Stream::DEFAULT;
                save.queue(&self.pages, group, blocks, slots, positions, to, status, work, stream).unwrap();
            }
            let mut statuses = vec![0; said.slice().len];
            said.read(&mut statuses, Stream::DEFAULT).unwrap();
            let mut bytes = vec![0; blobs.slice().len];
            blobs.read(&mut bytes, Stream::DEFAULT).unwrap();
            for (page, places) in made.iter_mut().zip(save.places(&self.pages, group, &statuses).unwrap()) {
                match (&mut *page, places) {
                    (Ok(page), Ok(places)) => page.push(places.map(|place| bytes[place].to_vec())),
                    (Ok(_), Err(error)) => *page = Err(error),
                    _ => {}
                }
            }
            first += layers;
        }
        let assemble = |blobs: Vec<[Vec<u8>; 2]>| {
            let blobs: Vec<[&[u8]; 2]> = blobs.iter().map(|b| [&b[0][..], &b[1][..]]).collect();
            save.assemble(&self.pages, &blobs).unwrap()
        };
        made.into_iter().map(|page| page.map(assemble)).collect()
    }
}

/// Mean squared error of a page, keys and values.
fn errors(codec: &PageCodec, page: &[u8], layers: &[[Vec<bf16>; 2]]) -> [f64; 2] {
    let mut sums = [0.0; 2];
    for ((keys, values), layer) in codec.reader(page).unwrap().all().unwrap().iter().zip(layers) {
        for (side, tensor) in [keys, values].into_iter().enumerate() {
            let found = tensor.to_vec::<bf16>().unwrap();
            let off = |(a, b): (&bf16, &bf16)| (a.to_f64() - b.to_f64()).powi(2);
            sums[side] += found.iter().zip(&layer[side]).map(off).sum::<f64>() / found.len() as f64;
        }
    }
    sums
}

#[test]
fn pages_of_the_device_are_those_of_the_cpu_in_bytes_and_error() {
    let codec = codec();
    for layout in layouts() {
        let bench = Bench::new(&codec, layout);
        let slots = slots(48, 11);
        let positions = [0, 500, 1 << 20];
        let given: Vec<_> = positions.iter().map(|&first| states(16, first, first == 500)).collect();
        given.iter().zip(slots.chunks(16)).for_each(|(layers, slots)| bench.put(layers, slots));
        for (number, made) in bench.save(&slots, &positions, 0.1).into_iter().enumerate() {
            let made = made.unwrap();
            let wanted = page(&codec, 16, positions[number], number == 1, Goal::Step(0.1));
            let (ours, theirs) =
                (errors(&codec, &made, &given[number]), errors(&codec, &wanted, &given[number]));
            for side in 0..2 {
                assert!(
                    ours[side] < 1.1 * theirs[side] + 1e-6,
                    "page {number}, side {side}: {ours:?}, {theirs:?}"
                );
            }
            // It is in the whole basis always, and small pages have much of a header.
            assert!(
                made.len() < wanted.len() * 5 / 4 + 200,
                "page {number}: {} and {}",
                made.len(),
                wanted.len()
            );
            // And a device reads it.
            assert!(bench.load(&[&made], &slots[..16]).into_iter().all(|said| said.is_ok()));
            bench.compare(&codec, &made, &slots[..16], "its own");
            bench.put(&given[0], &slots[..16]);
        }
    }
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
    assert!(made[0].is_ok() && made[1].is_err());
    assert_eq!(bench.pages.save(1, 0, 0.1).unwrap_err().kind(), ErrorKind::Caller);
    assert_eq!(bench.pages.save(1, 16, f64::NAN).unwrap_err().kind(), ErrorKind::Caller);
    for other in [bare(), codec().with_exact(1, 0), codec().with_effort(Effort::Balanced)] {
        let pages = DevicePages::new(&bench.device, &other).unwrap();
        assert_eq!(pages.save(1, 16, 0.1).unwrap_err().kind(), ErrorKind::Unsupported);
    }
}

fn layouts() -> [PoolLayout; 3] {
    let head = 2 * COLS / HEADS;
    [
        PoolLayout::new(16, 8, HEADS, head),
        PoolLayout::heads_first(16, 8, HEADS, head),
        PoolLayout::new(128, 1, HEADS, head),
    ]
}

/// Slots of so many tokens, in no order.
fn slots(count: usize, seed: u64) -> Vec<i64> {
    let mut all: Vec<i64> = (0..128).collect();
    let mut r = StdRng::seed_from_u64(seed);
    (1..all.len()).rev().for_each(|i| all.swap(i, r.random_range(0..=i)));
    all.truncate(count);
    all
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
    assert!(bench.pages.save(1, 8, 0.1).unwrap().workspace_len(&none).is_err());
    // Nothing to do.
    assert!(bench.load(&[], &[]).is_empty());
    // Slots and memory of other sizes.
    let load = bench.pages.plan(&[&good]).unwrap();
    assert!(load.stage(0..2, &[&good], &[0; 7], &mut vec![0; load.staged_len()]).is_err());
    assert!(load.stage(0..2, &[&good], &[0; 8], &mut vec![0; load.staged_len() - 1]).is_err());
    assert!(load.statuses(2..3).is_err() && load.staged(1..3).is_err() && load.check(0..1, &[0; 3]).is_err());
    assert_eq!((bench.pages.layers(), bench.pages.groups()), (3, 2));
}

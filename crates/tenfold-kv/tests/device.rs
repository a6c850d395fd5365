//! Pages of the CPU on a device: their tokens come out in the blocks of a pool, as the CPU decodes them but for roundings, and what is
//! damaged or foreign is refused.
#![cfg(feature = "emulator")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unsafe_code)]

mod common;

use std::ops::Range;
use std::sync::Arc;

use common::cosines;
use half::{bf16, f16};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tenfold::engine::ErrorKind;
use tenfold::prepare::{Basis, Positions, Rope};
use tenfold::{Dtype, Effort, Goal, TensorView};
use tenfold_cuda::{Buffer, DecodeSettings, Device, DevicePool, PoolLayout, Stream};
use tenfold_kv::device::{Assembled, Blocks, DevicePages, Load, Made, Part, queue};
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
    page_of(Dtype::Bf16, codec, &states(tokens, first, noise), first, goal)
}

fn page_of(dtype: Dtype, codec: &PageCodec, layers: &[[Vec<bf16>; 2]], first: u64, goal: Goal) -> Vec<u8> {
    let shape = [layers[0][0].len() / COLS, COLS];
    let layers: Vec<_> = layers.iter().map(|[k, v]| [elements(dtype, k), elements(dtype, v)]).collect();
    let view = |bytes| TensorView::new(dtype, &shape, bytes).unwrap();
    let layers = layers.iter().map(|[k, v]| Layer { keys: view(k), values: view(v) }).collect();
    codec.encode(&Page { layers, positions: Some(Positions::From(first)) }, goal).unwrap()
}

/// Numbers as elements of a dtype, each the nearest, or the one before.
fn elements(dtype: Dtype, values: &[bf16]) -> Vec<u8> {
    let one = |v: &bf16| match dtype {
        Dtype::Bf16 => v.to_le_bytes().to_vec(),
        Dtype::F16 => f16::from_f32(v.to_f32()).to_le_bytes().to_vec(),
        _ => {
            let off = |b: &u8| (floats(dtype, &[*b])[0] - v.to_f32()).abs();
            let finite = (0..=255u8).filter(|b| off(b).is_finite());
            let none = if dtype == Dtype::F8E4M3 { 0x7f } else { 0x7e };
            vec![if v.is_nan() { none } else { finite.min_by(|a, b| off(a).total_cmp(&off(b))).unwrap() }]
        }
    };
    values.iter().flat_map(one).collect()
}

/// And back.
fn floats(dtype: Dtype, bytes: &[u8]) -> Vec<f32> {
    match dtype {
        Dtype::Bf16 => bytes.as_chunks().0.iter().map(|b| bf16::from_le_bytes(*b).to_f32()).collect(),
        Dtype::F16 => bytes.as_chunks().0.iter().map(|b| f16::from_le_bytes(*b).to_f32()).collect(),
        // The upper byte of an f16.
        Dtype::F8E5M2 => bytes.iter().map(|&b| f16::from_le_bytes([0, b]).to_f32()).collect(),
        // An f16 whose exponents count from elsewhere, without infinities.
        _ => {
            let one = |&b: &u8| {
                let bits = u16::from(b & 0x80) << 8 | u16::from(b & 0x7f) << 7;
                if b & 0x7f == 0x7f { f32::NAN } else { f16::from_bits(bits).to_f32() * 256.0 }
            };
            bytes.iter().map(one).collect()
        }
    }
}

/// How far apart numbers of a dtype are where one lies, at most.
fn spacing(dtype: Dtype, v: f32) -> f32 {
    let (mantissa, least) = match dtype {
        Dtype::F8E4M3 => (3, 2f32.powi(-9)),
        Dtype::F8E5M2 => (2, 2f32.powi(-16)),
        _ => return 0.0,
    };
    (v.abs() * 2f32.powi(-mantissa)).max(least)
}

/// Pools of all layers, keys and values, and what decodes into them.
struct Bench {
    device: Device,
    pages: DevicePages,
    layout: PoolLayout,
    dtype: Dtype,
    memory: Vec<[Buffer; 2]>,
}

impl Bench {
    fn new(codec: &PageCodec, layout: PoolLayout) -> Bench {
        Bench::of(codec, layout, Dtype::Bf16)
    }

    fn of(codec: &PageCodec, layout: PoolLayout, dtype: Dtype) -> Bench {
        // A real one where there is one.
        let device = Device::open(0).unwrap_or_else(|_| Device::emulated(1 << 30));
        let pages = DevicePages::new(&device, codec).unwrap();
        let bytes = layout.blocks * layout.block_stride;
        let layer = |_| [0, 1].map(|_| Buffer::from_slice(&device, &vec![0xa5; bytes]).unwrap());
        let memory = (0..LAYERS).map(layer).collect();
        Bench { device, pages, layout, dtype, memory }
    }

    /// Keys and values of some layers.
    fn pools(&self, layers: std::ops::Range<usize>) -> (DevicePool, DevicePool) {
        let pool = |side: usize| {
            let layers: Vec<_> = self.memory[layers.clone()].iter().map(|l| l[side].slice()).collect();
            let pool = DevicePool::new(&self.device, &layers, self.layout).unwrap();
            pool.with_dtype(self.dtype).unwrap()
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
        let head = |h: usize| floats(self.dtype, &bytes[token + h * l.head_stride..][..l.head]);
        (0..l.heads).flat_map(head).collect()
    }

    /// Holds what is in a page's slots against what the CPU decodes. A row is that of all layers of a group.
    fn compare(&self, codec: &PageCodec, page: &[u8], slots: &[i64], what: &str) {
        let exact = codec.reader(page).unwrap().exact();
        let all = codec.reader(page).unwrap().all().unwrap();
        let floats = |tensor: &tenfold::Tensor| {
            assert_eq!(tensor.dtype, self.dtype, "{what}");
            floats(tensor.dtype, &tensor.data)
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
                // Both are rounded in the end, and may go different ways.
                let off = |(a, b): (&f32, &f32)| {
                    (a - b).abs() - spacing(self.dtype, *a).max(spacing(self.dtype, *b))
                };
                let off = found.iter().zip(&wanted).map(off).fold(0.0, f32::max);
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
                        let part = elements(self.dtype, part);
                        bytes[token + head * l.head_stride..][..l.head].copy_from_slice(&part);
                    }
                }
                buffer.write(&bytes, Stream::DEFAULT).unwrap();
            }
        }
    }

    /// Pages that the device makes of the tokens in slots; nothing for those that it does not make.
    fn save(&self, slots: &[i64], positions: &[u64], step: f64) -> Vec<Option<Vec<u8>>> {
        let tokens = slots.len() / positions.len();
        let columns = GROUPS.map(|layers| [layers * COLS; 2]);
        let save = self.pages.save(positions.len(), tokens, step, &columns, self.dtype).unwrap();
        let upload = |numbers: Vec<u64>| {
            let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
            Buffer::from_slice(&self.device, &bytes).unwrap()
        };
        let read = |buffer: &Buffer| {
            let mut bytes = vec![0; buffer.slice().len];
            buffer.read(&mut bytes, Stream::DEFAULT).unwrap();
            bytes
        };
        let slots_of = |page: usize, of: &[usize]| {
            of.iter().map(|token| slots[page * tokens + token] as u64).collect::<Vec<u64>>()
        };
        let (lossy, exact) = (save.lossy(), save.exact());
        let quantised: Vec<usize> = lossy.clone().collect();
        let of = |pages: &[usize], tokens: &[usize]| {
            upload(pages.iter().flat_map(|page| slots_of(*page, tokens)).collect())
        };
        let starts = |pages: &[usize]| {
            upload(pages.iter().map(|page| positions[*page] + lossy.start as u64).collect())
        };
        let pool = |(group, side): (usize, usize)| {
            let (keys, values) = self.pools(LAYERS_OF[group].clone());
            [keys, values].into_iter().nth(side).unwrap()
        };
        let all: Vec<usize> = (0..positions.len()).collect();
        let stream = Stream::DEFAULT;
        // SAFETY: all of it is ours and lives until it has been read back.
        unsafe {
            let mut seen = Vec::new();
            for look in save.looks(&self.pages) {
                let found = Buffer::new(&self.device, save.look_len(&self.pages, look).unwrap()).unwrap();
                let len = save.look_workspace_len(&self.pages, look).unwrap();
                let work = Buffer::new(&self.device, len).unwrap();
                let (slots, starts) = (of(&all, &quantised), starts(&all));
                let (slots, starts, to) = (slots.slice(), starts.slice(), found.slice());
                save.queue_look(&self.pages, look, &pool(look), slots, starts, to, work.slice(), stream)
                    .unwrap();
                seen.push(read(&found));
            }
            let seen: Vec<&[u8]> = seen.iter().map(Vec::as_slice).collect();
            let mut made = Vec::new();
            for batch in save.batches(&self.pages, &seen).unwrap() {
                let blobs = Buffer::new(&self.device, save.blobs_len(&self.pages, &batch).unwrap()).unwrap();
                let said = Buffer::new(&self.device, 16 * batch.pages.len()).unwrap();
                let len = save.workspace_len(&self.pages, &batch).unwrap();
                let work = Buffer::new(&self.device, len).unwrap();
                let (slots, starts) = (of(&batch.pages, &quantised), starts(&batch.pages));
                let from = pool((batch.group, batch.side));
                let (slots, starts, to, status) =
                    (slots.slice(), starts.slice(), blobs.slice(), said.slice());
                save.queue(&self.pages, &batch, &from, slots, starts, to, status, work.slice(), stream)
                    .unwrap();
                let places = save.places(&self.pages, &batch, &read(&said)).unwrap();
                let places: Vec<_> = places.into_iter().map(|p| p.ok().map(|p| (p.start, p.end))).collect();
                made.push((batch, read(&blobs), places));
            }
            let mut rows = Vec::new();
            for side in (0..GROUPS.len()).flat_map(|group| [(group, 0), (group, 1)]) {
                let to = Buffer::new(&self.device, save.exact_len(side.0, side.1).unwrap()).unwrap();
                let slots = of(&all, &exact);
                save.queue_exact(side, &pool(side), slots.slice(), to.slice(), stream).unwrap();
                rows.push(read(&to));
            }
            let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
            let exact = save.encode_exact(&self.pages, &rows).unwrap();
            let made: Vec<Made<'_>> =
                made.iter().map(|(batch, bytes, places)| (batch, &bytes[..], &places[..])).collect();
            let assembled = save.assemble(&self.pages, &made, &exact).unwrap();
            let write = |page: &Assembled<'_>| {
                let mut bytes = vec![0; page.len()];
                Assembled::write_all(vec![(page, &mut bytes)]);
                bytes
            };
            assembled.iter().map(|page| page.as_ref().map(write)).collect()
        }
    }
}

/// Mean squared error of a page, keys and values.
fn errors(codec: &PageCodec, page: &[u8], layers: &[[Vec<bf16>; 2]]) -> [f64; 2] {
    let mut sums = [0.0; 2];
    for ((keys, values), layer) in codec.reader(page).unwrap().all().unwrap().iter().zip(layers) {
        for (side, tensor) in [keys, values].into_iter().enumerate() {
            let found = floats(tensor.dtype, &tensor.data);
            let given = floats(tensor.dtype, &elements(tensor.dtype, &layer[side]));
            let off = |(a, b): (&f32, &f32)| f64::from(a - b).powi(2);
            sums[side] += found.iter().zip(&given).map(off).sum::<f64>() / found.len() as f64;
        }
    }
    sums
}

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
    let save = pages.save(3, 16, 0.1, &[[COLS; 2]; LAYERS], Dtype::Bf16).unwrap();
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
        let (slots, none, to, work) = (slots.slice(), slots.slice(), found.slice(), work.slice());
        save.queue_look(&pages, (0, 0), &pool, slots, none, to, work, Stream::DEFAULT).unwrap();
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
        let error = bench.pages.save(1, tokens, step, &columns, Dtype::Bf16).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Caller);
    }
    let save = bench.pages.save(2, 16, 0.1, &columns, Dtype::Bf16).unwrap();
    assert!(save.exact_len(2, 0).is_err() && save.look_len(&bench.pages, (0, 2)).is_err());
    assert!(save.look_workspace_len(&bench.pages, (9, 0)).is_err());
    assert!(save.batches(&bench.pages, &[]).is_err());
    assert!(save.batches(&bench.pages, &[&[], &[], &[], &[]]).is_err());
}

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

/// Why pages are not decoded into pools.
fn refusal(bench: &Bench, load: &Load) -> ErrorKind {
    let staged = Buffer::new(&bench.device, load.staged(0..1).unwrap().len()).unwrap();
    let said = Buffer::new(&bench.device, 16 * load.statuses(0..1).unwrap()).unwrap();
    let work = Buffer::new(&bench.device, load.workspace_len(&bench.pages).unwrap()).unwrap();
    let (keys, values) = bench.pools(LAYERS_OF[0].clone());
    let blocks = vec![Blocks { keys: &keys, values: &values }];
    let part = Part { pages: &bench.pages, load, groups: 0..1, staged: staged.slice(), blocks };
    let settings = DecodeSettings::default();
    // SAFETY: all of it is ours and lives to the end of this function.
    unsafe { queue(&[part], &settings, said.slice(), work.slice(), Stream::DEFAULT) }.unwrap_err().kind()
}

fn layouts() -> [PoolLayout; 3] {
    layouts_of(Dtype::Bf16)
}

fn layouts_of(dtype: Dtype) -> [PoolLayout; 3] {
    let head = dtype.size() * COLS / HEADS;
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
    let save = bench.pages.save(1, 8, 0.1, &GROUPS.map(|layers| [layers * COLS; 2]), Dtype::Bf16).unwrap();
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

//! Pools of a device, what is in them, and how pages get there and back.

use std::ops::Range;

use crate::common::cosines;
use half::{bf16, f16};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tenfold::engine::ErrorKind;
use tenfold::prepare::{Positions, Rope};
use tenfold::{Dtype, Effort, Goal, TensorView};
use tenfold_cuda::{Buffer, DecodeSettings, Device, DevicePool, PoolLayout, Stream};
use tenfold_kv::device::{Assembled, Blocks, DevicePages, Given, Load, Made, Part, queue};
use tenfold_kv::page::{BasisPart, Chain, Choice, Group, Layer, Page, PageCodec};

pub const COLS: usize = 32;
pub const GROUPS: [usize; 2] = [2, 1];
pub const LAYERS: usize = 3;
pub const LAYERS_OF: [Range<usize>; 2] = [0..2, 2..3];
pub const HEADS: usize = 2;
/// What a device may be off by, of a row's largest magnitude: 2^-7, and as much again where rows are turned.
pub const BOUND: f32 = 1.0 / 64.0;

pub fn random(seed: u64) -> impl FnMut() -> f32 {
    let mut r = StdRng::seed_from_u64(seed);
    move || (0..6).map(|_| r.random::<f32>()).sum::<f32>() - 3.0
}

pub fn codec() -> PageCodec {
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
pub fn bare() -> PageCodec {
    let group = |layers| Group { layers, keys: Chain::default(), values: Chain::default() };
    PageCodec::new(GROUPS.map(group).to_vec()).unwrap()
}

/// Keys and values of layers, that few cosines make, or noise.
pub fn states(tokens: usize, first: u64, noise: bool) -> Vec<[Vec<bf16>; 2]> {
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
pub fn page(codec: &PageCodec, tokens: usize, first: u64, noise: bool, goal: Goal) -> Vec<u8> {
    page_of(Dtype::Bf16, codec, &states(tokens, first, noise), first, goal)
}

pub fn page_of(
    dtype: Dtype,
    codec: &PageCodec,
    layers: &[[Vec<bf16>; 2]],
    first: u64,
    goal: Goal,
) -> Vec<u8> {
    let shape = [layers[0][0].len() / COLS, COLS];
    let layers: Vec<_> = layers.iter().map(|[k, v]| [elements(dtype, k), elements(dtype, v)]).collect();
    let view = |bytes| TensorView::new(dtype, &shape, bytes).unwrap();
    let layers = layers.iter().map(|[k, v]| Layer { keys: view(k), values: view(v) }).collect();
    codec.encode(&Page { layers, positions: Some(Positions::From(first)) }, goal).unwrap()
}

/// Numbers as elements of a dtype, each the nearest, or the one before.
pub fn elements(dtype: Dtype, values: &[bf16]) -> Vec<u8> {
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
pub fn floats(dtype: Dtype, bytes: &[u8]) -> Vec<f32> {
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
pub fn spacing(dtype: Dtype, v: f32) -> f32 {
    let (mantissa, least) = match dtype {
        Dtype::F8E4M3 => (3, 2f32.powi(-9)),
        Dtype::F8E5M2 => (2, 2f32.powi(-16)),
        _ => return 0.0,
    };
    (v.abs() * 2f32.powi(-mantissa)).max(least)
}

/// Pools of all layers, keys and values, and what decodes into them.
pub struct Bench {
    pub device: Device,
    pub pages: DevicePages,
    pub layout: PoolLayout,
    pub dtype: Dtype,
    pub memory: Vec<[Buffer; 2]>,
}

impl Bench {
    pub fn new(codec: &PageCodec, layout: PoolLayout) -> Bench {
        Bench::of(codec, layout, Dtype::Bf16)
    }

    pub fn of(codec: &PageCodec, layout: PoolLayout, dtype: Dtype) -> Bench {
        // A real one where there is one.
        let device = Device::open(0).unwrap_or_else(|_| Device::emulated(1 << 30));
        let pages = DevicePages::new(&device, codec).unwrap();
        let bytes = layout.blocks * layout.block_stride;
        let layer = |_| [0, 1].map(|_| Buffer::from_slice(&device, &vec![0xa5; bytes]).unwrap());
        let memory = (0..LAYERS).map(layer).collect();
        Bench { device, pages, layout, dtype, memory }
    }

    /// Keys and values of some layers.
    pub fn pools(&self, layers: std::ops::Range<usize>) -> (DevicePool, DevicePool) {
        let pool = |side: usize| {
            let layers: Vec<_> = self.memory[layers.clone()].iter().map(|l| l[side].slice()).collect();
            let pool = DevicePool::new(&self.device, &layers, self.layout).unwrap();
            pool.with_dtype(self.dtype).unwrap()
        };
        (pool(0), pool(1))
    }

    /// Decodes all groups; what was said of each page.
    pub fn load(&self, pages: &[&[u8]], slots: &[i64]) -> Vec<Result<(), tenfold_kv::Error>> {
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

    pub fn load_groups(
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
    pub fn row(&self, layer: usize, side: usize, slot: usize) -> Vec<f32> {
        let buffer = &self.memory[layer][side];
        let mut bytes = vec![0; buffer.slice().len];
        buffer.read(&mut bytes, Stream::DEFAULT).unwrap();
        let l = &self.layout;
        let token = slot / l.block * l.block_stride + slot % l.block * l.token_stride;
        let head = |h: usize| floats(self.dtype, &bytes[token + h * l.head_stride..][..l.head]);
        (0..l.heads).flat_map(head).collect()
    }

    /// Holds what is in a page's slots against what the CPU decodes. A row is that of all layers of a group.
    pub fn compare(&self, codec: &PageCodec, page: &[u8], slots: &[i64], what: &str) {
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
    pub fn put(&self, layers: &[[Vec<bf16>; 2]], slots: &[i64]) {
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
    pub fn save(&self, slots: &[i64], positions: &[u64], step: f64) -> Vec<Option<Vec<u8>>> {
        self.save_at(slots, positions, &vec![step; positions.len()])
    }

    /// The same at a step for each page.
    pub fn save_at(&self, slots: &[i64], positions: &[u64], steps: &[f64]) -> Vec<Option<Vec<u8>>> {
        let tokens = slots.len() / positions.len();
        let columns = GROUPS.map(|layers| [layers * COLS; 2]);
        let save = self.pages.save(tokens, steps, &columns, self.dtype).unwrap();
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
        let (lossy, exact) = (save.coded(), save.exact());
        let quantised: Vec<usize> = lossy.clone().collect();
        let of = |pages: &[usize], tokens: &[usize]| {
            upload(pages.iter().flat_map(|page| slots_of(*page, tokens)).collect())
        };
        let starts = |pages: &[usize]| {
            upload(pages.iter().map(|page| positions[*page] + lossy.start as u64).collect())
        };
        let steps = |pages: &[usize]| upload(pages.iter().map(|page| steps[*page].to_bits()).collect());
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
                let (slots, starts, steps) = (of(&all, &quantised), starts(&all), steps(&all));
                let given = Given { slots: slots.slice(), positions: starts.slice(), steps: steps.slice() };
                let (to, work) = (found.slice(), work.slice());
                save.queue_look(&self.pages, look, &pool(look), &given, to, work, stream).unwrap();
                seen.push(read(&found));
            }
            let seen: Vec<&[u8]> = seen.iter().map(Vec::as_slice).collect();
            let mut made = Vec::new();
            for batch in save.batches(&self.pages, &seen).unwrap() {
                let blobs = Buffer::new(&self.device, save.blobs_len(&self.pages, &batch).unwrap()).unwrap();
                let said = Buffer::new(&self.device, 16 * batch.pages.len()).unwrap();
                let len = save.workspace_len(&self.pages, &batch).unwrap();
                let work = Buffer::new(&self.device, len).unwrap();
                let some = &batch.pages;
                let (slots, starts, steps) = (of(some, &quantised), starts(some), steps(some));
                let from = pool((batch.group, batch.side));
                let given = Given { slots: slots.slice(), positions: starts.slice(), steps: steps.slice() };
                let (to, status, work) = (blobs.slice(), said.slice(), work.slice());
                save.queue(&self.pages, &batch, &from, &given, to, status, work, stream).unwrap();
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
pub fn errors(codec: &PageCodec, page: &[u8], layers: &[[Vec<bf16>; 2]]) -> [f64; 2] {
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

/// Why pages are not decoded into pools.
pub fn refusal(bench: &Bench, load: &Load) -> ErrorKind {
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

pub fn layouts() -> [PoolLayout; 3] {
    layouts_of(Dtype::Bf16)
}

pub fn layouts_of(dtype: Dtype) -> [PoolLayout; 3] {
    let head = dtype.size() * COLS / HEADS;
    [
        PoolLayout::new(16, 8, HEADS, head),
        PoolLayout::heads_first(16, 8, HEADS, head),
        PoolLayout::new(128, 1, HEADS, head),
    ]
}

/// Slots of so many tokens, in no order.
pub fn slots(count: usize, seed: u64) -> Vec<i64> {
    let mut all: Vec<i64> = (0..128).collect();
    let mut r = StdRng::seed_from_u64(seed);
    (1..all.len()).rev().for_each(|i| all.swap(i, r.random_range(0..=i)));
    all.truncate(count);
    all
}

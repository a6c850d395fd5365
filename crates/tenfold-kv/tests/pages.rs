//! Pages: what comes back, that caps are kept, and what is refused.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::Arc;

use common::cosines;
use half::bf16;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tenfold::engine::{ErrorKind, Stop};
use tenfold::prepare::{Basis, Positions, Rope};
use tenfold::{Effort, Error as CodecError, Goal, TensorView};
use tenfold_kv::Error;
use tenfold_kv::page::{BasisPart, Chain, Choice, Group, Layer, Page, PageCodec};

/// Rows of a cache: layers, each keys and values.
struct Cache {
    tokens: usize,
    cols: usize,
    layers: Vec<[Vec<bf16>; 2]>,
}

impl Cache {
    /// Channels with means of their own that move together, in neighbouring layers too.
    fn random(tokens: usize, cols: usize, layers: usize, seed: u64) -> Cache {
        let mut r = StdRng::seed_from_u64(seed);
        let mut normal = move || (0..6).map(|_| r.random::<f32>()).sum::<f32>() - 3.0;
        let means: Vec<f32> = (0..cols).map(|_| 2.0 * normal()).collect();
        let common: Vec<f32> = (0..tokens * 4).map(|_| normal()).collect();
        let mix: Vec<f32> = (0..cols * 4).map(|_| normal()).collect();
        let mut side = |scale: f32| {
            let value = |i: usize, noise: f32| {
                let (t, c) = (i / cols, i % cols);
                let shared: f32 = (0..4).map(|k| common[t * 4 + k] * mix[c * 4 + k]).sum();
                bf16::from_f32(scale * (means[c] + shared + 0.4 * noise))
            };
            (0..tokens * cols).map(|i| value(i, normal())).collect()
        };
        Cache { tokens, cols, layers: (0..layers).map(|_| [side(1.0), side(0.2)]).collect() }
    }

    fn page<'a>(&'a self, shape: &'a [usize; 2], first: u64) -> Page<'a> {
        let view = |v: &'a [bf16]| TensorView::from_slice(v, shape).unwrap();
        let layer = |l: &'a [Vec<bf16>; 2]| Layer { keys: view(&l[0]), values: view(&l[1]) };
        Page { layers: self.layers.iter().map(layer).collect(), positions: Some(Positions::From(first)) }
    }

    fn shape(&self) -> [usize; 2] {
        [self.tokens, self.cols]
    }
}

/// Groups of so many layers each, all with bases.
fn codec(groups: &[usize], cols: usize) -> PageCodec {
    let group = |&layers: &usize| {
        let basis = cosines(cols * layers, (cols * layers).min(200));
        let rope = Rope::new(cols, 1e4).unwrap();
        Group {
            layers,
            keys: Chain::default().with_basis(basis.clone()).with_rope(rope),
            values: Chain::default().with_basis(basis).with_step(0.5),
        }
    };
    PageCodec::new(groups.iter().map(group).collect()).unwrap()
}

fn nmse(a: &[bf16], b: &[bf16]) -> f64 {
    let mean = a.iter().map(|v| v.to_f64()).sum::<f64>() / a.len() as f64;
    let error: f64 = a.iter().zip(b).map(|(a, b)| (a.to_f64() - b.to_f64()).powi(2)).sum();
    error / a.iter().map(|a| (a.to_f64() - mean).powi(2)).sum::<f64>()
}

#[test]
fn layers_come_back_in_order_and_alone() {
    let cache = Cache::random(64, 32, 5, 1);
    let codec = codec(&[1, 3, 1], 32).with_exact(4, 2);
    let shape = cache.shape();
    let bytes = codec.encode(&cache.page(&shape, 1000), Goal::Bits(4.0)).unwrap();
    assert!(bytes.len() <= 64 * 32 * 10 / 2 && bytes.len() > 64 * 32 * 10 * 9 / 20);
    let reader = codec.reader(&bytes).unwrap();
    assert_eq!((reader.layers(), reader.tokens(), reader.exact()), (5, 64, (4, 2)));
    let in_order: Vec<_> = (0..5).map(|l| reader.layer(l).unwrap()).collect();
    for (l, (keys, values)) in in_order.iter().enumerate() {
        for (side, back) in [keys, values].into_iter().enumerate() {
            assert_eq!(back.shape, [64, 32]);
            let (was, is) = (&cache.layers[l][side], back.to_vec::<bf16>().unwrap());
            assert_eq!((&was[..128], &was[62 * 32..]), (&is[..128], &is[62 * 32..]), "exact tokens");
            assert!(nmse(was, &is) < 0.05, "layer {l}, side {side}: {}", nmse(was, &is));
        }
    }
    // The page may still be on its way.
    for l in [4, 0, 2, 3, 1] {
        let enough = codec.reader(&bytes[..reader.needs(l).unwrap()]).unwrap();
        assert_eq!(enough.layer(l).unwrap(), in_order[l]);
        let short = codec.reader(&bytes[..reader.needs(l).unwrap() - 4]).unwrap();
        assert!(matches!(short.layer(l).unwrap_err(), Error::Codec(CodecError::Truncated { .. })));
    }
    assert_eq!(reader.layer(5).unwrap_err().kind(), ErrorKind::Caller);
    let all = codec.decode_all(&[&bytes, &bytes]).unwrap();
    assert!(all.iter().all(|page| *page.as_ref().unwrap() == in_order));
}

#[test]
fn caps_are_kept_whatever_the_page() {
    let mut r = StdRng::seed_from_u64(7);
    let (mut fitted, mut refused) = (0, 0);
    for seed in 0..150u64 {
        let tokens = [1, 16, 33, 64, 130][r.random_range(0..5)];
        let (cols, groups): (usize, &[usize]) =
            [(16, &[1][..]), (32, &[2, 1]), (48, &[3]), (64, &[1, 1])][r.random_range(0..4)];
        let mut cache = Cache::random(tokens, cols, groups.iter().sum(), seed);
        match seed % 6 {
            0 => cache.layers[0][0].fill(bf16::ZERO),
            1 => cache.layers[0][1][0] = bf16::NAN,
            2 => cache.layers[0][0].iter_mut().step_by(97).for_each(|v| *v = bf16::from_f32(3e38)),
            3 => cache.layers[0][1].iter_mut().for_each(|v| *v = bf16::from_bits(r.random())),
            _ => {}
        }
        let codec = match seed % 5 {
            0 => {
                let group =
                    Group { layers: groups.iter().sum(), keys: Chain::default(), values: Chain::default() };
                PageCodec::new(vec![group]).unwrap()
            }
            _ => codec(groups, cols),
        };
        let codec = codec.with_effort([Effort::Fast, Effort::Balanced][seed as usize % 2]);
        let codec = codec.with_exact([0, 4][seed as usize / 2 % 2], 0);
        let all = tokens * cols * 4 * cache.layers.len();
        let cap = r.random_range(20..all + all / 8 + 2000);
        let shape = cache.shape();
        match codec.encode(&cache.page(&shape, seed), Goal::MaxBytes(cap)) {
            Ok(bytes) => {
                assert!(bytes.len() <= cap, "{} bytes of {cap}", bytes.len());
                let reader = codec.reader(&bytes).unwrap();
                (0..reader.layers()).for_each(|l| assert_eq!(reader.layer(l).unwrap().0.shape, shape));
                fitted += 1;
            }
            Err(Error::Codec(CodecError::DoesNotFit { cap: said, need })) => {
                assert!(said == cap as u64 && need > said, "cap {cap}: {said}, {need}");
                refused += 1;
            }
            Err(e) => panic!("{e}"),
        }
    }
    assert!(fitted > 100 && refused > 3, "{fitted} {refused}");
}

#[test]
fn a_cap_costs_little_against_the_same_rate_without() {
    let cache = Cache::random(64, 64, 4, 3);
    let codec = codec(&[4], 64);
    let shape = cache.shape();
    let page = cache.page(&shape, 0);
    let free = codec.encode(&page, Goal::Step(0.12)).unwrap();
    let capped = codec.encode(&page, Goal::MaxBytes(free.len())).unwrap();
    assert!(capped.len() <= free.len());
    let error = |bytes: &[u8]| {
        let reader = codec.reader(bytes).unwrap();
        let layer = |l: usize| {
            let (k, v) = reader.layer(l).unwrap();
            let (k, v) = (k.to_vec::<bf16>().unwrap(), v.to_vec::<bf16>().unwrap());
            // Values count four times: their steps are half as large.
            let off = |a: &[bf16], b: &[bf16]| {
                a.iter().zip(b).map(|(a, b)| (a.to_f64() - b.to_f64()).powi(2)).sum::<f64>()
            };
            off(&cache.layers[l][0], &k) + 4.0 * off(&cache.layers[l][1], &v)
        };
        (0..4).map(layer).sum::<f64>()
    };
    let (a, b) = (error(&capped), error(&free));
    assert!(a < b * 1.03, "{a} {b}");
}

#[test]
fn many_pages_go_in_one_call() {
    let caches: Vec<Cache> = (0..40).map(|i| Cache::random(16, 16, 2, i)).collect();
    let shape = [16, 16];
    let mut pages: Vec<Page> =
        caches.iter().enumerate().map(|(i, c)| c.page(&shape, i as u64 * 16)).collect();
    pages[7].positions = None;
    let codec = codec(&[2], 16).with_threads(2);
    let made = codec.encode_all(&pages, Goal::MaxBytes(600)).unwrap();
    for (i, page) in made.iter().enumerate() {
        match page {
            Ok(bytes) => assert!(bytes.len() <= 600 && i != 7),
            Err(e) => assert!(i == 7 && e.to_string().contains("rotary positions"), "{i}: {e}"),
        }
    }
}

/// A page with something done to it.
#[test]
fn pages_of_a_context_share_a_cap() {
    let (quiet, loud) = (Cache::random(64, 32, 2, 5), Cache::random(64, 32, 2, 6));
    let shape = quiet.shape();
    let mut soft = Cache::random(64, 32, 2, 7);
    soft.layers.iter_mut().flatten().flatten().for_each(|v| *v = bf16::from_f32(v.to_f32() / 64.0));
    let codec = codec(&[2], 32).with_exact(1, 0);
    let pages = [quiet.page(&shape, 0), soft.page(&shape, 64), loud.page(&shape, 128)];
    for cap in [3_000, 8_000] {
        let made = codec.encode_together(&pages, cap).unwrap();
        let sizes: Vec<usize> = made.iter().map(Vec::len).collect();
        let all: usize = sizes.iter().sum();
        assert!(all <= cap && all as f64 > 0.93 * cap as f64, "{sizes:?}");
        assert!(2 * sizes[1] < sizes[0].min(sizes[2]), "{sizes:?}");
        // The same with another number of threads.
        assert_eq!(codec.encode_together_until(&pages, cap, 1, &Stop::default()).unwrap(), made);
    }
    let refused = codec.encode_together(&pages, 200).unwrap_err();
    assert!(matches!(refused, Error::Codec(CodecError::DoesNotFit { cap: 200, need }) if need > 200));
    assert!(codec.encode_together(&[], 200).unwrap().is_empty());
    // None, a page that never changes, one that is exact as a whole, all the bytes there are.
    assert!(codec.encode_together(&pages, 0).unwrap_err().kind() == refused.kind());
    let flat =
        Cache { tokens: 64, cols: 32, layers: vec![[vec![bf16::ONE; 2048], vec![bf16::ZERO; 2048]]; 2] };
    let made = codec.encode_together(&[flat.page(&shape, 0)], 4_000).unwrap();
    assert!(made[0].len() <= 4_000);
    assert!(codec.encode_together(&pages, usize::MAX).is_ok());
    let stop = Stop::new();
    stop.stop();
    assert!(codec.encode_together_until(&pages, 8_000, 1, &stop).is_err());
}

#[test]
fn a_page_has_the_basis_that_takes_the_fewest_bits() {
    let cols = 64;
    let smooth = cosines(cols, cols);
    let unit: Vec<f32> = (0..cols * cols).map(|i| f32::from(u8::from(i % (cols + 1) == 0))).collect();
    let sparse = Arc::new(Basis::orthonormal(&vec![0.0; cols], &unit).unwrap());
    let codec = |bases: &[&Arc<Basis>]| {
        let chain = bases.iter().fold(Chain::default(), |chain, &basis| chain.with_basis(basis.clone()));
        PageCodec::new(vec![Group { layers: 1, keys: chain.clone(), values: chain }]).unwrap()
    };
    let mut r = StdRng::seed_from_u64(3);
    // Waves are one coordinate of the one basis, spikes one of the other.
    let mut rows = |spiky: bool| -> Vec<bf16> {
        let mut row = || -> Vec<bf16> {
            let (at, height) = (r.random_range(1..6usize), 8.0 * r.random::<f32>());
            let wave = |c: usize| (std::f32::consts::PI * (c as f32 + 0.5) * at as f32 / cols as f32).cos();
            let value = |c: usize| if spiky { f32::from(u8::from(c == at)) } else { wave(c) };
            (0..cols).map(|c| bf16::from_f32(height * value(c))).collect()
        };
        (0..64).flat_map(|_| row()).collect()
    };
    let cache = Cache { tokens: 64, cols, layers: vec![[rows(true), rows(false)]] };
    let shape = cache.shape();
    let page = cache.page(&shape, 0);
    let both = codec(&[&smooth, &sparse]);
    for goal in [Goal::Step(0.05), Goal::MaxBytes(2_000)] {
        let made = both.encode(&page, goal).unwrap();
        let alone = [&smooth, &sparse].map(|basis| codec(&[basis]).encode(&page, goal).unwrap());
        if let Goal::MaxBytes(cap) = goal {
            assert!(made.len() <= cap);
        } else {
            assert!(alone.iter().all(|one| made.len() < one.len() * 9 / 10), "{} bytes", made.len());
            // Which comes first does not matter.
            assert!(made == codec(&[&sparse, &smooth]).encode(&page, goal).unwrap());
        }
        for bytes in alone.iter().chain([&made]) {
            let (keys, values) = both.reader(bytes).unwrap().layer(0).unwrap();
            assert_eq!((keys.shape, values.shape), (vec![64, cols], vec![64, cols]));
        }
        // A page names what it needs.
        assert!(codec(&[&sparse]).reader(&made).unwrap().layer(0).is_err());
    }
}

#[test]
fn parts_that_do_not_fit_their_basis_are_refused() {
    let (whole, part) = (cosines(64, 64), cosines(64, 16));
    let chain = |basis: &Arc<Basis>, without: std::ops::Range<usize>| {
        let part = BasisPart { basis: basis.clone(), without: Vec::from([without]) };
        Chain::default().with_basis(Choice::from(whole.clone()).with_part(part))
    };
    let made = |keys: Chain| PageCodec::new(vec![Group { layers: 2, keys, values: Chain::default() }]);
    assert!(made(chain(&part, 16..64)).is_ok());
    let other = cosines(32, 16);
    for bad in [chain(&part, 17..65), chain(&part, 16..63), chain(&other, 16..64)] {
        assert_eq!(made(bad).unwrap_err().kind(), ErrorKind::Caller);
    }
    let narrow = chain(&part, 16..64).with_basis(other);
    assert!(made(narrow).unwrap_err().to_string().contains("same columns"));
}

fn changed<'a>(page: &Page<'a>, change: impl FnOnce(&mut Page<'a>)) -> Page<'a> {
    let mut page = page.clone();
    change(&mut page);
    page
}

#[test]
fn bad_pages_are_the_callers_fault() {
    let cache = Cache::random(16, 16, 2, 9);
    let shape = cache.shape();
    let codec = codec(&[2], 16);
    let refused = |page: &Page, says: &str| {
        let e = codec.encode(page, Goal::MaxBytes(4000)).unwrap_err();
        assert!(e.kind() == ErrorKind::Caller && e.to_string().contains(says), "{e}");
    };
    let sound = cache.page(&shape, 0);
    refused(&changed(&sound, |p| p.layers.truncate(1)), "1 layers");
    refused(&changed(&sound, |p| p.positions = None), "rotary positions");
    refused(
        &changed(&sound, |p| p.positions = Some(Positions::List(vec![0; 3]))),
        "3 positions for 16 tokens",
    );
    let ints = [0i8; 256];
    let view = TensorView::from_slice(&ints, &shape).unwrap();
    refused(&changed(&sound, |p| p.layers.fill(Layer { keys: view, values: view })), "floats");
    let none = [0, 16];
    let empty = TensorView::from_slice::<bf16>(&[], &none).unwrap();
    refused(&changed(&sound, |p| p.layers.fill(Layer { keys: empty, values: empty })), "one token");
    let other = [bf16::ZERO; 128];
    let short = [8, 16];
    let view = TensorView::from_slice(&other, &short).unwrap();
    refused(&changed(&sound, |p| p.layers[1].values = view), "layer 1");
    let wide = [16, 32];
    let data = [bf16::ONE; 512];
    let view = TensorView::from_slice(&data, &wide).unwrap();
    refused(
        &changed(&sound, |p| p.layers.fill(Layer { keys: view, values: view })),
        "the basis has 32 columns",
    );
    assert!(codec.encode(&sound, Goal::Nmse(0.1)).unwrap_err().to_string().contains("goal"));
    assert_eq!(PageCodec::new(vec![]).unwrap_err().kind(), ErrorKind::Caller);
}

#[test]
fn bad_bytes_are_errors() {
    let cache = Cache::random(16, 32, 2, 11);
    let codec = codec(&[1, 1], 32).with_exact(1, 0);
    let shape = cache.shape();
    let bytes = codec.encode(&cache.page(&shape, 0), Goal::MaxBytes(1500)).unwrap();
    let read = |bytes: &[u8]| -> tenfold_kv::Result<()> {
        let reader = codec.reader(bytes)?;
        (0..reader.layers()).try_for_each(|l| reader.layer(l).map(drop))
    };
    read(&bytes).unwrap();
    for i in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[i] ^= 1 << (i % 8);
        assert!(read(&bad).is_err(), "byte {i}");
        assert!(read(&bytes[..i]).is_err(), "{i} bytes");
    }
    assert_eq!(read(&[&bytes[..], &[0; 4]].concat()).unwrap_err().kind(), ErrorKind::Data);
    // Another codec has other bases.
    let other =
        PageCodec::new(vec![Group { layers: 2, keys: Chain::default(), values: Chain::default() }]).unwrap();
    let e = other.reader(&bytes).unwrap().layer(0).unwrap_err();
    assert!(matches!(e, Error::Codec(CodecError::MissingBasis { .. })), "{e}");
}

#[test]
fn capped_pages_depend_on_nothing_but_themselves() {
    let caches: Vec<Cache> =
        (0..9).map(|i| Cache::random(if i % 3 == 0 { 16 } else { 48 }, 32, 2, 40 + i)).collect();
    let shapes: Vec<[usize; 2]> = caches.iter().map(Cache::shape).collect();
    let pages: Vec<Page<'_>> =
        caches.iter().zip(&shapes).enumerate().map(|(i, (c, s))| c.page(s, 100 * i as u64)).collect();
    let plain = || {
        let group = Group { layers: 1, keys: Chain::default(), values: Chain::default() };
        PageCodec::new(vec![group.clone(), group]).unwrap()
    };
    // With bases and without; a cap and a rate, which is one too.
    for make in [|| codec(&[2], 32), plain] {
        for goal in [Goal::MaxBytes(2200), Goal::Bits(3.0)] {
            // A codec that has made nothing before, for each page.
            let alone: Vec<Vec<u8>> = pages.iter().map(|p| make().encode(p, goal).unwrap()).collect();
            let codec = make();
            let mut order: Vec<usize> = (0..pages.len()).collect();
            let mut random = StdRng::seed_from_u64(5);
            for (round, threads) in [1, 2, 4, 4, 1].into_iter().enumerate() {
                match round {
                    1 => order.reverse(),
                    0 => {}
                    _ => order.sort_by_key(|_| random.random::<u32>()),
                }
                let batch: Vec<Page<'_>> = order.iter().map(|&i| pages[i].clone()).collect();
                let made = codec.encode_all_until(&batch, goal, threads, &Stop::default()).unwrap();
                for (&i, bytes) in order.iter().zip(made) {
                    assert_eq!(
                        bytes.unwrap(),
                        alone[i],
                        "page {i}, {goal:?}, {threads} threads, round {round}"
                    );
                }
            }
        }
    }
}

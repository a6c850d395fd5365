//! Every path against the plain one, symbol by symbol and byte by byte.

use super::*;
use crate::entropy::ESCAPE;
use crate::entropy::table::{Freqs, slot_table};
use rand::{Rng, RngExt, SeedableRng, rngs::StdRng};

fn skewed(rng: &mut StdRng, log: u32, symbols: &[u8]) -> Freqs {
    let mut of = [0u16; 256];
    for &s in symbols {
        of[s as usize] = 1;
    }
    for _ in 0..(1usize << log) - symbols.len() {
        let a = rng.random_range(0..symbols.len());
        let b = rng.random_range(0..=a);
        of[symbols[b] as usize] += 1;
    }
    Freqs { log, of }
}

fn levels_of(
    rng: &mut StdRng,
    machine: Machine,
    tables: &[Freqs],
    class: &[u8],
    lanes: usize,
) -> (Vec<u16>, Vec<u8>) {
    // Symbols drawn from the tables by walking the trellis as a decoder would; escapes get a level.
    let mut state = vec![0u32; lanes];
    let mut escapes = Vec::new();
    let symbols = class
        .iter()
        .enumerate()
        .map(|(i, &c)| {
            let s = &mut state[i % lanes];
            let set = c as usize * 2 + (*s & 1) as usize;
            let mut at = rng.random_range(0..1u32 << tables[set].log);
            let symbol = tables[set].of.iter().position(|&f| match at.checked_sub(f as u32) {
                Some(rest) => {
                    at = rest;
                    false
                }
                None => true,
            });
            let symbol = symbol.unwrap() as u8;
            let k = if symbol == ESCAPE { rng.random_range(-9000i16..9000) } else { symbol as i8 as i16 };
            if symbol == ESCAPE {
                escapes.extend_from_slice(&k.to_le_bytes());
            }
            *s = machine.next(*s, k as i32);
            (set << 8) as u16 | symbol as u16
        })
        .collect();
    (symbols, escapes)
}

#[test]
fn every_path_gives_the_plain_bytes_and_the_plain_levels() {
    let mut rng = StdRng::seed_from_u64(7);
    for round in 0..40 {
        let log = [10, 11, 12][round % 3];
        let machine = Machine::new([0, 3, 8, 2][round % 4]).unwrap();
        let classes = 1 + round % 5;
        let alphabet =
            [&[0u8][..], &[0, 1, 0xff, 2, 0xfe, ESCAPE], &[0, 1, 2, 3, 4, 250, 251, 252, 253, 254, 255]]
                [(round / 2) % 3];
        let tables: Vec<Freqs> = (0..classes * 2).map(|_| skewed(&mut rng, log, alphabet)).collect();
        let lanes = if round % 8 == 7 { 4 } else { 32 };
        let n = [0, 1, 31, 32, 33, 4096, 5000, 20011][rng.random_range(0..8)];
        let class: Vec<u8> = (0..n).map(|_| rng.random_range(0..classes as u8)).collect();
        let (symbols, escapes) = levels_of(&mut rng, machine, &tables, &class, lanes);
        let table = EncodeTable::new(&tables);
        let mut plain = Vec::new();
        encode(Isa::Plain, &table, lanes, &symbols, &mut WordStack::default(), &mut plain);
        // A symbol never takes more than one word.
        assert!(plain.len() <= lanes * 4 + n * 2);
        let mut slots = Vec::new();
        slot_table(&tables, &mut slots);
        let spec = DecodeSpec { slots: &slots, log, machine };
        let class = if classes == 1 { Vec::new() } else { class };
        let mut expect = vec![0i32; n];
        for path in Isa::available() {
            let mut bytes = Vec::new();
            encode(path, &table, lanes, &symbols, &mut WordStack::default(), &mut bytes);
            assert!(bytes == plain, "{path:?} writes other bytes");
            let mut out = vec![0i32; n];
            let mut d = Decoder::new(lanes, &plain, Escapes::new(&escapes, 2)).unwrap();
            let cut = n / 2 / lanes * lanes;
            let (a, b) = out.split_at_mut(cut);
            d.decode_levels(path, &spec, &class[..cut.min(class.len())], &[], a).unwrap();
            d.decode_levels(path, &spec, &class[cut.min(class.len())..], &[], b).unwrap();
            d.finish().unwrap();
            if path == Isa::Plain {
                expect = out;
            } else {
                assert!(out == expect, "{path:?} reads other levels");
            }
        }
    }
}

#[test]
fn every_path_reads_low_bits_alike() {
    let mut rng = StdRng::seed_from_u64(3);
    let machine = Machine::new(3).unwrap();
    let tables: Vec<Freqs> = (0..2).map(|_| skewed(&mut rng, 11, &[0, 1, 2, 255, 254])).collect();
    let n = 3000;
    // Any symbol sequence that is legal for some parities: quantiser 0 and 1 share one table here.
    let tables = vec![tables[0].clone(), tables[0].clone()];
    let symbols: Vec<u16> = (0..n).map(|_| [0u16, 1, 2, 255, 254][rng.random_range(0..5)]).collect();
    let low: Vec<u32> = (0..n)
        .map(|_| {
            let count = rng.random_range(0..7);
            low_word(rng.next_u32() & ((1 << count) - 1), count)
        })
        .collect();
    let mut bytes = Vec::new();
    encode(Isa::Plain, &EncodeTable::new(&tables), 32, &symbols, &mut WordStack::default(), &mut bytes);
    let mut slots = Vec::new();
    slot_table(&tables, &mut slots);
    let spec = DecodeSpec { slots: &slots, log: 11, machine };
    let mut results = Vec::new();
    for path in Isa::available() {
        let mut out = vec![0i32; n];
        let mut d = Decoder::new(32, &bytes, Escapes::new(&[], 0)).unwrap();
        d.decode_levels(path, &spec, &[], &low, &mut out).unwrap();
        d.finish().unwrap();
        results.push(out);
    }
    assert!(results[0].iter().any(|&m| m.abs() > 63));
    assert!(results.iter().all(|r| *r == results[0]));
}

#[test]
fn every_path_reads_bytes_alike() {
    let mut rng = StdRng::seed_from_u64(5);
    for (classes, lanes, n) in [(1, 32, 10_000), (3, 32, 10_000), (16, 32, 10_007), (5, 8, 999), (4, 32, 31)]
    {
        let all: Vec<u8> = (0..=255).collect();
        let tables: Vec<Freqs> = (0..classes).map(|_| skewed(&mut rng, 12, &all)).collect();
        let class: Vec<u8> = (0..n).map(|_| rng.random_range(0..classes as u8)).collect();
        let symbols: Vec<u8> = (0..n).map(|_| rng.random_range(0..200) * rng.random_range(0..2)).collect();
        let coded: Vec<u16> =
            class.iter().zip(&symbols).map(|(&c, &s)| u16::from(c) << 8 | u16::from(s)).collect();
        let mut bytes = Vec::new();
        let table = EncodeTable::new(&tables);
        encode(Isa::Plain, &table, lanes, &coded, &mut WordStack::default(), &mut bytes);
        let mut slots = Vec::new();
        slot_table(&tables, &mut slots);
        let class = if classes == 1 { &[][..] } else { &class };
        for path in Isa::available() {
            let mut out = vec![0u8; n];
            let mut d = Decoder::new(lanes, &bytes, Escapes::new(&[], 0)).unwrap();
            d.decode_symbols(path, &slots, 12, class, &mut out).unwrap();
            d.finish().unwrap();
            assert!(out == symbols, "{path:?}, {classes} classes, {lanes} lanes");
            // Some ticks at a time.
            let mut d = Decoder::new(lanes, &bytes, Escapes::new(&[], 0)).unwrap();
            for (i, out) in out.chunks_mut(64).enumerate() {
                out.fill(0);
                let class = class.get(64 * i..).unwrap_or_default();
                d.decode_symbols(path, &slots, 12, &class[..class.len().min(out.len())], out).unwrap();
            }
            d.finish().unwrap();
            assert!(out == symbols, "{path:?}, {classes} classes, {lanes} lanes, in parts");
            // Words that are not there.
            for words in 1..40.min((bytes.len() - 4 * lanes) / 2) {
                let mut d =
                    Decoder::new(lanes, &bytes[..bytes.len() - 2 * words], Escapes::new(&[], 0)).unwrap();
                let error = d.decode_symbols(path, &slots, 12, class, &mut out).unwrap_err();
                assert!(error.to_string().contains("runs out of words"), "{path:?}: {error}");
            }
        }
    }
}

#[test]
fn every_path_reads_streams_of_few_words() {
    let mut of = [0; 256];
    (of[0], of[7]) = (4095, 1);
    let tables = [Freqs { log: 12, of }];
    let mut slots = Vec::new();
    slot_table(&tables, &mut slots);
    let symbols: Vec<u16> = (0..4096).map(|i| if i % 1000 == 999 { 7 } else { 0 }).collect();
    let mut bytes = Vec::new();
    encode(Isa::Plain, &EncodeTable::new(&tables), 32, &symbols, &mut WordStack::default(), &mut bytes);
    assert!(bytes.len() < 128 + 64);
    for path in Isa::available() {
        let mut out = vec![0u8; symbols.len()];
        let mut d = Decoder::new(32, &bytes, Escapes::new(&[], 0)).unwrap();
        d.decode_bytes(path, &slots, 12, &mut out).unwrap();
        d.finish().unwrap();
        assert!(out.iter().zip(&symbols).all(|(&a, &b)| u16::from(a) == b), "{path:?}");
    }
}

#[test]
fn every_path_gives_the_plain_bytes_and_the_plain_pairs() {
    use crate::entropy::fit::normalise;
    use crate::entropy::pairs::{PairTable, is_escape, next_states, raw_bits, slot_table};
    use crate::entropy::table_code::Alphabet;

    let mut rng = StdRng::seed_from_u64(8);
    for round in 0..40 {
        let machine = Machine::new([0, 2, 3, 5, 8][round % 5]).unwrap();
        let classes = 1 + round % 3;
        let freqs: Vec<Freqs> = (0..2 * classes)
            .map(|_| {
                let sigma = rng.random_range(0.2..6.0f64);
                let mut counts = [0u64; 256];
                for k in -127i32..=127 {
                    counts[k as u8 as usize] = (1e6 * (-(k * k) as f64 / sigma / sigma).exp()) as u64;
                }
                normalise(&counts, Alphabet::levels(10 + round as u32 % 3, 0))
            })
            .collect();
        let tables = PairTable::all(&freqs, machine);
        let pairs = rng.random_range(100..3000);
        let class: Vec<u8> = (0..pairs).flat_map(|_| [rng.random_range(0..classes as u8); 2]).collect();
        // Symbols drawn from the tables by walking the trellis as a decoder would.
        let next = next_states(machine);
        let mut state = [0u32; MAX_LANES];
        let mut escapes = Vec::new();
        let symbols: Vec<u16> = (0..pairs)
            .map(|i| {
                let s = &mut state[i % MAX_LANES];
                let set = class[2 * i] as usize * 4 + (*s & 3) as usize;
                let at = rng.random_range(0..1u16 << PAIR_LOG);
                let symbol = tables[set].start.partition_point(|&from| from <= at) - 1;
                if is_escape(symbol as u8) {
                    escapes.extend_from_slice(&[rng.random::<u8>(), rng.random::<u8>()]);
                }
                let parities = symbol >> 4 & 1 | (symbol & 1) << 1;
                *s = *s >> 2 ^ next[parities << 2 | (*s & 3) as usize];
                let raw = rng.random_range(0..1u16 << raw_bits(symbol as u8).min(2));
                (set << 8 | symbol) as u16 | raw << PAIR_RAW
            })
            .collect();
        let encode_table = EncodeTable::of_pairs(&tables);
        let mut slots = Vec::new();
        slot_table(&tables, &mut slots);
        let values: Box<[u32; PAIR_VALUES]> = Box::new(std::array::from_fn(|_| rng.random()));
        let spec = PairSpec { slots: &slots, values: &values, next, machine };
        let mut words = WordStack::default();
        let mut plain = Vec::new();
        encode_pairs(Isa::Plain, &encode_table, &symbols, &mut words, &mut plain);
        let mut expected = Vec::new();
        for isa in Isa::available() {
            let mut bytes = Vec::new();
            encode_pairs(isa, &encode_table, &symbols, &mut words, &mut bytes);
            assert!(bytes == plain, "{isa:?}, round {round}");
            let mut decoder = Decoder::new(MAX_LANES, &bytes, Escapes::new(&escapes, 2)).unwrap();
            let (mut out, mut escaped) = (vec![0u32; pairs], Vec::new());
            let given = if classes == 1 { &[][..] } else { &class[..] };
            decoder.decode_pairs(isa, &spec, given, &mut out, &mut escaped).unwrap();
            decoder.finish().unwrap();
            let seen: Vec<(usize, [i32; 2])> = escaped.iter().map(|e| (e.pair, e.multiples)).collect();
            if isa == Isa::Plain {
                expected = seen.clone();
                for (i, (&v, &s)) in out.iter().zip(&symbols).enumerate() {
                    let (low, raw) = (s >> 8 & 3, s >> PAIR_RAW);
                    // Bits of the state beyond the raw ones pick a value too; a real table ignores them.
                    let same = (0..4).any(|more| {
                        let known = (1u16 << raw_bits(s as u8).min(2)) - 1;
                        more & known == raw & known
                            && v == values[(low << 10 | (s & 0xff) << 2 | more) as usize]
                    });
                    assert!(same, "pair {i} of round {round}");
                }
            }
            assert_eq!(seen, expected, "{isa:?}, round {round}");
        }
        // One word too few, and one escape too few.
        let short = &plain[..plain.len() - 2];
        let mut decoder = Decoder::new(MAX_LANES, short, Escapes::new(&escapes, 2)).unwrap();
        let (mut out, mut escaped) = (vec![0u32; pairs], Vec::new());
        let done = decoder.decode_pairs(Isa::detect(), &spec, &class, &mut out, &mut escaped);
        assert!(done.is_err() || decoder.finish().is_err());
    }
}

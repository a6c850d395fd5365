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
    let table = skewed(&mut rng, 12, &(0..=255).collect::<Vec<u8>>());
    let symbols: Vec<u16> = (0..10_000).map(|_| rng.random_range(0..200) * rng.random_range(0..2)).collect();
    let mut bytes = Vec::new();
    encode(
        Isa::Plain,
        &EncodeTable::new(std::slice::from_ref(&table)),
        32,
        &symbols,
        &mut WordStack::default(),
        &mut bytes,
    );
    let mut slots = Vec::new();
    slot_table(std::slice::from_ref(&table), &mut slots);
    for path in Isa::available() {
        let mut out = vec![0u8; symbols.len()];
        let mut d = Decoder::new(32, &bytes, Escapes::new(&[], 0)).unwrap();
        d.decode_bytes(path, &slots, 12, &mut out).unwrap();
        d.finish().unwrap();
        assert!(out.iter().zip(&symbols).all(|(&a, &b)| a as u16 == b), "{path:?}");
    }
}

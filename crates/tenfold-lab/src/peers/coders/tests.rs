//! Every coder on symbols of every width: what went in comes out, skewed symbols get short, and nothing
//! that is claimed is believed.

use super::*;

/// Symbols with probabilities that halve, as a quantiser gives them.
fn skewed(n: usize, width: u8) -> Vec<u8> {
    let most = u32::from(u8::MAX >> (8 - width));
    (0..n as u32)
        .map(|i| {
            let hash = (i + 1).wrapping_mul(2_654_435_761) ^ i.wrapping_mul(i).wrapping_mul(40_503);
            hash.wrapping_mul(0x85eb_ca6b).leading_zeros().min(most) as u8
        })
        .collect()
}

#[test]
fn symbols_come_back() {
    for coder in Coder::ALL {
        for width in 1..=8u8 {
            for n in [0usize, 1, 2, 9, 1000, 20_000] {
                for symbols in [skewed(n, width), vec![0; n], vec![u8::MAX >> (8 - width); n]] {
                    let bytes = coder.encode(&symbols, width).unwrap();
                    let back = coder.decode(&bytes, n, width).unwrap();
                    assert!(back == symbols, "{coder:?}, {n} symbols of {width} bits");
                }
            }
        }
    }
}

#[test]
fn every_symbol_of_a_byte_comes_back() {
    let symbols: Vec<u8> = (0..=255u8).flat_map(|s| vec![s; 1 + usize::from(s) % 7 * 20]).collect();
    for coder in Coder::ALL {
        let bytes = coder.encode(&symbols, 8).unwrap();
        assert_eq!(coder.decode(&bytes, symbols.len(), 8).unwrap(), symbols, "{coder:?}");
    }
}

#[test]
fn lengths_are_near_the_entropy() {
    // 1 + 1/2 + 1/4 + … = 2 bits a symbol.
    let symbols = skewed(200_000, 8);
    for (coder, most) in
        [(Coder::Huffman, 2.01), (Coder::Cabac, 2.06), (Coder::Zstd, 2.7), (Coder::Deflate, 2.7)]
    {
        let bits = coder.encode(&symbols, 8).unwrap().len() as f64 * 8.0 / 200_000.0;
        assert!((1.9..most).contains(&bits), "{coder:?}: {bits}");
    }
    // Where one symbol is nearly all there is, only an arithmetic coder goes below a bit.
    let rare: Vec<u8> = (0..200_000).map(|i| u8::from(i % 1000 == 0)).collect();
    let bits = |c: Coder| c.encode(&rare, 2).unwrap().len() as f64 * 8.0 / 200_000.0;
    assert!(bits(Coder::Cabac) < 0.02 && bits(Coder::Huffman) >= 1.0);
}

#[test]
fn counts_that_no_bytes_can_hold_are_refused() {
    for coder in Coder::ALL {
        let bytes = coder.encode(&skewed(500, 4), 4).unwrap();
        for n in [501, 10_000_000, 1 << 40, usize::MAX] {
            // Coders of single bits may find one more symbol in the last bits.
            if n > 501 || !matches!(coder, Coder::Cabac | Coder::Huffman) {
                assert!(coder.decode(&bytes, n, 4).is_err(), "{coder:?}, {n}");
            }
        }
    }
}

#[test]
fn truncated_or_changed_bytes_never_panic() {
    for coder in Coder::ALL {
        let symbols = skewed(300, 5);
        let bytes = coder.encode(&symbols, 5).unwrap();
        for cut in 0..bytes.len() {
            let _ = coder.decode(&bytes[..cut], 300, 5);
        }
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            if let Ok(back) = coder.decode(&bad, 300, 5) {
                assert!(back.len() == 300 && back.iter().all(|&s| s < 32), "{coder:?}");
            }
        }
    }
}

#[test]
fn trees_that_are_none_are_refused() {
    // Lengths 1, 1, 1 and 2, 2: too many and too few codes; no code at all.
    for lengths in [&[2u8, 0x11, 0x01][..], &[1, 0x22], &[0, 0]] {
        let bytes = [lengths, &[0xff; 9]].concat();
        assert!(Coder::Huffman.decode(&bytes, 3, 8).is_err());
    }
}

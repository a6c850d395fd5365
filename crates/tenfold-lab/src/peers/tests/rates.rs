//! Real bytes against what a peer is set to.

use tenfold::Dtype;

use super::super::{Coder, Combined, Kind, Lloyd, MxFormat, Nf4, Peer, Quantiser, Rate, Rtn, families};
use crate::synth;

fn quantisers() -> Vec<Quantiser> {
    let mut out = vec![Quantiser::Nf4(Nf4 { wide: false }), Quantiser::Nf4(Nf4 { wide: true })];
    for group in [0, 32, 64, 128] {
        for symmetric in [true, false] {
            out.extend([2, 3, 5, 8].map(|bits| Quantiser::Rtn(Rtn { bits, group, symmetric })));
        }
    }
    out.extend((2..=8).map(|bits| Quantiser::HadamardRtn(Rtn { bits, group: 128, symmetric: true })));
    out.extend((1..=4).map(|bits| Quantiser::HadamardLloyd(Lloyd { bits })));
    use MxFormat as M;
    out.extend([M::E2m1, M::E2m3, M::E3m2, M::E4m3, M::E5m2, M::Int8].map(Quantiser::Mx));
    out
}

#[test]
fn fixed_lengths_are_as_stated_and_entropy_coders_below() {
    let tensor = synth::gaussian(Dtype::F32, &[64, 512], 0.02, 4).unwrap();
    let view = tensor.view().unwrap();
    let bits = |peer: Combined| peer.encode(&view).unwrap().len() as f64 * 8.0 / 32_768.0;
    for quantiser in quantisers() {
        // Rows are not so long that their norms cost nothing, and there are 28 bytes of header and settings.
        let nominal = quantiser.nominal_bits();
        let fixed = bits(Combined { quantiser, coder: Coder::Packed });
        assert!((fixed - nominal).abs() < 0.045, "{quantiser:?}: {fixed} against {nominal}");
        for coder in [Coder::Huffman, Coder::Deflate, Coder::Lz4, Coder::Cabac, Coder::Zstd] {
            let coded = bits(Combined { quantiser, coder });
            assert!(coded < fixed * 1.01 + 0.06, "{quantiser:?}, {coder:?}: {coded} against {fixed}");
        }
    }
}

#[test]
fn coders_that_can_be_aimed_hit_their_rate() {
    let tensor = synth::gaussian(Dtype::F32, &[128, 512], 0.02, 4).unwrap();
    let view = tensor.view().unwrap();
    for family in families().iter().filter(|f| f.kind != Kind::Video) {
        let rates = [1.5, 2.0, 3.0, 4.0];
        let members = family.members(&rates);
        for (peer, rate) in members.iter().zip(rates).filter(|(p, _)| p.abilities().rate == Rate::Any) {
            let bits = peer.encode(&view).unwrap().len() as f64 * 8.0 / 65_536.0;
            assert!((bits / rate - 1.0).abs() < 0.02, "{}: {bits} against {rate}", peer.name());
        }
    }
}

#[test]
fn error_bounded_coders_land_near_the_rates_asked_for() {
    let tensor = synth::gaussian(Dtype::F32, &[128, 512], 0.02, 4).unwrap();
    let view = tensor.view().unwrap();
    for id in ["zfp-accuracy", "sz3"] {
        let family = families().iter().find(|f| f.id == id).unwrap();
        for (peer, rate) in family.members(&[2.0, 3.0, 4.0]).iter().zip([2.0, 3.0, 4.0]) {
            if peer.probe().is_ok() {
                let bits = peer.encode(&view).unwrap().len() as f64 * 8.0 / 65_536.0;
                assert!((bits - rate).abs() < 1.5, "{}: {bits} against {rate}", peer.name());
            }
        }
    }
}

#[test]
fn fixed_rates_are_chosen_from_below() {
    let rtn = |bits, group| Combined {
        quantiser: Quantiser::Rtn(Rtn { bits, group, symmetric: true }),
        coder: Coder::Packed,
    };
    let name = |bits| rtn(4, 128).at_bits(bits).map(|p| p.name());
    assert_eq!(name(3.2), Some(rtn(3, 128).name()));
    assert_eq!(name(9.0), Some(rtn(8, 128).name()));
    assert_eq!(name(2.0), None);
    let nf4 = Combined { quantiser: Quantiser::Nf4(Nf4 { wide: false }), coder: Coder::Packed };
    assert!(nf4.at_bits(4.3).is_some() && nf4.at_bits(4.2).is_none());
    assert!(Combined { coder: Coder::Huffman, ..nf4 }.at_bits(4.3).is_none());
}

#[test]
fn only_coders_with_threads_offer_them() {
    let threaded: Vec<&str> = families()
        .iter()
        .filter(|f| f.kind != Kind::Video)
        .filter(|f| f.members(&[3.0]).iter().any(|p| p.on_threads(2).is_some()))
        .map(|f| f.id)
        .collect();
    assert_eq!(threaded, ["fast", "balanced", "best", "zfp-rate", "zfp-accuracy", "tenfold-lossless"]);
}

#[test]
fn threads_do_not_change_the_bytes() {
    let tensor = synth::gaussian(Dtype::F32, &[60, 500], 0.02, 4).unwrap();
    let view = tensor.view().unwrap();
    for id in ["zfp-rate", "zfp-accuracy"] {
        let family = families().iter().find(|f| f.id == id).unwrap();
        let one = &family.members(&[3.0])[0];
        let two = one.on_threads(2).unwrap();
        let bytes = one.encode(&view).unwrap();
        assert_eq!(bytes, two.encode(&view).unwrap());
        assert_eq!(one.decode(&bytes).unwrap(), two.decode(&bytes).unwrap());
    }
}

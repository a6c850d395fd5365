//! Quantisers with codes of fixed length.

use super::{Row, boxed};
use crate::peers::{Coder, Combined, Gguf, Lloyd, MxFormat, Nf4, Peer, Quantiser, Rtn};

pub(super) const ROWS: &[Row] = &[
    ("rtn", "RTN, a scale a tensor", |_| rtn(0, true)),
    ("rtn-32", "RTN, groups of 32", |_| rtn(32, true)),
    ("rtn-64", "RTN, groups of 64", |_| rtn(64, true)),
    ("rtn-128", "RTN, groups of 128", |_| rtn(128, true)),
    ("rtn-32-asym", "RTN, groups of 32, asymmetric", |_| rtn(32, false)),
    ("rtn-64-asym", "RTN, groups of 64, asymmetric", |_| rtn(64, false)),
    ("rtn-128-asym", "RTN, groups of 128, asymmetric", |_| rtn(128, false)),
    ("nf4", "NF4", |_| pack([Quantiser::Nf4(Nf4 { wide: false })])),
    ("mxfp", "MXFP4/6/8 (E2M1, E2M3, E4M3)", |_| pack(MXFP.map(Quantiser::Mx))),
    ("mxfp-range", "MXFP6/8 (E3M2, E5M2)", |_| pack([MxFormat::E3m2, MxFormat::E5m2].map(Quantiser::Mx))),
    ("mxint8", "MXINT8", |_| pack([Quantiser::Mx(MxFormat::Int8)])),
    ("hadamard-rtn", "Hadamard + RTN, groups of 128", |_| pack((2..=8).map(hadamard_rtn))),
    ("hadamard-lloyd", "Hadamard + Lloyd–Max", |_| pack((1..=4).map(hadamard_lloyd))),
    ("gguf", "GGUF Q2_K to Q8_0", |_| Gguf::MODERN.into_iter().map(boxed).collect()),
    ("gguf-legacy", "GGUF Q4_0, Q5_0, Q8_0", |_| Gguf::LEGACY.into_iter().map(boxed).collect()),
];

/// The microscaling floats with most mantissa at each width.
pub(super) const MXFP: [MxFormat; 3] = [MxFormat::E2m1, MxFormat::E2m3, MxFormat::E4m3];

fn rtn(group: u16, symmetric: bool) -> Vec<Box<dyn Peer>> {
    pack((2..=8).map(|bits| Quantiser::Rtn(Rtn { bits, group, symmetric })))
}

fn hadamard_rtn(bits: u8) -> Quantiser {
    Quantiser::HadamardRtn(Rtn { bits, group: 128, symmetric: true })
}

pub(super) fn hadamard_lloyd(bits: u8) -> Quantiser {
    Quantiser::HadamardLloyd(Lloyd { bits })
}

fn pack(quantisers: impl IntoIterator<Item = Quantiser>) -> Vec<Box<dyn Peer>> {
    quantisers.into_iter().map(|quantiser| boxed(Combined { quantiser, coder: Coder::Packed })).collect()
}

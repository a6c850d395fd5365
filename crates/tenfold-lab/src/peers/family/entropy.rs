//! Quantisers with an entropy coder behind them. The integers have one scale a tensor: a uniform step is
//! what an entropy coder wants, and groups would cost scales on top.

use super::quantiser::{MXFP, hadamard_lloyd};
use super::{Row, boxed};
use crate::peers::{Coder, Combined, Peer, Quantiser, Rtn};

pub(super) const ROWS: &[Row] = &[
    ("int-huffman", "INT + Huffman", |_| int(Coder::Huffman)),
    ("int-deflate", "INT + Deflate", |_| int(Coder::Deflate)),
    ("int-lz4", "INT + LZ4", |_| int(Coder::Lz4)),
    ("int-cabac", "INT + CABAC", |_| int(Coder::Cabac)),
    ("int-zstd", "INT + zstd", |_| int(Coder::Zstd)),
    ("mxfp-huffman", "MXFP + Huffman", |_| mxfp(Coder::Huffman)),
    ("mxfp-deflate", "MXFP + Deflate", |_| mxfp(Coder::Deflate)),
    ("mxfp-lz4", "MXFP + LZ4", |_| mxfp(Coder::Lz4)),
    ("mxfp-cabac", "MXFP + CABAC", |_| mxfp(Coder::Cabac)),
    ("mxfp-zstd", "MXFP + zstd", |_| mxfp(Coder::Zstd)),
    ("hadamard-cabac", "Hadamard + INT + CABAC", |_| {
        combine((2..=8).map(|bits| Quantiser::HadamardRtn(per_tensor(bits))), Coder::Cabac)
    }),
    ("hadamard-lloyd-cabac", "Hadamard + Lloyd–Max + CABAC", |_| {
        combine((1..=4).map(hadamard_lloyd), Coder::Cabac)
    }),
];

fn int(coder: Coder) -> Vec<Box<dyn Peer>> {
    combine((2..=8).map(|bits| Quantiser::Rtn(per_tensor(bits))), coder)
}

fn mxfp(coder: Coder) -> Vec<Box<dyn Peer>> {
    combine(MXFP.map(Quantiser::Mx), coder)
}

fn per_tensor(bits: u8) -> Rtn {
    Rtn { bits, group: 0, symmetric: true }
}

fn combine(quantisers: impl IntoIterator<Item = Quantiser>, coder: Coder) -> Vec<Box<dyn Peer>> {
    quantisers.into_iter().map(|quantiser| boxed(Combined { quantiser, coder })).collect()
}

//! What codes cost: fixed-length packing and five general-purpose entropy coders over symbols of a byte.

mod cabac;
mod general;
mod huffman;

use super::plain::corrupt;
use super::{PeerError, bits};

pub(super) use general::{check_lz4, inflate_zstd};

/// A coder of symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Coder {
    /// Codes of fixed length, no entropy coder.
    Packed,
    /// Canonical Huffman codes.
    Huffman,
    /// Deflate at level 9.
    Deflate,
    /// LZ4 blocks.
    Lz4,
    /// An adaptive binary arithmetic coder over the bits of a symbol.
    Cabac,
    /// zstd at level 16.
    Zstd,
}

impl Coder {
    const ALL: [Coder; 6] =
        [Coder::Packed, Coder::Huffman, Coder::Deflate, Coder::Lz4, Coder::Cabac, Coder::Zstd];

    pub(super) fn id(self) -> u8 {
        self as u8
    }

    pub(super) fn from_id(id: u8) -> Result<Self, PeerError> {
        Self::ALL.get(usize::from(id)).copied().ok_or_else(|| corrupt(format!("coder {id}")))
    }

    /// Name in tables; empty without an entropy coder.
    pub fn name(self) -> &'static str {
        match self {
            Coder::Packed => "",
            Coder::Huffman => "huffman",
            Coder::Deflate => "deflate",
            Coder::Lz4 => "lz4",
            Coder::Cabac => "cabac",
            Coder::Zstd => "zstd",
        }
    }

    /// Codes symbols below 2^`width`.
    pub(super) fn encode(self, symbols: &[u8], width: u8) -> Result<Vec<u8>, PeerError> {
        Ok(match self {
            Coder::Packed => bits::pack(symbols, width),
            Coder::Huffman => huffman::encode(symbols),
            Coder::Cabac => cabac::encode(symbols, width),
            Coder::Deflate | Coder::Lz4 | Coder::Zstd => general::encode(self, symbols, width)?,
        })
    }

    /// Decodes exactly `n` symbols below 2^`width`.
    pub(super) fn decode(self, bytes: &[u8], n: usize, width: u8) -> Result<Vec<u8>, PeerError> {
        let symbols = match self {
            Coder::Packed if bits::packed_len(n, width) == Some(bytes.len()) => bits::unpack(bytes, n, width),
            Coder::Packed => return Err(corrupt(format!("{} bytes for {n} codes", bytes.len()))),
            Coder::Huffman => huffman::decode(bytes, n)?,
            Coder::Cabac => cabac::decode(bytes, n, width)?,
            Coder::Deflate | Coder::Lz4 | Coder::Zstd => general::decode(self, bytes, n, width)?,
        };
        let most = u8::MAX >> (8 - width);
        if symbols.iter().any(|&s| s > most) {
            return Err(corrupt(format!("a code beyond {width} bits")));
        }
        Ok(symbols)
    }
}

#[cfg(test)]
mod tests;

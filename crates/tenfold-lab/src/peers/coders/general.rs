//! Libraries that find repetitions. They see either one symbol a byte, which suits their entropy stage,
//! or packed codes, which suits LZ4 as it has none: the smaller result is kept, a byte says which.

use std::io::Read;

use flate2::Compression;
use flate2::read::{DeflateDecoder, DeflateEncoder};

use super::Coder;
use crate::peers::plain::corrupt;
use crate::peers::{PeerError, bits};

/// From here on matches are weighed against literals; below, codes of a quantiser come out longer than with
/// Huffman alone.
const ZSTD_LEVEL: i32 = 16;

/// First byte: what the library saw.
const SYMBOLS: u8 = 0;
const PACKED: u8 = 1;

/// Bytes out for a byte in that LZ4's format cannot exceed: a length byte stands for 255.
const LZ4_RATIO: usize = 256;

pub(super) fn encode(coder: Coder, symbols: &[u8], width: u8) -> Result<Vec<u8>, PeerError> {
    let mut best = add_prefix(SYMBOLS, deflate(coder, symbols)?);
    if width < 8 {
        let packed = deflate(coder, &bits::pack(symbols, width))?;
        if packed.len() + 1 < best.len() {
            best = add_prefix(PACKED, packed);
        }
    }
    Ok(best)
}

fn add_prefix(layout: u8, mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.insert(0, layout);
    bytes
}

pub(super) fn decode(coder: Coder, bytes: &[u8], n: usize, width: u8) -> Result<Vec<u8>, PeerError> {
    let too_many = || corrupt(format!("{n} codes"));
    match bytes.split_first() {
        Some((&SYMBOLS, rest)) => inflate(coder, rest, n),
        Some((&PACKED, rest)) => {
            let len = bits::packed_len(n, width).ok_or_else(too_many)?;
            Ok(bits::unpack(&inflate(coder, rest, len)?, n, width))
        }
        _ => Err(corrupt("no layout")),
    }
}

fn deflate(coder: Coder, bytes: &[u8]) -> Result<Vec<u8>, PeerError> {
    let failed = |e: std::io::Error| PeerError::Failed(e.to_string());
    match coder {
        Coder::Lz4 => Ok(lz4_flex::block::compress(bytes)),
        Coder::Zstd => zstd::bulk::compress(bytes, ZSTD_LEVEL).map_err(failed),
        _ => {
            let mut out = Vec::new();
            DeflateEncoder::new(bytes, Compression::best()).read_to_end(&mut out).map_err(failed)?;
            Ok(out)
        }
    }
}

fn inflate(coder: Coder, bytes: &[u8], n: usize) -> Result<Vec<u8>, PeerError> {
    match coder {
        Coder::Lz4 => {
            check_lz4(bytes.len(), n)?;
            let out = lz4_flex::block::decompress(bytes, n).map_err(|e| corrupt(e.to_string()))?;
            check_len(out, n)
        }
        Coder::Zstd => inflate_zstd(bytes, n),
        _ => drain(DeflateDecoder::new(bytes), n),
    }
}

/// Refuses lengths that so many bytes of LZ4 cannot stand for, before memory is taken for them.
pub(crate) fn check_lz4(bytes: usize, n: usize) -> Result<(), PeerError> {
    if n > bytes.saturating_mul(LZ4_RATIO) {
        return Err(corrupt(format!("{n} bytes out of {bytes}")));
    }
    Ok(())
}

/// Expands a zstd frame of exactly `n` bytes.
pub(crate) fn inflate_zstd(bytes: &[u8], n: usize) -> Result<Vec<u8>, PeerError> {
    drain(zstd::stream::read::Decoder::with_buffer(bytes).map_err(|e| corrupt(e.to_string()))?, n)
}

/// Reads exactly `n` bytes. Memory grows with what really comes, since `n` is only claimed.
fn drain(reader: impl Read, n: usize) -> Result<Vec<u8>, PeerError> {
    let mut out = Vec::new();
    reader.take((n as u64).saturating_add(1)).read_to_end(&mut out).map_err(|e| corrupt(e.to_string()))?;
    check_len(out, n)
}

fn check_len(out: Vec<u8>, n: usize) -> Result<Vec<u8>, PeerError> {
    if out.len() == n { Ok(out) } else { Err(corrupt(format!("{} bytes instead of {n}", out.len()))) }
}

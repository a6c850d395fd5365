//! A second, slow writer of blobs, from docs/format.md and not from the library's encoder.
//!
//! It makes what the library's encoder never chooses (other numbers of states, tables of 2^8 slots, odd
//! geometries), and, because every field may hold anything, what a decoder must refuse.

mod levels;
mod planes;

pub use levels::{Levels, Map, Table, Tile};
pub use planes::Planes;

pub fn varint(out: &mut Vec<u8>, mut v: u64) {
    loop {
        let b = (v & 127) as u8;
        v >>= 7;
        if v == 0 {
            return out.push(b);
        }
        out.push(b | 128);
    }
}

/// Bits, lowest first.
#[derive(Default, Clone)]
pub struct Bits(Vec<bool>);

impl Bits {
    pub fn put(&mut self, v: u64, n: u32) -> &mut Self {
        self.0.extend((0..n).map(|i| v >> i & 1 == 1));
        self
    }

    pub fn gamma(&mut self, v: u64) -> &mut Self {
        let n = (v + 1).ilog2();
        self.put(0, n).put(1, 1).put((v + 1) ^ (1 << n), n)
    }

    pub fn bytes(&self) -> Vec<u8> {
        let byte = |bits: &[bool]| bits.iter().rev().fold(0, |b, &bit| b << 1 | bit as u8);
        self.0.chunks(8).map(byte).collect()
    }
}

/// States and words of coded symbols: (table, symbol).
fn rans(tables: &[Vec<u64>], log: u32, lanes: usize, coded: &[(usize, usize)]) -> (Vec<u32>, Vec<u16>) {
    let mut x = vec![1u64 << 16; lanes];
    let mut words = Vec::new();
    for (i, &(table, symbol)) in coded.iter().enumerate().rev() {
        let f = tables[table][symbol];
        assert!(f > 0, "symbol {symbol} of table {table} has no slot");
        let start: u64 = tables[table][..symbol].iter().sum();
        let x = &mut x[i % lanes];
        if *x >= f << (32 - log) {
            words.push(*x as u16);
            *x >>= 16;
        }
        *x = ((*x / f) << log) + *x % f + start;
    }
    words.reverse();
    (x.into_iter().map(|x| x as u32).collect(), words)
}

/// A header up to its directory, without padding.
#[derive(Clone)]
pub struct Header {
    pub magic: [u8; 4],
    pub version: u8,
    pub codec: u8,
    pub dtype: u8,
    pub dims: u8,
    pub shape: Vec<u8>,
    /// Number of transforms, then the steps.
    pub steps: Vec<u8>,
    pub params: Vec<u8>,
    /// Byte used for padding.
    pub pad: u8,
}

impl Header {
    pub fn describe(levels: &Levels) -> Header {
        let mut shape = Vec::new();
        levels.shape.iter().for_each(|&d| varint(&mut shape, d as u64));
        Header {
            magic: *b"TNFD",
            version: 1,
            codec: 2,
            dtype: levels.dtype.id(),
            dims: levels.shape.len() as u8,
            shape,
            steps: vec![0],
            params: levels.params(),
            pad: 0,
        }
    }

    /// The blob with these tiles, every checksum right.
    pub fn join(&self, tiles: &[Vec<u8>]) -> Vec<u8> {
        let mut out = self.magic.to_vec();
        out.extend([self.version, self.codec, self.dtype, self.dims, 0, 0, 0, 0]);
        out.extend(&self.shape);
        out.extend(&self.steps);
        out.extend(&self.params);
        while !out.len().is_multiple_of(4) {
            out.push(self.pad);
        }
        join(out, tiles)
    }
}

/// Puts a directory, checksums and tiles behind the rest of a header.
pub fn join(mut out: Vec<u8>, tiles: &[Vec<u8>]) -> Vec<u8> {
    for t in tiles {
        out.extend((t.len() as u32).to_le_bytes());
        out.extend(crc32fast::hash(t).to_le_bytes());
    }
    let len = out.len() as u32 + 4;
    out[8..12].copy_from_slice(&len.to_le_bytes());
    out.extend(crc32fast::hash(&out).to_le_bytes());
    tiles.iter().for_each(|t| out.extend(t));
    out
}

/// The inverse of [`join`]: the header without its directory, and the tiles.
pub fn split(blob: &[u8]) -> (Vec<u8>, Vec<Vec<u8>>) {
    let tiles = tenfold::inspect(blob).expect("a sound blob").tiles as usize;
    let word = |at: usize| u32::from_le_bytes(blob[at..at + 4].try_into().expect("four bytes")) as usize;
    let header = word(8);
    let directory = header - 4 - tiles * 8;
    let mut at = header;
    let mut out = Vec::new();
    for i in 0..tiles {
        let len = word(directory + i * 8);
        out.push(blob[at..at + len].to_vec());
        at += len;
    }
    (blob[..directory].to_vec(), out)
}

//! Lossless blobs.

use super::{Bits, Header, rans, varint};
use tenfold::Dtype;

/// A lossless tensor of one dimension in terms of the format.
pub struct Planes {
    pub dtype: Dtype,
    pub lanes_log: u8,
    pub steps: u64,
    /// First byte with slots and slots of the bytes from there on, for planes that are coded; the others
    /// are stored. Two equal neighbours are stored once.
    pub tables: Vec<Option<(u8, Vec<u32>)>>,
    pub planes: Vec<Vec<u8>>,
}

impl Planes {
    pub fn blob(&self) -> Vec<u8> {
        let n = self.planes[0].len();
        let mut bits = Bits::default();
        let (mut coded, mut last) = (0, None);
        for (p, table) in self.tables.iter().enumerate() {
            let Some((low, freqs)) = table else { continue };
            coded |= 1 << p;
            if last == Some(table) {
                bits.put(2, 2);
            } else {
                bits.put(1, 2).put(*low as u64, 8).put(freqs.len() as u64 - 1, 8);
                for &f in freqs {
                    bits.gamma(f as u64);
                }
            }
            last = Some(table);
        }
        let mut params = vec![self.lanes_log];
        varint(&mut params, self.steps);
        params.push(coded);
        varint(&mut params, bits.bytes().len() as u64);
        params.extend(bits.bytes());
        let mut shape = Vec::new();
        varint(&mut shape, n as u64);
        let (magic, dtype) = (*b"TNFD", self.dtype.id());
        let head =
            Header { magic, version: 1, codec: 1, dtype, dims: 1, shape, steps: vec![0], params, pad: 0 };
        let tile_values = (self.steps as usize) << self.lanes_log;
        let starts = (0..n).step_by(tile_values);
        head.join(&starts.map(|s| self.tile(s, n.min(s + tile_values))).collect::<Vec<_>>())
    }

    fn tile(&self, start: usize, end: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for (plane, table) in self.planes.iter().zip(&self.tables) {
            let bytes = &plane[start..end];
            match table {
                None => {
                    out.extend([1, 0, 0, 0]);
                    out.extend(bytes);
                }
                Some((low, freqs)) => {
                    let mut of = vec![0u64; 256];
                    freqs.iter().enumerate().for_each(|(i, &f)| of[*low as usize + i] = f as u64);
                    assert_eq!(of.iter().sum::<u64>(), 4096);
                    let coded: Vec<(usize, usize)> = bytes.iter().map(|&b| (0, b as usize)).collect();
                    let (states, words) = rans(&[of], 12, 1 << self.lanes_log, &coded);
                    out.extend((2 | (words.len() as u32) << 8).to_le_bytes());
                    states.iter().for_each(|x| out.extend(x.to_le_bytes()));
                    words.iter().for_each(|w| out.extend(w.to_le_bytes()));
                }
            }
            while !out.len().is_multiple_of(4) {
                out.push(0);
            }
        }
        out
    }

    pub fn expected(&self) -> Vec<u8> {
        let size = self.planes.len();
        let mut out = Vec::new();
        for i in 0..self.planes[0].len() {
            let mut v = (0..size).map(|p| (self.planes[p][i] as u64) << (8 * p)).sum::<u64>();
            if self.dtype.is_float() {
                v = (v >> 1) | ((v & 1) << (8 * size - 1));
            }
            out.extend(&v.to_le_bytes()[..size]);
        }
        out
    }
}

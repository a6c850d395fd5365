//! Elements to lossless tiles.

use super::params::{LOG, PlanesParams};
use super::planes::split;
use crate::blob::{CodecParams, Geometry, Head, Parts, Sealed, assemble};
use crate::entropy::fit::{Counts, cost, normalise};
use crate::entropy::rans::{self, WordStack};
use crate::entropy::table::{EncodeTable, Freqs};
use crate::entropy::table_code::{self, Alphabet, Coded};
use crate::error::Result;
use crate::simd::Isa;
use crate::view::{Dtype, TensorView};
use crate::workers::Workers;

/// Mode of a plane within a tile: one value throughout.
pub const CONSTANT: u8 = 0;
/// Mode: the bytes as they are.
pub const STORED: u8 = 1;
/// Mode: a stream.
pub const CODED: u8 = 2;

/// A plane is coded if that saves at least this share of its bytes: decoding takes time too.
const WORTH: f64 = 0.004;
/// The shortest lanes that a caller may ask for.
const SHORTEST_LANE: u32 = 32;

/// Encodes a tensor so that every bit comes back. `lane_values` of 0 chooses.
pub(crate) fn encode(view: &TensorView<'_>, lane_values: u32, workers: &Workers) -> Result<Parts> {
    let isa = Isa::detect();
    let n = view.len();
    let geometry = Geometry::for_planes(n, lane_values);
    let size = view.dtype().size();
    let tiles = geometry.tiles(n);
    let bytes = |i: usize| {
        let t = geometry.tile(i, n);
        &view.data()[t.start * size..][..t.len * size]
    };

    // 1. Statistics of every plane. All tiles: a byte that a sample had missed would have no slot.
    let counts = workers.map(tiles, Vec::new, |planes: &mut Vec<u8>, i| {
        let data = bytes(i);
        planes.resize(data.len(), 0);
        split(isa, view.dtype(), data, planes);
        planes.chunks_exact(data.len() / size).map(histogram).collect::<Vec<Counts>>()
    })?;
    let mut total = vec![[0u64; 256]; size];
    for part in &counts {
        total.as_flattened_mut().iter_mut().zip(part.as_flattened()).for_each(|(t, p)| *t += p);
    }

    // 2. Tables.
    let lanes = (tiles * geometry.lanes * 4) as f64 * 8.0;
    let mut tables: Vec<Option<Freqs>> = total.iter().map(|c| table(c, lanes)).collect();
    let coders: Vec<Option<EncodeTable>> =
        tables.iter().map(|t| t.as_ref().map(|t| EncodeTable::new(std::slice::from_ref(t)))).collect();

    // 3. Tiles.
    let tiles = workers.map(tiles, Scratch::default, |scratch: &mut Scratch, i| {
        let data = bytes(i);
        let mut planes = std::mem::take(&mut scratch.planes);
        planes.resize(data.len(), 0);
        split(isa, view.dtype(), data, &mut planes);
        let mut out = Vec::with_capacity(data.len() + 64);
        let mut coded = [false; 8];
        for (p, plane) in planes.chunks_exact(data.len() / size).enumerate() {
            coded[p] = write_plane(isa, coders[p].as_ref(), geometry.lanes, plane, scratch, &mut out);
        }
        scratch.planes = planes;
        (Sealed::new(out), coded)
    })?;
    // Unused tables are left out.
    for (p, table) in tables.iter_mut().enumerate() {
        if !tiles.iter().any(|(_, coded)| coded[p]) {
            *table = None;
        }
    }
    let tiles: Vec<Sealed> = tiles.into_iter().map(|(tile, _)| tile).collect();
    let params = PlanesParams { geometry, tables };
    let head = Head {
        dtype: view.dtype(),
        shape: view.shape().to_vec(),
        transforms: Vec::new(),
        params: CodecParams::Planes(params),
    };
    assemble(&head, tiles, workers)
}

/// Bytes that a lossless blob of `values` values never exceeds, whatever the lane length, dimensions not
/// counted: each plane of a tile stored as it is, with its head and padding and a directory entry a tile.
pub(crate) fn max_len(dtype: Dtype, values: usize) -> usize {
    let size = dtype.size();
    let tiles = Geometry::for_planes(values, SHORTEST_LANE).tiles(values);
    // A table takes at most 9 bits a symbol, and is only there if it pays for more.
    values * size + tiles * (8 + size * 7) + 64 + size * 300
}

/// Memory of a worker.
#[derive(Default)]
struct Scratch {
    planes: Vec<u8>,
    symbols: Vec<u16>,
    words: WordStack,
}

/// Four histograms side by side, so that equal neighbours do not wait for each other.
fn histogram(plane: &[u8]) -> Counts {
    let mut parts = [[0u32; 256]; 4];
    let (quads, rest) = plane.as_chunks::<4>();
    for q in quads {
        for (part, &b) in parts.iter_mut().zip(q) {
            part[b as usize] += 1;
        }
    }
    rest.iter().for_each(|&b| parts[0][b as usize] += 1);
    let mut counts = [0u64; 256];
    for (i, c) in counts.iter_mut().enumerate() {
        *c = parts.iter().map(|p| p[i] as u64).sum();
    }
    counts
}

/// A table for a plane, if coding it pays; `lanes` is what states take in all tiles, in bits.
fn table(counts: &Counts, lanes: f64) -> Option<Freqs> {
    let total: u64 = counts.iter().sum();
    if counts.iter().filter(|&&c| c > 0).count() < 2 {
        return None;
    }
    let alphabet = Alphabet::bytes(LOG);
    let freqs = normalise(counts, alphabet);
    let header = table_code::write([(&Coded::Measured(freqs.clone()), alphabet)]).len() as f64 * 8.0;
    (cost(counts, &freqs) + header + lanes < total as f64 * 8.0 * (1.0 - WORTH)).then_some(freqs)
}

/// Writes a plane in whichever mode takes fewest bytes: a head of four bytes, content, padding. Returns whether the
/// table was used.
fn write_plane(
    isa: Isa,
    coder: Option<&EncodeTable>,
    lanes: usize,
    plane: &[u8],
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> bool {
    let head = out.len();
    out.extend_from_slice(&[0; 4]);
    let put_head = |out: &mut Vec<u8>, mode: u8, rest: usize| {
        out[head..head + 4].copy_from_slice(&(mode as u32 | (rest as u32) << 8).to_le_bytes());
    };
    if let Some((&first, rest)) = plane.split_first()
        && rest.iter().all(|&b| b == first)
    {
        put_head(out, CONSTANT, first as usize);
        return false;
    }
    if let Some(coder) = coder {
        scratch.symbols.clear();
        scratch.symbols.extend(plane.iter().map(|&b| b as u16));
        rans::encode(isa, coder, lanes, &scratch.symbols, &mut scratch.words, out);
        let len = out.len() - head - 4;
        if len < plane.len() {
            put_head(out, CODED, (len - lanes * 4) / 2);
            out.resize(out.len().next_multiple_of(4), 0);
            return true;
        }
        out.truncate(head + 4);
    }
    put_head(out, STORED, 0);
    out.extend_from_slice(plane);
    out.resize(out.len().next_multiple_of(4), 0);
    false
}

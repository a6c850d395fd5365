//! One tile from bytes to elements.

use std::ops::Range;

use super::dequant::{CHUNK, Dequant};
use super::exact::Exact;
use super::low::LowReader;
use super::pairs::PairScratch;
use super::params::LevelsParams;
use crate::blob::TileRange;
use crate::blob::bytes::Reader;
use crate::entropy::rans::{DecodeSpec, Decoder, Escapes};
use crate::entropy::table::slot_table;
use crate::error::{Error, Result};
use crate::simd::Isa;
use crate::view::value;

/// Slots of a blob's tables and the path that reads them; shared by all tiles.
pub(crate) struct Scratch {
    isa: Isa,
    slots: Vec<u32>,
    /// Instead of slots, where levels are coded in pairs.
    pairs: Option<PairScratch>,
    /// Whether transforms follow: then all values must be finite.
    worked: bool,
}

impl Scratch {
    pub(crate) fn new(isa: Isa, params: &LevelsParams, dequant: &Dequant, worked: bool) -> Self {
        let mut slots = Vec::new();
        let pairs = params.paired.then(|| PairScratch::new(isa, &params.freqs, params.machine, dequant));
        if pairs.is_none() {
            slot_table(&params.freqs, &mut slots);
        }
        Scratch { isa, slots, pairs, worked }
    }
}

/// Flag of a tile: it has a stream.
pub const CODED: u8 = 1;
/// Where the flags keep the width of escapes.
pub const ESCAPES_SHIFT: u8 = 1;
/// Flag of a tile: some values are stored exactly.
pub const EXACT: u8 = 1 << 3;

/// The sections of a tile.
struct Sections<'a> {
    /// States and words; `None` if every level is zero.
    stream: Option<&'a [u8]>,
    low: &'a [u8],
    escapes: Escapes<'a>,
    exact: Option<Reader<'a>>,
}

impl<'a> Sections<'a> {
    fn read(params: &LevelsParams, count: usize, bytes: &'a [u8]) -> Result<Self> {
        let mut r = Reader::new(bytes);
        let head = r.u32()?;
        let (flags, words) = (head as u8, (head >> 8) as usize);
        if flags >> 4 != 0 {
            return Err(Error::Corrupt("unknown flags in a tile"));
        }
        let coded = flags & CODED != 0;
        if !coded && (flags >> ESCAPES_SHIFT & 3 != 0 || words != 0) {
            return Err(Error::Corrupt("a tile of zeros with content"));
        }
        let stream = if coded { Some(r.take(params.geometry.lanes * 4 + words * 2)?) } else { None };
        let low = match coded && !params.low.none() {
            true => {
                let len =
                    usize::try_from(r.varint()?).map_err(|_| Error::Corrupt("length of the low bits"))?;
                r.take(len)?
            }
            false => &[],
        };
        let escapes = match flags >> ESCAPES_SHIFT & 3 {
            0 => Escapes::new(&[], 0),
            code => {
                let width = match (params.paired, code) {
                    (true, 3) => 8,
                    _ => 1usize << (code - 1),
                };
                let n = r.varint()?;
                if n > if params.paired { count.div_ceil(2) } else { count } as u64 {
                    return Err(Error::Corrupt("more escapes than values"));
                }
                Escapes::new(r.take(n as usize * width)?, width)
            }
        };
        let exact = (flags & EXACT != 0).then(|| r.clone());
        if exact.is_none() {
            check_end(&r)?;
        }
        Ok(Sections { stream, low, escapes, exact })
    }
}

/// Only padding to a multiple of four may follow.
fn check_end(r: &Reader<'_>) -> Result<()> {
    if r.rest().len() > 3 || r.rest().iter().any(|&b| b != 0) {
        return Err(Error::Corrupt("a tile has bytes left over"));
    }
    Ok(())
}

/// Decodes the values `window` of a paired tile.
#[allow(clippy::too_many_arguments)]
fn decode_pairs(
    isa: Isa,
    params: &LevelsParams,
    dequant: &Dequant,
    pairs: &PairScratch,
    decoder: &mut Decoder<'_>,
    tile: TileRange,
    window: Range<usize>,
    out: &mut [u8],
) -> Result<()> {
    let size = dequant.dtype.size();
    let spec = pairs.spec();
    let mut two = [0u32; CHUNK / 2];
    let mut m = [0i32; CHUNK];
    let mut class = [0u8; CHUNK];
    let mut spare = [0u8; CHUNK * 8];
    let mut escaped = Vec::new();
    // CHUNK is a multiple of the values of two ticks, so every call but the last asks for whole ticks.
    for at in (0..window.end).step_by(CHUNK) {
        let n = CHUNK.min(tile.len - at);
        let two = &mut two[..n.div_ceil(2)];
        let class: &[u8] = match &params.classes {
            Some(map) => {
                map.fill(tile.start + at, &mut class[..n]);
                &class[..n]
            }
            None => &[],
        };
        decoder.decode_pairs(isa, &spec, class, two, &mut escaped)?;
        let (from, to) = (window.start.max(at), window.end.min(at + n));
        if from >= to {
            escaped.clear();
            continue;
        }
        let room = &mut out[(from - window.start) * size..(to - window.start) * size];
        let whole = to - from == n && n.is_multiple_of(2);
        // A second value that is not there is written beyond the last, and left out.
        let bytes = if whole { &mut room[..] } else { &mut spare[..two.len() * 2 * size] };
        if pairs.elements {
            bytes.as_chunks_mut::<4>().0.iter_mut().zip(&*two).for_each(|(b, v)| *b = v.to_le_bytes());
            for e in escaped.drain(..) {
                dequant.write(isa, &e.multiples, &mut bytes[e.pair * 4..][..4]);
            }
        } else {
            let (m, _) = m.as_chunks_mut::<2>();
            m.iter_mut().zip(&*two).for_each(|(m, &v)| *m = [v as i16 as i32, v as i32 >> 16]);
            escaped.drain(..).for_each(|e| m[e.pair] = e.multiples);
            dequant.write(isa, m[..two.len()].as_flattened(), bytes);
        }
        if !whole {
            room.copy_from_slice(&spare[(from - at) * size..(to - at) * size]);
        }
    }
    Ok(())
}

/// Decodes the values `window` (positions in the tile) into `out`.
pub(crate) fn decode_tile(
    scratch: &Scratch,
    params: &LevelsParams,
    dequant: &Dequant,
    tile: TileRange,
    bytes: &[u8],
    window: Range<usize>,
    out: &mut [u8],
) -> Result<()> {
    let size = dequant.dtype.size();
    let sections = Sections::read(params, tile.len, bytes)?;
    match (sections.stream, &scratch.pairs) {
        (None, _) => out.fill(0),
        (Some(stream), Some(pairs)) => {
            let mut decoder = Decoder::new(params.geometry.lanes, stream, sections.escapes)?;
            decode_pairs(scratch.isa, params, dequant, pairs, &mut decoder, tile, window.clone(), out)?;
            if window.end == tile.len {
                decoder.finish()?;
            }
        }
        (Some(stream), None) => {
            let mut decoder = Decoder::new(params.geometry.lanes, stream, sections.escapes)?;
            let spec = DecodeSpec { slots: &scratch.slots, log: params.log, machine: params.machine };
            let mut low_bits = LowReader::new(sections.low);
            let mut m = [0i32; CHUNK];
            let mut class = [0u8; CHUNK];
            let mut low = [0u32; CHUNK];
            let mut spare = [0u8; CHUNK * 8];
            // CHUNK is a multiple of the lanes, so every call but the last asks for whole ticks.
            for at in (0..window.end).step_by(CHUNK) {
                let n = CHUNK.min(tile.len - at);
                let class: &[u8] = match &params.classes {
                    Some(map) => {
                        map.fill(tile.start + at, &mut class[..n]);
                        &class[..n]
                    }
                    None => &[],
                };
                let low: &[u32] = if params.low.none() {
                    &[]
                } else {
                    low_bits.read(&params.low, class, &mut low[..n]);
                    &low[..n]
                };
                decoder.decode_levels(scratch.isa, &spec, class, low, &mut m[..n])?;
                let (from, to) = (window.start.max(at), window.end.min(at + n));
                if from >= to {
                    continue;
                }
                let room = &mut out[(from - window.start) * size..(to - window.start) * size];
                if to - from == n {
                    dequant.write(scratch.isa, &m[..n], room);
                } else {
                    dequant.write(scratch.isa, &m[..n], &mut spare[..n * size]);
                    room.copy_from_slice(&spare[(from - at) * size..(to - at) * size]);
                }
            }
            if window.end == tile.len {
                decoder.finish()?;
                if !low_bits.is_done() {
                    return Err(Error::Corrupt("low bits left over or missing"));
                }
            }
        }
    }
    if let Some(mut r) = sections.exact {
        let finite = |element: &[u8]| !scratch.worked || value(dequant.dtype, element).is_finite();
        Exact::apply(&mut r, size, tile.len, window, finite, out)?;
        check_end(&r)?;
    }
    Ok(())
}

//! Two versions of a tensor to a delta.

use super::DeltaOptions;
use super::check::of_bytes;
use super::numbers::{Numbers, Told, Way};
use super::params::{Change, DeltaParams};
use super::scan::{Changes, changes, count};
use super::tables::{ByKey, Prices, cost_of, count_gaps, gap_tables, prices};
use super::token::GAPS;
use crate::blob::{CodecParams, Geometry, Head, MAX_TILE, Sealed, assemble};
use crate::entropy::MAX_LANES;
use crate::entropy::bits::BitWriter;
use crate::entropy::rans::{self, WordStack};
use crate::entropy::table::EncodeTable;
use crate::error::{Error, Result};
use crate::simd::Isa;
use crate::view::TensorView;
use crate::workers::Workers;

/// Changes of a lane, at least. Each lane costs two bytes a stream, and a tile some thirty: of more changes, these weigh less.
const LANE: usize = 96;
/// The smallest tile.
const LEAST: usize = 1 << 12;
/// Values that are compared at a time.
const RUN: usize = 1 << 16;

/// Makes a delta from two versions of a tensor, which have the same dtype and shape. Applied to the first it gives the second, bit for bit.
///
/// ```
/// use tenfold::{TensorView, delta};
/// let base: Vec<f32> = (0..10_000).map(|i| (i as f32).sin()).collect();
/// let mut new = base.clone();
/// new.iter_mut().step_by(100).for_each(|v| *v *= 1.01);
/// let base = TensorView::from_slice(&base, &[100, 100])?;
/// let blob = delta::make(&base, &TensorView::from_slice(&new, &[100, 100])?, &Default::default())?;
/// assert!(blob.len() < 600);
/// assert_eq!(delta::apply(&blob, &base, &Default::default())?.to_vec::<f32>()?, new);
/// # Ok::<(), tenfold::Error>(())
/// ```
pub fn make(base: &TensorView<'_>, new: &TensorView<'_>, options: &DeltaOptions) -> Result<Vec<u8>> {
    if (base.dtype(), base.shape()) != (new.dtype(), new.shape()) {
        return Err(Error::InvalidArgument(format!(
            "a delta is made from two tensors of one dtype and shape, not from {} {:?} and {} {:?}",
            base.dtype(),
            base.shape(),
            new.dtype(),
            new.shape()
        )));
    }
    let asked = options.tile_values;
    if asked != 0 && !(asked.is_power_of_two() && (MAX_LANES..=MAX_TILE).contains(&asked)) {
        return Err(Error::InvalidArgument(format!(
            "a tile has a power of two of values, {MAX_LANES} to {MAX_TILE}, not {asked}"
        )));
    }
    let workers = Workers::new(options.threads, &options.stop)?;
    let (old, data, size) = (base.data(), new.data(), base.dtype().size());
    let head = |base, change| Head {
        dtype: new.dtype(),
        shape: new.shape().to_vec(),
        transforms: Vec::new(),
        params: CodecParams::Delta(Box::new(DeltaParams { base, change })),
    };
    let known = of_bytes(base.dtype(), base.shape(), old, options.threads);

    // 1. How much changes.
    let values = base.len();
    let part = |run: usize| {
        let bytes = run * RUN * size..((run + 1) * RUN).min(values) * size;
        count(&old[bytes.clone()], &data[bytes], size)
    };
    let changed: usize = workers.map(values.div_ceil(RUN), || (), |(), run| part(run))?.iter().sum();
    if changed == 0 {
        return assemble(&head(known, None), Vec::new(), &workers)?.into_blob();
    }
    let geometry = geometry(values, changed, asked);

    // 2. What changes, tile by tile.
    let numbers = Numbers::new(base.dtype());
    let run = |tile: usize| {
        let range = geometry.tile(tile, values);
        range.start..range.start + range.len
    };
    let tiles = workers.map(geometry.tiles(values), || (), |(), tile| changes(old, data, size, run(tile)))?;

    // 3. The statistics.
    let (gaps, gap_of) = gap_tables(&workers.map(tiles.len(), || (), |(), tile| count_gaps(&tiles[tile]))?);
    let (thresholds, way_of, ways) = statistics(numbers, &tiles, &workers)?;
    let result = of_bytes(new.dtype(), new.shape(), data, options.threads);
    let change = Change { result, geometry, gaps, thresholds, ways };

    // 4. Tiles.
    let writer = Writer::new(numbers, &change);
    let sealed = workers.map(tiles.len(), WordStack::default, |words: &mut WordStack, tile| {
        Sealed::new(writer.tile(&tiles[tile], gap_of[tile], way_of[tile], words))
    })?;
    assemble(&head(known, Some(change)), sealed, &workers)?.into_blob()
}

/// Tiles of as few values, a power of two, as give all lanes [`LANE`] changes: cores and devices take tiles side by side, and read them with all
/// lanes or slowly. Or tiles of as many values as are asked for.
fn geometry(values: usize, changed: usize, asked: usize) -> Geometry {
    let enough = (values as u128 * (LANE * MAX_LANES) as u128).div_ceil(changed as u128);
    let wanted = enough.clamp(LEAST as u128, MAX_TILE as u128) as usize;
    let own = wanted.next_power_of_two().min(values.next_power_of_two()).max(MAX_LANES);
    let tile = if asked == 0 { own } else { asked };
    let each = (tile.min(values) as u128 * changed as u128 / values as u128) as usize;
    let lanes = (each / LANE).clamp(1, MAX_LANES);
    let lanes = 1 << lanes.ilog2();
    Geometry { lanes, ticks: tile / lanes }
}

/// Classes, the way that suits each tile, and the tables of those that occur.
#[allow(clippy::type_complexity)] // the parts of `Change`
fn statistics(
    numbers: Numbers,
    tiles: &[Changes],
    workers: &Workers,
) -> Result<(Vec<u8>, Vec<Way>, [Vec<crate::entropy::table::Freqs>; 3])> {
    // All tiles in each way.
    let counts = tally(numbers, tiles, workers, |_| &Way::ALL)?;
    let thresholds = counts[Way::Difference as usize].classes();
    let change = |ways| Change {
        result: super::Fingerprint([0; 16]),
        geometry: Geometry { lanes: 1, ticks: 1 },
        gaps: Vec::new(),
        thresholds: thresholds.clone(),
        ways,
    };
    let class_of = change(Default::default()).class_of();
    let first = counts.map(|counts| counts.tables(&thresholds));
    let prices: [Vec<Prices>; 3] = std::array::from_fn(|way| first[way].iter().map(prices).collect());
    let best = |(), tile: usize| {
        let cost = |way: Way| cost_of(numbers, way, &tiles[tile], &class_of, &prices[way as usize]);
        Way::ALL
            .into_iter()
            .map(|way| (cost(way), way))
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .map_or(Way::Overwrite, |b| b.1)
    };
    let way_of = workers.map(tiles.len(), || (), |(), tile| best((), tile))?;
    // Those that were chosen. Where all tiles have one way, that is counted already.
    let chosen = |way: Way| {
        tiles.iter().zip(&way_of).filter(move |(changes, of)| **of == way && !changes.at.is_empty()).count()
    };
    let some: Vec<Way> = Way::ALL.into_iter().filter(|&way| chosen(way) > 0).collect();
    let mut ways = <[Vec<_>; 3]>::default();
    if let [way] = some[..] {
        let [a, b, c] = first;
        ways[way as usize] = match way {
            Way::Difference => a,
            Way::Xor => b,
            Way::Overwrite => c,
        };
    } else {
        let counts = tally(numbers, tiles, workers, |tile| std::slice::from_ref(&way_of[tile]))?;
        some.iter().for_each(|&way| ways[way as usize] = counts[way as usize].tables(&thresholds));
    }
    Ok((thresholds, way_of, ways))
}

/// Tiles whose symbols are counted by one worker: their counts take more than a megabyte.
const TALLIED: usize = 64;

/// Counts the symbols of tiles in some ways each.
fn tally<'w>(
    numbers: Numbers,
    tiles: &[Changes],
    workers: &Workers,
    ways: impl Fn(usize) -> &'w [Way] + Sync + Send,
) -> Result<[ByKey; 3]> {
    let new = || Way::ALL.map(|_| ByKey::new());
    let mut parts = workers
        .map(
            tiles.len().div_ceil(TALLIED),
            || (),
            |(), part| {
                let mut counts = new();
                for tile in part * TALLIED..((part + 1) * TALLIED).min(tiles.len()) {
                    for &way in ways(tile) {
                        counts[way as usize].count(numbers, way, &tiles[tile]);
                    }
                }
                counts
            },
        )?
        .into_iter();
    let mut sums = parts.next().unwrap_or_else(new);
    parts.for_each(|part| sums.iter_mut().zip(&part).for_each(|(sum, part)| sum.add(part)));
    Ok(sums)
}

/// Writes tiles.
struct Writer {
    isa: Isa,
    numbers: Numbers,
    lanes: usize,
    class_of: [u8; 256],
    gaps: EncodeTable,
    ways: [EncodeTable; 3],
}

impl Writer {
    fn new(numbers: Numbers, change: &Change) -> Writer {
        Writer {
            isa: Isa::detect(),
            numbers,
            lanes: change.geometry.lanes,
            class_of: change.class_of(),
            gaps: EncodeTable::new(&change.gaps),
            ways: [0, 1, 2].map(|way| EncodeTable::new(&change.ways[way])),
        }
    }

    /// A tile; nothing for one without changes.
    fn tile(&self, changes: &Changes, gap: usize, way: Way, words: &mut WordStack) -> Vec<u8> {
        let mut out = Vec::new();
        if changes.at.is_empty() {
            return out;
        }
        // At most 2^22 changes, 8 tables and 3 ways.
        let head = changes.at.len() as u32 | (gap as u32) << 24 | (way as u32) << 28;
        out.extend_from_slice(&head.to_le_bytes());
        changes.sums().iter().for_each(|sum| out.extend_from_slice(&sum.to_le_bytes()));
        let lengths = out.len();
        out.extend_from_slice(&[0; 8]);

        let mut raw = Bits::default();
        let symbols: Vec<u16> = changes
            .gaps()
            .map(|distance| {
                let (token, open) = GAPS.split(distance.into());
                raw.put(u64::from(distance) & ((1 << open) - 1), open);
                (gap * 256) as u16 + token as u16
            })
            .collect();
        self.stream(&self.gaps, &symbols, words, lengths, &mut out);
        let told = |(&old, &new): (&u64, &u64)| {
            let Told { symbol, open, raw: bits } = self.numbers.split(way, old, new);
            raw.put(bits, open);
            u16::from(self.class_of[usize::from(self.numbers.key(old))]) * 256 + u16::from(symbol)
        };
        let symbols: Vec<u16> = changes.old.iter().zip(&changes.new).map(told).collect();
        self.stream(&self.ways[way as usize], &symbols, words, lengths + 4, &mut out);
        out.extend_from_slice(&raw.0.finish());
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }

    /// Writes a stream, and how many words it has to its place.
    fn stream(
        &self,
        table: &EncodeTable,
        symbols: &[u16],
        words: &mut WordStack,
        length: usize,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        rans::encode(self.isa, table, self.lanes, symbols, words, out);
        let count = ((out.len() - start - 4 * self.lanes) / 2) as u32;
        out[length..length + 4].copy_from_slice(&count.to_le_bytes());
    }
}

/// Raw bits of up to 64 at a time.
#[derive(Default)]
struct Bits(BitWriter);

impl Bits {
    fn put(&mut self, value: u64, bits: u32) {
        self.0.put(value as u32 & low_mask(bits), bits.min(32));
        if bits > 32 {
            self.0.put((value >> 32) as u32, bits - 32);
        }
    }
}

fn low_mask(bits: u32) -> u32 {
    if bits >= 32 { u32::MAX } else { (1 << bits) - 1 }
}

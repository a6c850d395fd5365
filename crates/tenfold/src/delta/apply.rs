//! A base brought up to date: everything is read and judged first, then written.

use std::ops::Range;

use super::check::{Fingerprint, of_bytes};
use super::read::{Delta, Tile};
use super::scan::by_size;
use super::tile::{Decoded, Scratch};
use super::{DeltaOptions, Verify};
use crate::error::{Error, Result};
use crate::simd::prefetch;
use crate::view::{Dtype, Tensor, TensorView};
use crate::workers::Workers;

/// What an application did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Applied {
    /// Values that were written.
    pub written: u64,
    /// Values that were new already: all of them if the delta had been applied before, some if that was interrupted.
    pub before: u64,
}

/// A delta that was held against its base and found to belong to it: nothing has been written yet, and nothing can go wrong any more.
///
/// ```
/// use tenfold::{Dtype, TensorView, delta};
/// let new = TensorView::from_slice(&[1u8, 7, 3], &[3])?;
/// let mut data = vec![1u8, 2, 3];
/// let blob = delta::make(&TensorView::from_slice(&data, &[3])?, &new, &Default::default())?;
/// let pending = delta::prepare(&blob, Dtype::U8, &[3], &data, &Default::default())?;
/// pending.write(0..pending.tiles(), &mut data)?;
/// assert_eq!(data, [1, 7, 3]);
/// # Ok::<(), tenfold::Error>(())
/// ```
pub struct Pending {
    dtype: Dtype,
    values: usize,
    /// Where each tile starts, and what it writes: places and values side by side.
    tiles: Vec<(usize, Vec<u32>, Vec<u8>)>,
    applied: Applied,
    result: Fingerprint,
    workers: Workers,
    threads: usize,
}

/// Holds a delta against the bytes of its base. An error leaves the base as it is.
///
/// A base of which some tiles are new is one that an interrupted application has left: the others are still to be written. With
/// [`Verify::Whole`] the result's fingerprint is then checked in place of the base's.
pub fn prepare(
    blob: &[u8],
    dtype: Dtype,
    shape: &[usize],
    base: &[u8],
    options: &DeltaOptions,
) -> Result<Pending> {
    let view = TensorView::new(dtype, shape, base)?;
    let delta = Delta::open(blob, &options.limits)?;
    if (delta.frame.head.dtype, delta.frame.head.shape.as_slice()) != (dtype, shape) {
        return Err(Error::InvalidArgument(format!(
            "the delta is for a tensor of {} {:?}, not of {dtype} {shape:?}",
            delta.frame.head.dtype, delta.frame.head.shape
        )));
    }
    let workers = Workers::new(options.threads, &options.stop)?;
    let held = workers.map(delta.frame.tiles(), Scratch::default, |scratch, tile| {
        hold(&delta, tile, view.data(), scratch)
    })?;
    let mut tiles = Vec::with_capacity(held.len());
    let mut applied = Applied::default();
    for (number, held) in held.into_iter().enumerate() {
        let start = delta.range(number).start;
        let (places, new) = match held? {
            Held::Tile(Decoded { places, values, is_new: false }) => {
                applied.written += places.len() as u64;
                (places, values)
            }
            Held::Tile(Decoded { places, .. }) => {
                applied.before += places.len() as u64;
                Default::default()
            }
            Held::Same => Default::default(),
            Held::Other => return Err(wrong_base(&delta, of_bytes(dtype, shape, base, options.threads))),
        };
        tiles.push((start, places, new));
    }
    let (values, result, threads) = (delta.frame.values, delta.result(), options.threads);
    let pending = Pending { dtype, values, tiles, applied, result, workers, threads };
    if options.verify == Verify::Whole {
        pending.verify(&delta, shape, base)?;
    }
    Ok(pending)
}

pub(super) fn wrong_base(delta: &Delta<'_>, found: Fingerprint) -> Error {
    Error::WrongBase { expected: delta.params.base.to_string(), found: found.to_string() }
}

/// A tile held against a base.
pub(super) enum Held {
    /// Nothing changes.
    Same,
    /// What changes, or has changed already.
    Tile(Decoded),
    /// The base is another.
    Other,
}

pub(super) fn hold(delta: &Delta<'_>, number: usize, base: &[u8], scratch: &mut Scratch) -> Result<Held> {
    let (Some(tile), Some(tables)) = (delta.tile(number)?, delta.tables()) else { return Ok(Held::Same) };
    let (size, range) = (delta.frame.head.dtype.size(), delta.range(number));
    let base = &base[range.start * size..(range.start + range.len) * size];
    let mut decode = |tile: &Tile<'_>| match size {
        1 => scratch.decode::<1>(delta, tables, tile, base),
        2 => scratch.decode::<2>(delta, tables, tile, base),
        4 => scratch.decode::<4>(delta, tables, tile, base),
        _ => scratch.decode::<8>(delta, tables, tile, base),
    };
    Ok(decode(&tile)?.map_or(Held::Other, Held::Tile))
}

/// Writes values to their places, whose cache lines are asked for some places ahead.
fn write<const SIZE: usize>(to: &mut [u8], places: &[u32], values: &[u8]) {
    let values = values.chunks_exact(SIZE);
    for (i, (&at, value)) in places.iter().zip(values).enumerate() {
        if let Some(&later) = places.get(i + AHEAD) {
            prefetch(to, later as usize * SIZE);
        }
        to[at as usize * SIZE..][..SIZE].copy_from_slice(value);
    }
}

/// Places whose cache lines are on their way while values are written.
const AHEAD: usize = 64;

impl Pending {
    /// Tiles, each of which is written whole or not at all.
    pub fn tiles(&self) -> usize {
        self.tiles.len()
    }

    /// What writing all tiles does.
    pub fn applied(&self) -> Applied {
        self.applied
    }

    /// Writes the new values of some tiles. The data must be the base that was held against the delta.
    pub fn write(&self, tiles: Range<usize>, data: &mut [u8]) -> Result<()> {
        let size = self.dtype.size();
        if data.len() != self.values * size || tiles.end > self.tiles.len() || tiles.start > tiles.end {
            return Err(Error::InvalidArgument(format!(
                "there are {} bytes and {} tiles to write to, not {} and tiles {tiles:?}",
                self.values * size,
                self.tiles.len(),
                data.len()
            )));
        }
        let (mut rest, mut done, mut pieces) = (data, 0, Vec::with_capacity(tiles.len()));
        for number in tiles {
            let (start, at, new) = &self.tiles[number];
            let end = self.tiles.get(number + 1).map_or(self.values, |(start, ..)| *start);
            let (piece, later) = rest[(start - done) * size..].split_at_mut((end - start) * size);
            pieces.push((piece, at, new));
            (rest, done) = (later, end);
        }
        self.workers.for_pieces(
            pieces,
            || (),
            |(), _, (piece, at, new)| {
                by_size!(size, write(piece, at, new));
                Ok(())
            },
        )
    }

    /// Checks fingerprints: the base's or, where some of it is new already, what it becomes.
    fn verify(&self, delta: &Delta<'_>, shape: &[usize], base: &[u8]) -> Result<()> {
        let found = of_bytes(self.dtype, shape, base, self.threads);
        let right = match (self.applied.before, self.applied.written) {
            (0, _) => found == delta.params.base,
            (_, 0) => found == self.result,
            _ => {
                let mut new = base.to_vec();
                self.write(0..self.tiles(), &mut new)?;
                of_bytes(self.dtype, shape, &new, self.threads) == self.result
            }
        };
        if right { Ok(()) } else { Err(wrong_base(delta, found)) }
    }
}

/// Applies a delta to a tensor, which stays as it is.
pub fn apply(blob: &[u8], base: &TensorView<'_>, options: &DeltaOptions) -> Result<Tensor> {
    let pending = prepare(blob, base.dtype(), base.shape(), base.data(), options)?;
    let mut data = base.data().to_vec();
    pending.write(0..pending.tiles(), &mut data)?;
    Ok(Tensor { dtype: base.dtype(), shape: base.shape().to_vec(), data })
}

/// Applies a delta in place. What it does not belong to stays as it is, to the last byte; what has the delta already stays so too.
///
/// ```
/// use tenfold::{Dtype, TensorView, delta};
/// let mut data = vec![1u8, 2, 3];
/// let new = TensorView::from_slice(&[1u8, 7, 3], &[3])?;
/// let blob = delta::make(&TensorView::from_slice(&data, &[3])?, &new, &Default::default())?;
/// let applied = delta::apply_in_place(&blob, Dtype::U8, &[3], &mut data, &Default::default())?;
/// assert_eq!((applied.written, applied.before), (1, 0));
/// let again = delta::apply_in_place(&blob, Dtype::U8, &[3], &mut data, &Default::default())?;
/// assert_eq!((again.written, again.before), (0, 1));
/// data[2] = 9;
/// assert!(delta::apply_in_place(&blob, Dtype::U8, &[3], &mut data, &Default::default()).is_err());
/// # Ok::<(), tenfold::Error>(())
/// ```
pub fn apply_in_place(
    blob: &[u8],
    dtype: Dtype,
    shape: &[usize],
    data: &mut [u8],
    options: &DeltaOptions,
) -> Result<Applied> {
    let pending = prepare(blob, dtype, shape, data, options)?;
    pending.write(0..pending.tiles(), data)?;
    Ok(pending.applied())
}

//! A base brought up to date: everything is read and judged first, then written.

use std::ops::Range;

use super::check::{Fingerprint, of_bytes, sum};
use super::read::{Delta, Tile};
use super::scan::{element, put_element};
use super::{DeltaOptions, Verify};
use crate::error::{Error, Result};
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
    /// Where each tile starts, and what it writes: places and values.
    tiles: Vec<(usize, Vec<u32>, Vec<u64>)>,
    applied: Applied,
    result: Fingerprint,
    workers: Workers,
    threads: usize,
}

/// What a tile of a base is.
enum State {
    Base(Vec<u32>, Vec<u64>),
    Result(usize),
    Same,
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
    let states = workers.map(delta.frame.tiles(), || (), |(), tile| judge(&delta, tile, view.data()))?;
    let mut tiles = Vec::with_capacity(states.len());
    let mut applied = Applied::default();
    for (number, state) in states.into_iter().enumerate() {
        let start = delta.range(number).start;
        match state? {
            Some(State::Base(at, new)) => {
                applied.written += at.len() as u64;
                tiles.push((start, at, new));
            }
            Some(State::Result(changes)) => {
                applied.before += changes as u64;
                tiles.push((start, Vec::new(), Vec::new()));
            }
            Some(State::Same) => tiles.push((start, Vec::new(), Vec::new())),
            None => return Err(wrong_base(&delta, of_bytes(dtype, shape, base, options.threads))),
        }
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

/// What a tile of the base is; `None` if it is neither old nor new.
fn judge(delta: &Delta<'_>, number: usize, base: &[u8]) -> Result<Option<State>> {
    Ok(match hold(delta, number, base)? {
        Held::Same => Some(State::Same),
        Held::Base(at, new) => Some(State::Base(at, new)),
        Held::Result(_, new) => Some(State::Result(new.len())),
        Held::Other => None,
    })
}

/// A tile held against a base: what it changes, places and new values.
pub(super) enum Held {
    /// Nothing.
    Same,
    /// Values that the base has not.
    Base(Vec<u32>, Vec<u64>),
    /// Values that it has already.
    Result(Vec<u32>, Vec<u64>),
    /// The base is another.
    Other,
}

pub(super) fn hold(delta: &Delta<'_>, number: usize, base: &[u8]) -> Result<Held> {
    let Some(tile) = delta.tile(number)? else { return Ok(Held::Same) };
    let mut at = Vec::with_capacity(tile.head.changes);
    let raw = delta.positions(number, &tile, &mut at)?;
    let (size, start) = (delta.frame.head.dtype.size(), delta.range(number).start);
    let old: Vec<u64> = at.iter().map(|&at| element(base, size, start + at as usize)).collect();
    let found = sum(&at, &old);
    if found != tile.head.before {
        return Ok(if found == tile.head.after { Held::Result(at, old) } else { Held::Other });
    }
    let new = new_values(delta, &tile, raw, &at, &old)?;
    Ok(Held::Base(at, new))
}

fn new_values(delta: &Delta<'_>, tile: &Tile<'_>, raw: usize, at: &[u32], old: &[u64]) -> Result<Vec<u64>> {
    let mut new = Vec::with_capacity(old.len());
    delta.values(tile, raw, old, &mut new)?;
    match sum(at, &new) == tile.head.after {
        true => Ok(new),
        false => Err(Error::Corrupt("a tile of a delta does not make what it says")),
    }
}

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
                at.iter().zip(new).for_each(|(&at, &new)| put_element(piece, size, at as usize, new));
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

//! A chain done to a whole tensor before the levels of it are found, and undone behind them.
//!
//! In between, the tensor is one of f32 (of f64 if it was that), whatever it was before.

use std::ops::Range;
use std::sync::Arc;

use super::{Axis, Basis, Elements, Kept, Slab, Transform, behind_transposition};
use crate::error::{Error, Result};
use crate::simd::Isa;
use crate::view::{Dtype, TensorView};
use crate::workers::Workers;

/// Values worked on at a time.
const PIECE: usize = 1 << 16;

/// Checks that a chain can be done to a tensor of so many rows and columns before its levels are found.
pub(crate) fn check(transforms: &[Transform], rows: usize, cols: usize) -> Result<()> {
    for transform in transforms {
        let refused = match transform {
            Transform::Basis(b) if b.basis().is_some_and(|b| !b.can_encode()) => {
                "a basis read from a blob is for decoding only; encode with the original basis"
            }
            Transform::Kept(_) => "the encoder finds the elements to keep; leave them out of the chain",
            _ => continue,
        };
        return Err(Error::InvalidArgument(refused.into()));
    }
    fit(transforms, rows, cols)
}

/// Checks that a chain is one for a tensor of so many rows and columns.
pub(crate) fn fit(transforms: &[Transform], mut rows: usize, mut cols: usize) -> Result<()> {
    for (i, transform) in transforms.iter().enumerate() {
        let refused = match transform {
            Transform::Weights(w) => {
                let (what, have) = match w.axis() {
                    Axis::Columns => ("columns", cols),
                    Axis::Rows => ("rows", rows),
                };
                (w.len() != have)
                    .then(|| format!("there are {} weights for {what}, but the tensor has {have}", w.len()))
            }
            Transform::Means(m) if m.values().len() != cols => {
                Some(format!("there are means for {} columns, but the tensor has {cols}", m.values().len()))
            }
            Transform::Rope(r) if !cols.is_multiple_of(r.head()) => {
                Some(format!("heads of {} columns do not divide the {cols} columns of the tensor", r.head()))
            }
            Transform::Basis(_) if transforms.contains(&Transform::Transposed) => {
                Some("a basis is one of rows and does not go with a transposition".into())
            }
            Transform::Basis(b) => match b.basis() {
                None => Some("the basis that a blob names is missing".into()),
                Some(b) if b.cols() != cols => {
                    Some(format!("the basis has {} columns, but the tensor has {cols}", b.cols()))
                }
                Some(_) => None,
            },
            Transform::Kept(_) if i > 0 => Some("kept elements must come before all other transforms".into()),
            Transform::Delta(_)
                if transforms.iter().filter(|s| matches!(s, Transform::Delta(_))).count() > 1 =>
            {
                Some("a chain can have only one delta".into())
            }
            Transform::Transposed if transforms[..i].iter().any(|t| !matches!(t, Transform::Kept(_))) => {
                Some("a transposition must come before all other transforms".into())
            }
            _ => None,
        };
        if let Some(why) = refused {
            return Err(Error::InvalidArgument(why));
        }
        if *transform == Transform::Transposed {
            std::mem::swap(&mut rows, &mut cols);
        }
        cols = transform.width(cols);
    }
    Ok(())
}

/// Columns behind a chain.
pub(crate) fn width_of(transforms: &[Transform], cols: usize) -> usize {
    transforms.iter().fold(cols, |cols, transform| transform.width(cols))
}

/// Finds the bases that a chain names.
pub(crate) fn resolve(transforms: &mut [Transform], known: &[Arc<Basis>], mut cols: usize) -> Result<()> {
    for transform in transforms {
        if let Transform::Basis(rotation) = transform {
            rotation.resolve(known, cols)?;
        }
        cols = transform.width(cols);
    }
    Ok(())
}

/// Does a chain to rows, the first of which is row `first`; returns the squared error of what is lost.
fn forward<R: Elements>(transforms: &[Transform], values: &mut Vec<R>, mut cols: usize, first: usize) -> f64 {
    let mut lost = 0.0;
    for transform in transforms {
        lost += transform.forward(values, cols, first);
        cols = transform.width(cols);
    }
    lost
}

/// Undoes a chain.
fn inverse<R: Elements>(transforms: &[Transform], values: &mut Vec<R>, cols: usize, first: usize) {
    if let Some((transform, rest)) = transforms.split_first() {
        inverse(rest, values, transform.width(cols), first);
        transform.inverse(values, cols, first);
    }
}

/// A tensor as a codec is to see it.
pub(crate) struct Prepared {
    dtype: Dtype,
    shape: Vec<usize>,
    data: Vec<u8>,
    /// What to record: the transforms asked for, behind what was kept.
    pub(crate) transforms: Vec<Transform>,
    /// Whether all numbers are finite: weights may throw some out of range.
    pub(crate) finite: bool,
    /// Squared error that no codec behind can make good: a basis may leave out some of the tensor.
    pub(crate) lost: f64,
}

/// What became of a piece.
#[derive(Clone, Default)]
struct Seen {
    /// Elements set aside.
    odd: Vec<usize>,
    wild: bool,
    lost: f64,
}

impl Prepared {
    /// Does a chain that [`check`] has passed.
    pub(crate) fn new(
        view: &TensorView<'_>,
        transforms: &[Transform],
        workers: &Workers,
    ) -> Result<Prepared> {
        let size = view.dtype().size();
        let (mut prepared, mut odd) = match behind_transposition(transforms) {
            None => Prepared::from_rows(view, transforms, workers)?,
            Some(rest) => {
                let (rows, cols) = (view.rows(), view.cols());
                let mut turned = vec![0u8; view.data().len()];
                let slab = Slab { bytes: view.data(), line: cols, size, first: 0, wanted: 0..cols };
                slab.turn(rows, workers, &mut turned)?;
                let shape = [cols, rows];
                let view = TensorView::new(view.dtype(), &shape, &turned)?;
                let (prepared, odd) = Prepared::from_rows(&view, rest, workers)?;
                (prepared, odd.into_iter().map(|at| at % rows * cols + at / rows).collect())
            }
        };
        odd.sort_unstable();
        let mut kept = Kept::new(view.dtype());
        odd.iter().for_each(|&at| kept.push(at, &view.data()[at * size..][..size]));
        if kept.values() > 0 {
            prepared.transforms.push(Transform::Kept(kept));
        }
        prepared.transforms.extend_from_slice(transforms);
        Ok(prepared)
    }

    /// Does a chain row by row. Also returns which elements are to be kept; the transforms are left to the caller.
    fn from_rows(
        view: &TensorView<'_>,
        transforms: &[Transform],
        workers: &Workers,
    ) -> Result<(Prepared, Vec<usize>)> {
        match view.dtype() {
            Dtype::F64 => Prepared::run::<f64>(view, transforms, workers),
            _ => Prepared::run::<f32>(view, transforms, workers),
        }
    }

    fn run<R: Elements>(
        view: &TensorView<'_>,
        transforms: &[Transform],
        workers: &Workers,
    ) -> Result<(Prepared, Vec<usize>)> {
        let isa = Isa::detect();
        let (size, cols) = (view.dtype().size(), view.cols().max(1));
        let width = width_of(transforms, cols);
        let all = view.len() / cols;
        let mut data = vec![0u8; all * width * size_of::<R>()];
        let rows = piece_rows(transforms, cols);
        let mut seen = vec![Seen::default(); all.div_ceil(rows)];
        let pieces = data.chunks_mut(rows * width * size_of::<R>()).zip(&mut seen).collect();
        workers.for_pieces(pieces, Vec::new, |values: &mut Vec<R>, i, (out, seen)| {
            let first = i * rows * cols;
            let n = out.len() / size_of::<R>() / width * cols;
            values.resize(n, R::from_f64(0.0));
            R::load(isa, view.dtype(), &view.data()[first * size..][..n * size], values);
            for (j, v) in values.iter_mut().enumerate().filter(|(_, v)| !v.wide().is_finite()) {
                seen.odd.push(first + j);
                *v = R::from_f64(0.0);
            }
            seen.lost = forward(transforms, values, cols, i * rows);
            seen.wild = values.iter().any(|v| !v.wide().is_finite());
            out.copy_from_slice(bytemuck::cast_slice(values));
            Ok(())
        })?;
        let finite = !seen.iter().any(|s| s.wild);
        let lost = seen.iter().map(|s| s.lost).sum();
        let mut shape = view.shape().to_vec();
        if let Some(last) = shape.last_mut() {
            *last = width_of(transforms, *last);
        }
        let odd = seen.into_iter().flat_map(|s| s.odd).collect();
        Ok((Prepared { dtype: R::DTYPE, shape, data, transforms: Vec::new(), finite, lost }, odd))
    }

    /// The tensor.
    pub(crate) fn view(&self) -> Result<TensorView<'_>> {
        TensorView::new(self.dtype, &self.shape, &self.data)
    }
}

/// Undoes a chain for some columns only: `worked` are all rows as the codec gave them. Nothing if a transform mixes columns that
/// were not asked for; a basis may, as the last one.
pub(crate) fn finish_columns(
    transforms: &[Transform],
    dtype: Dtype,
    cols: usize,
    range: Range<usize>,
    worked: &[f32],
    workers: &Workers,
    out: &mut [u8],
) -> Result<bool> {
    let Some((Transform::Basis(rotation), before)) = transforms.split_last() else { return Ok(false) };
    let Some(basis) = rotation.basis() else { return Ok(false) };
    let apart = |transform: &Transform| match transform {
        Transform::Rope(r) => range.start.is_multiple_of(r.head()) && range.len().is_multiple_of(r.head()),
        Transform::Kept(_) => true,
        _ => false,
    };
    if !before.iter().all(apart) {
        return Ok(false);
    }
    let isa = Isa::detect();
    let (rows, width) = (piece_rows(transforms, cols), basis.rank());
    let line = range.len() * dtype.size();
    let pieces: Vec<(&[f32], &mut [u8])> =
        worked.chunks(rows * width).zip(out.chunks_mut((rows * line).max(1))).collect();
    workers.for_pieces(
        pieces,
        || (),
        |(), i, (worked, out)| {
            let mut values = basis.columns(worked, range.clone());
            inverse(before, &mut values, range.len(), i * rows);
            values.iter_mut().filter(|v| v.is_nan()).for_each(|v| *v = 0.0);
            f32::store(isa, dtype, &values, out);
            if let Some(Transform::Kept(kept)) = transforms.first() {
                for (row, out) in out.chunks_exact_mut(line).enumerate() {
                    let at = (i * rows + row) * cols;
                    kept.apply(at + range.start..at + range.end, out);
                }
            }
            Ok(())
        },
    )?;
    Ok(true)
}

/// Rows that cannot be done without each other.
pub(crate) fn group_of(transforms: &[Transform]) -> usize {
    transforms.iter().map(Transform::group).max().unwrap_or(1)
}

/// Rows worked on at a time: whole groups.
fn piece_rows(transforms: &[Transform], cols: usize) -> usize {
    (PIECE / cols).max(1).next_multiple_of(group_of(transforms))
}

/// Undoes a chain: `worked` are whole rows as the codec gave them, from the start of a group on; `first` is the first of them,
/// `out` is room for their elements.
pub(crate) fn finish<R: Elements>(
    transforms: &[Transform],
    dtype: Dtype,
    cols: usize,
    first: usize,
    worked: &[R],
    workers: &Workers,
    out: &mut [u8],
) -> Result<()> {
    let isa = Isa::detect();
    let cols = cols.max(1);
    let (rows, width) = (piece_rows(transforms, cols), width_of(transforms, cols));
    let pieces: Vec<(&[R], &mut [u8])> =
        worked.chunks(rows * width).zip(out.chunks_mut(rows * cols * dtype.size())).collect();
    let undo = |values: &mut Vec<R>, i: usize, (worked, out): (&[R], &mut [u8])| {
        let first = first + i * rows;
        values.clear();
        values.extend_from_slice(worked);
        inverse(transforms, values, cols, first);
        // Only a forged blob leaves the range of working values; what comes of that is finite all the same.
        for v in values.iter_mut().filter(|v| v.wide().is_nan()) {
            *v = R::from_f64(0.0);
        }
        R::store(isa, dtype, values, out);
        if let Some(Transform::Kept(kept)) = transforms.first() {
            kept.apply(first * cols..first * cols + values.len(), out);
        }
        Ok(())
    };
    workers.for_pieces(pieces, Vec::new, undo)
}

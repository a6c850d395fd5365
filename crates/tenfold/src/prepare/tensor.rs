//! A chain done to a whole tensor before the levels of it are found, and undone behind them.
//!
//! In between, the tensor is one of f32 (of f64 if it was that), whatever it was before.

use std::ops::Range;

use super::{Axis, Elements, Kept, Step};
use crate::error::{Error, Result};
use crate::simd::Level;
use crate::view::{Dtype, TensorView};
use crate::workers::Workers;

/// Values worked on at a time.
const PIECE: usize = 1 << 16;

/// Checks that a chain can be done to a tensor before its levels are found.
pub(crate) fn check(steps: &[Step], view: &TensorView<'_>) -> Result<()> {
    for step in steps {
        let refused = match step {
            Step::Weights(w) => {
                let (what, have) = match w.axis() {
                    Axis::Columns => ("columns", view.cols()),
                    Axis::Rows => ("rows", view.rows()),
                };
                (w.len() != have)
                    .then(|| format!("there are weights for {} {what}, the tensor has {have}", w.len()))
            }
            Step::Means(m) if m.values().len() != view.cols() => Some(format!(
                "there are means for {} columns, the tensor has {}",
                m.values().len(),
                view.cols()
            )),
            Step::Rope(r) if !view.cols().is_multiple_of(r.head()) => Some(format!(
                "heads of {} columns do not divide the {} columns of the tensor",
                r.head(),
                view.cols()
            )),
            Step::Kept(_) => Some("elements to keep are found by the encoder, not given to it".into()),
            Step::Delta(_) if steps.iter().filter(|s| matches!(s, Step::Delta(_))).count() > 1 => {
                Some("rows can be differences once only".into())
            }
            Step::Hadamard(_) | Step::Means(_) | Step::Dct(_) | Step::Rope(_) | Step::Delta(_) => None,
        };
        if let Some(why) = refused {
            return Err(Error::InvalidArgument(why));
        }
    }
    Ok(())
}

/// A tensor as a codec is to see it.
pub(crate) struct Prepared {
    dtype: Dtype,
    data: Vec<u8>,
    /// What to record: the steps asked for, behind what was kept.
    pub(crate) steps: Vec<Step>,
    /// Whether all numbers are finite: weights may throw some out of range.
    pub(crate) finite: bool,
}

impl Prepared {
    /// Does a chain that [`check`] has passed.
    pub(crate) fn new(view: &TensorView<'_>, steps: &[Step], workers: &Workers) -> Result<Prepared> {
        match view.dtype() {
            Dtype::F64 => Prepared::of::<f64>(view, steps, workers),
            _ => Prepared::of::<f32>(view, steps, workers),
        }
    }

    fn of<R: Elements>(view: &TensorView<'_>, steps: &[Step], workers: &Workers) -> Result<Prepared> {
        let level = Level::detect();
        let (size, cols) = (view.dtype().size(), view.cols().max(1));
        let mut data = vec![0u8; view.len() * size_of::<R>()];
        let rows = piece_rows(steps, cols);
        // What each piece set aside, and whether its numbers stayed finite.
        let mut seen = vec![(Vec::new(), true); data.len().div_ceil(rows * cols * size_of::<R>())];
        let pieces = data.chunks_mut(rows * cols * size_of::<R>()).zip(&mut seen).collect();
        workers.for_pieces(pieces, Vec::new, |values: &mut Vec<R>, i, (out, (odd, finite))| {
            let first = i * rows * cols;
            let n = out.len() / size_of::<R>();
            values.resize(n, R::of(0.0));
            R::load(level, view.dtype(), &view.data()[first * size..][..n * size], values);
            for (j, v) in values.iter_mut().enumerate().filter(|(_, v)| !v.wide().is_finite()) {
                odd.push(first + j);
                *v = R::of(0.0);
            }
            steps.iter().for_each(|step| step.forward(values, cols, i * rows));
            *finite = values.iter().all(|v| v.wide().is_finite());
            out.copy_from_slice(bytemuck::cast_slice(values));
            Ok(())
        })?;
        let mut recorded = Vec::with_capacity(steps.len() + 1);
        let mut kept = Kept::new(view.dtype());
        seen.iter().flat_map(|s| &s.0).for_each(|&at| kept.push(at, &view.data()[at * size..][..size]));
        if kept.values() > 0 {
            recorded.push(Step::Kept(kept));
        }
        recorded.extend_from_slice(steps);
        let finite = seen.iter().all(|s| s.1);
        Ok(Prepared { dtype: R::DTYPE, data, steps: recorded, finite })
    }

    /// The tensor.
    pub(crate) fn view<'a>(&'a self, shape: &'a [usize]) -> Result<TensorView<'a>> {
        TensorView::new(self.dtype, shape, &self.data)
    }
}

/// Rows that cannot be done without each other.
pub(crate) fn group_of(steps: &[Step]) -> usize {
    steps.iter().map(Step::group).max().unwrap_or(1)
}

/// Rows worked on at a time: whole groups.
fn piece_rows(steps: &[Step], cols: usize) -> usize {
    (PIECE / cols).max(1).next_multiple_of(group_of(steps))
}

/// Undoes a chain: `worked` are whole rows as the codec gave them, from the start of a group on, the values `range` of the
/// tensor; `out` is room for their elements.
pub(crate) fn finish<R: Elements>(
    steps: &[Step],
    dtype: Dtype,
    cols: usize,
    range: Range<usize>,
    worked: &mut [R],
    workers: &Workers,
    out: &mut [u8],
) -> Result<()> {
    let level = Level::detect();
    let size = dtype.size();
    let cols = cols.max(1);
    let rows = piece_rows(steps, cols);
    let pieces: Vec<(&mut [R], &mut [u8])> =
        worked.chunks_mut(rows * cols).zip(out.chunks_mut(rows * cols * size)).collect();
    let undo = |_: &mut (), i: usize, (values, out): (&mut [R], &mut [u8])| {
        let first = range.start + i * rows * cols;
        steps.iter().rev().for_each(|step| step.inverse(values, cols, first / cols));
        // Only a forged blob leaves the range of working values; what comes of that is finite all the same.
        for v in values.iter_mut().filter(|v| v.wide().is_nan()) {
            *v = R::of(0.0);
        }
        R::store(level, dtype, values, out);
        if let Some(Step::Kept(kept)) = steps.first() {
            kept.apply(first..first + values.len(), out);
        }
        Ok(())
    };
    workers.for_pieces(pieces, || (), undo)
}

//! Single columns of a tensor whose blob has a basis, such as one layer of a page that holds many.

use std::ops::Range;

use super::cpu::Reader;
use crate::blob::Frame;
use crate::decode::decode_working;
use crate::error::{Error, Result};
use crate::options::DecodeOptions;
use crate::prepare::{self, Transform};
use crate::view::{Dtype, Tensor};
use crate::workers::Workers;

/// A tensor decoded up to its coordinates, from which any columns can be computed without the others.
///
/// Blobs without a basis are decoded whole.
///
/// ```
/// use std::sync::Arc;
/// use tenfold::prepare::{Basis, Rotation, Transform};
/// use tenfold::engine::Coordinates;
/// use tenfold::{DecodeOptions, EncodeOptions, Goal, TensorView};
/// let basis = Arc::new(Basis::orthonormal(&[0.0; 2], &[0.6, 0.8, 0.8, -0.6])?);
/// let values: Vec<f32> = (0..4096).map(|i| (i as f32 * 0.37).sin()).collect();
/// let view = TensorView::from_slice(&values, &[2048, 2])?;
/// let options = EncodeOptions::new(Goal::Bits(4.0)).with_transforms(vec![Transform::Basis(Rotation::embedded(&basis))]);
/// let blob = tenfold::encode(&view, &options)?;
/// let second = Coordinates::decode(&blob, &DecodeOptions::default())?.columns(1..2)?;
/// assert_eq!(second.shape, [2048, 1]);
/// # Ok::<(), tenfold::Error>(())
/// ```
pub struct Coordinates {
    dtype: Dtype,
    rows: usize,
    cols: usize,
    transforms: Vec<Transform>,
    held: Held,
    workers: Workers,
}

enum Held {
    /// As decoded.
    Worked(Vec<f32>),
    /// The whole tensor.
    Whole(Vec<u8>),
}

impl std::fmt::Debug for Coordinates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Coordinates of {} × {} values of {}", self.rows, self.cols, self.dtype)
    }
}

impl Coordinates {
    /// Decodes a blob up to its coordinates.
    pub fn decode(blob: &[u8], options: &DecodeOptions) -> Result<Self> {
        let reader = Reader::open(blob, options)?;
        let workers = Workers::new(options.threads, &options.stop)?;
        let opened = &reader.opened;
        let (dtype, values) = (opened.dtype, opened.values);
        let cols = opened.shape.last().copied().unwrap_or(1);
        let (transforms, held) = match opened.single().filter(|frame| has_basis(frame) && values > 0) {
            Some(frame) => {
                let mut worked = vec![0f32; frame.coded];
                decode_working(frame, blob, &workers, &mut worked)?;
                (frame.head.transforms.clone(), Held::Worked(worked))
            }
            None => (Vec::new(), Held::Whole(reader.read(0..values)?)),
        };
        Ok(Coordinates { dtype, rows: values / cols.max(1), cols, transforms, held, workers })
    }

    /// Rows of the tensor.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of the tensor.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Dtype of the tensor.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Some columns of all rows.
    pub fn columns(&self, range: Range<usize>) -> Result<Tensor> {
        if range.start > range.end || range.end > self.cols {
            let (Range { start, end }, cols) = (range, self.cols);
            return Err(Error::InvalidArgument(format!(
                "columns {start}..{end} are outside the tensor, which has {cols} columns"
            )));
        }
        let line = range.len() * self.dtype.size();
        let mut data = vec![0u8; self.rows * line];
        match &self.held {
            _ if data.is_empty() => {}
            Held::Whole(whole) => {
                pick(whole, self.cols * self.dtype.size(), range.start * self.dtype.size(), &mut data, line)
            }
            Held::Worked(worked) => {
                let (transforms, workers) = (&self.transforms, &self.workers);
                let done = prepare::finish_columns(
                    transforms,
                    self.dtype,
                    self.cols,
                    range.clone(),
                    worked,
                    workers,
                    &mut data,
                )?;
                if !done {
                    // A transform before the basis mixes columns.
                    let mut whole = vec![0u8; self.rows * self.cols * self.dtype.size()];
                    prepare::finish(transforms, self.dtype, self.cols, 0, worked, workers, &mut whole)?;
                    pick(
                        &whole,
                        self.cols * self.dtype.size(),
                        range.start * self.dtype.size(),
                        &mut data,
                        line,
                    );
                }
            }
        }
        Ok(Tensor { dtype: self.dtype, shape: vec![self.rows, range.len()], data })
    }
}

fn has_basis(frame: &Frame) -> bool {
    matches!(frame.head.transforms.last(), Some(Transform::Basis(_))) && frame.head.dtype != Dtype::F64
}

/// Copies `line` bytes of every row, from byte `from` of it on.
fn pick(whole: &[u8], stride: usize, from: usize, out: &mut [u8], line: usize) {
    out.chunks_exact_mut(line).zip(whole.chunks_exact(stride)).for_each(|(o, row)| {
        o.copy_from_slice(&row[from..from + line]);
    });
}

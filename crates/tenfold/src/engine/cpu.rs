//! This crate's own codec as an engine.

use std::ops::Range;

use super::{Engine, Subject};
use crate::blob::{Frame, Parts};
use crate::decode::decode_range;
use crate::error::{Error, Result};
use crate::layers;
use crate::options::{DecodeOptions, EncodeOptions};
use crate::view::{Tensor, TensorView, rows_of};

/// This crate's own codec.
///
/// ```
/// use tenfold::engine::{Cpu, Engine};
/// use tenfold::{DecodeOptions, EncodeOptions, Goal, TensorView};
/// let values = [1.0f32, 2.0, 3.0];
/// let blob = Cpu.encode(&TensorView::from_slice(&values, &[3])?, &EncodeOptions::new(Goal::Lossless))?;
/// assert_eq!(Cpu.decode(&blob, &DecodeOptions::default())?.to_vec::<f32>()?, values);
/// # Ok::<(), tenfold::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cpu;

impl Cpu {
    /// Encodes a tensor and leaves its blob in parts, for a caller who makes room for it once its length is known.
    pub fn encode_parts(&self, view: &TensorView<'_>, options: &EncodeOptions) -> Result<Parts> {
        Subject::new(view, options)?.encode_parts(options)
    }
}

impl Engine for Cpu {
    fn name(&self) -> String {
        "cpu".into()
    }

    fn encode(&self, view: &TensorView<'_>, options: &EncodeOptions) -> Result<Vec<u8>> {
        self.encode_parts(view, options)?.into_blob()
    }

    fn encode_into(&self, view: &TensorView<'_>, options: &EncodeOptions, out: &mut [u8]) -> Result<usize> {
        self.encode_parts(view, options)?.write(out)
    }

    fn decode(&self, blob: &[u8], options: &DecodeOptions) -> Result<Tensor> {
        let frame = open(blob, options)?;
        let mut data = vec![0u8; frame.values * frame.head.dtype.size()];
        decode_range(&frame, blob, 0..frame.values, options, &mut data)?;
        Ok(Tensor { dtype: frame.head.dtype, shape: frame.head.shape, data })
    }

    fn decode_rows(&self, blob: &[u8], rows: Range<usize>, options: &DecodeOptions) -> Result<Tensor> {
        let frame = open(blob, options)?;
        let (values, shape) = row_values(&frame, rows)?;
        let mut data = vec![0u8; values.len() * frame.head.dtype.size()];
        decode_range(&frame, blob, values, options, &mut data)?;
        Ok(Tensor { dtype: frame.head.dtype, shape, data })
    }

    fn decode_into(&self, blob: &[u8], options: &DecodeOptions, out: &mut [u8]) -> Result<()> {
        let frame = open(blob, options)?;
        decode_exactly(&frame, blob, 0..frame.values, options, out)
    }

    fn decode_rows_into(
        &self,
        blob: &[u8],
        rows: Range<usize>,
        options: &DecodeOptions,
        out: &mut [u8],
    ) -> Result<()> {
        let frame = open(blob, options)?;
        let (values, _) = row_values(&frame, rows)?;
        decode_exactly(&frame, blob, values, options, out)
    }
}

/// Reads the header of a blob that this crate decodes itself, and those of its layers.
pub(crate) fn open(blob: &[u8], options: &DecodeOptions) -> Result<Frame> {
    let mut frame = Frame::parse_native(blob, &options.limits)?;
    frame.check_len(blob)?;
    frame.resolve(&options.bases)?;
    layers::open(&mut frame, blob, options)?;
    Ok(frame)
}

/// Decodes values into a buffer that must have exactly their bytes.
fn decode_exactly(
    frame: &Frame,
    blob: &[u8],
    values: Range<usize>,
    options: &DecodeOptions,
    out: &mut [u8],
) -> Result<()> {
    let need = values.len() * frame.head.dtype.size();
    if out.len() != need {
        return Err(Error::BufferTooSmall { need: need as u64, have: out.len() as u64 });
    }
    decode_range(frame, blob, values, options, out)
}

/// The values of some rows, and the shape they have together.
fn row_values(frame: &Frame, rows: Range<usize>) -> Result<(Range<usize>, Vec<usize>)> {
    let cols = frame.head.shape.last().copied().unwrap_or(1);
    let all = rows_of(&frame.head.shape);
    if rows.start > rows.end || rows.end > all {
        return Err(Error::InvalidArgument(format!(
            "rows {}..{} of a tensor with {all} rows",
            rows.start, rows.end
        )));
    }
    let values = rows.start.saturating_mul(cols)..rows.end.saturating_mul(cols);
    let values = values.start.min(frame.values)..values.end.min(frame.values);
    Ok((values, vec![rows.len(), cols]))
}

//! This crate's own codec as an engine.

use std::ops::Range;

use super::host::Host;
use super::{Capabilities, Engine, Layered, Opened, Scratch, Subject};
use crate::blob::Parts;
use crate::decode::SLAB;
use crate::error::{Error, Result};
use crate::options::{DecodeOptions, EncodeOptions};
use crate::prepare::group_of;
use crate::view::{Tensor, TensorView};
use crate::workers::Workers;

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
    /// Encodes a tensor and leaves its blob in parts, for callers who allocate memory once they know its length.
    pub fn encode_parts(&self, view: &TensorView<'_>, options: &EncodeOptions) -> Result<Parts> {
        Subject::new(view, options)?.encode_parts(options)
    }
}

impl Engine for Cpu {
    fn name(&self) -> String {
        "cpu".into()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::native()
    }

    fn encode(&self, view: &TensorView<'_>, options: &EncodeOptions) -> Result<Vec<u8>> {
        self.encode_parts(view, options)?.into_blob()
    }

    fn encode_into(&self, view: &TensorView<'_>, options: &EncodeOptions, out: &mut [u8]) -> Result<usize> {
        self.encode_parts(view, options)?.write(out)
    }

    fn decode(&self, blob: &[u8], options: &DecodeOptions) -> Result<Tensor> {
        let reader = Reader::open(blob, options)?;
        let data = reader.read(0..reader.opened.values)?;
        Ok(Tensor { dtype: reader.opened.dtype, shape: reader.opened.shape, data })
    }

    fn decode_rows(&self, blob: &[u8], rows: Range<usize>, options: &DecodeOptions) -> Result<Tensor> {
        let reader = Reader::open(blob, options)?;
        let (values, shape) = reader.opened.rows(rows)?;
        Ok(Tensor { dtype: reader.opened.dtype, shape, data: reader.read(values)? })
    }

    fn decode_into(&self, blob: &[u8], options: &DecodeOptions, out: &mut [u8]) -> Result<()> {
        let reader = Reader::open(blob, options)?;
        reader.read_into(0..reader.opened.values, out)
    }

    fn decode_rows_into(
        &self,
        blob: &[u8],
        rows: Range<usize>,
        options: &DecodeOptions,
        out: &mut [u8],
    ) -> Result<()> {
        let reader = Reader::open(blob, options)?;
        reader.read_into(reader.opened.rows(rows)?.0, out)
    }
}

/// A blob that this crate decodes itself, its headers read.
pub(super) struct Reader<'a> {
    blob: &'a [u8],
    pub(super) opened: Opened,
    engine: Layered<Host>,
}

impl<'a> Reader<'a> {
    pub(super) fn open(blob: &'a [u8], options: &DecodeOptions) -> Result<Reader<'a>> {
        let engine = Layered(Host(Workers::new(options.threads, &options.stop)?));
        Ok(Reader { blob, opened: engine.open(blob, options)?, engine })
    }

    /// Decodes values into new memory.
    pub(super) fn read(&self, values: Range<usize>) -> Result<Vec<u8>> {
        let mut data = vec![0u8; values.len() * self.opened.dtype.size()];
        self.read_into(values, &mut data)?;
        Ok(data)
    }

    /// Decodes values into a buffer that must have exactly their bytes.
    fn read_into(&self, values: Range<usize>, out: &mut [u8]) -> Result<()> {
        let size = self.opened.dtype.size();
        let (need, have) = (values.len() * size, out.len());
        if have != need {
            return Err(Error::BufferTooSmall { need: need as u64, have: have as u64 });
        }
        // Some rows leave much of a layer unread.
        if values.len() == self.opened.values {
            self.opened.check_layers()?;
        }
        let mut scratch = Scratch::default();
        let mut rest = out;
        for range in self.slabs(values) {
            let (out, later) = rest.split_at_mut(range.len() * size);
            rest = later;
            self.engine.decode(&self.opened, self.blob, range, out, &mut scratch)?;
        }
        Ok(())
    }

    /// Values to decode at a time. Of layers, whole rows with many tiles and whole groups between two seams, so that their sums
    /// take little memory; a single layer has its own slabs.
    fn slabs(&self, values: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let slab = match self.opened.single() {
            Some(_) => usize::MAX,
            None => {
                let frames = || self.opened.layers.iter().map(|l| &l.frame);
                let cols = self.opened.shape.last().copied().unwrap_or(1).max(1);
                let tile = frames().map(|f| f.head.params.geometry().tile_values()).max().unwrap_or(1);
                let group = frames().map(|f| group_of(&f.head.transforms)).max().unwrap_or(1);
                SLAB.max(32 * tile).div_ceil(cols).next_multiple_of(group).saturating_mul(cols)
            }
        };
        let end = values.end;
        values.step_by(slab).map(move |at| at..end.min(at.saturating_add(slab)))
    }
}

//! Values and blobs in memory of the host: what [`Layered`](super::Layered) needs of the CPU.

use std::borrow::Cow;
use std::ops::Range;

use super::layered::{Elements, Layer, Single};
use super::{Subject, sum};
use crate::decode::decode_range;
use crate::error::{Error, Result};
use crate::options::EncodeOptions;
use crate::simd::Isa;
use crate::view::{Dtype, TensorView};
use crate::workers::Workers;

/// Values that a worker does at a time.
const PIECE: usize = 1 << 16;

/// This crate's codec of single blobs, on some workers.
pub(super) struct Host(pub Workers);

impl Host {
    /// Cuts two runs of elements into pieces and does something to each pair.
    fn pairs<S>(
        &self,
        (out, size): (&mut [u8], usize),
        (other, other_size): (&[u8], usize),
        init: impl Fn() -> S + Sync + Send,
        f: impl Fn(&mut S, usize, &mut [u8], &[u8]) + Sync + Send,
    ) -> Result<()> {
        let pieces: Vec<(&mut [u8], &[u8])> =
            out.chunks_mut(PIECE * size).zip(other.chunks(PIECE * other_size)).collect();
        self.0.for_pieces(pieces, init, |scratch, i, (out, other)| {
            f(scratch, i * PIECE, out, other);
            Ok(())
        })
    }
}

impl Single for Host {
    type Bytes = [u8];
    type Room = Vec<u8>;

    fn len_of(&self, bytes: &[u8]) -> usize {
        bytes.len()
    }

    fn fetch<'a>(&'a self, bytes: &'a [u8], range: Range<usize>) -> Result<Cow<'a, [u8]>> {
        bytes.get(range).map(Cow::Borrowed).ok_or(Error::Corrupt("a layer is not a whole blob"))
    }

    fn make_room<'r>(&self, room: &'r mut Option<Vec<u8>>, len: usize) -> Result<&'r mut [u8]> {
        let room = room.get_or_insert_with(Vec::new);
        room.resize(len, 0);
        Ok(room)
    }

    fn encode_one(&self, tensor: &Elements<'_, [u8]>, options: &EncodeOptions) -> Result<Vec<u8>> {
        let view = TensorView::new(tensor.dtype, tensor.shape, tensor.bytes)?;
        Subject::new(&view, options)?.encode(options)
    }

    fn decode_one(&self, layer: &Layer, blob: &[u8], values: Range<usize>, out: &mut [u8]) -> Result<()> {
        let blob = self.fetch(blob, layer.bytes())?;
        decode_range(&layer.frame, &blob, values, &self.0, out)
    }

    fn widen(&self, dtype: Dtype, elements: &[u8], out: &mut [u8]) -> Result<()> {
        let isa = Isa::detect();
        self.pairs((out, 4), (elements, dtype.size()), Vec::new, |values, _, out, elements| {
            values.resize(elements.len() / dtype.size(), 0.0);
            sum::widen(isa, dtype, elements, values);
            out.copy_from_slice(bytemuck::cast_slice(values));
        })
    }

    fn round(&self, dtype: Dtype, values: &[u8], out: &mut [u8]) -> Result<()> {
        let isa = Isa::detect();
        self.pairs((out, dtype.size()), (values, 4), Vec::new, |aligned: &mut Vec<f32>, _, out, values| {
            aligned.resize(values.len() / 4, 0.0);
            bytemuck::cast_slice_mut(aligned).copy_from_slice(values);
            sum::round(isa, dtype, aligned, out);
        })
    }

    fn add(&self, dtype: Dtype, sum: &mut [u8], next: &[u8]) -> Result<()> {
        let size = dtype.size();
        self.pairs((sum, size), (next, size), || (), |(), _, sum, next| sum::add(dtype, sum, next))
    }

    fn subtract(&self, dtype: Dtype, whole: &[u8], sum: &[u8], out: &mut [u8]) -> Result<()> {
        let size = dtype.size();
        self.pairs(
            (out, size),
            (whole, size),
            || (),
            |(), at, out, whole| {
                sum::subtract(dtype, whole, &sum[at * size..at * size + out.len()], out);
            },
        )
    }
}

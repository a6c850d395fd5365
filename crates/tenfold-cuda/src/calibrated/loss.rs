//! What a blob is predicted to cost a model: the twin of [`Curvature::loss`], over all rows.

use tenfold::calibrated::Curvature;
use tenfold::engine::{Elements, Layered, Scratch};
use tenfold::{DecodeOptions, Dtype};

use super::Size;
use crate::abi::{self, CType, FACTOR_THREADS, FeedOffArgs};
use crate::codec::DeviceCodec;
use crate::device::DeviceSlice;
use crate::driver::{Product, Strides};
use crate::memory::{Memory, Taken};
use crate::pieces::bytes_of;
use crate::prepare::PRODUCT_BYTES;

impl<M: Memory> DeviceCodec<'_, M> {
    /// Decodes a blob and predicts the rise of the loss, ½ · Σ E[g²]ᵢ · δᵢ·E[x·xᵀ]·δᵢᵀ for errors δ.
    pub(super) fn loss(
        &self,
        tensor: &Elements<'_, DeviceSlice>,
        (rows, cols): Size,
        curvature: &Curvature,
        inputs: &[Taken<M::Piece>],
        blob: &Taken<M::Piece>,
    ) -> tenfold::engine::Result<f64> {
        if rows == 0 || cols == 0 || tensor.dtype == Dtype::F64 {
            return self.host_loss(tensor, curvature, blob);
        }
        // 1. What the blob is off by.
        let decoded = self.decode_whole(tensor, blob)?;
        let len = bytes_of(rows, cols, size_of::<f32>())?;
        let (off, product, sums) = (self.take(len)?, self.take(len)?, self.take(rows * size_of::<f64>())?);
        let args = FeedOffArgs {
            original: (*tensor.bytes).into(),
            instead: decoded.slice().into(),
            off: off.slice().into(),
            product: product.slice().into(),
            sums: sums.slice().into(),
            rows: rows as u64,
            columns: cols as u64,
            kind: tensor.dtype.id() as u32,
            ..FeedOffArgs::ZERO
        };
        let shape = self.blocks((rows * cols).div_ceil(FACTOR_THREADS as usize));
        // SAFETY: memory of the codec or its caller, kept until the wait in `read`.
        unsafe { self.device.launch(abi::feed_off, shape, &args, self.stream)? };
        // 2. That times E[x·xᵀ], block by block.
        let scratch = self.take(PRODUCT_BYTES)?;
        let mut first = 0;
        for (block, on_device) in curvature.inputs().iter().zip(inputs) {
            let n = block.cols();
            let at = (first * size_of::<f32>()) as u64;
            let product = Product {
                left: off.slice().address + at,
                right: on_device.slice().address,
                to: product.slice().address + at,
                rows,
                inner: n,
                columns: n,
                workspace: scratch.slice(),
                strides: Some(Strides { left: cols, right: n, to: cols }),
                ..Product::NONE
            };
            if n > 0 {
                // SAFETY: as above; the matrices do not overlap.
                unsafe { self.device.driver.multiply(&product, self.stream)? };
            }
            first += n;
        }
        // 3. Both, multiplied and added up.
        let shape = self.blocks(rows.div_ceil(FACTOR_THREADS as usize / 32));
        // SAFETY: as above.
        unsafe { self.device.launch(abi::feed_sum, shape, &args, self.stream)? };
        let sums = self.read(sums.slice())?;
        let sums = sums.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b));
        let counts = |row: usize| curvature.outputs().map_or(1.0, |o| o[row]);
        Ok(0.5 * sums.enumerate().map(|(row, sum)| counts(row) * sum).sum::<f64>())
    }

    fn decode_whole(
        &self,
        tensor: &Elements<'_, DeviceSlice>,
        blob: &Taken<M::Piece>,
    ) -> tenfold::engine::Result<Taken<M::Piece>> {
        let engine = Layered(self.again());
        let opened = engine.open(&blob.slice(), &DecodeOptions::default())?;
        let out = self.take(tensor.bytes.len)?;
        engine.decode(&opened, &blob.slice(), 0..opened.values, &mut out.slice(), &mut Scratch::default())?;
        Ok(out)
    }

    /// The same on the host, for what errors are not fed back in.
    fn host_loss(
        &self,
        tensor: &Elements<'_, DeviceSlice>,
        curvature: &Curvature,
        blob: &Taken<M::Piece>,
    ) -> tenfold::engine::Result<f64> {
        let (original, instead) =
            (self.read(*tensor.bytes)?, self.read(self.decode_whole(tensor, blob)?.slice())?);
        let view = |bytes| tenfold::TensorView::new(tensor.dtype, tensor.shape, bytes);
        curvature.loss(&view(&original)?, &view(&instead)?)
    }
}

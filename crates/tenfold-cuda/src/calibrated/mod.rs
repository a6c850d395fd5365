//! Weights of linear layers, encoded on a device so that the model loses least: the twin of [`tenfold::calibrated`].
//!
//! `factors` factors what a calibration run knows, `encode::fed` makes passes with feedback, `loss` predicts what a blob costs. It
//! waits for the device, as what comes next depends on what it has found.

mod factors;
mod loss;

use std::cell::OnceCell;

use tenfold::calibrated::{self, Calibrated, Curvature, Matrix, Order};
use tenfold::engine::{Elements, Outcome, Single, meet_goal};
use tenfold::prepare::Preparation;
use tenfold::{Effort, EncodeOptions, Goal, format};

use crate::abi::{self, FACTOR_THREADS, FeedLoadArgs};
use crate::codec::{DeviceCodec, STATUS, outcome};
use crate::device::DeviceSlice;
use crate::driver::Shape;
use crate::encode::{Behind, EncodeRequest, Feed, encode_fed, fed_workspace_len, lane_values};
use crate::error::{Error, Result};
use crate::memory::{Memory, Taken};
use factors::Factors;

/// Rows and columns of a matrix.
type Size = (usize, usize);

impl<M: Memory> DeviceCodec<'_, M> {
    /// Encodes the matrix of a linear layer (outputs × inputs) with the curvature of its options, as [`tenfold::calibrated::encode`]
    /// does, and predicts what that costs the model. Waits.
    pub fn encode_calibrated(
        &self,
        tensor: &Elements<'_, DeviceSlice>,
        options: &EncodeOptions,
    ) -> tenfold::engine::Result<Calibrated<Taken<M::Piece>>> {
        let Some(curvature) = &options.curvature else {
            return Err(tenfold::Error::InvalidArgument("there is no curvature to encode with".into()));
        };
        let cols = tensor.shape.last().copied().unwrap_or(1);
        let rows = tensor.bytes.len / tensor.dtype.size() / cols.max(1);
        let matrix =
            OnDevice { codec: self, tensor, options, curvature, size: (rows, cols), inputs: OnceCell::new() };
        calibrated::encode_with(&matrix, (tensor.dtype, rows, cols), options)
    }

    /// What to multiply a step by so that one number serves a whole model, as [`Curvature::unit`] says, which knows it from then on: a
    /// device factors a large curvature in a fraction of a second. Waits.
    pub fn curvature_unit(&self, curvature: &Curvature) -> tenfold::engine::Result<f64> {
        let inputs = self.upload_inputs(curvature)?;
        Ok(self.factor(curvature, &inputs)?.0.unit())
    }
}

/// A matrix in memory of a device.
struct OnDevice<'c, 'a, M: Memory> {
    codec: &'c DeviceCodec<'a, M>,
    tensor: &'c Elements<'c, DeviceSlice>,
    options: &'c EncodeOptions,
    curvature: &'c Curvature,
    size: Size,
    /// E[x·xᵀ], block by block.
    inputs: OnceCell<Vec<Taken<M::Piece>>>,
}

impl<M: Memory> OnDevice<'_, '_, M> {
    fn inputs(&self) -> Result<&[Taken<M::Piece>]> {
        if let Some(inputs) = self.inputs.get() {
            return Ok(inputs);
        }
        let inputs = self.codec.upload_inputs(self.curvature)?;
        Ok(self.inputs.get_or_init(|| inputs))
    }

    /// Levels with feedback.
    fn attempt(
        &self,
        factors: &Factors<M::Piece>,
        values: DeviceSlice,
        order: Order,
    ) -> Result<Outcome<Taken<M::Piece>>> {
        let (codec, tensor, (outputs, inputs)) = (self.codec, self.tensor, self.size);
        let mut options = self.options.clone().with_prepare(Preparation::None);
        options.curvature = None;
        options.lane_values = lane_values(options.lane_values, outputs * inputs);
        if order == Order::Rows {
            options.effort = Effort::Fast;
        }
        let nu = options.effort.log2_states() as u32;
        let (fed, status) = (codec.take(values.len)?, codec.take(STATUS)?);
        let room = codec.take(format::max_encoded_len(tensor.dtype, tensor.shape)?)?;
        let transforms = factors.steps.transforms(order);
        let stored = codec.upload(&format::transforms(&transforms)?)?;
        let shape = if order == Order::Columns { [inputs, outputs] } else { [outputs, inputs] };
        let mut request = EncodeRequest::new(fed.slice(), tenfold::Dtype::F32, &shape, room.slice(), options);
        request.behind = Some(Behind {
            dtype: tensor.dtype,
            columns: inputs,
            shape: Some(tensor.shape.to_vec()),
            transforms: stored.slice(),
            scales: 0,
            positions: None,
        });
        let feeding = codec.take(Feed::room_len(outputs, nu)?)?;
        let workspace = codec.take(fed_workspace_len(codec.device, &request)?)?;
        let blocks = factors.fed_blocks();
        let feed = Feed { values, blocks: &blocks, outputs, inputs, order, room: feeding.slice() };
        // SAFETY: memory of the codec or its caller, kept until the last wait.
        let said = codec.wait_for(&status, |more| unsafe {
            encode_fed(codec.device, &request, &feed, (status.slice(), workspace.slice()), codec.stream, more)
        })?;
        outcome(codec.fitted(&room, said))
    }

    /// The matrix, weighted, in the order of the blob; nothing if a value is not finite.
    fn weigh(&self, factors: &Factors<M::Piece>, order: Order) -> Result<Option<Taken<M::Piece>>> {
        let (codec, (outputs, inputs)) = (self.codec, self.size);
        let small = |v: usize| {
            u32::try_from(v)
                .map_err(|_| Error::InvalidArgument("a matrix larger than a device feeds errors in".into()))
        };
        let bad = codec.upload(&[0; 4])?;
        let rows = match factors.steps.row_factors() {
            Some(rows) => Some(codec.upload_values(&rows)?),
            None => None,
        };
        let values = codec.take(outputs * inputs * size_of::<f32>())?;
        let args = FeedLoadArgs {
            from: (*self.tensor.bytes).into(),
            to: values.slice().into(),
            columns: factors.columns.slice().into(),
            rows: rows.as_ref().map_or(0, |r| r.slice().address).into(),
            bad: bad.slice().into(),
            outputs: small(outputs)?,
            inputs: small(inputs)?,
            kind: self.tensor.dtype.id() as u32,
            turned: (order == Order::Columns) as u32,
        };
        let squares = outputs.div_ceil(32) * inputs.div_ceil(32);
        // SAFETY: memory of the codec or its caller, kept until the wait below.
        unsafe { codec.device.launch(abi::feed_load, codec.blocks(squares), &args, codec.stream)? };
        Ok((codec.read(bad.slice())? == [0; 4]).then_some(values))
    }
}

impl<M: Memory> DeviceCodec<'_, M> {
    /// Blocks for so much work that any number of them shares.
    pub(crate) fn blocks(&self, work: usize) -> Shape {
        let most = self.device.properties().multiprocessors.max(1) * 8;
        Shape::new(u32::try_from(work).unwrap_or(most).clamp(1, most), FACTOR_THREADS, 0)
    }
}

impl<M: Memory> Matrix for OnDevice<'_, '_, M> {
    type Blob = Taken<M::Piece>;

    fn encode_fed(&self) -> tenfold::engine::Result<Option<Self::Blob>> {
        let (codec, tensor, options) = (self.codec, self.tensor, self.options);
        codec.device.driver.can_multiply()?;
        let order = Order::for_options(options);
        let factors = codec.factor_for(self.curvature, self.inputs()?)?;
        let Some(weighted) = self.weigh(&factors, order)? else { return Ok(None) };
        let mut exactly = options.clone();
        (exactly.goal, exactly.curvature) = (Goal::Lossless, None);
        let values = self.size.0 * self.size.1;
        let met = meet_goal(
            tensor.dtype,
            values,
            options,
            || codec.encode_one(tensor, &exactly),
            || Ok(self.attempt(&factors, weighted.slice(), order)?),
        )?;
        Ok(Some(met))
    }

    fn encode_plain(&self, options: &EncodeOptions) -> tenfold::engine::Result<Self::Blob> {
        self.codec.encode_one(self.tensor, options)
    }

    fn loss(&self, blob: &Self::Blob) -> tenfold::engine::Result<f64> {
        self.codec.loss(self.tensor, self.size, self.curvature, self.inputs()?, blob)
    }
}

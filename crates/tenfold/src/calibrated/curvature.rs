//! What a calibration run knows of a linear layer: how much each error of its weights costs the model.

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::factors::Factors;
use super::steps::Steps;
use crate::error::{Error, Result};
use crate::prepare::{Elements, accumulate};
use crate::simd::Isa;
use crate::view::{Dtype, TensorView};
use crate::workers::Workers;

/// Products of inputs that a loss is computed from; beyond them it is that of some rows.
const MOST_PRODUCTS: usize = 1 << 34;

/// Share of the mean of the diagonal that a channel counts at least: one that was never active has a step all the same.
const FLOOR: f64 = 1e-9;

/// Side of the squares in which products are held against their mirror images.
const SQUARE: usize = 64;

/// Share of two magnitudes by which a product of inputs may differ from its mirror image.
const ASYMMETRY: f32 = 1e-3;

/// The second moments of a linear layer's inputs and of the gradients at its outputs.
///
/// An error δ of the layer's weights (outputs × inputs) is predicted to raise the model's loss by
/// ½ · Σ E[g²]ᵢ · δᵢ·E[x·xᵀ]·δᵢᵀ, where g is the gradient of the loss at output i and x is an input. With
/// [`EncodeOptions::with_curvature`](crate::EncodeOptions::with_curvature) an encoder keeps that small.
///
/// ```
/// use tenfold::calibrated::Curvature;
/// // Two inputs that go together, and one that was never active.
/// let inputs = vec![2.0, 1.9, 0.0, 1.9, 2.0, 0.0, 0.0, 0.0, 0.0];
/// let curvature = Curvature::new(inputs, 3)?.with_outputs(vec![1.0, 4.0])?.with_damping(0.2);
/// assert_eq!(curvature.cols(), 3);
/// assert!(Curvature::new(vec![1.0, f32::NAN, f32::NAN, 1.0], 2).is_err());
/// # Ok::<(), tenfold::Error>(())
/// ```
pub struct Curvature {
    inputs: Vec<Inputs>,
    outputs: Option<Vec<f64>>,
    damping: f64,
    factors: OnceLock<Arc<Factors>>,
    steps: OnceLock<Arc<Steps>>,
}

/// E[x·xᵀ] of neighbouring inputs, row by row.
#[derive(PartialEq)]
pub struct Inputs {
    values: Vec<f32>,
    cols: usize,
}

impl Curvature {
    /// The damping, unless stated otherwise.
    pub const DAMPING: f64 = 0.15;

    /// From E[x·xᵀ] of `cols` inputs, row by row. It must be symmetric, finite, and not negative on its diagonal. Inputs that were
    /// never active have zeros there; their weights get a coarse step.
    pub fn new(inputs: Vec<f32>, cols: usize) -> Result<Curvature> {
        Curvature::from_parts(vec![Inputs::new(inputs, cols)?])
    }

    /// From blocks on the diagonal of E[x·xᵀ], in the order of inputs, for layers that are too wide for all of it. Errors are fed
    /// back within a block only.
    pub fn blocks(blocks: Vec<Vec<f32>>) -> Result<Curvature> {
        let side = |values: Vec<f32>| {
            let cols = values.len().isqrt();
            Inputs::new(values, cols)
        };
        Curvature::from_parts(blocks.into_iter().map(side).collect::<Result<_>>()?)
    }

    fn from_parts(inputs: Vec<Inputs>) -> Result<Curvature> {
        if inputs.iter().all(|i| i.cols == 0) {
            return Err(Error::InvalidArgument("a curvature needs at least one input".into()));
        }
        let damping = Curvature::DAMPING;
        Ok(Curvature { inputs, outputs: None, damping, factors: OnceLock::new(), steps: OnceLock::new() })
    }

    /// Adds E[g²], a number for each output. Without it all outputs count the same.
    pub fn with_outputs(mut self, outputs: Vec<f64>) -> Result<Self> {
        if let Some(bad) = outputs.iter().find(|v| !v.is_finite() || **v < 0.0) {
            return Err(Error::InvalidArgument(format!(
                "E[g²] must be finite and not negative, but one number is {bad}"
            )));
        }
        self.outputs = Some(outputs);
        (self.factors, self.steps) = Default::default();
        Ok(self)
    }

    /// Sets the damping: what is added to each number on the diagonal of E[x·xᵀ], as a share of it, and to each E[g²], as a share of
    /// their mean, which then stays. The fewer tokens there were for each input, the more it should be. Predicted losses are not
    /// damped. Default: [`Curvature::DAMPING`].
    pub fn with_damping(mut self, damping: f64) -> Self {
        self.damping = damping;
        (self.factors, self.steps) = Default::default();
        self
    }

    /// Inputs: columns of the weights.
    pub fn cols(&self) -> usize {
        self.inputs.iter().map(|i| i.cols).sum()
    }

    /// E[g²], if it is known.
    pub fn outputs(&self) -> Option<&[f64]> {
        self.outputs.as_deref()
    }

    /// The damping.
    pub fn damping(&self) -> f64 {
        self.damping
    }

    /// E[x²] of each input: all that importance knows.
    pub fn importance(&self) -> Vec<f64> {
        let diagonal =
            |i: &Inputs| i.values.iter().step_by(i.cols + 1).map(|&v| f64::from(v)).collect::<Vec<_>>();
        self.inputs.iter().flat_map(diagonal).collect()
    }

    /// What to multiply a step by so that one number serves a whole model: with [`Goal::Step`](crate::Goal::Step) of this times the same
    /// number, the last bit buys the same loss in every tensor. An error if E[x·xᵀ] is not positive definite.
    ///
    /// ```
    /// use tenfold::calibrated::Curvature;
    /// // Errors of the second layer cost four times as much: its step is half as large.
    /// let [first, second] = [1.0, 4.0].map(|v| Curvature::new(vec![v, 0.0, 0.0, v], 2).and_then(|c| c.unit()));
    /// assert!((first? / second? - 2.0).abs() < 1e-9);
    /// # Ok::<(), tenfold::Error>(())
    /// ```
    pub fn unit(&self) -> Result<f64> {
        match self.steps.get() {
            Some(steps) => Ok(steps.unit()),
            None => Ok(self.factors(&Workers::current_thread())?.steps.unit()),
        }
    }

    /// The predicted rise of the loss, in nats a token, if one tensor takes the place of another. Of a large tensor it is that of
    /// some rows, shared out by E[g²].
    pub fn loss(&self, original: &TensorView<'_>, instead: &TensorView<'_>) -> Result<f64> {
        self.loss_with(original, instead, &Workers::current_thread())
    }

    pub(super) fn loss_with(
        &self,
        original: &TensorView<'_>,
        instead: &TensorView<'_>,
        workers: &Workers,
    ) -> Result<f64> {
        self.check_shape(original.rows(), original.cols())?;
        if original.shape() != instead.shape() || !original.dtype().is_float() || !instead.dtype().is_float()
        {
            return Err(Error::InvalidArgument(format!(
                "a loss needs two tensors of floats and of one shape, not {} {:?} and {} {:?}",
                original.dtype(),
                original.shape(),
                instead.dtype(),
                instead.shape()
            )));
        }
        const ROWS: usize = 64;
        let (rows, cols) = (original.rows(), original.cols());
        let each: usize = self.inputs.iter().map(|i| i.cols * i.cols).sum();
        let pieces = rows.div_ceil(ROWS);
        let stride = pieces.div_ceil((MOST_PRODUCTS / each.max(1) / ROWS).max(1)).max(1);
        let of_piece = |_: &mut (), i: usize| {
            let first = i * stride * ROWS;
            let range = first..rows.min(first + ROWS);
            let (mut off, got) = (load(original, range.clone()), load(instead, range.clone()));
            off.iter_mut().zip(got).for_each(|(a, b)| *a = if (*a - b).is_finite() { *a - b } else { 0.0 });
            let mut sum = (0.0, 0.0);
            for (row, loss) in range.zip(self.row_losses(&off, cols)) {
                let counts = self.outputs.as_ref().map_or(1.0, |o| o[row]);
                sum = (sum.0 + counts, sum.1 + counts * loss);
            }
            sum
        };
        let found = workers.map(pieces.div_ceil(stride), || (), of_piece)?;
        let (counted, loss) = found.iter().fold((0.0, 0.0), |s, f| (s.0 + f.0, s.1 + f.1));
        let all = self.outputs.as_ref().map_or(rows as f64, |o| o.iter().sum());
        Ok(if counted > 0.0 { 0.5 * loss * all / counted } else { 0.0 })
    }

    /// δ·E[x·xᵀ]·δᵀ of each row.
    fn row_losses(&self, off: &[f32], cols: usize) -> Vec<f64> {
        let mut losses = vec![0.0; off.len() / cols.max(1)];
        let mut first = 0;
        for inputs in self.inputs.iter().filter(|i| i.cols > 0) {
            let n = inputs.cols;
            let part: Vec<f32> =
                off.chunks_exact(cols).flat_map(|row| &row[first..first + n]).copied().collect();
            let mut product = vec![0f32; part.len()];
            accumulate(&part, n, &inputs.values, &mut product);
            for (loss, (a, b)) in losses.iter_mut().zip(part.chunks_exact(n).zip(product.chunks_exact(n))) {
                *loss += a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
            }
            first += n;
        }
        losses
    }

    /// E[x·xᵀ] by blocks of its diagonal, in the order of inputs.
    pub fn inputs(&self) -> &[Inputs] {
        &self.inputs
    }

    /// The steps of a matrix, for an engine that has factored E[x·xᵀ]: `counts` is what an error of each column counts once the columns
    /// behind it answer to it. [`Curvature::unit`] knows them from then on.
    pub fn steps(&self, counts: &[f64]) -> Result<Arc<Steps>> {
        if let Some(steps) = self.steps.get() {
            return Ok(steps.clone());
        }
        let steps = Arc::new(Steps::new(self, counts)?);
        Ok(self.steps.get_or_init(|| steps).clone())
    }

    /// What an engine says that finds no factor at a column.
    pub fn not_positive_definite(&self, column: usize) -> Error {
        Error::InvalidArgument(format!(
            "E[x·xᵀ] is not positive definite at column {column}, even with a damping of {}: it is no mean of products of inputs",
            self.damping
        ))
    }

    /// Checks the damping, before any work.
    pub fn check_damping(&self) -> Result<()> {
        if !(self.damping >= 0.0 && self.damping.is_finite()) {
            return Err(Error::InvalidArgument(format!(
                "the damping of a curvature must be finite and not negative, not {}",
                self.damping
            )));
        }
        Ok(())
    }

    /// Checks that this is the curvature of a matrix of so many rows and columns.
    pub fn check_shape(&self, rows: usize, cols: usize) -> Result<()> {
        if self.cols() != cols {
            return Err(Error::InvalidArgument(format!(
                "the curvature is that of a layer with {} inputs, but the tensor has {cols} columns",
                self.cols()
            )));
        }
        match &self.outputs {
            Some(outputs) if outputs.len() != rows => Err(Error::InvalidArgument(format!(
                "there is E[g²] of {} outputs, but the tensor has {rows} rows",
                outputs.len()
            ))),
            _ => Ok(()),
        }
    }

    /// The factors, made on first use.
    pub(crate) fn factors(&self, workers: &Workers) -> Result<Arc<Factors>> {
        self.check_damping()?;
        if let Some(factors) = self.factors.get() {
            return Ok(factors.clone());
        }
        let factors = Arc::new(Factors::new(self, workers)?);
        Ok(self.factors.get_or_init(|| factors).clone())
    }
}

impl Inputs {
    fn new(values: Vec<f32>, cols: usize) -> Result<Inputs> {
        if values.len() != cols.saturating_mul(cols) {
            return Err(Error::InvalidArgument(format!(
                "E[x·xᵀ] must have a row and a column for each input, but there are {} numbers for {cols} inputs",
                values.len()
            )));
        }
        let at = |r: usize, c: usize| values[r * cols + c];
        // In squares, of which a cache holds two.
        for (top, left) in
            (0..cols).step_by(SQUARE).flat_map(|top| (0..=top).step_by(SQUARE).map(move |left| (top, left)))
        {
            for (r, c) in (top..cols.min(top + SQUARE))
                .flat_map(|r| (left..(r + 1).min(left + SQUARE)).map(move |c| (r, c)))
            {
                let (v, mirrored) = (at(r, c), at(c, r));
                let why = if !v.is_finite() || !mirrored.is_finite() {
                    "is not finite: the activations had NaN or infinities, or their products overflowed"
                } else if r == c && v < 0.0 {
                    "is negative on the diagonal: it is no mean of squares"
                } else if (v - mirrored).abs() > ASYMMETRY * (at(r, r).max(0.0) * at(c, c).max(0.0)).sqrt() {
                    "is not symmetric"
                } else {
                    continue;
                };
                return Err(Error::InvalidArgument(format!("E[x·xᵀ] of inputs {r} and {c} {why}")));
            }
        }
        Ok(Inputs { values, cols })
    }

    /// The numbers, row by row.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// How many inputs.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// What a number on the diagonal is at least, once it is damped.
    pub fn floor(&self) -> f64 {
        let diagonal = self.values.iter().step_by(self.cols + 1).map(|&v| f64::from(v));
        let mean = diagonal.sum::<f64>() / self.cols.max(1) as f64;
        if mean > 0.0 { mean * FLOOR } else { 1.0 }
    }
}

impl PartialEq for Curvature {
    fn eq(&self, other: &Self) -> bool {
        self.inputs == other.inputs && self.outputs == other.outputs && self.damping == other.damping
    }
}

impl fmt::Debug for Curvature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cols, blocks) = (self.cols(), self.inputs.len());
        write!(f, "Curvature of {cols} inputs in {blocks} blocks, damped by {}", self.damping)
    }
}

/// Rows of a tensor of floats.
fn load(view: &TensorView<'_>, rows: std::ops::Range<usize>) -> Vec<f32> {
    let (size, cols) = (view.dtype().size(), view.cols());
    let data = &view.data()[rows.start * cols * size..rows.end * cols * size];
    let mut values = vec![0f32; rows.len() * cols];
    match view.dtype() {
        Dtype::F64 => {
            let mut wide = vec![0f64; values.len()];
            f64::load(Isa::detect(), Dtype::F64, data, &mut wide);
            values.iter_mut().zip(wide).for_each(|(v, w)| *v = w as f32);
        }
        dtype => f32::load(Isa::detect(), dtype, data, &mut values),
    }
    values
}

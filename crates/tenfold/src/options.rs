//! What callers ask for: a goal, an effort, threads, limits.

use std::sync::Arc;

use crate::blob::MAX_LAYERS;
use crate::calibrated::{self, Curvature};
use crate::engine::Stop;
use crate::error::{Error, ErrorKind, Result};
use crate::format::MINOR;
use crate::prepare::{self, Basis, Named, Preparation, Runs, Transform};
use crate::rate::EncodePlan;
use crate::view::{Dtype, TensorView, rows_of};

pub use crate::goal::Goal;

/// How hard the encoder searches. The decoder's work is the same for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Effort {
    /// Scalar quantiser with a rate-distortion choice.
    Fast,
    /// Trellis of 8 states.
    #[default]
    Balanced,
    /// Trellis of 256 states.
    Best,
}

impl Effort {
    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Effort::Fast => "fast",
            Effort::Balanced => "balanced",
            Effort::Best => "best",
        }
    }

    /// log2 of the states of its trellis, 0 for a scalar quantiser; for engines with their own search.
    #[doc(hidden)]
    pub fn log2_states(self) -> u8 {
        match self {
            Effort::Fast => 0,
            Effort::Balanced => 3,
            Effort::Best => 8,
        }
    }
}

/// How to encode. Build with [`EncodeOptions::new`] and the `with_*` setters.
///
/// ```
/// use tenfold::{EncodeOptions, Effort, Goal};
/// let options = EncodeOptions::new(Goal::Bits(2.5)).with_effort(Effort::Best).with_threads(1);
/// assert_eq!(options.effort, Effort::Best);
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct EncodeOptions {
    /// What to reach. No default: a caller always states it.
    pub goal: Goal,
    /// How hard to search. Default: [`Effort::Balanced`].
    pub effort: Effort,
    /// Worker threads; 0 (the default) uses the current rayon pool, that is all cores.
    pub threads: usize,
    /// Values coded by one lane of a tile; 0 (the default) lets the encoder choose. Fewer values give more lanes and
    /// tiles (good for a GPU and for reading single rows) at about 24 bits a lane.
    pub lane_values: u32,
    /// Newest minor version of the bitstream that all readers of the blob know. Default: [`format::MINOR`](crate::format::MINOR).
    /// With 0, levels are not coded in pairs, which readers before 1.1 do not know; with 0 or 1, no tensor is transposed.
    pub minor: u8,
    /// Transforms of the values before they are quantised; lossless blobs ignore them. The error of a goal is that of the
    /// transformed values. Default: at [`Effort::Balanced`] and [`Effort::Best`] the transforms that save the most bits,
    /// if they save more than [`prepare::LEAST_GAIN`] a value; none at [`Effort::Fast`], or if the goal bounds the error
    /// of each value.
    pub prepare: Preparation,
    /// Goals of further layers, each for the error of the layers before it. Default: none.
    pub residual: Vec<Goal>,
    /// What errors of the tensor cost the model it belongs to, from a calibration run. Default: none.
    pub curvature: Option<Arc<Curvature>>,
    /// What was settled for a tensor like this one: saves most of the search. Default: none.
    pub plan: Option<EncodePlan>,
    /// Ends the work early; looked at between tiles. Default: none.
    pub stop: Stop,
}

impl EncodeOptions {
    /// Options for a goal, everything else at its default.
    pub fn new(goal: Goal) -> Self {
        EncodeOptions {
            goal,
            effort: Effort::default(),
            threads: 0,
            lane_values: 0,
            minor: MINOR,
            prepare: Preparation::default(),
            residual: Vec::new(),
            curvature: None,
            plan: None,
            stop: Stop::default(),
        }
    }

    /// Sets the effort.
    pub fn with_effort(mut self, effort: Effort) -> Self {
        self.effort = effort;
        self
    }

    /// Sets the number of threads; 0 means all cores.
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Sets the values a lane; 0 means automatic.
    pub fn with_lane_values(mut self, lane_values: u32) -> Self {
        self.lane_values = lane_values;
        self
    }

    /// Sets the newest minor version of the bitstream that readers know.
    pub fn with_minor(mut self, minor: u8) -> Self {
        self.minor = minor;
        self
    }

    /// Sets what is done to the values before they are quantised.
    pub fn with_prepare(mut self, prepare: Preparation) -> Self {
        self.prepare = prepare;
        self
    }

    /// Sets the transforms that are done to the values before they are quantised, in this order; nothing is done if there are
    /// none.
    ///
    /// ```
    /// use tenfold::prepare::{Transform, Weights};
    /// use tenfold::{EncodeOptions, Goal, TensorView};
    /// let values: Vec<f32> = (0..4096).map(|i| (i as f32 * 0.7).sin()).collect();
    /// let view = TensorView::from_slice(&values, &[64, 64])?;
    /// // Mean squares of what each column will be multiplied with.
    /// let importance: Vec<f64> = (1..=64).map(f64::from).collect();
    /// let weights = Transform::Weights(Weights::from_importance(&importance)?);
    /// let options = EncodeOptions::new(Goal::Bits(3.0)).with_transforms(vec![weights]);
    /// let info = tenfold::inspect(&tenfold::encode(&view, &options)?)?;
    /// assert!(matches!(info.transforms[..], [Transform::Weights(_)]));
    /// # Ok::<(), tenfold::Error>(())
    /// ```
    pub fn with_transforms(self, transforms: Vec<Transform>) -> Self {
        self.with_prepare(Preparation::from(transforms))
    }

    /// The transforms for a tensor, as [`EncodeOptions::prepare`] has them; an error if they do not fit it.
    pub fn transforms(&self, view: &TensorView<'_>) -> Result<Vec<Transform>> {
        let transforms = match &self.curvature {
            Some(curvature) => calibrated::transforms(curvature, view, self)?,
            None => self.prepare.resolve(view, self)?,
        };
        prepare::check(&transforms, view.rows(), view.cols())?;
        Ok(transforms)
    }

    /// The same for a tensor in memory that takes time to reach, of which `gather` brings the elements where some rows cross some
    /// columns, row by row. A few are enough to find transforms, and the means are then those of some rows.
    pub fn remote_transforms(
        &self,
        dtype: Dtype,
        shape: &[usize],
        gather: impl Fn(Runs, Runs) -> Result<Vec<u8>>,
    ) -> Result<Vec<Transform>> {
        if self.curvature.is_some() {
            return Err(Error::Engine {
                kind: ErrorKind::Unsupported,
                reason: "a curvature has no transforms before it is factored; use an engine that feeds errors back".into(),
            });
        }
        let transforms = self.prepare.resolve_remote(dtype, shape, self, gather)?;
        prepare::check(&transforms, rows_of(shape), shape.last().copied().unwrap_or(1))?;
        Ok(transforms)
    }

    /// Adds a layer: the error of the layers before it, coded with its own goal. A reader adds them up, or
    /// takes the first ones for a coarser tensor ([`DecodeOptions::with_layers`]).
    ///
    /// The size of a goal is that of its layer alone. Its error is that of the sum up to its layer; relative errors are
    /// relative to the values that the layer codes. Transforms apply to the first layer only. A blob has at most eight
    /// layers, of floats, none with a lossless goal.
    ///
    /// ```
    /// use tenfold::{DecodeOptions, EncodeOptions, Goal, TensorView};
    /// let values: Vec<f32> = (0..8192).map(|i| (i as f32 * 0.7).sin()).collect();
    /// let view = TensorView::from_slice(&values, &[64, 128])?;
    /// let options = EncodeOptions::new(Goal::Bits(3.5)).with_residual(Goal::RoundToNearest { bits: 8 });
    /// let blob = tenfold::encode(&view, &options)?;
    /// assert_eq!(tenfold::inspect(&blob)?.layers.len(), 2);
    /// let coarse = tenfold::decode(&blob, &DecodeOptions::default().with_layers(1))?.to_vec::<f32>()?;
    /// let fine = tenfold::decode(&blob, &DecodeOptions::default())?.to_vec::<f32>()?;
    /// let off = |got: &[f32]| values.iter().zip(got).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
    /// assert!(off(&fine) < off(&coarse) / 100.0);
    /// # Ok::<(), tenfold::Error>(())
    /// ```
    pub fn with_residual(mut self, goal: Goal) -> Self {
        self.residual.push(goal);
        self
    }

    /// Sets the curvature: the tensor is the matrix of a linear layer (outputs × inputs), and its errors are steered to where they
    /// cost the model least. Takes the place of transforms, and goes with [`Goal::Bits`], [`Goal::Ratio`], [`Goal::MaxBytes`] and
    /// [`Goal::Step`], whose step is that of weighted values. [`calibrated::encode`](crate::calibrated::encode) says what came of it.
    pub fn with_curvature(mut self, curvature: Arc<Curvature>) -> Self {
        self.curvature = Some(curvature);
        self
    }

    /// Sets a plan that was settled for a tensor like this one. It goes with tensors of one layer.
    pub fn with_plan(mut self, plan: EncodePlan) -> Self {
        self.plan = Some(plan);
        self
    }

    /// Sets the switch that ends the work early.
    pub fn with_stop(mut self, stop: Stop) -> Self {
        self.stop = stop;
        self
    }

    /// Checks the goals' numbers once, before any work.
    pub fn validate(&self) -> Result<()> {
        self.goal.validate()?;
        self.residual.iter().try_for_each(|goal| goal.validate())?;
        if self.residual.len() >= MAX_LAYERS {
            return Err(Error::InvalidArgument(format!(
                "{} residuals are too many: a blob has at most {MAX_LAYERS} layers, and the first is no residual",
                self.residual.len()
            )));
        }
        if self.plan.is_some() && (!self.residual.is_empty() || self.curvature.is_some()) {
            return Err(Error::InvalidArgument(
                "a plan is of one layer without a curvature; leave it out, or the residuals and the curvature".into(),
            ));
        }
        if !self.residual.is_empty()
            && (self.residual.contains(&Goal::Lossless) || self.goal == Goal::Lossless)
        {
            return Err(Error::InvalidArgument(
                "a layered blob cannot be lossless: its layers are added in floating point; leave out the residuals or state another goal".into(),
            ));
        }
        if self.goal.bounds_each_value() && matches!(self.prepare, Preparation::Chain(_)) {
            return Err(Error::InvalidArgument(
                "transforms, importance among them, cannot bound the error of each value; use another goal"
                    .into(),
            ));
        }
        if let Some(curvature) = &self.curvature {
            curvature.check_damping()?;
            let sized = matches!(
                self.goal,
                Goal::Bits(_) | Goal::Ratio(_) | Goal::MaxBytes(_) | Goal::Step(_) | Goal::Lossless
            );
            if !sized || !self.residual.is_empty() || self.prepare.is_asked() {
                return Err(Error::InvalidArgument(
                    "a curvature goes with the goals bits, ratio, max_bytes and step, and neither with residuals nor with transforms or importance"
                        .into(),
                ));
            }
        }
        let turned = |named: &Named| *named == Named::Fixed(Transform::Transposed);
        if self.minor < 2 && self.prepare.stated().iter().any(turned) {
            return Err(Error::InvalidArgument(
                "readers before version 1.2 of the bitstream know no transposition; leave it out or write for newer ones".into(),
            ));
        }
        if self.minor > MINOR {
            return Err(Error::InvalidArgument(format!(
                "this build writes minor versions up to {MINOR} of the bitstream, not {}",
                self.minor
            )));
        }
        if self.lane_values != 0 && !(32..=65536).contains(&self.lane_values) {
            return Err(Error::InvalidArgument(format!(
                "lane_values must be between 32 and 65536, not {}",
                self.lane_values
            )));
        }
        Ok(())
    }
}

/// How to decode.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DecodeOptions {
    /// Worker threads; 0 (the default) uses the current rayon pool, that is all cores.
    pub threads: usize,
    /// What a blob may ask for.
    pub limits: Limits,
    /// Bases that blobs may name. Default: none.
    pub bases: Vec<Arc<Basis>>,
    /// Layers of a layered blob to decode, from the first on; 0 (the default) decodes all. The others are not read.
    pub layers: usize,
    /// Ends the work early; looked at between tiles. Default: none.
    pub stop: Stop,
}

impl DecodeOptions {
    /// Sets the number of threads; 0 means all cores.
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Sets the bases that blobs may name.
    pub fn with_bases(mut self, bases: Vec<Arc<Basis>>) -> Self {
        self.bases = bases;
        self
    }

    /// Sets how many layers to decode; 0 means all.
    pub fn with_layers(mut self, layers: usize) -> Self {
        self.layers = layers;
        self
    }

    /// Sets the limits.
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the switch that ends the work early.
    pub fn with_stop(mut self, stop: Stop) -> Self {
        self.stop = stop;
        self
    }
}

/// What a blob may ask of a decoder; checked before memory is allocated.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of the decoded tensor. Default: 64 GiB.
    pub max_bytes: u64,
    /// Dimensions of a tensor. Default: 16.
    pub max_dims: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { max_bytes: 64 << 30, max_dims: 16 }
    }
}

impl Limits {
    /// Sets the most bytes a decoded tensor may take.
    pub fn with_max_bytes(mut self, max_bytes: u64) -> Self {
        self.max_bytes = max_bytes;
        self
    }
}

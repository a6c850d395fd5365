//! What a caller may ask of [`compress`](crate::compress).

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use tenfold::calibrated::Curvature;
use tenfold::engine::{SharedEngine, Stop};
use tenfold::prepare::Preparation;
use tenfold::{Effort, Goal};
use tenfold_pipeline::Timeline;

use super::calibration::Calibration;
use super::importance::Importance;
use super::recipe::{Recipe, Treatment};
use crate::error::{Error, Result};
use crate::parts::PartStore;

/// How a model-wide number of bits a value is shared among the tensors.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub enum Alloc {
    /// The same bits for each.
    #[default]
    Equal,
    /// The same quantiser step for each: least squared error over the model for its size.
    Step,
    /// Bits where they lower the model's loss the most, by a calibration. Tensors that it does not know get the same bits each.
    Loss,
    /// This many more bits for each layer of the model than for the one before; the average over all values is met.
    Ramp(f64),
}

impl fmt::Display for Alloc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Alloc::Equal => f.write_str("equal"),
            Alloc::Step => f.write_str("step"),
            Alloc::Loss => f.write_str("loss"),
            Alloc::Ramp(slope) => write!(f, "ramp={slope}"),
        }
    }
}

impl FromStr for Alloc {
    type Err = String;

    fn from_str(text: &str) -> Result<Alloc, String> {
        let slope = |text: &str| text.parse::<f64>().ok().filter(|slope| slope.is_finite());
        match text.split_once('=') {
            None if text == "equal" => Ok(Alloc::Equal),
            None if text == "step" => Ok(Alloc::Step),
            None if text == "loss" => Ok(Alloc::Loss),
            Some(("ramp", number)) => slope(number)
                .map(Alloc::Ramp)
                .ok_or_else(|| format!("{number:?} is not a number of bits a layer")),
            _ => Err(format!("{text:?} is not an allocation; use one of equal, step, loss, ramp=K")),
        }
    }
}

/// How to compress a model.
///
/// ```
/// use tenfold::{Effort, Goal};
/// use tenfold_archive::CompressOptions;
/// let options = CompressOptions::new(Goal::Bits(3.0)).with_effort(Effort::Best).with_exclude("lm_head.*");
/// assert_eq!(options.exclude, ["lm_head.*"]);
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CompressOptions {
    /// Goal for tensors that no entry of the recipe matches. Default: the recipe's `[default]`.
    pub goal: Option<Goal>,
    /// How hard to search. Default: the recipe's `[default]`, or else balanced.
    pub effort: Option<Effort>,
    /// Worker threads; 0 (the default) uses all cores.
    pub threads: usize,
    /// How `Goal::Bits` is shared among tensors. Default: equal.
    pub alloc: Alloc,
    /// Globs of names to compress although the default rule skips them. Default: none.
    pub include: Vec<String>,
    /// Globs of names to leave unchanged, whatever else matches them. Default: none.
    pub exclude: Vec<String>,
    /// Goals by tensor. Default: none.
    pub recipe: Option<Recipe>,
    /// How much errors in each column of a tensor count. Default: all the same.
    pub importance: Importance,
    /// What errors of weights cost the model. Default: unknown.
    pub calibration: Option<Arc<Calibration>>,
    /// Goal for all weights of the calibration together, instead of bits: how much the model's loss may rise, in nats a token.
    /// Tensors that it does not know need a goal of their own, or stay as they are. Default: none.
    pub loss: Option<f64>,
    /// Files with blobs that the caller has encoded, by tensor; `exclude` does not concern these. Default: none.
    pub made: BTreeMap<String, PathBuf>,
    /// Blobs that parts have made; these are taken for all tensors that are encoded. Default: none.
    pub(crate) parts: Option<Arc<PartStore>>,
    /// Transforms of tensors before they are quantised. Default: as in [`tenfold::EncodeOptions::prepare`], except for
    /// tensors with importance, which is their transform.
    pub prepare: Preparation,
    /// Goals of further layers of lossily coded tensors, as in [`tenfold::EncodeOptions::residual`]. Default: none.
    pub residual: Vec<Goal>,
    /// Newest minor version of the bitstream that readers know, as in [`tenfold::EncodeOptions::minor`]. Default: the newest there is.
    pub minor: Option<u8>,
    /// Whether an existing output may be replaced. Default: no.
    pub overwrite: bool,
    /// What makes the blobs. Default: the CPU.
    pub engine: SharedEngine,
    /// Ends the work early, and nothing is written then. Looked at between tiles. Default: none.
    pub stop: Stop,
    /// Where it is recorded when tensors were read, encoded and written. Default: a record of its own.
    pub timeline: Timeline,
}

impl CompressOptions {
    /// Options for one goal, everything else at its default.
    pub fn new(goal: Goal) -> Self {
        CompressOptions { goal: Some(goal), ..Default::default() }
    }

    /// Sets the effort.
    pub fn with_effort(mut self, effort: Effort) -> Self {
        self.effort = Some(effort);
        self
    }

    /// Sets the number of threads; 0 means all cores.
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Sets how bits are shared.
    pub fn with_alloc(mut self, alloc: Alloc) -> Self {
        self.alloc = alloc;
        self
    }

    /// Adds a glob of names to compress.
    pub fn with_include(mut self, glob: impl Into<String>) -> Self {
        self.include.push(glob.into());
        self
    }

    /// Adds a glob of names to leave.
    pub fn with_exclude(mut self, glob: impl Into<String>) -> Self {
        self.exclude.push(glob.into());
        self
    }

    /// Sets the recipe.
    pub fn with_recipe(mut self, recipe: Recipe) -> Self {
        self.recipe = Some(recipe);
        self
    }

    /// Sets what errors of weights cost the model.
    pub fn with_calibration(mut self, calibration: Calibration) -> Self {
        self.calibration = Some(Arc::new(calibration));
        self
    }

    /// Sets how much the loss may rise, in nats a token.
    pub fn with_loss(mut self, loss: f64) -> Self {
        (self.loss, self.alloc) = (Some(loss), Alloc::Loss);
        self
    }

    /// Sets files with blobs that the caller has encoded.
    pub fn with_made(mut self, made: BTreeMap<String, PathBuf>) -> Self {
        self.made = made;
        self
    }

    /// Sets the importance of columns.
    pub fn with_importance(mut self, importance: Importance) -> Self {
        self.importance = importance;
        self
    }

    /// Adds a layer to lossily coded tensors: the error so far, as in [`tenfold::EncodeOptions::with_residual`].
    pub fn with_residual(mut self, goal: Goal) -> Self {
        self.residual.push(goal);
        self
    }

    /// Sets what is done to tensors before they are quantised.
    pub fn with_prepare(mut self, prepare: Preparation) -> Self {
        self.prepare = prepare;
        self
    }

    /// What a calibration knows of a tensor.
    pub(crate) fn curvature(&self, name: &str) -> Result<Option<Arc<Curvature>>> {
        self.calibration.as_ref().map_or(Ok(None), |calibration| calibration.curvature(name))
    }

    /// What is done to a tensor: what its importance asks for, or what is done to all.
    pub(crate) fn preparation(&self, name: &str) -> Preparation {
        self.importance.weights(name).map_or_else(|| self.prepare.clone(), |weights| vec![weights].into())
    }

    /// Sets what makes the blobs.
    pub fn with_engine(mut self, engine: SharedEngine) -> Self {
        self.engine = engine;
        self
    }

    /// Sets the switch that ends the work early.
    pub fn with_stop(mut self, stop: Stop) -> Self {
        self.stop = stop;
        self
    }

    /// Sets where it is recorded what happened when.
    pub fn with_timeline(mut self, timeline: Timeline) -> Self {
        self.timeline = timeline;
        self
    }

    /// Sets whether an existing output may be replaced.
    pub fn with_overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// The treatment of tensors that no entry of the recipe matches.
    pub(crate) fn fallback(&self) -> Option<Treatment> {
        let stated = self.recipe.as_ref().and_then(|recipe| recipe.default);
        self.goal.map(Treatment::Goal).or(stated.map(|default| default.treatment))
    }

    pub(crate) fn model_goal(&self) -> Option<Goal> {
        match self.fallback() {
            Some(Treatment::Goal(goal)) => Some(goal),
            _ => None,
        }
    }

    pub(crate) fn default_effort(&self) -> Effort {
        let stated =
            self.recipe.as_ref().and_then(|recipe| recipe.default).and_then(|default| default.effort);
        self.effort.or(stated).unwrap_or_default()
    }

    pub(crate) fn validate(&self) -> Result<()> {
        if self.fallback().is_none() && self.loss.is_none() {
            return Err(Error::InvalidArgument(
                "no goal: state one for the model, or give a recipe with a [default]".into(),
            ));
        }
        if (self.alloc == Alloc::Loss || self.loss.is_some()) && self.calibration.is_none() {
            return Err(Error::InvalidArgument(
                "what an error costs the model is known from a calibration: state one, or another allocation"
                    .into(),
            ));
        }
        if let Some(loss) = self.loss
            && !(loss > 0.0 && loss.is_finite() && self.alloc == Alloc::Loss)
        {
            return Err(Error::InvalidArgument(format!(
                "the loss may rise by a positive number of nats a token, with allocation loss; not by {loss} with {}",
                self.alloc
            )));
        }
        if self.calibration.is_some() && (self.prepare.is_asked() || !self.importance.is_empty()) {
            return Err(Error::InvalidArgument(
                "a calibration takes the place of importance and transforms; leave out one of the two".into(),
            ));
        }
        if self.prepare.is_asked() && !self.importance.is_empty() {
            return Err(Error::InvalidArgument(
                "importance is a transform itself and cannot be combined with others; leave out one of the two".into(),
            ));
        }
        Ok(())
    }
}

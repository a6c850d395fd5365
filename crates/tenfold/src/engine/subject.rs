//! A tensor on its way to blobs, prepared once for any number of goals.

use std::sync::OnceLock;

use super::host::Host;
use super::layered::{Elements, Layered};
use super::{Outcome, meet_goal};
use crate::blob::Parts;
use crate::calibrated;
use crate::error::Result;
use crate::lossless;
use crate::options::{Effort, EncodeOptions, Goal};
use crate::prepare::{Preparation, Prepared, Transform};
use crate::rate::{self, Label, Target};
use crate::view::TensorView;
use crate::workers::Workers;

/// A tensor whose transforms are done once, however many blobs are made of it.
///
/// ```
/// use tenfold::engine::Subject;
/// use tenfold::{Effort, EncodeOptions, Goal, TensorView};
/// let values: Vec<f32> = (0..8192).map(|i| (i as f32 * 0.7).sin()).collect();
/// let view = TensorView::from_slice(&values, &[128, 64])?;
/// let subject = Subject::new(&view, &EncodeOptions::new(Goal::Lossless))?;
/// let coarse = subject.estimate_bits(0.5, Effort::Fast)?;
/// assert!(coarse < subject.estimate_bits(0.1, Effort::Fast)?);
/// let blob = subject.encode(&EncodeOptions::new(Goal::Step(0.5)))?;
/// assert!(blob.len() < 8192);
/// # Ok::<(), tenfold::Error>(())
/// ```
pub struct Subject<'a> {
    view: TensorView<'a>,
    transforms: Vec<Transform>,
    /// Whether the caller stated them; otherwise they may be left out.
    stated: bool,
    /// Made on first use: lossless blobs do not need it.
    prepared: OnceLock<Prepared>,
}

impl<'a> Subject<'a> {
    /// A tensor and the transforms that some options have for it.
    pub fn new(view: &TensorView<'a>, options: &EncodeOptions) -> Result<Self> {
        options.validate()?;
        let (transforms, stated) =
            (options.transforms(view)?, matches!(options.prepare, Preparation::Chain(_)));
        Ok(Subject { view: *view, transforms, stated, prepared: OnceLock::new() })
    }

    /// Encodes the tensor. Goals, effort, lanes and threads are those of the options, the transforms are the subject's own. Goals
    /// that bound the error of each value leave out transforms that were not stated, and refuse others.
    pub fn encode(&self, options: &EncodeOptions) -> Result<Vec<u8>> {
        self.encode_parts(options)?.into_blob()
    }

    /// The same, the blob left in parts.
    pub fn encode_parts(&self, options: &EncodeOptions) -> Result<Parts> {
        if options.curvature.is_some() {
            return Ok(calibrated::encode_parts(&self.view, options)?.blob);
        }
        let plain = options.goal.bounds_each_value() && !self.stated;
        let transforms = if plain { &[][..] } else { &self.transforms };
        let mut options = options.clone().with_prepare(Preparation::from(transforms.to_vec()));
        options.validate()?;
        let workers = Workers::new(options.threads, &options.stop)?;
        if !options.residual.is_empty() {
            let view = &self.view;
            let tensor = Elements { dtype: view.dtype(), shape: view.shape(), bytes: view.data() };
            let pieces = Layered(Host(workers.clone())).encode(&tensor, &options)?;
            return Ok(Parts::new(pieces.header, pieces.layers, &workers));
        }
        options.goal = rate::plain_goal(&self.view, options.goal, &workers)?;
        meet_goal(
            self.view.dtype(),
            self.view.len(),
            &options,
            || lossless::encode(&self.view, options.lane_values, &workers),
            || match self.lossy(transforms, &options, &workers)? {
                // What nobody asked for must not be in the way of a goal.
                Outcome::Failed(_) if !self.stated && !transforms.is_empty() => {
                    self.lossy(&[], &options, &workers)
                }
                outcome => Ok(outcome),
            },
        )
    }

    /// Bits a value that the tensor would take at a step and an effort, from a sample of its values.
    pub fn estimate_bits(&self, step: f64, effort: Effort) -> Result<f64> {
        EncodeOptions::new(Goal::Step(step)).validate()?;
        let view = &self.view;
        if !view.dtype().is_float() || view.is_empty() {
            return Ok(view.dtype().size() as f64 * 8.0);
        }
        if self.transforms.is_empty() {
            return rate::estimate(view, &Label::new(view, &[])?, step, effort);
        }
        let prepared = self.prepare(&Workers::current_thread())?;
        let label = Label::new(view, &prepared.transforms)?;
        let worked = prepared.view()?;
        Ok(rate::estimate(&worked, &label, step, effort)? * worked.len() as f64 / view.len() as f64)
    }

    /// log2 of the deviation of each coded column, taken as Gaussian, from which a search for a step may start. One
    /// number for all values if the tensor has no meaningful columns.
    pub fn column_scales(&self) -> Result<Vec<f64>> {
        let workers = Workers::current_thread();
        match self.transforms.is_empty() {
            true => rate::column_scales(&self.view, &workers),
            false => rate::column_scales(&self.prepare(&workers)?.view()?, &workers),
        }
    }

    /// What is quantised, behind the transforms; nothing if the tensor has no floats.
    pub fn worked_values(&self) -> Result<Vec<f64>> {
        let found = match self.transforms.is_empty() {
            true => self.view.to_f64(),
            false => self.prepare(&Workers::current_thread())?.view()?.to_f64(),
        };
        Ok(found.unwrap_or_default())
    }

    fn prepare(&self, workers: &Workers) -> Result<&Prepared> {
        if let Some(prepared) = self.prepared.get() {
            return Ok(prepared);
        }
        let prepared = Prepared::new(&self.view, &self.transforms, workers)?;
        Ok(self.prepared.get_or_init(|| prepared))
    }

    /// Tries a lossy goal behind the subject's transforms, or behind none.
    fn lossy(&self, transforms: &[Transform], options: &EncodeOptions, workers: &Workers) -> Result<Outcome> {
        let view = &self.view;
        if transforms.is_empty() {
            let Some(target) = Target::from_goal(options.goal, view) else {
                return Ok(Outcome::Failed(None));
            };
            return rate::encode(view, &Label::new(view, &[])?, options, workers, target);
        }
        let prepared = self.prepare(workers)?;
        if !prepared.finite {
            return Ok(Outcome::Failed(None));
        }
        let size = (view.rows(), view.cols());
        let look = || rate::Look::with(view, workers).map(Some);
        let goal = rate::goal_behind(transforms, options.goal, size, prepared.lost, look)?;
        let Some(target) = goal.and_then(|goal| Target::from_goal(goal, view)) else {
            return Ok(Outcome::Failed(None));
        };
        let label = Label::new(view, &prepared.transforms)?;
        rate::encode(&prepared.view()?, &label, options, workers, target)
    }
}

impl std::fmt::Debug for Subject<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (shape, transforms) = (self.view.shape(), self.transforms.len());
        write!(f, "Subject of shape {shape:?} behind {transforms} transforms")
    }
}

/// Bits a value that a tensor, prepared with these transforms, would take at a step and an effort, from a sample of its values.
/// Meant for sharing one budget among many tensors.
pub fn estimate_bits(
    view: &TensorView<'_>,
    step: f64,
    effort: Effort,
    transforms: &[Transform],
) -> Result<f64> {
    let options = EncodeOptions::new(Goal::Step(step)).with_transforms(transforms.to_vec());
    Subject::new(view, &options)?.estimate_bits(step, effort)
}

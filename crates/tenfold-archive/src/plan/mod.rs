//! What happens to each tensor of a model: left as it is, or encoded with a goal.
//!
//! The plan is made from names, dtypes and shapes alone ([`rule`], [`recipe`], [`ramp`]); only one step for
//! all tensors ([`step`]) needs a look at their values.

mod calibration;
mod curve;
mod importance;
mod loss;
mod options;
mod ramp;
mod recipe;
mod rule;
mod step;

use tenfold::{Effort, Goal};

use crate::error::{Error, Result};
use crate::model::Model;

pub use calibration::Calibration;
pub use importance::Importance;
pub(crate) use loss::LossSearch;
pub use options::{Alloc, CompressOptions};
pub use recipe::Recipe;
pub(crate) use rule::is_worth_it;
pub(crate) use step::StepSearch;

/// What happens to a tensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Action {
    /// It is written as it was.
    Copy,
    /// It becomes a blob.
    Encode {
        goal: Goal,
        effort: Effort,
        /// Whether it takes part in the model-wide budget of bits.
        shared: bool,
    },
}

impl Action {
    pub fn is_encode(&self) -> bool {
        matches!(self, Action::Encode { .. })
    }

    pub fn is_shared(&self) -> bool {
        matches!(self, Action::Encode { shared: true, .. })
    }
}

/// Bits a value for the model, if that is the goal.
pub(crate) fn model_bits(options: &CompressOptions) -> Option<f64> {
    match options.model_goal() {
        Some(Goal::Bits(bits)) => Some(bits),
        _ => None,
    }
}

/// The plan for a model, one action a tensor. With [`Alloc::Step`] the goals of the tensors that share the
/// budget are still those of [`Alloc::Equal`].
pub(crate) fn plan(model: &Model, options: &CompressOptions) -> Result<Vec<Action>> {
    options.validate()?;
    options.importance.check(&model.items)?;
    if let Some(calibration) = &options.calibration {
        calibration.check(&model.items)?;
    }
    if let Some(name) = options.made.keys().find(|name| !model.items.iter().any(|item| item.name == **name)) {
        return Err(Error::InvalidArgument(format!(
            "there is a blob for tensor {name:?}, which the model does not have"
        )));
    }
    let rules = rule::Rules::new(options)?;
    let mut actions: Vec<Action> = model.items.iter().map(|item| rules.action(item)).collect();
    match (options.alloc, model_bits(options)) {
        (Alloc::Ramp(slope), Some(bits)) => ramp::apply(&model.items, &mut actions, slope, bits),
        (Alloc::Equal | Alloc::Step, Some(_)) | (Alloc::Equal, None) => {}
        (Alloc::Loss, Some(_)) => share_by_loss(model, options, &mut actions),
        (Alloc::Loss, None) if options.loss.is_some() => share_by_loss(model, options, &mut actions),
        (alloc, None) => {
            return Err(Error::InvalidArgument(format!(
                "allocation {alloc} shares bits among tensors; it needs bits as the goal for the model"
            )));
        }
    }
    Ok(actions)
}

/// Leaves out tensors of which nobody knows what an error costs: bits cannot be weighed against it there.
fn share_by_loss(model: &Model, options: &CompressOptions, actions: &mut [Action]) {
    for (action, item) in actions.iter_mut().zip(&model.items) {
        if let Action::Encode { shared, .. } = action {
            *shared &= options.calibration.as_ref().is_some_and(|c| c.knows(&item.name));
        }
    }
}

//! Which tensors are compressed, and with which goal.
//!
//! Tensors that the caller has encoded already are taken as they are. For all others, in order: `exclude` wins over everything; then the first entry of the recipe that matches; then the goal
//! for the model. Without `include`, only tensors worth it are taken: at least two dimensions and 4,096
//! values, floats or, where the goal is lossless, integers too. Integers are never coded lossily.

use globset::{Glob, GlobSet, GlobSetBuilder};
use tenfold::Goal;

use super::Action;
use super::options::CompressOptions;
use super::recipe::Treatment;
use crate::error::{Error, Result};
use crate::model::Item;
use crate::safetensors::codec_dtype;

/// Fewest dimensions of a tensor that is compressed by default: vectors are small and sensitive.
const MIN_DIMS: usize = 2;
/// Fewest values of a tensor that is compressed by default: below, the blob's header takes its share.
const MIN_VALUES: u64 = 4096;

/// Whether tensors of a shape are compressed by default.
pub(crate) fn is_worth_it(shape: &[usize]) -> bool {
    shape.len() >= MIN_DIMS && shape.iter().fold(1u64, |n, &d| n.saturating_mul(d as u64)) >= MIN_VALUES
}

/// The rules, ready to be asked.
pub(crate) struct Rules<'a> {
    options: &'a CompressOptions,
    include: GlobSet,
    exclude: GlobSet,
}

impl<'a> Rules<'a> {
    pub fn new(options: &'a CompressOptions) -> Result<Self> {
        Ok(Rules {
            options,
            include: compile_globs(&options.include)?,
            exclude: compile_globs(&options.exclude)?,
        })
    }

    pub fn action(&self, item: &Item) -> Action {
        let Some(dtype) = codec_dtype(item.dtype) else {
            return Action::Copy;
        };
        let calibrated = self.options.calibration.as_ref().is_some_and(|c| c.knows(&item.name));
        if self.options.loss.is_some() && calibrated && dtype.is_float() && !self.exclude.is_match(&item.name)
        {
            let effort = self.options.default_effort();
            return Action::Encode { goal: Goal::Step(1.0), effort, shared: true };
        }
        if self.options.made.contains_key(&item.name) {
            let goal = self.options.model_goal().unwrap_or(Goal::Lossless);
            return Action::Encode { goal, effort: self.options.default_effort(), shared: false };
        }
        if self.exclude.is_match(&item.name) {
            return Action::Copy;
        }
        let entries = self.options.recipe.iter().flat_map(|recipe| &recipe.entries);
        let entry = entries.into_iter().find(|entry| entry.matcher.is_match(&item.name));
        let treatment = entry.map(|entry| entry.treatment).or_else(|| self.options.fallback());
        let Some(Treatment::Goal(goal)) = treatment else {
            return Action::Copy;
        };

        let included = self.include.is_match(&item.name) || entry.is_some_and(|entry| entry.include);
        let worth_it = is_worth_it(&item.shape);
        let exact = goal == Goal::Lossless;
        if !included && !(worth_it && (dtype.is_float() || exact)) {
            return Action::Copy;
        }
        let effort = entry.and_then(|entry| entry.effort).unwrap_or(self.options.default_effort());
        if dtype.is_float() {
            let shared = entry.is_none() && matches!(goal, Goal::Bits(_));
            Action::Encode { goal, effort, shared }
        } else {
            Action::Encode { goal: Goal::Lossless, effort, shared: false }
        }
    }
}

fn compile_globs(patterns: &[String]) -> Result<GlobSet> {
    let bad = |e: globset::Error| Error::InvalidArgument(e.to_string());
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(Glob::new(pattern).map_err(bad)?);
    }
    set.build().map_err(bad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Recipe;
    use crate::safetensors::StoredDtype;

    fn item(name: &str, dtype: StoredDtype, shape: &[usize]) -> Item {
        Item { name: name.into(), dtype, shape: shape.into(), bytes: 0, shard: 0 }
    }

    fn goal(options: &CompressOptions, item: &Item) -> Option<Goal> {
        match Rules::new(options).unwrap().action(item) {
            Action::Encode { goal, .. } => Some(goal),
            Action::Copy => None,
        }
    }

    #[test]
    fn small_flat_and_integer_tensors_are_left() {
        let options = CompressOptions::new(Goal::Bits(3.0));
        let bits = Some(Goal::Bits(3.0));
        assert_eq!(goal(&options, &item("w", StoredDtype::BF16, &[64, 64])), bits);
        assert_eq!(goal(&options, &item("w", StoredDtype::BF16, &[64, 63])), None);
        assert_eq!(goal(&options, &item("w", StoredDtype::F32, &[8192])), None);
        assert_eq!(goal(&options, &item("w", StoredDtype::I32, &[64, 64])), None);
        assert_eq!(goal(&options, &item("w", StoredDtype::C64, &[64, 64])), None);
        let lossless = CompressOptions::new(Goal::Lossless);
        assert_eq!(goal(&lossless, &item("w", StoredDtype::I32, &[64, 64])), Some(Goal::Lossless));
    }

    #[test]
    fn include_overrides_the_rule_and_exclude_wins() {
        let options = CompressOptions::new(Goal::Bits(3.0)).with_include("*.bias").with_exclude("b.*");
        assert_eq!(goal(&options, &item("a.bias", StoredDtype::F32, &[8])), Some(Goal::Bits(3.0)));
        assert_eq!(goal(&options, &item("a.bias", StoredDtype::I64, &[8])), Some(Goal::Lossless));
        assert_eq!(goal(&options, &item("b.bias", StoredDtype::F32, &[8])), None);
        assert_eq!(goal(&options, &item("b.w", StoredDtype::F32, &[64, 64])), None);
    }

    #[test]
    fn the_first_entry_of_a_recipe_counts_and_the_default_comes_last() {
        let recipe = Recipe::parse(
            "[default]\nbits = 2.0\n[[tensor]]\nmatch = 'a.*'\nskip = true\n\
             [[tensor]]\nmatch = '*.norm'\nlossless = true\ninclude = true\n[[tensor]]\nmatch = '*'\nnmse = 0.01",
        )
        .unwrap();
        let options = CompressOptions::default().with_recipe(recipe.clone());
        assert_eq!(goal(&options, &item("a.norm", StoredDtype::F32, &[64, 64])), None);
        assert_eq!(goal(&options, &item("b.norm", StoredDtype::F32, &[8])), Some(Goal::Lossless));
        assert_eq!(goal(&options, &item("b.w", StoredDtype::F32, &[64, 64])), Some(Goal::Nmse(0.01)));
        assert_eq!(goal(&options, &item("b.w", StoredDtype::F32, &[64])), None);
    }
}

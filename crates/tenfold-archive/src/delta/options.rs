//! What a caller may ask of making and applying deltas.

use globset::{Glob, GlobSet, GlobSetBuilder};
use tenfold::delta::{DeltaOptions, Verify};
use tenfold::engine::{Limits, Stop};
use tenfold::{DecodeOptions, Effort, Goal};

use crate::error::{Error, Result};

/// What both ways to work with deltas may be told: threads, limits, whether to replace files, when to stop.
macro_rules! common_options {
    ($options:ident) => {
        impl $options {
            /// Sets the number of threads; 0 means all cores.
            pub fn with_threads(mut self, threads: usize) -> Self {
                self.threads = threads;
                self
            }

            /// Sets the limits.
            pub fn with_limits(mut self, limits: Limits) -> Self {
                self.limits = limits;
                self
            }

            /// Sets whether an existing output may be replaced.
            pub fn with_overwrite(mut self, overwrite: bool) -> Self {
                self.overwrite = overwrite;
                self
            }

            /// Sets the switch that ends the work early.
            pub fn with_stop(mut self, stop: Stop) -> Self {
                self.stop = stop;
                self
            }

            pub(super) fn decode(&self) -> DecodeOptions {
                DecodeOptions::default().with_limits(self.limits.clone()).with_stop(self.stop.clone())
            }
        }
    };
}

common_options!(MakeOptions);
common_options!(ApplyOptions);

/// How to make or squash deltas.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct MakeOptions {
    /// Goal for the difference of each float tensor with at least two dimensions and 4,096 values, which then comes back with loss. Default: none,
    /// every bit comes back.
    pub goal: Option<Goal>,
    /// How hard to search for that goal. Default: balanced.
    pub effort: Effort,
    /// Globs of names that are exact whatever the goal. Default: none.
    pub exclude: Vec<String>,
    /// Worker threads; 0 (the default) uses all cores. The output does not depend on it.
    pub threads: usize,
    /// What compressed tensors may ask for.
    pub limits: Limits,
    /// Whether an existing output may be replaced. Default: no.
    pub overwrite: bool,
    /// Ends the work early, and nothing is written then. Default: none.
    pub stop: Stop,
}

impl MakeOptions {
    /// Sets the goal for differences.
    pub fn with_goal(mut self, goal: Goal) -> Self {
        self.goal = Some(goal);
        self
    }

    /// Sets the effort.
    pub fn with_effort(mut self, effort: Effort) -> Self {
        self.effort = effort;
        self
    }

    /// Adds a glob of names that are exact.
    pub fn with_exclude(mut self, glob: impl Into<String>) -> Self {
        self.exclude.push(glob.into());
        self
    }

    /// Of single tensors: the pool of threads is set once, around them all.
    pub(super) fn inner(&self) -> DeltaOptions {
        DeltaOptions::default().with_limits(self.limits.clone()).with_stop(self.stop.clone())
    }
}

/// How to apply deltas.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ApplyOptions {
    /// Globs of the names to apply the delta to; all other tensors stay as the base has them. Default: none, which is all.
    pub only: Vec<String>,
    /// How sure an application is of its base. Default: every byte of every tensor. With `only`, of the tensors that change.
    pub verify: Verify,
    /// Worker threads; 0 (the default) uses all cores.
    pub threads: usize,
    /// What compressed tensors may ask for.
    pub limits: Limits,
    /// Whether an existing output may be replaced. Default: no.
    pub overwrite: bool,
    /// Ends the work early. Files appear whole or not at all; tensors in place are old or new, and the same call completes them. Default:
    /// none.
    pub stop: Stop,
}

impl ApplyOptions {
    /// Adds a glob of names to apply the delta to.
    pub fn with_only(mut self, glob: impl Into<String>) -> Self {
        self.only.push(glob.into());
        self
    }

    /// Sets what of the base is compared.
    pub fn with_verify(mut self, verify: Verify) -> Self {
        self.verify = verify;
        self
    }

    /// Whether the result is known as a whole, so that its fingerprint can be compared.
    pub(super) fn is_whole(&self) -> bool {
        self.only.is_empty() && self.verify == Verify::Whole
    }

    /// Of single tensors: the pool of threads is set once, around them all.
    pub(super) fn inner(&self) -> DeltaOptions {
        let options = DeltaOptions::default().with_limits(self.limits.clone()).with_stop(self.stop.clone());
        options.with_verify(self.verify)
    }
}

/// Globs, ready to be asked.
pub(super) fn compile(patterns: &[String]) -> Result<GlobSet> {
    let bad = |e: globset::Error| Error::InvalidArgument(e.to_string());
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(Glob::new(pattern).map_err(bad)?);
    }
    set.build().map_err(bad)
}

/// The same of globs that must each match one of these names: another is a slip of the pen.
pub(super) fn compile_for<'n>(
    patterns: &[String],
    names: impl IntoIterator<Item = &'n str>,
) -> Result<GlobSet> {
    let set = compile(patterns)?;
    let mut matched = vec![false; patterns.len()];
    for name in names {
        set.matches(name).into_iter().for_each(|pattern| matched[pattern] = true);
    }
    match patterns.iter().zip(&matched).find(|(_, matched)| !**matched) {
        None => Ok(set),
        Some((pattern, _)) => Err(Error::InvalidArgument(format!(
            "{pattern:?} matches no tensor of the base or the delta; look for names with `tenfold delta inspect`"
        ))),
    }
}

//! What deltas in a row make of each tensor, told without a base: where it starts, and which changes follow.

use std::collections::{BTreeMap, BTreeSet};

use globset::GlobSet;
use tenfold::delta::Fingerprint;

use super::file::{Change, DeltaFile};
use super::record::How;
use crate::error::{Error, Result};

/// Where a tensor comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Start {
    /// The base's tensor of this name.
    Base(String),
    /// One that a delta stores whole.
    Stored(Step),
}

/// A change: number of the delta, and of the change in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step(usize, usize);

/// How a tensor of the result comes to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Route {
    pub start: Start,
    /// Deltas and differences, in the order in which they are applied.
    pub steps: Vec<Step>,
    /// Fingerprint in the result.
    pub result: Fingerprint,
}

/// Deltas of which each belongs to what the one before makes.
pub(super) struct Chain<'d> {
    deltas: Vec<&'d DeltaFile>,
    /// Tensors that are not as the base has them, by name.
    pub routes: BTreeMap<String, Route>,
    /// Names that the result does not have.
    pub removed: BTreeSet<String>,
}

impl<'d> Chain<'d> {
    pub fn new(deltas: &[&'d DeltaFile]) -> Result<Chain<'d>> {
        check_order(deltas)?;
        let mut chain = Chain { deltas: deltas.to_vec(), routes: BTreeMap::new(), removed: BTreeSet::new() };
        for number in 0..deltas.len() {
            chain.append(number)?;
        }
        Ok(chain)
    }

    /// Takes up one more delta. All of its changes start from what was there before it.
    fn append(&mut self, number: usize) -> Result<()> {
        let delta = self.deltas[number];
        let mut made = Vec::with_capacity(delta.changes().len());
        for (i, change) in delta.changes().iter().enumerate() {
            let step = Step(number, i);
            let route = match &change.from {
                None => Route { start: Start::Stored(step), steps: Vec::new(), result: change.result },
                Some(from) => {
                    let mut route = self.find(from).ok_or_else(|| {
                        delta.malformed(
                            &change.name,
                            &format!("is made of {from:?}, which an earlier delta removes"),
                        )
                    })?;
                    if change.how != How::Copy {
                        route.steps.push(step);
                    }
                    Route { result: change.result, ..route }
                }
            };
            made.push((change.name.clone(), route));
        }
        for name in delta.removed() {
            self.routes.remove(name);
            self.removed.insert(name.clone());
        }
        for (name, route) in made {
            self.removed.remove(&name);
            self.routes.insert(name, route);
        }
        Ok(())
    }

    /// How a tensor comes to be so far; `None` for one that is not there any more.
    fn find(&self, name: &str) -> Option<Route> {
        match self.routes.get(name) {
            Some(route) => Some(route.clone()),
            None if self.removed.contains(name) => None,
            // As the base has it, whatever that is: the change that follows knows.
            None => Some(Route {
                start: Start::Base(name.to_owned()),
                steps: Vec::new(),
                result: Fingerprint([0; 16]),
            }),
        }
    }

    /// Names of tensors that are not as the base has them, or are gone.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.routes.keys().chain(&self.removed).map(String::as_str)
    }

    /// Leaves all but some tensors as the base has them.
    pub fn keep(&mut self, only: &GlobSet) {
        self.routes.retain(|name, _| only.is_match(name));
        self.removed.retain(|name| only.is_match(name));
    }

    pub fn change(&self, step: Step) -> (&'d DeltaFile, &'d Change) {
        let delta = self.deltas[step.0];
        (delta, &delta.changes()[step.1])
    }

    /// The first delta: what it belongs to is the base of all.
    pub fn first(&self) -> &'d DeltaFile {
        self.deltas[0]
    }

    /// Fingerprint of what the last delta makes.
    pub fn result(&self) -> Fingerprint {
        self.deltas[self.deltas.len() - 1].result()
    }

    /// The result's metadata, where it is not the base's.
    pub fn metadata(&self) -> Option<&'d BTreeMap<String, String>> {
        self.deltas.iter().rev().find_map(|delta| delta.metadata())
    }
}

/// Refuses deltas of which one does not belong to what the one before makes.
fn check_order(deltas: &[&DeltaFile]) -> Result<()> {
    if deltas.is_empty() {
        return Err(Error::InvalidArgument("no delta is given; name at least one".into()));
    }
    for pair in deltas.windows(2) {
        let (before, after) = (pair[0], pair[1]);
        if before.result() == after.base() {
            continue;
        }
        let next = deltas.iter().find(|delta| delta.base() == before.result());
        let reason = match next {
            Some(next) => format!("the deltas are out of order; {} comes next", next.path().display()),
            None => format!(
                "it belongs to a model with the fingerprint {}, and the deltas before it make {}; a delta between the two is missing",
                after.base(),
                before.result()
            ),
        };
        return Err(Error::Chain {
            before: before.path().to_owned(),
            after: after.path().to_owned(),
            reason,
        });
    }
    Ok(())
}

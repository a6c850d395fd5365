//! Groups of pages as a file of bases has them.

use rayon::prelude::*;
use tenfold::prepare::Positions;

use super::codec::{BasisPart, Chain, Choice, Group, PageCodec};
use crate::basis::{self, BasisFile, Kind};
use crate::error::{Error, Result, invalid};

impl PageCodec {
    /// Groups for pages of all layers that a file has bases for, from layer 0 on. Bases are completed: what the file's vectors do not
    /// span is coded too, at the same step, in pages where it is worth its bits. Of a file with bases for several sets, each page
    /// has the best for it. `steps` are factors on the quantiser steps of keys and of values.
    pub fn groups_of(file: &BasisFile, steps: (f64, f64)) -> Result<Vec<Group>> {
        let mut groups = Vec::new();
        let mut next = 0;
        while let Ok(keys) = file.group(Kind::Keys, next) {
            let values = file.group(Kind::Values, next)?;
            if keys.layers != values.layers || !keys.layers.iter().copied().eq(next..next + keys.layers.len())
            {
                return Err(invalid(format!(
                    "pages need groups of consecutive layers, the same for keys and values, but the file has {:?} and {:?}",
                    keys.layers, values.layers
                )));
            }
            groups.push(&keys.layers);
            next += keys.layers.len();
        }
        if groups.is_empty() {
            return Err(Error::MissingGroup { kind: Kind::Keys, layer: 0 });
        }
        let sets = file.sets();
        let chain = |kind: Kind, layer: usize, step: f64| -> Result<Chain> {
            let choice = |set: &Option<&str>| choice(file.group_of(*set, kind, layer)?);
            let bases = sets.par_iter().map(choice).collect::<Result<_>>()?;
            Ok(Chain { bases, ..Chain::default() }.with_step(step))
        };
        let made = |layers: &Vec<usize>| -> Result<Group> {
            let (mut keys, values) = rayon::join(
                || chain(Kind::Keys, layers[0], steps.0),
                || chain(Kind::Values, layers[0], steps.1),
            );
            if let (Ok(chain), Some(rope)) = (&mut keys, file.rope()) {
                chain.rope = Some(rope.at(Positions::From(0))?);
            }
            Ok(Group { layers: layers.len(), keys: keys?, values: values? })
        };
        groups.into_par_iter().map(made).collect()
    }
}

/// A group's basis, completed, with the stored one as its part.
fn choice(group: &basis::Group) -> Result<Choice> {
    let whole = Choice::from(group.whole()?);
    let without = group.rest();
    Ok(match without.is_empty() {
        true => whole,
        false => whole.with_part(BasisPart { basis: group.basis.clone(), without }),
    })
}

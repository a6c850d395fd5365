//! Groups of pages as a file of bases has them.

use rayon::prelude::*;
use tenfold::prepare::Positions;

use super::codec::{BasisPart, Chain, Choice, Group, PageCodec};
use crate::basis::{self, BasisFile, Kind};
use crate::error::{Error, Result, invalid};

impl PageCodec {
    /// Groups for pages of all layers that a file has bases for, from layer 0 on. Bases are completed: what the file's vectors do not
    /// span is coded too, at the same step, in pages where it is worth its bits. `steps` are factors on the quantiser
    /// steps of keys and of values.
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
            groups.push((keys, values));
            next += keys.layers.len();
        }
        if groups.is_empty() {
            return Err(Error::MissingGroup { kind: Kind::Keys, layer: 0 });
        }
        let chain = |group: &basis::Group, step: f64| -> Result<Chain> {
            let whole = Choice::from(group.whole()?);
            let without = group.rest();
            let choice = match without.is_empty() {
                true => whole,
                false => whole.with_part(BasisPart { basis: group.basis.clone(), without }),
            };
            Ok(Chain::default().with_basis(choice).with_step(step))
        };
        let made = |(keys, values): (&basis::Group, &basis::Group)| -> Result<Group> {
            let (mut keys_chain, values) = rayon::join(|| chain(keys, steps.0), || chain(values, steps.1));
            if let (Ok(chain), Some(rope)) = (&mut keys_chain, file.rope()) {
                chain.rope = Some(rope.at(Positions::From(0))?);
            }
            Ok(Group { layers: keys.layers.len(), keys: keys_chain?, values: values? })
        };
        groups.into_par_iter().map(made).collect()
    }
}

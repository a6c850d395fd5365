//! Groups of pages as a file of bases has them.

use tenfold::prepare::Positions;

use super::codec::{Chain, Group, PageCodec};
use crate::basis::{BasisFile, Kind};
use crate::error::{Error, Result, invalid};

impl PageCodec {
    /// Groups for pages of all layers that a file has bases for, from layer 0 on. `steps` are factors on the quantiser
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
            let mut chain = Chain::default().with_basis(keys.basis.clone()).with_step(steps.0);
            if let Some(rope) = file.rope() {
                chain = chain.with_rope(rope.at(Positions::From(0))?);
            }
            let values = Chain::default().with_basis(values.basis.clone()).with_step(steps.1);
            groups.push(Group { layers: keys.layers.len(), keys: chain, values });
            next += keys.layers.len();
        }
        if groups.is_empty() {
            return Err(Error::MissingGroup { kind: Kind::Keys, layer: 0 });
        }
        Ok(groups)
    }
}

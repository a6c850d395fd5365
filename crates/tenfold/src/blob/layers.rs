//! What a layered blob's header holds beyond dtype and shape.

use super::Geometry;
use super::bytes::Reader;
use crate::error::{Error, Result};
use crate::view::Dtype;

/// Most layers of a blob.
pub const MAX_LAYERS: usize = 8;

/// Parameters of a layered blob.
#[derive(Debug, Clone)]
pub(crate) struct LayersParams {
    pub count: usize,
    /// One tile of everything: how a layer is cut is its own affair.
    pub geometry: Geometry,
}

impl LayersParams {
    pub(crate) fn new(count: usize, values: usize) -> LayersParams {
        LayersParams { count, geometry: Geometry { lanes: 1, ticks: values.max(1) } }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        // At most MAX_LAYERS.
        out.push(self.count as u8);
    }

    pub(crate) fn read(r: &mut Reader<'_>, dtype: Dtype, values: usize) -> Result<LayersParams> {
        let count = usize::from(r.u8()?);
        if !dtype.is_float() {
            return Err(Error::Corrupt("layers of a dtype that is not a float"));
        }
        if !(2..=MAX_LAYERS).contains(&count) {
            return Err(Error::Corrupt("number of layers"));
        }
        Ok(LayersParams::new(count, values))
    }
}

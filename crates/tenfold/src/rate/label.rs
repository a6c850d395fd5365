//! The parts of a blob's header that do not concern its levels.

use crate::error::Result;
use crate::prepare::{self, Transform};
use crate::view::{Dtype, TensorView};

/// The parts of a header that do not follow from the quantised tensor.
pub(crate) struct Label<'a> {
    /// Of the tensor before its transforms.
    pub(super) dtype: Dtype,
    pub(super) shape: &'a [usize],
    /// Its transforms.
    pub(super) transforms: &'a [Transform],
    /// Bytes that the transforms take.
    pub(super) bytes: usize,
}

impl<'a> Label<'a> {
    pub(crate) fn new(view: &TensorView<'a>, transforms: &'a [Transform]) -> Result<Self> {
        let mut bytes = Vec::new();
        prepare::write(transforms, &mut bytes)?;
        // The number of transforms is always there.
        Ok(Label { dtype: view.dtype(), shape: view.shape(), transforms, bytes: bytes.len() - 1 })
    }

    /// Scales of columns that a basis right before the codec knows.
    pub(super) fn known_scales(&self) -> &'a [u8] {
        match self.transforms.last() {
            Some(Transform::Basis(rotation)) => rotation.basis().map_or(&[], |basis| basis.scales()),
            _ => &[],
        }
    }
}

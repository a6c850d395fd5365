//! What a blob's header says beside how its levels are coded.

use crate::error::Result;
use crate::prepare::{self, Transform};
use crate::view::{Dtype, TensorView};

/// What a header says that does not follow from the tensor that is quantised.
pub(crate) struct Label<'a> {
    /// Of the tensor before it was prepared.
    pub(super) dtype: Dtype,
    pub(super) shape: &'a [usize],
    /// What was done to it.
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

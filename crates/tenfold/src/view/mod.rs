//! Tensors as the codec sees them: a dtype, a shape, little-endian bytes in row-major order.
//!
//! Any shape is read as rows × columns, columns being the last dimension; see [`TensorView::rows`].

mod cast;
mod dtype;
mod tensor;

pub(crate) use cast::{load_scaled, spacing, store, store_f64, value};
pub use dtype::Dtype;
pub use tensor::{Element, Tensor, TensorView};
pub(crate) use tensor::{byte_len, rows_of};

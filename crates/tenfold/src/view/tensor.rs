//! Borrowed and owned tensors.

use super::Dtype;
use super::cast::{store, store_f64, value};
use crate::error::{Error, Result};
use crate::simd::Isa;

/// A borrowed tensor: dtype, shape and little-endian bytes in row-major order.
///
/// ```
/// use tenfold::{Dtype, TensorView};
/// let values = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
/// let view = TensorView::from_slice(&values, &[2, 3])?;
/// assert_eq!((view.dtype(), view.rows(), view.cols()), (Dtype::F32, 2, 3));
/// # Ok::<(), tenfold::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct TensorView<'a> {
    dtype: Dtype,
    shape: &'a [usize],
    data: &'a [u8],
}

/// Rust types that are the elements of a [`Dtype`].
pub trait Element: bytemuck::Pod {
    /// The dtype.
    const DTYPE: Dtype;
}

macro_rules! element {
    ($($t:ty => $d:ident),*) => { $(impl Element for $t { const DTYPE: Dtype = Dtype::$d; })* };
}
element!(u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, u64 => U64, i64 => I64,
         f32 => F32, f64 => F64, half::f16 => F16, half::bf16 => Bf16);

impl<'a> TensorView<'a> {
    /// A view over raw bytes; their number must be what dtype and shape say.
    pub fn new(dtype: Dtype, shape: &'a [usize], data: &'a [u8]) -> Result<Self> {
        let need = byte_len(dtype, shape)
            .ok_or_else(|| Error::InvalidArgument(format!("shape {shape:?} has too many elements")))?;
        if need != data.len() {
            return Err(Error::InvalidArgument(format!(
                "shape {shape:?} of {dtype} takes {need} bytes, but there are {}",
                data.len()
            )));
        }
        Ok(TensorView { dtype, shape, data })
    }

    /// A view over a typed slice.
    pub fn from_slice<T: Element>(values: &'a [T], shape: &'a [usize]) -> Result<Self> {
        TensorView::new(T::DTYPE, shape, bytemuck::cast_slice(values))
    }

    /// Element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Shape, outermost dimension first; empty for a scalar.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// The bytes.
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.data.len() / self.dtype.size()
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// All values as f64; `None` if the dtype is not a float.
    ///
    /// ```
    /// let view = tenfold::TensorView::from_slice(&[1.5f32, -2.0], &[2])?;
    /// assert_eq!(view.to_f64(), Some(vec![1.5, -2.0]));
    /// # Ok::<(), tenfold::Error>(())
    /// ```
    pub fn to_f64(&self) -> Option<Vec<f64>> {
        let floats = self.dtype.is_float();
        floats.then(|| self.data.chunks_exact(self.dtype.size()).map(|b| value(self.dtype, b)).collect())
    }

    /// Columns of the two-dimensional view: the last dimension, 1 for a scalar.
    pub fn cols(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Rows of the two-dimensional view: the product of all dimensions but the last.
    pub fn rows(&self) -> usize {
        rows_of(self.shape)
    }
}

/// An owned tensor, as decoding returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Element type.
    pub dtype: Dtype,
    /// Shape, outermost dimension first; empty for a scalar.
    pub shape: Vec<usize>,
    /// Little-endian bytes in row-major order.
    pub data: Vec<u8>,
}

impl Tensor {
    /// Borrows the tensor.
    pub fn view(&self) -> Result<TensorView<'_>> {
        TensorView::new(self.dtype, &self.shape, &self.data)
    }

    /// A tensor from real numbers, rounded to the nearest element (by way of f32, except for f64) and kept
    /// finite; an error if the dtype is not a float or the number of values is not the shape's.
    pub fn from_f64(dtype: Dtype, shape: &[usize], values: &[f64]) -> Result<Tensor> {
        let size = byte_len(dtype, shape).filter(|&n| n / dtype.size() == values.len() && dtype.is_float());
        let size = size.ok_or_else(|| {
            Error::InvalidArgument(format!(
                "{} values do not make a {dtype} tensor of shape {shape:?}",
                values.len()
            ))
        })?;
        let mut data = vec![0; size];
        if dtype == Dtype::F64 {
            store_f64(values, &mut data);
        } else {
            let narrow: Vec<f32> = values.iter().map(|&v| v as f32).collect();
            store(Isa::detect(), dtype, &narrow, &mut data);
        }
        Ok(Tensor { dtype, shape: shape.to_vec(), data })
    }

    /// The values as a vector of `T`; an error if `T` is not the dtype.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if T::DTYPE != self.dtype {
            return Err(Error::InvalidArgument(format!("the tensor holds {}, not {}", self.dtype, T::DTYPE)));
        }
        Ok(bytemuck::allocation::pod_collect_to_vec(&self.data))
    }
}

/// Bytes of a tensor, or `None` if the number does not fit.
pub(crate) fn byte_len(dtype: Dtype, shape: &[usize]) -> Option<usize> {
    // A zero anywhere makes the tensor empty, whatever the other dimensions multiply to.
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(dtype.size(), |n, &d| n.checked_mul(d)).filter(|&n| isize::try_from(n).is_ok())
}

/// Product of all dimensions but the last.
pub(crate) fn rows_of(shape: &[usize]) -> usize {
    match shape.split_last() {
        Some((_, outer)) => outer.iter().fold(1usize, |n, &d| n.saturating_mul(d)),
        None => 1,
    }
}

//! Dtype and shape at the front of a peer's bytes, for coders that have no place for them.

use tenfold::{Dtype, TensorView};

use super::PeerError;

/// Starts a byte string: dtype, number of dimensions, dimensions as u32.
pub(super) fn start(view: &TensorView<'_>) -> Result<Vec<u8>, PeerError> {
    let too_large = || PeerError::Unsupported(format!("the shape {:?} is too large", view.shape()));
    let mut out = vec![view.dtype().id(), u8::try_from(view.shape().len()).map_err(|_| too_large())?];
    for &d in view.shape() {
        out.extend(u32::try_from(d).map_err(|_| too_large())?.to_le_bytes());
    }
    Ok(out)
}

/// Dtype and shape, read back.
pub(super) struct Header<'a> {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    /// Values of the shape; their bytes fit memory's address range.
    pub values: usize,
    /// What follows the header.
    pub rest: &'a [u8],
}

/// Reads what [`start`] wrote.
pub(super) fn read(bytes: &[u8]) -> Result<Header<'_>, PeerError> {
    let mut cursor = Cursor(bytes);
    let [id, dims] = cursor.array::<2>()?;
    let dtype = Dtype::from_id(id).ok_or_else(|| PeerError::Corrupt(format!("dtype {id}")))?;
    let mut shape = Vec::with_capacity(usize::from(dims));
    for _ in 0..dims {
        shape.push(cursor.u32()? as usize);
    }
    let values = shape
        .iter()
        .try_fold(1usize, |n, &d| n.checked_mul(d))
        .filter(|n| n.checked_mul(dtype.size()).is_some_and(|b| isize::try_from(b).is_ok()))
        .ok_or_else(|| PeerError::Corrupt(format!("shape {shape:?}")))?;
    Ok(Header { dtype, shape, values, rest: cursor.0 })
}

/// Takes fields off the front of a byte string.
pub(super) struct Cursor<'a>(pub &'a [u8]);

impl<'a> Cursor<'a> {
    /// The next `n` bytes.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], PeerError> {
        let (head, tail) =
            self.0.split_at_checked(n).ok_or_else(|| PeerError::Corrupt("truncated".to_string()))?;
        self.0 = tail;
        Ok(head)
    }

    /// The next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], PeerError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    /// The next four bytes as a number.
    pub fn u32(&mut self) -> Result<u32, PeerError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// The next four bytes as a float.
    pub fn f32(&mut self) -> Result<f32, PeerError> {
        Ok(f32::from_le_bytes(self.array()?))
    }
}

//! How a base is recognised: by a fingerprint of all bytes, or by sums over the values that a tile changes.

use crate::view::{Dtype, TensorView};

pub use crate::prepare::Fingerprint;

/// The fingerprint of a tensor: of its dtype, its shape and every byte.
///
/// ```
/// use tenfold::{TensorView, delta};
/// let one = delta::fingerprint(&TensorView::from_slice(&[1.0f32, 2.0], &[2])?);
/// let other = delta::fingerprint(&TensorView::from_slice(&[1.0f32, 2.0], &[1, 2])?);
/// assert_ne!(one, other);
/// # Ok::<(), tenfold::Error>(())
/// ```
pub fn fingerprint(tensor: &TensorView<'_>) -> Fingerprint {
    of_bytes(tensor.dtype(), tensor.shape(), tensor.data(), 0)
}

/// The same of a tensor's parts, on one thread or on all.
pub(super) fn of_bytes(dtype: Dtype, shape: &[usize], data: &[u8], threads: usize) -> Fingerprint {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[dtype.id(), shape.len() as u8]);
    shape.iter().for_each(|&d| {
        hasher.update(&(d as u64).to_le_bytes());
    });
    match threads == 1 || data.len() < RAYON_FROM {
        true => hasher.update(data),
        false => hasher.update_rayon(data),
    };
    let mut short = [0; 16];
    short.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    Fingerprint(short)
}

/// Bytes from which on all cores take part: below, waking them takes longer.
const RAYON_FROM: usize = 1 << 20;

/// What a value at a place of a tile adds to the tile's sum.
pub(super) fn mix(place: u32, value: u64) -> u64 {
    const ODD: u64 = 0xD6E8_FEB8_6659_FD93;
    let mut x = value.wrapping_add((u64::from(place) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    x = (x ^ x >> 32).wrapping_mul(ODD);
    x = (x ^ x >> 32).wrapping_mul(ODD);
    x ^ x >> 32
}

/// The sum over values at their places.
pub(super) fn sum(places: &[u32], values: &[u64]) -> u64 {
    places.iter().zip(values).fold(0, |sum, (&place, &value)| sum.wrapping_add(mix(place, value)))
}

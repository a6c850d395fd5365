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
    hasher.update(&fingerprint_head(dtype, shape));
    match threads == 1 || data.len() < RAYON_FROM {
        true => hasher.update(data),
        false => hasher.update_rayon(data),
    };
    shorten(&hasher.finalize())
}

fn shorten(hash: &blake3::Hash) -> Fingerprint {
    let mut short = [0; 16];
    short.copy_from_slice(&hash.as_bytes()[..16]);
    Fingerprint(short)
}

/// What is hashed before a tensor's elements.
pub fn fingerprint_head(dtype: Dtype, shape: &[usize]) -> Vec<u8> {
    let dims = shape.iter().flat_map(|&d| (d as u64).to_le_bytes());
    [dtype.id(), shape.len() as u8].into_iter().chain(dims).collect()
}

/// The fingerprint of a tensor, from nodes of BLAKE3's tree that lie side by side: subtrees of one size, the last of which may be smaller.
/// There are two at least.
pub fn fingerprint_of_nodes(mut nodes: Vec<[u8; 32]>) -> Fingerprint {
    use blake3::hazmat::{Mode, merge_subtrees_non_root, merge_subtrees_root};
    debug_assert!(nodes.len() > 1, "the root is made of two");
    while nodes.len() > 2 {
        // A node without a neighbour moves up as it is.
        let merge = |pair: &[[u8; 32]]| match pair {
            [left, right] => merge_subtrees_non_root(left, right, Mode::Hash),
            pair => pair[0],
        };
        nodes = nodes.chunks(2).map(merge).collect();
    }
    match nodes[..] {
        [left, right] => shorten(&merge_subtrees_root(&left, &right, Mode::Hash)),
        _ => Fingerprint([0; 16]),
    }
}

/// Bytes from which on all cores take part: below, waking them takes longer.
const RAYON_FROM: usize = 1 << 20;

/// What a value at a place of a tile adds to the tile's sum.
#[inline(always)]
pub(super) fn mix(place: u32, value: u64) -> u64 {
    const ODD: u64 = 0xD6E8_FEB8_6659_FD93;
    let mut x = value.wrapping_add((u64::from(place) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    x = (x ^ x >> 32).wrapping_mul(ODD);
    x = (x ^ x >> 32).wrapping_mul(ODD);
    x ^ x >> 32
}

/// The sum over values at their places.
#[inline(always)]
pub(super) fn sum(places: &[u32], values: &[u64]) -> u64 {
    places.iter().zip(values).fold(0, |sum, (&place, &value)| sum.wrapping_add(mix(place, value)))
}

//! Side values as f16 relative to one f32 of the tensor: the values of gradients are far below what
//! f16 reaches. All low bytes come before all high bytes, since only the high ones are compressible.

use half::f16;

use super::super::PeerError;
use super::super::header::Cursor;

/// Rounds a side value to what the decoder will see.
pub(super) fn round_to_half(value: f64, unit: f32) -> f16 {
    f16::from_f64(value / f64::from(unit))
}

/// The value of a stored half.
pub(super) fn value(half: f16, unit: f32) -> f64 {
    half.to_f64() * f64::from(unit)
}

/// Appends halves as two planes.
pub(super) fn put(out: &mut Vec<u8>, halves: &[f16]) {
    for plane in 0..2 {
        out.extend(halves.iter().map(|h| h.to_le_bytes()[plane]));
    }
}

/// Takes `n` halves off a byte string and scales them.
pub(super) fn take(cursor: &mut Cursor<'_>, n: usize, unit: f32) -> Result<Vec<f64>, PeerError> {
    let (low, high) = (cursor.take(n)?, cursor.take(n)?);
    Ok(low.iter().zip(high).map(|(&l, &h)| value(f16::from_le_bytes([l, h]), unit)).collect())
}

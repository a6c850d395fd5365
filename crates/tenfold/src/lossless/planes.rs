//! Elements to byte planes and back.

use crate::simd::{Isa, multiversion};
use crate::view::Dtype;

/// Splits elements into planes, lowest byte first; plane p starts at `p · count` of `out`.
pub(crate) fn split(isa: Isa, dtype: Dtype, data: &[u8], out: &mut [u8]) {
    let rotate = dtype.is_float();
    match (dtype.size(), rotate) {
        (1, false) => out.copy_from_slice(data),
        (1, true) => split_1(isa, data, out),
        (2, _) => split_2(isa, data, rotate, out),
        (4, _) => split_4(isa, data, rotate, out),
        _ => split_8(isa, data, rotate, out),
    }
}

/// The inverse of [`split`].
pub(crate) fn merge(isa: Isa, dtype: Dtype, planes: &[u8], out: &mut [u8]) {
    let rotate = dtype.is_float();
    match (dtype.size(), rotate) {
        (1, false) => out.copy_from_slice(planes),
        (1, true) => merge_1(isa, planes, out),
        (2, _) => merge_2(isa, planes, rotate, out),
        (4, _) => merge_4(isa, planes, rotate, out),
        _ => merge_8(isa, planes, rotate, out),
    }
}

multiversion! { fn split_1 / split_1_inner(data: &[u8], out: &mut [u8]) }
multiversion! { fn merge_1 / merge_1_inner(planes: &[u8], out: &mut [u8]) }

#[inline(always)]
fn split_1_inner(data: &[u8], out: &mut [u8]) {
    out.iter_mut().zip(data).for_each(|(o, b)| *o = b.rotate_left(1));
}

#[inline(always)]
fn merge_1_inner(planes: &[u8], out: &mut [u8]) {
    out.iter_mut().zip(planes).for_each(|(o, b)| *o = b.rotate_right(1));
}

macro_rules! planes {
    ($split:ident / $split_inner:ident, $merge:ident / $merge_inner:ident, $int:ty, $size:literal) => {
        multiversion! { fn $split / $split_inner(data: &[u8], rotate: bool, out: &mut [u8]) }
        multiversion! { fn $merge / $merge_inner(planes: &[u8], rotate: bool, out: &mut [u8]) }

        #[inline(always)]
        fn $split_inner(data: &[u8], rotate: bool, out: &mut [u8]) {
            let by = rotate as u32;
            let count = data.len() / $size;
            for (p, plane) in out.chunks_exact_mut(count.max(1)).enumerate() {
                for (o, b) in plane.iter_mut().zip(data.as_chunks::<$size>().0) {
                    *o = (<$int>::from_le_bytes(*b).rotate_left(by) >> (8 * p)) as u8;
                }
            }
        }

        #[inline(always)]
        fn $merge_inner(planes: &[u8], rotate: bool, out: &mut [u8]) {
            let by = rotate as u32;
            let count = out.len() / $size;
            let mut plane = [&planes[..0]; $size];
            for (p, slot) in plane.iter_mut().enumerate() {
                *slot = &planes[p * count..][..count];
            }
            for (i, o) in out.as_chunks_mut::<$size>().0.iter_mut().enumerate() {
                let mut v: $int = 0;
                for p in 0..$size {
                    v |= (plane[p][i] as $int) << (8 * p);
                }
                *o = v.rotate_right(by).to_le_bytes();
            }
        }
    };
}
planes!(split_2 / split_2_inner, merge_2 / merge_2_inner, u16, 2);
planes!(split_4 / split_4_inner, merge_4 / merge_4_inner, u32, 4);
planes!(split_8 / split_8_inner, merge_8 / merge_8_inner, u64, 8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_comes_back_on_every_path() {
        let data: Vec<u8> = (0..8 * 77u32).map(|i| (i.wrapping_mul(2654435761) >> 13) as u8).collect();
        for dtype in Dtype::ALL {
            let mut plain = vec![0; data.len()];
            split(Isa::Plain, dtype, &data, &mut plain);
            for path in Isa::available() {
                let mut planes = vec![0; data.len()];
                split(path, dtype, &data, &mut planes);
                assert_eq!(planes, plain);
                let mut back = vec![0; data.len()];
                merge(path, dtype, &planes, &mut back);
                assert_eq!(back, data, "{dtype}");
            }
        }
    }

    #[test]
    fn the_top_plane_of_a_bf16_is_its_exponent() {
        let one = half::bf16::from_f32(-1.5).to_le_bytes();
        let mut planes = [0u8; 2];
        split(Isa::Plain, Dtype::Bf16, &one, &mut planes);
        assert_eq!(planes, [0b1000_0001, 127]);
    }
}

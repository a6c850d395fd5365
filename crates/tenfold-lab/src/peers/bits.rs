//! Codes of up to 8 bits, lowest bit first, with no gaps: what fixed-length quantisers store.

/// Bytes that `n` codes take; `None` if the number has no place in memory.
pub(super) fn packed_len(n: usize, width: u8) -> Option<usize> {
    Some(n.checked_mul(usize::from(width))?.div_ceil(8))
}

/// Packs codes below 2^`width`.
pub(super) fn pack(codes: &[u8], width: u8) -> Vec<u8> {
    let mut out = Vec::with_capacity(packed_len(codes.len(), width).unwrap_or(0));
    let (mut held, mut count) = (0u32, 0u32);
    for &code in codes {
        held |= u32::from(code) << count;
        count += u32::from(width);
        while count >= 8 {
            out.push(held as u8); // the lowest eight bits are the next byte
            held >>= 8;
            count -= 8;
        }
    }
    if count > 0 {
        out.push(held as u8);
    }
    out
}

/// Takes `n` codes of `width` bits (1 to 8) back out. `packed` has the length of [`packed_len`].
pub(super) fn unpack(packed: &[u8], n: usize, width: u8) -> Vec<u8> {
    let mask = (1u32 << width) - 1;
    let (mut held, mut count, mut bytes) = (0u32, 0u32, packed.iter());
    (0..n)
        .map(|_| {
            if count < u32::from(width) {
                held |= u32::from(bytes.next().copied().unwrap_or(0)) << count;
                count += 8;
            }
            let code = held & mask;
            held >>= width;
            count -= u32::from(width);
            code as u8
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_comes_back() {
        for width in 1..=8u8 {
            for n in [0usize, 1, 7, 1001] {
                let codes: Vec<u8> =
                    (0..n as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> (32 - width)) as u8).collect();
                let packed = pack(&codes, width);
                assert_eq!(Some(packed.len()), packed_len(n, width));
                assert_eq!(unpack(&packed, n, width), codes);
            }
        }
        assert_eq!(packed_len(usize::MAX, 3), None);
    }
}

//! Bits of a header, the most significant of a byte first.

/// A cursor that never reads past the end.
pub(super) struct Bits<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Bits<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Bits { data, at: 0 }
    }

    /// At most 32 bits.
    pub(super) fn take(&mut self, n: u32) -> Result<u32, String> {
        let mut value = 0;
        for _ in 0..n {
            let byte = self.data.get(self.at / 8).ok_or("a header is cut off")?;
            value = value << 1 | u32::from(byte >> (7 - self.at % 8) & 1);
            self.at += 1;
        }
        Ok(value)
    }

    pub(super) fn flag(&mut self) -> Result<bool, String> {
        Ok(self.take(1)? == 1)
    }

    pub(super) fn skip(&mut self, n: u32) -> Result<(), String> {
        (0..n).try_for_each(|_| self.take(1).map(drop))
    }

    /// A number as long as the zeros before it, as AV1 has it.
    pub(super) fn skip_uvlc(&mut self) -> Result<(), String> {
        let mut zeros = 0;
        while !self.flag()? {
            zeros += 1;
        }
        // From 32 zeros on the number is a fixed one and no bits follow.
        if zeros < 32 { self.skip(zeros) } else { Ok(()) }
    }

    /// An Exp-Golomb code, as H.264 and H.265 have it.
    pub(super) fn ue(&mut self) -> Result<u32, String> {
        let mut zeros = 0;
        while !self.flag()? {
            zeros += 1;
            if zeros > 31 {
                return Err("a number in a header is too large".to_string());
            }
        }
        Ok((1 << zeros) - 1 + self.take(zeros)?)
    }

    /// The same with a sign.
    pub(super) fn se(&mut self) -> Result<i64, String> {
        let code = i64::from(self.ue()?);
        Ok(if code % 2 == 1 { code / 2 + 1 } else { -(code / 2) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read() {
        // 1, 010, 011, 00100 = 0, 1, 2, 3.
        let mut bits = Bits::new(&[0b1010_0110, 0b0100_0000]);
        assert_eq!([bits.ue(), bits.ue(), bits.ue(), bits.ue()], [Ok(0), Ok(1), Ok(2), Ok(3)]);
        let mut bits = Bits::new(&[0b1010_0110, 0b0100_0000]);
        assert_eq!([bits.se(), bits.se(), bits.se(), bits.se()], [Ok(0), Ok(1), Ok(-1), Ok(2)]);
        assert!(
            Bits::new(&[0; 8]).ue().is_err()
                && Bits::new(&[0]).ue().is_err()
                && Bits::new(&[]).take(1).is_err()
        );
    }
}

//! Numbers as a symbol of few kinds, and the bits that it leaves open.

/// Below 2^direct every number is a token of its own. Beyond, a token is the position of the leading bit and the `sub` bits behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tokens {
    direct: u32,
    sub: u32,
}

/// Of gaps, which are below 2^22: 160 tokens.
pub(super) const GAPS: Tokens = Tokens { direct: 4, sub: 3 };
/// Of numbers of up to 32 bits: 124 tokens.
pub(super) const SHORT: Tokens = Tokens { direct: 3, sub: 2 };
/// Of numbers of up to 64 bits: 128 tokens.
pub(super) const LONG: Tokens = Tokens { direct: 2, sub: 1 };

impl Tokens {
    /// The token of a number, and how many of its low bits the token leaves open.
    pub(super) fn split(self, number: u64) -> (u32, u32) {
        if number >> self.direct == 0 {
            return (number as u32, 0);
        }
        let lead = number.ilog2();
        let open = lead - self.sub;
        let behind = (number >> open) as u32 & ((1 << self.sub) - 1);
        ((1 << self.direct) + ((lead - self.direct) << self.sub) + behind, open)
    }

    /// How many bits a token leaves open: what [`Tokens::join`] says, without a table. Of numbers of up to 64 bits.
    #[inline(always)]
    pub(super) fn open(self, token: u8) -> u8 {
        // The first numbers with an open bit are twice those below 2^direct: `direct` is `sub` + 1.
        token.saturating_sub((1 << self.direct) - (1 << self.sub)) >> self.sub
    }

    /// The number of a token without its open bits, and how many these are. `None` for a token of numbers beyond 64 bits.
    pub(super) fn join(self, token: u32) -> Option<(u64, u32)> {
        let Some(beyond) = token.checked_sub(1 << self.direct) else { return Some((token.into(), 0)) };
        let lead = self.direct + (beyond >> self.sub);
        let open = lead - self.sub;
        let behind = u64::from(beyond & ((1 << self.sub) - 1) | 1 << self.sub);
        (lead < 64).then(|| (behind << open, open))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for (tokens, bits, kinds) in [(GAPS, 22, 160), (SHORT, 32, 124), (LONG, 64, 128)] {
            let mut last = 0;
            for lead in 0..bits {
                for number in [1u64 << lead, (1 << lead) + ((1 << lead) / 3), (1 << lead) + ((1 << lead) - 1)]
                {
                    let (token, open) = tokens.split(number);
                    let (high, found) = tokens.join(token).unwrap();
                    assert_eq!((found, high | number & ((1 << open) - 1)), (open, number));
                    last = last.max(token);
                }
            }
            assert_eq!(last + 1, kinds);
            assert_eq!(tokens.split(0), (0, 0));
        }
        assert_eq!(SHORT.join(255), None);
        for tokens in [GAPS, SHORT, LONG] {
            for token in 0..=255u8 {
                let open = tokens.join(token.into()).map(|(_, open)| open);
                assert!(open.is_none_or(|open| open == tokens.open(token).into()), "{token}");
            }
        }
    }
}

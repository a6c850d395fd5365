//! The state machine of the trellis: which of two quantisers codes the next value.
//!
//! Normative (docs/format.md, 'Trellis'). Quantiser 0 holds the even multiples of the step, quantiser
//! 1 holds zero and the odd ones. Bit 0 of the state names the quantiser; the parities of the levels
//! drive a linear feedback register, so a tick costs a shift and two conditional exclusive-ors for any number of
//! states.

/// A trellis of 2^ν states in systematic feedback form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Machine {
    /// ν, the number of register bits; 0 for a scalar quantiser.
    pub log2_states: u8,
    /// Feedback where the quantiser bit is set.
    pub on_quantiser: u32,
    /// Feedback where the level is odd.
    pub on_parity: u32,
}

/// Ungerboeck's one-dimensional codes: (ν, h0, h1), parity-check polynomials.
pub const CODES: [(u8, u32, u32); 7] = [
    (2, 0o5, 0o2),
    (3, 0o13, 0o04),
    (4, 0o23, 0o04),
    (5, 0o45, 0o10),
    (6, 0o103, 0o024),
    (7, 0o235, 0o126),
    (8, 0o515, 0o362),
];

impl Machine {
    /// The scalar quantiser: one state that never leaves quantiser 0.
    pub(crate) const SCALAR: Machine = Machine { log2_states: 0, on_quantiser: 0, on_parity: 0 };

    /// The machine with 2^`log2_states` states, if the format has one.
    pub(crate) fn new(log2_states: u8) -> Option<Machine> {
        if log2_states == 0 {
            return Some(Machine::SCALAR);
        }
        let &(_, h0, h1) = CODES.iter().find(|c| c.0 == log2_states)?;
        Some(Machine { log2_states, on_quantiser: h0 >> 1, on_parity: h1 >> 1 })
    }

    /// Number of states.
    pub(crate) fn states(self) -> u32 {
        1 << self.log2_states
    }

    /// State after `state` when a level of this parity was coded.
    #[inline(always)]
    pub(crate) fn next(self, state: u32, level: i32) -> u32 {
        let q = (state & 1).wrapping_neg();
        let odd = (level as u32 & 1).wrapping_neg();
        (state >> 1) ^ (q & self.on_quantiser) ^ (odd & self.on_parity)
    }
}

/// Multiple of the step that level `k` of a quantiser stands for.
#[inline(always)]
pub(crate) fn grid(k: i32, quantiser: u32) -> i32 {
    2 * k - (quantiser as i32 & 1) * k.signum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_states_follow_the_published_table() {
        let m = Machine::new(3).unwrap();
        let expect = [[0, 2], [5, 7], [1, 3], [4, 6], [2, 0], [7, 5], [3, 1], [6, 4]];
        for (s, row) in expect.iter().enumerate() {
            assert_eq!([m.next(s as u32, 0), m.next(s as u32, 1)], *row);
        }
    }

    #[test]
    fn the_top_bit_tells_the_quantiser_that_was_left() {
        // The Viterbi search relies on it: both ways into a state come from the same quantiser.
        for nu in 2..=8 {
            let m = Machine::new(nu).unwrap();
            for s in 0..m.states() {
                for k in 0..2 {
                    let to = m.next(s, k);
                    assert!(to < m.states());
                    assert_eq!(to >> (nu - 1), s & 1);
                }
            }
        }
    }

    #[test]
    fn the_two_quantisers_share_zero_and_split_the_rest() {
        let q0: Vec<i32> = (-3..=3).map(|k| grid(k, 0)).collect();
        let q1: Vec<i32> = (-3..=3).map(|k| grid(k, 1)).collect();
        assert_eq!(q0, [-6, -4, -2, 0, 2, 4, 6]);
        assert_eq!(q1, [-5, -3, -1, 0, 1, 3, 5]);
    }
}

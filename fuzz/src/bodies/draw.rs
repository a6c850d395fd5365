//! Decisions from bytes. A body reads its decisions from the front and the tensor's content from the rest, so
//! that one changed byte changes one decision.

/// Reads decisions; zeros once the input has ended.
pub struct Draw<'a> {
    rest: &'a [u8],
}

impl<'a> Draw<'a> {
    pub fn new(rest: &'a [u8]) -> Self {
        Draw { rest }
    }

    pub fn byte(&mut self) -> u8 {
        match self.rest.split_first() {
            Some((&first, rest)) => {
                self.rest = rest;
                first
            }
            None => 0,
        }
    }

    pub fn word(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        usize::from(self.word()) % end.max(1)
    }

    /// One of `choices`.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    /// A positive number of any size between 2^-32 and 2^31, with a few steps an octave; now and then any
    /// double at all.
    pub fn positive(&mut self) -> f64 {
        match self.byte() {
            255 => f64::from_le_bytes(std::array::from_fn(|_| self.byte())),
            exponent => {
                let fraction = 1.0 + f64::from(self.byte()) / 256.0;
                fraction * f64::from(i32::from(exponent) / 4 - 32).exp2()
            }
        }
    }

    /// All that is left.
    pub fn rest(self) -> &'a [u8] {
        self.rest
    }
}

//! Binary decisions, whichever way they become bytes.
//!
//! The syntax of blocks and levels is written once over [`Bins`]: an encoder passes the decision on and gets
//! it back, a decoder ignores what it is given and returns what it read, a [`Counter`] adds up what the
//! decision would cost. Encoder and decoder cannot disagree about a syntax that exists once.

use super::cabac::Context;
use super::error::IntraError;

/// Takes or gives binary decisions.
pub(super) trait Bins {
    /// A decision with a model of its probability.
    fn bit(&mut self, context: &mut Context, bit: bool) -> Result<bool, IntraError>;

    /// A number of `bits` bits (at most 16) without a model.
    fn raw(&mut self, value: u32, bits: u32) -> Result<u32, IntraError>;
}

/// Adds up the bits decisions would cost; the models stay as they are.
#[derive(Default)]
pub(super) struct Counter {
    pub bits: f32,
}

impl Bins for Counter {
    fn bit(&mut self, context: &mut Context, bit: bool) -> Result<bool, IntraError> {
        self.bits += context.cost(bit);
        Ok(bit)
    }

    fn raw(&mut self, value: u32, bits: u32) -> Result<u32, IntraError> {
        self.bits += bits as f32;
        Ok(value)
    }
}

/// Order-0 exponential Golomb code without models: how many bits follow, in unary, then the bits.
pub(super) fn golomb<B: Bins>(bins: &mut B, value: u32) -> Result<u32, IntraError> {
    let length = (value + 1).ilog2();
    let mut read = 0;
    while bins.raw(u32::from(read < length), 1)? == 1 {
        read += 1;
        if read > 15 {
            return Err(IntraError::Corrupt("a level is too large"));
        }
    }
    let low = bins.raw((value + 1) & ((1 << length) - 1), read)?;
    Ok((1 << read | low) - 1)
}

/// Bits that [`golomb`] takes.
pub(super) fn golomb_bits(value: u32) -> u32 {
    2 * (value + 1).ilog2() + 1
}

/// A number of `bits` bits, most significant first, each with a model that knows the bits before.
pub(super) fn tree<B: Bins>(
    bins: &mut B,
    contexts: &mut [Context],
    value: u32,
    bits: u32,
) -> Result<u32, IntraError> {
    let mut node = 1usize;
    for i in (0..bits).rev() {
        let bit = bins.bit(&mut contexts[node], value >> i & 1 == 1)?;
        node = node << 1 | usize::from(bit);
    }
    Ok(node as u32 - (1 << bits))
}

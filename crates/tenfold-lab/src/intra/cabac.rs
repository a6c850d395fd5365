//! Adaptive binary arithmetic coding.
//!
//! Where H.265's coder approximates with tables of 128 states, this one multiplies: the range ([`crate::range`])
//! is split in proportion to a 15-bit probability. Each model mixes a
//! quick and a slow estimate, both quicker while the model is young.

use super::bins::Bins;
use super::error::IntraError;
use crate::range::{AHEAD, Reader, Writer};

/// Bits of a probability.
const BITS: u32 = 15;
/// How slowly the two estimates of a model follow, as shifts.
const RATES: [u8; 2] = [5, 8];

/// Bits of an estimate: enough below a probability for the slow one not to stall.
const ESTIMATE_BITS: u32 = 24;

/// A model of one kind of decision: the probability that it is a one, estimated twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Context {
    estimates: [u32; 2],
    seen: u8,
}

impl Default for Context {
    fn default() -> Self {
        Context { estimates: [1 << (ESTIMATE_BITS - 1); 2], seen: 0 }
    }
}

impl Context {
    /// Probability of a one over 2^[`BITS`], never 0 nor 1.
    fn ones(&self) -> u32 {
        let sum = self.estimates[0] + self.estimates[1];
        (sum >> (ESTIMATE_BITS + 1 - BITS)).clamp(16, (1 << BITS) - 16)
    }

    /// The part of an interval that stands for a one.
    fn bound(&self, range: u32) -> u32 {
        (range >> BITS) * self.ones()
    }

    fn adapt(&mut self, bit: bool) {
        for (estimate, slowest) in self.estimates.iter_mut().zip(RATES) {
            // The n-th decision moves a young model by about 1/(n + 1): its estimate is then the mean.
            let rate = slowest.min(1 + (self.seen + 1).ilog2() as u8);
            if bit {
                *estimate += ((1 << ESTIMATE_BITS) - *estimate) >> rate;
            } else {
                *estimate -= *estimate >> rate;
            }
        }
        self.seen = self.seen.saturating_add(1).min(254);
    }

    /// Bits that a decision would cost now.
    pub fn cost(&self, bit: bool) -> f32 {
        let p = if bit { self.ones() } else { (1 << BITS) - self.ones() };
        BITS as f32 - (p as f32).log2()
    }
}

/// Turns decisions into bytes.
#[derive(Default)]
pub(super) struct Encoder {
    interval: Writer,
}

impl Encoder {
    /// The bytes. Zeros among the last four are left away: the decoder reads zeros past the end.
    pub fn finish(self) -> Vec<u8> {
        let mut interval = self.interval;
        // The number in [low, low + range) with the most zeros at its end.
        for zeros in (0..32).rev() {
            let rounded = (interval.low + (1 << zeros) - 1) >> zeros << zeros;
            if rounded < interval.low + u64::from(interval.range) {
                interval.low = rounded;
                break;
            }
        }
        (0..=AHEAD).for_each(|_| interval.shift());
        for _ in 0..AHEAD {
            if interval.bytes.last() == Some(&0) {
                interval.bytes.pop();
            }
        }
        interval.bytes
    }
}

impl Bins for Encoder {
    fn bit(&mut self, context: &mut Context, bit: bool) -> Result<bool, IntraError> {
        self.interval.keep(bit, context.bound(self.interval.range));
        context.adapt(bit);
        Ok(bit)
    }

    fn raw(&mut self, value: u32, bits: u32) -> Result<u32, IntraError> {
        (0..bits).rev().for_each(|i| self.interval.half(value >> i & 1 == 1));
        Ok(value)
    }
}

/// Reads what [`Encoder`] wrote.
pub(super) struct Decoder<'a> {
    interval: Reader<'a>,
}

impl<'a> Decoder<'a> {
    /// A decoder at the first decision.
    pub fn new(bytes: &'a [u8]) -> Self {
        Decoder { interval: Reader::new(bytes) }
    }

    /// The four bytes held ahead may be zeros that the encoder left away; more were never there.
    fn check(&self) -> Result<(), IntraError> {
        if self.interval.missing > AHEAD { Err(IntraError::Truncated) } else { Ok(()) }
    }

    /// Checks that every byte was needed.
    pub fn finish(self) -> Result<(), IntraError> {
        if self.interval.is_empty() { Ok(()) } else { Err(IntraError::Corrupt("bytes left over")) }
    }
}

impl Bins for Decoder<'_> {
    fn bit(&mut self, context: &mut Context, _: bool) -> Result<bool, IntraError> {
        let bit = self.interval.decode_below(context.bound(self.interval.range));
        context.adapt(bit);
        self.check()?;
        Ok(bit)
    }

    fn raw(&mut self, _: u32, bits: u32) -> Result<u32, IntraError> {
        let mut value = 0;
        for _ in 0..bits {
            value = value << 1 | u32::from(self.interval.decode_upper());
            self.check()?;
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::super::bins::{golomb, golomb_bits, tree};
    use super::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    /// Decisions of all kinds with probabilities near and far from one half.
    fn code<B: Bins>(bins: &mut B, seed: u64, n: usize) -> Result<Vec<u32>, IntraError> {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut contexts = vec![Context::default(); 40];
        let mut out = Vec::new();
        for _ in 0..n {
            let which = rng.random_range(0..24usize);
            let sure = rng.random_range(0.0..1.0) < [0.5, 0.9, 0.999, 1.0][which % 4];
            let number = rng.random_range(0..4000u32);
            out.push(match which {
                0..20 => u32::from(bins.bit(&mut contexts[which], sure)?),
                20 => bins.raw(number, 12)?,
                21 => golomb(bins, number)?,
                22 => tree(bins, &mut contexts[24..], number & 15, 4)?,
                _ => bins.raw(number & 1, 1)?,
            });
        }
        Ok(out)
    }

    #[test]
    fn decisions_come_back() {
        for seed in 0..40 {
            let mut encoder = Encoder::default();
            let n = 1 + 97 * seed as usize;
            let wanted = code(&mut encoder, seed, n).unwrap();
            let bytes = encoder.finish();
            let mut decoder = Decoder::new(&bytes);
            assert_eq!(code(&mut decoder, seed, n).unwrap(), wanted, "seed {seed}");
            decoder.finish().unwrap();
        }
    }

    #[test]
    fn a_stream_of_sure_things_needs_almost_nothing() {
        // All ones keep `low` at zero, all zeros push it to the top: both ends of the interval.
        for bit in [true, false] {
            let (mut encoder, mut context) = (Encoder::default(), Context::default());
            for _ in 0..100_000 {
                encoder.bit(&mut context, bit).unwrap();
            }
            let bytes = encoder.finish();
            assert!(bytes.len() < 30, "{}", bytes.len());
            let (mut decoder, mut context) = (Decoder::new(&bytes), Context::default());
            for _ in 0..100_000 {
                assert_eq!(decoder.bit(&mut context, !bit).unwrap(), bit);
            }
            decoder.finish().unwrap();
        }
    }

    #[test]
    fn rate_is_near_the_entropy() {
        let (mut encoder, mut context) = (Encoder::default(), Context::default());
        let mut rng = StdRng::seed_from_u64(5);
        let n = 50_000;
        for _ in 0..n {
            encoder.bit(&mut context, rng.random_range(0.0..1.0) < 0.1).unwrap();
        }
        let bits = encoder.finish().len() as f64 * 8.0 / f64::from(n);
        let entropy = -(0.1f64 * 0.1f64.log2() + 0.9 * 0.9f64.log2());
        assert!(bits > 0.97 * entropy && bits < entropy + 0.01, "{bits} for {entropy}");
    }

    #[test]
    fn truncation_is_noticed_soon() {
        let mut encoder = Encoder::default();
        code(&mut encoder, 3, 5000).unwrap();
        let bytes = encoder.finish();
        for cut in [0, 1, 100, bytes.len() - 8] {
            assert_eq!(code(&mut Decoder::new(&bytes[..cut]), 3, 5000), Err(IntraError::Truncated));
        }
    }

    #[test]
    fn golomb_costs_what_it_says() {
        for value in [0, 1, 2, 7, 8, 1000, 65_000] {
            let mut counter = super::super::bins::Counter::default();
            golomb(&mut counter, value).unwrap();
            assert_eq!(counter.bits, golomb_bits(value) as f32);
        }
    }
}

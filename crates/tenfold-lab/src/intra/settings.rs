//! What is asked of the encoder.

use super::error::IntraError;
use super::quantise::Step;

/// Which stages take part. Each can be taken away alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stages {
    /// Blocks are predicted from decoded neighbours; without, around the middle of the range.
    pub prediction: bool,
    /// Levels are of DCT coefficients; without, of the samples themselves, at the same step.
    pub transform: bool,
    /// Levels and modes go through the adaptive arithmetic coder; without, in codes of fixed length.
    pub entropy: bool,
    /// Blocks may be predicted from the previous picture.
    pub inter: bool,
}

impl Stages {
    /// No stage but the quantiser.
    pub const NONE: Stages = Stages { prediction: false, transform: false, entropy: false, inter: false };
    /// Every stage of a codec of still pictures.
    pub const INTRA: Stages = Stages { prediction: true, transform: true, entropy: true, inter: false };

    pub(super) fn to_bits(self) -> u8 {
        let flags = [self.prediction, self.transform, self.entropy, self.inter];
        flags.iter().enumerate().map(|(i, &on)| u8::from(on) << i).sum()
    }

    pub(super) fn from_bits(bits: u8) -> Result<Self, IntraError> {
        if bits > 15 {
            return Err(IntraError::Corrupt("unknown stages"));
        }
        let on = |i: u8| bits >> i & 1 == 1;
        Ok(Stages { prediction: on(0), transform: on(1), entropy: on(2), inter: on(3) })
    }

    /// Whether anything depends on how the picture is cut. If not, large blocks only save flags.
    pub(super) fn wants_blocks(self) -> bool {
        self.prediction || self.transform || self.inter
    }
}

/// Everything that is asked of the encoder. Start from [`Settings::new`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// Stages that take part.
    pub stages: Stages,
    /// Quantiser step in samples, kept to 1/256.
    pub step: f64,
    /// Price of a bit in units of step². Default: 0.1. The high-rate theory of entropy-coded scalar
    /// quantisers says ln 2/6 ≈ 0.116, and on noise at 2 to 3 bits a little less came out best.
    pub lambda: f64,
    /// Modes of each block that are tried in full after a first look at all. Default: 4.
    pub candidates: usize,
    /// Smallest block as a power of two, 2 to 5. Default: 2.
    pub smallest: u8,
}

impl Settings {
    /// Settings for these stages and this step.
    pub fn new(stages: Stages, step: f64) -> Self {
        Settings { stages, step, lambda: 0.1, candidates: 4, smallest: 2 }
    }

    /// The step as stored, if everything is in range.
    pub(super) fn validate(&self) -> Result<Step, IntraError> {
        let bad = |what: String| Err(IntraError::Unsupported(what));
        if !(2..=5).contains(&self.smallest) {
            return bad(format!("blocks of 2^{}", self.smallest));
        }
        if self.candidates == 0 || !(self.lambda.is_finite() && self.lambda >= 0.0) {
            return bad("an encoder without candidates or without a price of a bit".to_string());
        }
        match Step::nearest(self.step) {
            Some(step) => Ok(step),
            None => bad(format!("a step of {}", self.step)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_round_trip() {
        for bits in 0..16 {
            assert_eq!(Stages::from_bits(bits).unwrap().to_bits(), bits);
        }
        assert!(Stages::from_bits(16).is_err());
    }

    #[test]
    fn settings_are_checked() {
        assert!(Settings::new(Stages::NONE, 4.0).validate().is_ok());
        for step in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
            assert!(Settings::new(Stages::NONE, step).validate().is_err(), "{step}");
        }
        let mut s = Settings::new(Stages::INTRA, 4.0);
        s.smallest = 6;
        assert!(s.validate().is_err());
    }
}

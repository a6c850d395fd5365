//! Goals and their grammar: one name each, in Rust, in recipes, in Python and, with hyphens, on the command line.

use crate::error::{Error, Result};

/// What the encoder must reach. One goal a call; the codec finds the step.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Goal {
    /// Bits a value, every byte of the blob counted.
    Bits(f64),
    /// Bytes of the tensor over bytes of the blob.
    Ratio(f64),
    /// Mean squared error at most this.
    Mse(f64),
    /// Mean squared error over the variance of the tensor at most this.
    Nmse(f64),
    /// No value is off by more than this.
    MaxError(f64),
    /// The blob takes at most this many bytes; the error is as small as that allows.
    MaxBytes(usize),
    /// Quantise with this step (spacing of a scalar quantiser of equal density is twice the step).
    Step(f64),
    /// Rounds to the nearest of 2^bits − 1 numbers, equally spaced, from minus the largest finite magnitude of the tensor to plus
    /// that: no value is off by more than half of what lies between two of them. `bits` is 2 to 16; entropy coding makes the
    /// blob smaller than that.
    RoundToNearest {
        /// log2 of one more than the numbers to round to.
        bits: u8,
    },
    /// Every bit comes back.
    Lossless,
}

/// An entry of [`Goal::NAMES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GoalName {
    /// The name, with underscores.
    pub name: &'static str,
    /// What number the goal takes.
    pub number: GoalNumber,
    /// What the goal means, in a line.
    pub help: &'static str,
}

/// What number a goal takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GoalNumber {
    /// None.
    Nothing,
    /// A positive, finite number.
    Positive,
    /// A whole number between these two.
    Whole(u64, u64),
}

use GoalNumber::{Nothing, Positive, Whole};

/// Beyond 2^53 an f64 skips whole numbers, and no tensor is as large.
const MAX_BYTES: u64 = 1 << 53;

const fn entry(name: &'static str, number: GoalNumber, help: &'static str) -> GoalName {
    GoalName { name, number, help }
}

impl Goal {
    /// The names of all goals, with what each takes and means.
    pub const NAMES: [GoalName; 9] = [
        entry("bits", Positive, "Bits a value, every byte of the blob counted; fractions are fine"),
        entry("ratio", Positive, "Bytes of each tensor over bytes of its blob"),
        entry("mse", Positive, "Mean squared error of each tensor at most this"),
        entry("nmse", Positive, "Mean squared error over the tensor's variance at most this"),
        entry("max_error", Positive, "No value off by more than this"),
        entry("max_bytes", Whole(0, MAX_BYTES), "Each compressed tensor takes at most this many bytes"),
        entry("step", Positive, "Quantise with this step, whatever rate and error that gives"),
        entry("round_bits", Whole(2, 16), "Round to the nearest of 2^N - 1 equally spaced numbers"),
        entry("lossless", Nothing, "Every bit comes back"),
    ];

    /// The goal of a name and, unless it is `lossless`, a number.
    ///
    /// ```
    /// use tenfold::Goal;
    /// assert_eq!(Goal::from_name("max_bytes", Some(4096.0))?, Goal::MaxBytes(4096));
    /// assert_eq!(Goal::from_name("lossless", None)?.name(), "lossless");
    /// assert!(Goal::from_name("bitz", Some(3.0)).unwrap_err().to_string().contains("bits, ratio"));
    /// # Ok::<(), tenfold::Error>(())
    /// ```
    pub fn from_name(name: &str, number: Option<f64>) -> Result<Goal> {
        let invalid = |why: String| Err(Error::InvalidArgument(why));
        let Some(entry) = Goal::NAMES.iter().find(|entry| entry.name == name) else {
            return invalid(format!("no goal is called {name:?}; goals are {}", Goal::list_names()));
        };
        let value = match (entry.number, number) {
            (Nothing, None) => 0.0,
            (Nothing, Some(_)) => return invalid(format!("{name} takes no number")),
            (_, None) => return invalid(format!("{name} needs a number")),
            (Positive, Some(value)) if value.is_finite() && value > 0.0 => value,
            (Positive, Some(value)) => {
                return invalid(format!("{name} must be a positive, finite number, not {value}"));
            }
            (Whole(low, high), Some(value)) => {
                if !(low as f64..=high as f64).contains(&value) || value.fract() != 0.0 {
                    return invalid(format!(
                        "{name} must be a whole number between {low} and {high}, not {value}"
                    ));
                }
                value
            }
        };
        Ok(match name {
            "bits" => Goal::Bits(value),
            "ratio" => Goal::Ratio(value),
            "mse" => Goal::Mse(value),
            "nmse" => Goal::Nmse(value),
            "max_error" => Goal::MaxError(value),
            // Both are whole and within their type, as was just checked.
            "max_bytes" => Goal::MaxBytes(value as usize),
            "round_bits" => Goal::RoundToNearest { bits: value as u8 },
            "step" => Goal::Step(value),
            _ => Goal::Lossless,
        })
    }

    /// The goal's name.
    pub fn name(self) -> &'static str {
        match self {
            Goal::Bits(_) => "bits",
            Goal::Ratio(_) => "ratio",
            Goal::Mse(_) => "mse",
            Goal::Nmse(_) => "nmse",
            Goal::MaxError(_) => "max_error",
            Goal::MaxBytes(_) => "max_bytes",
            Goal::Step(_) => "step",
            Goal::RoundToNearest { .. } => "round_bits",
            Goal::Lossless => "lossless",
        }
    }

    /// The goal's number; `None` for `lossless`.
    pub fn number(self) -> Option<f64> {
        match self {
            Goal::Bits(v)
            | Goal::Ratio(v)
            | Goal::Mse(v)
            | Goal::Nmse(v)
            | Goal::MaxError(v)
            | Goal::Step(v) => Some(v),
            Goal::MaxBytes(bytes) => Some(bytes as f64),
            Goal::RoundToNearest { bits } => Some(f64::from(bits)),
            Goal::Lossless => None,
        }
    }

    /// All names in a line, for messages.
    pub fn list_names() -> String {
        Goal::NAMES.map(|entry| entry.name).join(", ")
    }

    /// Whether the goal bounds the error of each value, which is impossible with transforms.
    pub fn bounds_each_value(self) -> bool {
        matches!(self, Goal::MaxError(_) | Goal::RoundToNearest { .. })
    }

    /// Checks the number. Any is valid for `max_bytes`: callers in Rust use `usize::MAX` for no limit.
    pub(crate) fn validate(self) -> Result<()> {
        match self {
            Goal::MaxBytes(_) => Ok(()),
            _ => Goal::from_name(self.name(), self.number()).map(|_| ()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_come_back() {
        for entry in Goal::NAMES {
            let number = (entry.number != Nothing).then_some(3.0);
            let goal = Goal::from_name(entry.name, number).unwrap();
            assert_eq!((goal.name(), goal.number()), (entry.name, number));
            let other = if number.is_some() { None } else { Some(3.0) };
            assert!(Goal::from_name(entry.name, other).unwrap_err().to_string().contains(entry.name));
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for entry in Goal::NAMES {
            for bad in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
                let fits = bad == 1e300 && entry.number == Positive;
                assert_eq!(Goal::from_name(entry.name, Some(bad)).is_ok(), fits, "{} {bad}", entry.name);
            }
        }
        assert!(
            Goal::from_name("max_bytes", Some(1.5)).is_err()
                && Goal::from_name("round_bits", Some(17.0)).is_err()
        );
        assert!(Goal::Bits(0.0).validate().is_err() && Goal::RoundToNearest { bits: 1 }.validate().is_err());
        assert!(Goal::MaxBytes(usize::MAX).validate().is_ok());
    }
}

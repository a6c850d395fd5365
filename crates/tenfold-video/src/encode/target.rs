//! A goal as a number that falls as the quantiser gets coarser.
//!
//! Rates are bits a value. Errors are −log2 of the root of the mean square (or of the largest), which moves
//! like bits: one for each halving of the step.

use tenfold::engine::search::{Slope, Tolerance, tolerance};
use tenfold::format::{Look, goal_behind};
use tenfold::{Error, Goal};

use super::subject::Subject;
use crate::codec::Quality;

/// What the search must reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Target {
    /// No search.
    Fixed(Quality),
    /// Bits a value, as near as can be.
    Bits(f64),
    /// At most so many bits a value.
    Cap(f64),
    /// Mean squared error of the values behind the transforms at most this.
    Mse(f64),
    /// Largest error at most this.
    MaxError(f64),
}

impl Target {
    pub(super) fn from_goal(
        subject: &Subject<'_>,
        goal: Goal,
        quality: Option<Quality>,
    ) -> Result<Target, Error> {
        let (view, bytes) = (subject.view, subject.bytes);
        if let Some(quality) = quality {
            return Ok(Target::Fixed(quality));
        }
        let unfit = |why: &str| Error::InvalidArgument(why.to_string());
        if bytes && goal != Goal::Lossless {
            return Err(unfit("integer tensors need lossless coding: ask for the goal lossless"));
        }
        let n = subject.len();
        let goal = match subject.transforms.is_empty() {
            true => goal,
            false => behind(subject, goal)?,
        };
        Ok(match goal {
            Goal::Bits(bits) => Target::Bits(bits),
            Goal::Ratio(ratio) => Target::Bits(view.dtype().size() as f64 * 8.0 / ratio),
            Goal::MaxBytes(cap) => Target::Cap(cap as f64 * 8.0 / n),
            Goal::Mse(mse) => Target::Mse(mse),
            Goal::Nmse(nmse) if subject.transforms.is_empty() => {
                Target::Mse(nmse * variance(&view.to_f64().unwrap_or_default()))
            }
            // Weighted errors are relative to weighted values.
            Goal::Nmse(nmse) => Target::Mse(nmse * variance(&subject.values)),
            Goal::MaxError(_) if !subject.transforms.is_empty() => {
                return Err(unfit("no transform can bound the error of each value; use another goal"));
            }
            Goal::MaxError(error) => Target::MaxError(error),
            Goal::Lossless if bytes => Target::Fixed(Quality::Lossless),
            Goal::Lossless => {
                return Err(unfit(
                    "pictures keep samples exactly, not real numbers; use the native codec, or ask for \
                     lossless samples",
                ));
            }
            _ => {
                return Err(unfit(
                    "only the native codec takes a step or rounds to the nearest; set the quantiser of the video encoder instead",
                ));
            }
        })
    }

    /// The number to reach.
    pub(super) fn want(&self) -> f64 {
        match *self {
            Target::Fixed(_) => 0.0,
            Target::Bits(bits) | Target::Cap(bits) => bits,
            Target::Mse(mse) => fineness(tolerance::VIDEO_ERROR.aim_at(mse).sqrt()),
            Target::MaxError(error) => fineness(tolerance::VIDEO_ERROR.aim_at(error)),
        }
    }

    /// Whether the goal is about error.
    pub(super) fn is_error(&self) -> bool {
        matches!(self, Target::Mse(_) | Target::MaxError(_))
    }

    /// A number as the search has it: a rate, or the reciprocal of a squared error.
    pub(super) fn quantity(&self, number: f64) -> f64 {
        if self.is_error() { (2.0 * number).exp2() } else { number }
    }

    /// How that answers to the step.
    pub(super) fn slope(&self) -> Slope {
        if self.is_error() { Slope::Fineness } else { Slope::Rate { bit: 1.0 } }
    }

    /// How far it may stay from the one wanted.
    pub(super) fn tolerance(&self) -> &'static Tolerance {
        match self {
            Target::Cap(_) => &tolerance::VIDEO_CAP,
            _ if self.is_error() => &tolerance::VIDEO_ERROR,
            _ => &tolerance::VIDEO_RATE,
        }
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        match self {
            Target::Fixed(_) => "a fixed quantiser".into(),
            Target::Bits(_) | Target::Cap(_) => self.describe(self.want()),
            Target::Mse(mse) => format!("a mean squared error of {mse:.3e}"),
            Target::MaxError(error) => format!("a largest error of {error:.3e}"),
        }
    }

    /// For people: what a trial reached.
    pub(super) fn describe(&self, reached: f64) -> String {
        match self {
            Target::Mse(_) => format!("{:.3e}", (-2.0 * reached).exp2()),
            Target::MaxError(_) => format!("{:.3e}", (-reached).exp2()),
            _ => format!("{reached:.3} bits a value"),
        }
    }
}

/// −log2 of an error; errors of nothing count as very small ones, with squares that are numbers.
pub(super) fn fineness(error: f64) -> f64 {
    -error.max(1e-150).log2()
}

/// A goal of the tensor as one of the values behind its transforms, of whose errors what they lose for good is no part.
fn behind(subject: &Subject<'_>, goal: Goal) -> Result<Goal, Error> {
    let view = subject.view;
    let shape = (view.rows(), view.cols());
    let found = goal_behind(&subject.transforms, goal, shape, subject.lost, || Look::new(view).map(Some))?;
    found.ok_or_else(|| {
        let why = "the transforms and rounding to the dtype alone lose more than the goal allows; use a basis with more vectors";
        Error::InvalidArgument(why.into())
    })
}

fn variance(values: &[f64]) -> f64 {
    let finite = || values.iter().filter(|v| v.is_finite());
    let n = finite().count().max(1) as f64;
    let mean = finite().sum::<f64>() / n;
    finite().map(|v| (v - mean).powi(2)).sum::<f64>() / n
}

//! Which step gives the size, or the error, that is wanted? One search for every part of tenfold that asks.
//!
//! A quantity that falls as a knob is turned up is measured at one knob after another, from a start that the caller hands in.
//! [`Slope`] says what a first move is worth, [`Bracket`] where to try after that, [`Tolerance`] when a trial is near enough;
//! [`Search`] puts them together. What counts as kept, and which trial is the best so far, is the caller's to know.
//!
//! ```
//! use tenfold::engine::search::{Point, Search, Slope, tolerance};
//! // Bytes of a thousand values: a bit less for each octave of the step.
//! let bytes = |step: f64| 125.0 * (5.0 - step.log2());
//! let search = Search::new(375.0, Slope::bytes(1000.0), &tolerance::FINE_SAMPLE);
//! let step = search.run(1.0, |step| Ok::<_, ()>(Some(Point { knob: step, got: bytes(step) }))).unwrap();
//! assert!((bytes(step) / 375.0 - 1.0).abs() < 0.0015);
//! ```

mod bracket;
mod halve;
mod ladder;
mod slope;
pub mod tolerance;

pub use bracket::{Bracket, MOVES, Moves};
pub use halve::{EXACT, gaussian_step, halve};
pub use ladder::{Rung, last_rung};
pub use slope::{SLOPES, Slope, Slopes};
pub use tolerance::Tolerance;

/// A trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// The knob as it was set: a header may hold it less precisely than it was asked for.
    pub knob: f64,
    /// What it gave.
    pub got: f64,
}

/// A search for the knob that gives what is wanted.
#[derive(Debug, Clone)]
pub struct Search<'a> {
    want: f64,
    slope: Slope,
    tolerance: &'a Tolerance,
    bracket: Bracket,
    round: usize,
}

impl<'a> Search<'a> {
    /// Nothing is known yet.
    pub fn new(want: f64, slope: Slope, tolerance: &'a Tolerance) -> Self {
        Search { want, slope, tolerance, bracket: Bracket::default(), round: 0 }
    }

    /// Takes in a trial that need not be made.
    pub fn with_known(mut self, known: Point) -> Self {
        self.note(known);
        self
    }

    /// What is wanted.
    pub fn want(&self) -> f64 {
        self.want
    }

    /// How much more a trial gave than is wanted, as a share of that.
    pub fn off(&self, got: f64) -> f64 {
        got / self.want - 1.0
    }

    /// Whether a trial of this round is near enough.
    pub fn is_near(&self, got: f64) -> bool {
        self.tolerance.is_near(self.off(got), self.round)
    }

    /// Whether nothing is left to try between the trials so far.
    pub fn is_closed(&self) -> bool {
        self.tolerance.is_closed(self.bracket.width(), self.round)
    }

    /// Wants another amount from now on, and forgets where the former lies.
    pub fn aim_at(&mut self, want: f64) {
        self.want = want;
        self.bracket = Bracket::default();
    }

    /// Ends a round with its trial, and tells what to try in the next.
    pub fn next(&mut self, trial: Point) -> f64 {
        self.note(trial);
        self.round += 1;
        let guess = self.slope.factor(trial.got, self.want, self.tolerance.damping);
        self.bracket.next(self.want.ln(), guess.log2()).exp2()
    }

    fn note(&mut self, trial: Point) {
        let got = trial.got.max(f64::MIN_POSITIVE);
        self.bracket.note(trial.knob.log2(), got.ln(), self.want.ln());
    }

    /// Tries one knob after another from `start` on, until a trial is near enough, none more is of use, or `trial` has none to
    /// make. Returns the knob that was near enough, or the one that would have been tried next.
    pub fn run<E>(
        mut self,
        start: f64,
        mut trial: impl FnMut(f64) -> Result<Option<Point>, E>,
    ) -> Result<f64, E> {
        let mut knob = start;
        while self.round < self.tolerance.rounds && knob.is_normal() {
            let Some(point) = trial(knob)? else { break };
            if self.is_near(point.got) {
                return Ok(point.knob);
            }
            knob = self.next(point);
            if self.is_closed() {
                break;
            }
        }
        Ok(knob)
    }
}

#[cfg(test)]
mod tests;

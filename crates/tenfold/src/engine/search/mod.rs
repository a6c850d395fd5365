//! Finds the step that gives a wanted size or error: one search for all parts of tenfold.
//!
//! It measures a quantity that falls as a knob is turned up, from a start that the caller passes. [`Slope`] sets the
//! first move, [`Bracket`] those after it, [`Tolerance`] when a trial is near enough; [`Search`] combines them. The
//! caller decides which trial is the best so far.
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
    /// The knob as set: a header may store it less precisely than requested.
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

    /// Adds a trial whose result is already known.
    pub fn with_known(mut self, known: Point) -> Self {
        self.note(known);
        self
    }

    /// What is wanted.
    pub fn want(&self) -> f64 {
        self.want
    }

    /// Relative deviation of a trial from the goal.
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

    /// Changes the goal and forgets the bracket of the old one.
    pub fn aim_at(&mut self, want: f64) {
        self.want = want;
        self.bracket = Bracket::default();
    }

    /// Ends a round with its trial and returns what to try next.
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

    /// Tries knobs from `start` on until a trial is near enough, no other can help, or `trial` returns none. Returns
    /// the knob that was near enough, or the one that would come next.
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

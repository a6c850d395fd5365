//! Finds where a falling quantity passes the wanted value, from the trials so far.
//!
//! The line is octaves of a knob (log2 of a step, of a weight). The quantity should fall evenly along it, as the
//! logarithm of a size does.

/// How far one trial may lead.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moves {
    /// Factor beyond where the last two trials point, while both lie on one side of the goal.
    pub beyond: f64,
    /// Times the first guess, at least, on such a move.
    pub least: f64,
    /// Octaves, at most.
    pub farthest: f64,
    /// Fraction of an interval that trials keep away from its ends: otherwise one end alone could move for ever.
    pub clear: f64,
    /// Trials in a row on one side of the goal after which the interval is halved: the curve has a step, and a line through its
    /// ends says little.
    pub creep: usize,
}

/// The moves of every search.
pub const MOVES: Moves = Moves { beyond: 1.3, least: 1.6, farthest: 6.0, clear: 0.08, creep: 3 };

/// A trial: where on the line, and the number there.
type At = (f64, f64);

/// What has been tried so far.
#[derive(Debug, Clone, Default)]
pub struct Bracket {
    /// The farthest trial along the line that gave too much.
    over: Option<At>,
    /// The nearest trial that did not.
    under: Option<At>,
    /// The last two trials.
    last: [Option<At>; 2],
    /// How many trials in a row, the last one included, lie on its side of the goal.
    alike: usize,
}

impl Bracket {
    /// Notes a trial.
    pub fn note(&mut self, x: f64, y: f64, want: f64) {
        self.alike =
            if self.last[0].is_some_and(|l| (l.1 > want) == (y > want)) { self.alike + 1 } else { 1 };
        self.last = [Some((x, y)), self.last[0]];
        if y > want {
            self.over = self.over.filter(|o| o.0 > x).or(Some((x, y)));
        } else {
            self.under = self.under.filter(|u| u.0 < x).or(Some((x, y)));
        }
    }

    /// Octaves between the two trials that enclose the goal, if there are two.
    pub fn width(&self) -> Option<f64> {
        Some((self.under?.0 - self.over?.0).abs())
    }

    /// Where to try next: between the two trials that enclose the goal, or else beyond the last. `guess` is the usual
    /// number of octaves.
    pub fn next(&self, want: f64, guess: f64) -> f64 {
        if let (Some(over), Some(under)) = (self.over, self.under) {
            let share = (want - over.1) / (under.1 - over.1);
            let share = if share.is_finite() && self.alike < MOVES.creep {
                share.clamp(MOVES.clear, 1.0 - MOVES.clear)
            } else {
                0.5
            };
            return over.0 + (under.0 - over.0) * share;
        }
        let (from, by) = match self.last {
            [Some(now), Some(before)] => {
                let line = MOVES.beyond * (want - now.1) * (now.0 - before.0) / (now.1 - before.1);
                let line = if line.is_finite() { line } else { 0.0 };
                // At least as far as the guess, and in its direction.
                let least = MOVES.least * guess;
                (now.0, if guess > 0.0 { line.max(least) } else { line.min(least) })
            }
            [Some(now), None] => (now.0, guess),
            _ => (0.0, guess),
        };
        from + by.clamp(-MOVES.farthest, MOVES.farthest)
    }
}

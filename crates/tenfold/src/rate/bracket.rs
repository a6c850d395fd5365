//! Root finding for a quantity that falls as a knob (the step, the weight of a bit) is turned up.

/// What has been tried so far: log2 of the knob and the logarithm of what it gave.
#[derive(Default)]
pub(crate) struct Bracket {
    /// The largest knob that gave too much.
    over: Option<(f64, f64)>,
    /// The smallest knob that gave too little.
    under: Option<(f64, f64)>,
    /// The last two trials.
    last: [Option<(f64, f64)>; 2],
}

impl Bracket {
    /// Notes a trial.
    pub(crate) fn note(&mut self, knob: f64, got: f64, want: f64) {
        let point = (knob.log2(), got.max(f64::MIN_POSITIVE).ln());
        self.last = [Some(point), self.last[0]];
        if got > want {
            self.over = Some(self.over.filter(|o| o.0 > point.0).unwrap_or(point));
        } else {
            self.under = Some(self.under.filter(|u| u.0 < point.0).unwrap_or(point));
        }
    }

    /// log2 of the ratio between the two knobs that enclose the target, if both are known.
    pub(crate) fn width(&self) -> Option<f64> {
        Some((self.under?.0 - self.over?.0).abs())
    }

    /// What to try next: between the two; with one of them known, a little beyond where the last two trials
    /// point; after the first trial, by `guess` (a factor).
    pub(crate) fn next(&self, knob: f64, want: f64, guess: f64) -> f64 {
        let (Some(a), Some(b)) = (self.over, self.under) else {
            let ahead = match self.last {
                [Some(now), Some(before)] => {
                    1.3 * (want.ln() - now.1) * (now.0 - before.0) / (now.1 - before.1)
                }
                _ => 0.0,
            };
            // At least as far as the guess, and in its direction.
            let ahead = if ahead.is_finite() { ahead } else { 0.0 };
            let least = guess.log2();
            let by = if least > 0.0 { ahead.max(1.6 * least) } else { ahead.min(1.6 * least) };
            let by = if self.last[1].is_none() { least } else { by };
            return knob * by.clamp(-6.0, 6.0).exp2();
        };
        let at = (want.ln() - a.1) / (b.1 - a.1);
        // Stay away from the ends: a trial that moves only one of them for ever would not end.
        (a.0 + (b.0 - a.0) * if at.is_finite() { at.clamp(0.08, 0.92) } else { 0.5 }).exp2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_step_of_steep_and_flat_curves() {
        let curves: [fn(f64) -> f64; 3] =
            [|s| 1000.0 / s, |s| 100.0 / (1.0 + s.powi(8)) + 1.0, |s| 500.0 - 10.0 * s];
        for f in curves {
            let want = f(1.7);
            let mut bracket = Bracket::default();
            let mut step = 0.9;
            for _ in 0..14 {
                let got = f(step);
                bracket.note(step, got, want);
                step = bracket.next(step, want, if got > want { 1.5 } else { 0.6 });
            }
            assert!((f(step) / want - 1.0).abs() < 1e-3, "{step}");
        }
    }
}

//! Root finding for a quantity that falls as a knob (the step, the weight of a bit) is turned up.

/// What has been tried so far: log2 of the knob and the logarithm of what it gave.
#[derive(Default)]
pub(crate) struct Bracket {
    /// The largest knob that gave too much.
    over: Option<(f64, f64)>,
    /// The smallest knob that gave too little.
    under: Option<(f64, f64)>,
    /// Trials so far.
    trials: i32,
}

impl Bracket {
    /// Notes a trial.
    pub(crate) fn note(&mut self, knob: f64, got: f64, want: f64) {
        self.trials += 1;
        let point = (knob.log2(), got.max(f64::MIN_POSITIVE).ln());
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

    /// What to try next: between the two, or beyond the one known by `guess` (a factor), going further
    /// each time.
    pub(crate) fn next(&self, knob: f64, want: f64, guess: f64) -> f64 {
        let (Some(a), Some(b)) = (self.over, self.under) else {
            let further = 1.6f64.powi(self.trials - 1);
            return knob * guess.powf(further.max(1.0)).clamp(1.0 / 64.0, 64.0);
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

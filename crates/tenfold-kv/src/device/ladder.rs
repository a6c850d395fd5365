//! The steps of many pages under caps, looked for at once: each gets one at which its blobs fill the bytes that they may take.
//!
//! Steps are rungs of a ladder. [`Search`](tenfold::engine::search::Search) asks for one trial after the other; here all pages wait for the same
//! device, so each keeps its place in a search of its own. What a page is tried at depends on its own sizes and what was guessed of them, and so does where it ends:
//! the pages beside it make no difference.

use tenfold::engine::search::Bracket;
use tenfold::engine::search::tolerance::PAGES;
use tenfold_cuda::PageSizes;

/// Rungs from a step to twice the step; the first that is tried where nothing is guessed, and how far the ladder reaches.
const OCTAVE: f64 = 64.0;
const FIRST: i32 = -3 * 64;
const ENDS: (i32, i32) = (-20 * 64, 20 * 64);

/// Pages on their way to their steps.
#[derive(Debug, Clone)]
pub struct Ladder {
    pages: Vec<Climber>,
}

#[derive(Debug, Clone, Default)]
struct Climber {
    budget: usize,
    /// Of each blob: what its steps are multiplied by, and what was guessed of its size.
    blobs: Vec<(f64, PageSizes)>,
    /// Where it stands, until its step is found.
    at: Option<i32>,
    /// The highest rung at which it was too large, and the lowest at which it was not.
    low: Option<i32>,
    high: Option<i32>,
    /// All trials: octaves of the step, and of bytes.
    bracket: Bracket,
    trials: usize,
}

/// The step of a rung.
fn step_of(rung: i32) -> f64 {
    (f64::from(rung) / OCTAVE).exp2()
}

impl Ladder {
    /// Pages with their budgets, those without one left out, and of each what was guessed of its blobs.
    pub(super) fn new(budgets: &[Option<usize>], guessed: impl Fn(usize) -> Vec<(f64, PageSizes)>) -> Ladder {
        let page = |(page, budget): (usize, &Option<usize>)| match budget.filter(|budget| *budget > 0) {
            None => Climber::default(),
            Some(budget) => {
                let mut climber = Climber { budget, blobs: guessed(page), ..Climber::default() };
                climber.at = Some(climber.solve(1.0).unwrap_or(FIRST));
                climber
            }
        };
        Ladder { pages: budgets.iter().enumerate().map(page).collect() }
    }

    /// Pages that are to be tried next, and the step of each.
    pub fn standing(&self) -> Vec<(usize, f64)> {
        let pages = self.pages.iter().enumerate();
        pages.filter_map(|(number, page)| Some((number, step_of(page.at?)))).collect()
    }

    /// Learns how many bytes a page's blobs take where it stands, or that a device does not make them, and goes on. Whether the page stays
    /// as it was made.
    pub fn tried(&mut self, page: usize, size: Option<usize>) -> bool {
        self.pages.get_mut(page).is_some_and(|page| page.tried(size))
    }
}

impl Climber {
    fn tried(&mut self, size: Option<usize>) -> bool {
        let (Some(at), Some(size)) = (self.at.take(), size) else { return false };
        self.trials += 1;
        let fits = size <= self.budget;
        // Where the search has ended before, at a page that was not kept.
        if fits && self.high == Some(at) {
            return true;
        }
        let (late, after) = PAGES.late;
        let under = if self.trials > after { late } else { PAGES.under };
        if fits && size as f64 >= self.aim() * (1.0 - under) {
            return true;
        }
        match fits {
            true => self.high = Some(at),
            false => self.low = Some(at),
        }
        self.bracket.note(f64::from(at) / OCTAVE, (size.max(1) as f64).log2(), self.aim().log2());
        let closed = self.low.zip(self.high).is_some_and(|(low, high)| high - low <= 1);
        if closed || self.trials >= PAGES.rounds {
            // Nothing lies between: the best that fits, which may be where the page stands.
            self.at = self.high.filter(|best| *best != at);
            return self.high == Some(at);
        }
        let next = self.next(at, size);
        match (ENDS.0..=ENDS.1).contains(&next) {
            true => self.at = Some(next),
            // As fine as steps go, or no step is coarse enough.
            false => return fits,
        }
        false
    }

    /// Bytes that are aimed at.
    fn aim(&self) -> f64 {
        PAGES.aim * self.budget as f64
    }

    fn next(&self, at: i32, size: usize) -> i32 {
        // Where the guess was off, it is off by as much a little further on. Twice: then trials know better.
        let guessed = self.guess(at).filter(|_| self.trials <= PAGES.late.1);
        let solved = guessed.and_then(|guess| self.solve(size as f64 / guess.max(1.0)));
        let octaves = (size.max(1) as f64 / self.aim()).log2();
        let next =
            solved.unwrap_or_else(|| (self.bracket.next(self.aim().log2(), octaves) * OCTAVE).round() as i32);
        match (self.low, self.high) {
            (Some(low), Some(high)) => next.clamp(low + 1, high - 1),
            // Ever further, until both sides are known.
            (Some(low), None) => next.max(low + 2),
            (None, Some(high)) => next.min(high - 2),
            (None, None) => next,
        }
    }

    /// Bytes that blobs are thought to take on a rung.
    fn guess(&self, rung: i32) -> Option<f64> {
        let step = step_of(rung);
        let bytes = |(factor, sizes): &(f64, PageSizes)| sizes.bits_at(step * factor) / 8.0;
        let sum: f64 = self.blobs.iter().map(bytes).sum();
        (!self.blobs.is_empty() && sum.is_finite()).then_some(sum)
    }

    /// The first rung at which they are thought to fill the budget, all guesses being off by a factor.
    fn solve(&self, off: f64) -> Option<i32> {
        let want = self.aim();
        let (mut low, mut high) = ENDS;
        self.guess(low)?;
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match self.guess(middle)? * off > want {
                true => low = middle,
                false => high = middle,
            }
        }
        Some(high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Climbs with sizes by step, and says at which step a page ended, after how many trials.
    fn climb(budget: usize, size: impl Fn(f64) -> Option<usize>) -> (Option<f64>, usize) {
        let mut ladder = Ladder::new(&[None, Some(budget)], |_| Vec::new());
        let mut trials = 0;
        while let Some(&(page, step)) = ladder.standing().first() {
            trials += 1;
            assert!(page == 1 && trials <= 2 * PAGES.rounds, "one page climbs, and comes to an end");
            if ladder.tried(page, size(step)) {
                assert!(ladder.standing().is_empty());
                return (Some(step), trials);
            }
        }
        (None, trials)
    }

    #[test]
    fn a_page_fills_its_bytes() {
        for budget in [900, 40_000, 1_000_000] {
            let size = |step: f64| Some((80.0 + 1e5 / step.powf(0.7)) as usize);
            let (step, trials) = climb(budget, size);
            let got = size(step.expect("it fits")).expect("it has a size");
            assert!(got <= budget && got as f64 > 0.96 * budget as f64, "{got} of {budget}");
            assert!(trials <= 7, "{trials} trials");
        }
    }

    #[test]
    fn steps_in_sizes_end_at_the_best_that_fits() {
        let size = |step: f64| Some(if step > 3.0 { 100 } else { 1000 });
        let (step, _) = climb(500, size);
        let step = step.expect("it fits");
        assert!(step > 3.0 && step < 3.1, "{step}");
    }

    #[test]
    fn what_never_fits_or_is_not_made_ends() {
        assert_eq!(climb(500, |_| Some(600)).0, None);
        assert_eq!(climb(500, |_| None), (None, 1));
        assert_eq!(climb(0, |_| Some(1)), (None, 0));
    }

    #[test]
    fn what_is_always_small_is_as_fine_as_steps_go() {
        let (step, _) = climb(500, |_| Some(40));
        assert!(step.is_some_and(|step| step < 1.0 / 1024.0), "{step:?}");
    }
}

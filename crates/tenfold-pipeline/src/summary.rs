//! What stages did: bytes, busy time, and how much of the possible overlap was reached.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::Span;

/// One stage of a [`Summary`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StageSummary {
    /// Its name.
    pub stage: String,
    /// Pieces of work.
    pub items: u64,
    /// Bytes that went through.
    pub bytes: u64,
    /// Seconds during which at least one of its workers was busy.
    pub busy: f64,
}

/// What the stages of a pipeline did.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Summary {
    /// The stages, in the order in which they first worked.
    pub stages: Vec<StageSummary>,
    /// Seconds from the first beginning to the last end.
    pub seconds: f64,
}

impl Summary {
    pub(super) fn of(spans: &[Span]) -> Summary {
        let mut by_begin: Vec<&Span> = spans.iter().collect();
        by_begin.sort_by_key(|span| span.begin);
        let mut stages: Vec<(StageSummary, Duration)> = Vec::new();
        for span in &by_begin {
            let at = stages.iter().position(|(stage, _)| stage.stage == span.stage).unwrap_or_else(|| {
                let stage = StageSummary { stage: span.stage.to_string(), items: 0, bytes: 0, busy: 0.0 };
                stages.push((stage, span.begin));
                stages.len() - 1
            });
            let (stage, until) = &mut stages[at];
            stage.items += 1;
            stage.bytes += span.bytes;
            // Spans come by their beginnings: what lies after the latest end so far is new.
            stage.busy += span.end.saturating_sub(span.begin.max(*until)).as_secs_f64();
            *until = span.end.max(*until);
        }
        let begin = by_begin.first().map_or(Duration::ZERO, |span| span.begin);
        let end = spans.iter().map(|span| span.end).max().unwrap_or_default();
        let seconds = end.saturating_sub(begin).as_secs_f64();
        Summary { stages: stages.into_iter().map(|(stage, _)| stage).collect(), seconds }
    }

    /// The stage of this name.
    pub fn stage(&self, name: &str) -> Option<&StageSummary> {
        self.stages.iter().find(|stage| stage.stage == name)
    }

    /// Seconds of the slowest stage: no pipeline of these stages takes less.
    pub fn slowest(&self) -> f64 {
        self.stages.iter().map(|stage| stage.busy).fold(0.0, f64::max)
    }

    /// Rate reached, as a share of the slowest stage's rate: 1 is the most that is possible.
    pub fn of_slowest(&self) -> f64 {
        if self.seconds > 0.0 { (self.slowest() / self.seconds).min(1.0) } else { 1.0 }
    }

    /// Overlap reached over possible: time saved against stages one after the other, over the time that the slowest stage alone would
    /// have saved. 1 without anything to overlap; 0 where stages took turns.
    pub fn overlap(&self) -> f64 {
        let one_by_one: f64 = self.stages.iter().map(|stage| stage.busy).sum();
        let possible = one_by_one - self.slowest();
        if possible <= 1e-9 { 1.0 } else { ((one_by_one - self.seconds) / possible).clamp(0.0, 1.0) }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for stage in &self.stages {
            let rate = stage.bytes as f64 / 1e6 / stage.busy.max(1e-9);
            writeln!(
                f,
                "{:<10} {:>6} items {:>10.1} MB {:>8.2} s busy {:>9.1} MB/s",
                stage.stage,
                stage.items,
                stage.bytes as f64 / 1e6,
                stage.busy,
                rate
            )?;
        }
        write!(
            f,
            "{:.2} s; {:.0} % of the slowest stage's rate; overlap {:.0} % of what is possible",
            self.seconds,
            100.0 * self.of_slowest(),
            100.0 * self.overlap()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(stage: &'static str, begin: u64, end: u64) -> Span {
        let at = Duration::from_secs;
        Span {
            stage: stage.into(),
            worker: 0,
            item: String::new(),
            begin: at(begin),
            end: at(end),
            bytes: 10,
        }
    }

    #[test]
    fn workers_that_are_busy_at_once_count_once() {
        let summary = Summary::of(&[span("a", 0, 4), span("a", 2, 3), span("a", 3, 6), span("a", 8, 9)]);
        assert_eq!((summary.stages[0].busy, summary.stages[0].items, summary.stages[0].bytes), (7.0, 4, 40));
        assert_eq!(summary.seconds, 9.0);
    }

    #[test]
    fn overlap_is_one_for_a_full_pipeline_and_zero_for_turns() {
        let turns = Summary::of(&[span("a", 0, 2), span("b", 2, 6)]);
        assert_eq!((turns.overlap(), turns.slowest()), (0.0, 4.0));
        let full = Summary::of(&[span("a", 0, 2), span("b", 0, 4)]);
        assert_eq!((full.overlap(), full.of_slowest()), (1.0, 1.0));
        let half = Summary::of(&[span("a", 0, 2), span("b", 1, 5)]);
        assert_eq!((half.overlap(), half.of_slowest()), (0.5, 0.8));
        assert_eq!(Summary::of(&[]).overlap(), 1.0);
    }
}

//! Pages that share bytes: one step for all, so that a page that is hard to code gets more of them.

use tenfold::engine::Stop;
use tenfold::engine::search::tolerance::CONTEXT;
use tenfold::engine::search::{Point, Search, Slope};
use tenfold::{Error, Goal};

use super::codec::{Page, PageCodec};
use super::encode;
use crate::error::Result;

/// How much coarser each step is that is tried where none near the cap keeps to it.
const COARSER: f64 = 1.5;

pub(super) fn encode(
    codec: &PageCodec,
    pages: &[Page<'_>],
    cap: usize,
    threads: usize,
    stop: &Stop,
) -> Result<Vec<Vec<u8>>> {
    // The middle page is as good as any to start from.
    let Some(middle) = pages.get(pages.len() / 2) else { return Ok(Vec::new()) };
    let start = encode::start_step(codec, middle, cap / pages.len())?;
    let values = |page: &Page<'_>| page.layers.iter().map(|l| l.keys.len() + l.values.len()).sum::<usize>();
    let all: usize = pages.iter().map(values).sum();
    let mut trials = Trials { cap, best: None, least: usize::MAX, coarsest: start };
    let search = Search::new(CONTEXT.aim * cap as f64, Slope::bytes(all as f64), &CONTEXT);
    search.run(start, |step| {
        let made = codec.encode_all_until(pages, Goal::Step(step), threads, stop)?;
        let got = trials.note(step, made.into_iter().collect::<Result<_>>()?);
        Ok::<_, crate::Error>(Some(Point { knob: step, got: got as f64 }))
    })?;
    for _ in 0..CONTEXT.retreat {
        if trials.best.is_some() {
            break;
        }
        let step = COARSER * trials.coarsest;
        let made = codec.encode_all_until(pages, Goal::Step(step), threads, stop)?;
        trials.note(step, made.into_iter().collect::<Result<_>>()?);
    }
    let none = Error::DoesNotFit { cap: cap as u64, need: trials.least as u64 };
    trials.best.map(|(_, made)| made).ok_or(none.into())
}

/// What has been tried.
struct Trials {
    cap: usize,
    /// The largest that keeps to the cap.
    best: Option<(usize, Vec<Vec<u8>>)>,
    /// Bytes of the smallest.
    least: usize,
    coarsest: f64,
}

impl Trials {
    /// Adds the pages of a step; returns their bytes.
    fn note(&mut self, step: f64, made: Vec<Vec<u8>>) -> usize {
        let bytes: usize = made.iter().map(Vec::len).sum();
        self.least = self.least.min(bytes);
        self.coarsest = self.coarsest.max(step);
        if bytes <= self.cap && self.best.as_ref().is_none_or(|(most, _)| bytes > *most) {
            self.best = Some((bytes, made));
        }
        bytes
    }
}

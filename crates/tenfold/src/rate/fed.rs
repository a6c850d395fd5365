//! Levels of a matrix whose errors are fed back: the same search for a step, with passes of another kind.

use super::Target;
use super::encoding::Encoding;
use super::label::Label;
use super::scan::scan;
use crate::calibrated::Feed;
use crate::engine::Outcome;
use crate::error::Result;
use crate::levels::{Exact, Plan, Quantised, TileWork, tile_of_levels};
use crate::options::{Effort, EncodeOptions};
use crate::simd::Isa;
use crate::view::TensorView;
use crate::workers::Workers;

/// Encodes a matrix with the step that reaches the target, feeding errors back. `view` has the values of `feed`.
pub(crate) fn encode_fed(
    view: &TensorView<'_>,
    feed: &Feed,
    label: &Label<'_>,
    options: &EncodeOptions,
    workers: &Workers,
    target: Target,
) -> Result<Outcome> {
    let isa = Isa::detect();
    let seen = scan(view, isa, workers, false)?;
    // 1. A first step for the matrix itself; which quantiser makes the errors matters little here.
    let quick = options.clone().with_effort(Effort::Fast);
    let first = Encoding::new(view, label, &quick, workers, isa, seen);
    if first.scan.all_zero {
        return first.encode_trivial();
    }
    let Some(plan) = first.settle(target)? else { return Ok(Outcome::Failed(None)) };
    // 2. What is quantised is the matrix with the errors that are fed to it: classes, costs and step are for that.
    let fed = feed.fed(&plan, workers)?;
    let view = TensorView::from_slice(&fed, view.shape())?;
    let seen = scan(&view, isa, workers, false)?;
    let mut encoding = Encoding::new(&view, label, options, workers, isa, seen);
    encoding.feed = Some(feed);
    // 3. Passes over all of it, until one reaches the target.
    encoding.run(target)
}

impl Encoding<'_> {
    /// Quantises everything, column by column.
    pub(super) fn quantise_fed(&self, feed: &Feed, plan: &Plan) -> Result<Vec<Quantised>> {
        let pass = feed.levels(plan, self.workers)?;
        let n = self.view.len();
        self.workers.map(plan.geometry.tiles(n), TileWork::default, |work, i| {
            let tile = plan.geometry.tile(i, n);
            let end = tile.start + tile.len;
            let mut exact = Exact::default();
            let from = pass.exact.partition_point(|e| e.0 < tile.start);
            for (at, v) in pass.exact[from..].iter().take_while(|e| e.0 < end) {
                exact.push(at - tile.start, &v.to_le_bytes());
            }
            tile_of_levels(plan, tile, &pass.levels[tile.start..end], exact, work)
        })
    }
}

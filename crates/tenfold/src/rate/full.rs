//! A pass over the whole tensor: every tile quantised, and written where that is the way to learn a size.

use super::Target;
use super::encoding::Encoding;
use crate::blob::{Parts, Sealed};
use crate::entropy::ESCAPE;
use crate::entropy::rans::WordStack;
use crate::error::Result;
use crate::levels::{self, Plan, Quantised, TileTable, TileWork, pack_tile, quantise_tile};
use crate::options::Effort;

/// Tensors of fewer values are written to learn their size.
pub(super) const WRITE_BELOW: usize = 1 << 17;

/// Tensors of at least this many values are streamed at the lowest effort.
const STREAM_FROM: usize = 1 << 20;

/// A tensor quantised in full.
pub(super) struct Full {
    pub(super) tiles: Vec<Quantised>,
    head: levels::LevelsParams,
    /// Written already, if it is small.
    pub(super) blob: Option<Parts>,
    pub(super) error: f64,
    /// What to hold against [`Encoding::want`].
    pub(super) got: f64,
}

impl Full {
    pub(super) fn into_blob(self, encoding: &Encoding<'_>, plan: &Plan) -> Result<Parts> {
        match self.blob {
            Some(blob) => Ok(blob),
            None => encoding.write(plan, &self.head, &self.tiles),
        }
    }
}

impl Encoding<'_> {
    /// Quantises everything and tells how large it is or how good.
    pub(super) fn encode_all(&self, plan: &Plan, target: Target) -> Result<Full> {
        if self.is_streamed() && !plan.measure {
            return self.encode_stream(plan);
        }
        let tiles = self.quantise(plan)?;
        let head = self.head(plan, &tiles);
        let error = tiles.iter().map(|t| t.squared_error).sum::<f64>();
        let mut full = Full { tiles, head, blob: None, error, got: 0.0 };
        match target {
            // Small blobs are written rather than predicted: a few bytes matter, and it is quick.
            Target::Bytes(_) | Target::Cap(_) if self.view.len() < WRITE_BELOW => {
                let blob = self.write(plan, &full.head, &full.tiles)?;
                full.got = blob.blob_len() as f64;
                full.blob = Some(blob);
            }
            Target::Bytes(_) | Target::Cap(_) => full.got = self.predict(&full.head, &full.tiles),
            Target::Mse(_) => full.got = self.scan.finite as f64 / error.max(f64::MIN_POSITIVE),
            _ => {}
        }
        Ok(full)
    }

    /// Whether tiles are coded as soon as they are quantised.
    pub(super) fn is_streamed(&self) -> bool {
        self.options.effort == Effort::Fast && self.view.len() >= STREAM_FROM && self.feed.is_none()
    }

    /// Encodes tile by tile with tables from the sample: nothing is kept between quantising and coding,
    /// and nothing is counted. What the sample has not seen escapes.
    pub(super) fn encode_stream(&self, plan: &Plan) -> Result<Full> {
        let head = self.expected_head(plan)?;
        let table = TileTable::new(&head);
        let mut plan = plan.clone();
        plan.count = false;
        let (n, size) = (self.view.len(), self.view.dtype().size());
        let tiles = self.workers.map(plan.geometry.tiles(n), Default::default, |work, i| {
            let (quantise, stack): &mut (TileWork, WordStack) = work;
            let tile = quantise_tile(&plan, self.view, plan.geometry.tile(i, n), quantise);
            let bytes = pack_tile(plan.isa, &table, plan.geometry.lanes, size, &tile, stack);
            quantise.reuse(tile);
            Sealed::new(bytes)
        })?;
        let blob = self.assemble(head.clone(), tiles)?;
        Ok(Full { tiles: Vec::new(), head, got: blob.blob_len() as f64, blob: Some(blob), error: 0.0 })
    }

    /// Header with the tables that a sample suggests; what it has not seen escapes.
    pub(super) fn expected_head(&self, plan: &Plan) -> Result<levels::LevelsParams> {
        let mut counts = self.trial(plan, &self.sample)?.counts;
        let share = (self.view.len() / self.sample.values).max(1) as u64;
        for c in &mut counts {
            c.iter_mut().for_each(|c| *c *= share);
            c[ESCAPE as usize] += 1;
        }
        Ok(self.choose_head(plan, &counts))
    }

    pub(super) fn quantise(&self, plan: &Plan) -> Result<Vec<Quantised>> {
        if let Some(feed) = self.feed {
            return self.quantise_fed(feed, plan);
        }
        let n = self.view.len();
        self.workers.map(plan.geometry.tiles(n), TileWork::default, |work, i| {
            quantise_tile(plan, self.view, plan.geometry.tile(i, n), work)
        })
    }
}

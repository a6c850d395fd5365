//! Tables for a quantised tensor, the size it will have, and its blob.

use super::encoding::Encoding;
use super::pairing::price;
use super::trial::{add, escape_bits, exact_len};
use crate::blob::{CodecParams, Head, Parts, Sealed, assemble};
use crate::entropy::fit::{self, Counts};
use crate::entropy::rans::WordStack;
use crate::error::Result;
use crate::levels::{self, Plan, Quantised, TileTable, pack_tile};

impl Encoding<'_> {
    /// log2 of the sum of frequencies: fewer slots where there are many tables.
    pub(super) fn table_log(classes: usize) -> u32 {
        match classes {
            0..=2 => 12,
            3..=8 => 11,
            _ => 10,
        }
    }

    /// Header for a quantised tensor: its tables are chosen here.
    pub(super) fn head(&self, plan: &Plan, tiles: &[Quantised]) -> levels::LevelsParams {
        self.choose_head(plan, &total_counts(tiles))
    }

    pub(super) fn choose_head(&self, plan: &Plan, counts: &[Counts]) -> levels::LevelsParams {
        let classes = plan.class_count();
        let log = Self::table_log(classes);
        let per_class = levels::LevelsParams::tables_per_class(plan.machine);
        let alphabets = levels::LevelsParams::alphabets(log, &plan.low, classes, per_class);
        let stored: Vec<Counts> = counts.iter().step_by(2 / per_class).copied().collect();
        let like = if plan.tables.len() == stored.len() { &plan.tables[..] } else { &[] };
        let tables = fit::choose(&stored, &alphabets, per_class, like);
        let freqs = levels::LevelsParams::expand_freqs(fit::expand(&tables, &alphabets), per_class);
        levels::LevelsParams {
            paired: plan.paired,
            machine: plan.machine,
            geometry: plan.geometry,
            log,
            low: plan.low,
            scale: plan.dequant.scale,
            offsets: plan.dequant.stored_offsets(),
            classes: plan.classes.clone(),
            tables,
            freqs,
        }
    }

    /// Bytes of a blob before its tiles are written.
    pub(super) fn predict(&self, head: &levels::LevelsParams, tiles: &[Quantised]) -> f64 {
        let mut bytes = Vec::new();
        head.write(self.view.dtype(), &mut bytes);
        let counts = total_counts(tiles);
        let mut symbols: f64 = counts.iter().zip(&head.freqs).map(|(c, f)| fit::cost(c, f)).sum();
        if head.paired {
            symbols += price(&counts, &head.freqs, head.machine).excess;
        }
        let coded = tiles.iter().filter(|t| !t.all_zero).count() as f64;
        let low: usize =
            tiles.iter().filter(|t| !t.all_zero).filter_map(|t| t.low.as_ref()).map(|l| l.len() + 3).sum();
        // `cost` assumed a usual width of escapes.
        let escapes: f64 =
            tiles.iter().map(|t| escape_bits(&t.escapes) - t.escapes.len() as f64 * fit::ESCAPE_BITS).sum();
        let exact: usize = tiles.iter().map(|t| exact_len(t, self.view.dtype())).sum();
        let fixed = 12.0 + 2.0 * self.view.shape().len() as f64 + 8.0 + self.label.bytes as f64;
        fixed
            + bytes.len() as f64
            + (symbols + escapes) / 8.0
            + low as f64
            + tiles.len() as f64 * 14.0
            + coded * head.geometry.lanes as f64 * 3.0
            + exact as f64
    }

    pub(super) fn write(
        &self,
        plan: &Plan,
        head: &levels::LevelsParams,
        tiles: &[Quantised],
    ) -> Result<Parts> {
        let table = TileTable::new(head);
        let size = self.view.dtype().size();
        let bytes = self.workers.map(tiles.len(), WordStack::default, |stack, i| {
            Sealed::new(pack_tile(plan.isa, &table, plan.geometry.lanes, size, &tiles[i], stack))
        })?;
        self.assemble(head.clone(), bytes)
    }

    pub(super) fn assemble(&self, params: levels::LevelsParams, tiles: Vec<Sealed>) -> Result<Parts> {
        let params = CodecParams::Levels(Box::new(params));
        let (dtype, shape, transforms) =
            (self.label.dtype, self.label.shape.to_vec(), self.label.transforms.to_vec());
        assemble(&Head { dtype, shape, transforms, params }, tiles, self.workers)
    }
}

pub(super) fn total_counts(tiles: &[Quantised]) -> Vec<Counts> {
    let mut counts = vec![[0u64; 256]; tiles.first().map_or(0, |t| t.counts.len())];
    tiles.iter().for_each(|t| add(&mut counts, &t.counts));
    counts
}

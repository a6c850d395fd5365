//! One pass over a matrix: column after column is quantised, and its error is fed to the columns that follow.
//!
//! Columns are taken in panels. Within one, every error is fed at once; behind it, all of them at once, as a product of
//! matrices that workers share. Values lie column by column here, whatever their order in the blob.

use std::ops::Range;
use std::sync::Arc;

use super::column::{Quantiser, Scratch};
use super::factors::{Block, Factors};
use super::transpose::transpose;
use crate::error::Result;
use crate::levels::Plan;
use crate::options::{Effort, EncodeOptions};
use crate::prepare::accumulate;
use crate::quant::machine::Machine;
use crate::simd::{Isa, multiversion};
use crate::workers::Workers;

/// Columns of a panel.
const PANEL: usize = 64;
/// Outputs that a worker takes through a panel, where they do not depend on each other.
const OUTPUTS: usize = 256;
/// Columns behind a panel that a worker feeds at a time.
const BEHIND: usize = 32;

/// In which order a blob holds the values of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// All inputs of one output, then those of the next.
    Rows,
    /// All outputs of one input, then those of the next.
    Columns,
}

impl Order {
    /// A scalar quantiser takes any order; a trellis runs through a column before the next.
    pub fn for_options(options: &EncodeOptions) -> Order {
        if options.effort == Effort::Fast || options.minor < 2 { Order::Rows } else { Order::Columns }
    }
}

/// A weighted matrix that is to be quantised with feedback.
pub(crate) struct Feed {
    factors: Arc<Factors>,
    /// All outputs of one input, then those of the next.
    values: Vec<f32>,
    outputs: usize,
    order: Order,
}

/// What came of a pass, in the order of the blob.
pub(crate) struct Pass {
    pub(crate) levels: Vec<i32>,
    /// Values that no level can hold, with their places.
    pub(crate) exact: Vec<(usize, f32)>,
}

impl Feed {
    /// `values` are weighted and in the order of the blob.
    pub(crate) fn new(factors: Arc<Factors>, values: &[f32], outputs: usize, order: Order) -> Feed {
        let values = match order {
            Order::Rows => transpose(values, outputs),
            Order::Columns => values.to_vec(),
        };
        Feed { factors, values, outputs, order }
    }

    fn inputs(&self) -> usize {
        self.values.len() / self.outputs.max(1)
    }

    /// Columns in the order of the blob.
    fn ordered<T: Copy + Default>(&self, columns: Vec<T>) -> Vec<T> {
        match self.order {
            Order::Rows => transpose(&columns, self.inputs()),
            Order::Columns => columns,
        }
    }

    /// The levels of a plan.
    pub(crate) fn levels(&self, plan: &Plan, workers: &Workers) -> Result<Pass> {
        let run = self.run(plan, workers)?;
        let (inputs, outputs) = (self.inputs(), self.outputs);
        let mut exact = run.exact;
        if self.order == Order::Rows {
            exact.iter_mut().for_each(|(at, _)| *at = *at % outputs * inputs + *at / outputs);
        }
        exact.sort_unstable_by_key(|e| e.0);
        Ok(Pass { levels: self.ordered(run.levels), exact })
    }

    /// The values that a plan quantises: those of the matrix and the errors that were fed to them.
    pub(crate) fn fed(&self, plan: &Plan, workers: &Workers) -> Result<Vec<f32>> {
        Ok(self.ordered(self.run(plan, workers)?.fed))
    }

    fn run(&self, plan: &Plan, workers: &Workers) -> Result<Run> {
        let m = self.outputs;
        let mut run = Run { fed: self.values.clone(), levels: vec![0; self.values.len()], exact: Vec::new() };
        let classes = plan.classes.as_ref().map(|map| {
            let mut classes = vec![0u8; self.values.len()];
            map.fill(0, &mut classes);
            match self.order {
                Order::Rows => transpose(&classes, m),
                Order::Columns => classes,
            }
        });
        let quantiser = Quantiser::new(plan, classes.as_deref().unwrap_or(&[]), m);
        // Lanes carry their states from column to column.
        let mut lanes = Scratch::default();
        for block in &self.factors.blocks {
            let end = block.first + block.cols;
            for first in (block.first..end).step_by(PANEL) {
                let columns = first..end.min(first + PANEL);
                let errors = self.panel(&quantiser, block, columns.clone(), &mut lanes, &mut run, workers)?;
                feed_behind(block, columns, m, &errors, &mut run.fed, workers)?;
            }
        }
        Ok(run)
    }

    /// Quantises the columns of a panel and returns their errors.
    fn panel(
        &self,
        quantiser: &Quantiser<'_>,
        block: &Block,
        columns: Range<usize>,
        lanes: &mut Scratch,
        run: &mut Run,
        workers: &Workers,
    ) -> Result<Vec<f32>> {
        let m = self.outputs;
        let of_piece = |scratch: &mut Scratch, outputs: Range<usize>| {
            let mut piece = Piece::gather(&self.values, &run.fed, columns.clone(), outputs, m);
            piece.run(quantiser, block, scratch);
            piece
        };
        let pieces = if quantiser.machine() == Machine::SCALAR {
            let range = |i: usize| i * OUTPUTS..m.min((i + 1) * OUTPUTS);
            workers.map(m.div_ceil(OUTPUTS), Scratch::default, |scratch, i| of_piece(scratch, range(i)))?
        } else {
            vec![of_piece(lanes, 0..m)]
        };
        let mut errors = vec![0f32; columns.len() * m];
        for piece in pieces {
            piece.scatter(run, &mut errors, m);
        }
        Ok(errors)
    }
}

/// A pass under way, column by column.
struct Run {
    /// Values, and the errors that were fed to them.
    fed: Vec<f32>,
    levels: Vec<i32>,
    exact: Vec<(usize, f32)>,
}

/// Some outputs of a panel's columns.
struct Piece {
    columns: Range<usize>,
    outputs: Range<usize>,
    values: Vec<f32>,
    fed: Vec<f32>,
    errors: Vec<f32>,
    levels: Vec<i32>,
    exact: Vec<(usize, f32)>,
}

impl Piece {
    fn gather(values: &[f32], fed: &[f32], columns: Range<usize>, outputs: Range<usize>, m: usize) -> Piece {
        let take = |from: &[f32]| -> Vec<f32> {
            columns.clone().flat_map(|j| &from[j * m..][outputs.clone()]).copied().collect()
        };
        let (values, fed) = (take(values), take(fed));
        let n = values.len();
        Piece { columns, outputs, values, fed, errors: vec![0.0; n], levels: vec![0; n], exact: Vec::new() }
    }

    fn run(&mut self, quantiser: &Quantiser<'_>, block: &Block, scratch: &mut Scratch) {
        let isa = Isa::detect();
        let width = self.outputs.len();
        for (c, j) in self.columns.clone().enumerate() {
            let (fed, later) = self.fed[c * width..].split_at_mut(width);
            let errors = &mut self.errors[c * width..][..width];
            let levels = &mut self.levels[c * width..][..width];
            let exact = |at: usize, v: f32| self.exact.push((j * quantiser.outputs() + at, v));
            // Where a trellis runs, the panel has all outputs, and columns follow each other as in the blob.
            let ahead = match quantiser.machine() {
                Machine::SCALAR => &[][..],
                _ => &later[..later.len().min(quantiser.ahead())],
            };
            quantiser.quantise(j, self.outputs.start, fed, ahead, scratch, levels, errors, exact);
            // So far what a decoder will see.
            errors.iter_mut().zip(&self.values[c * width..]).for_each(|(e, v)| *e = v - *e);
            for (k, later) in (j + 1..self.columns.end).zip(later.chunks_exact_mut(width)) {
                let by = block.feed[(k - block.first) * block.cols + j - block.first];
                add_times(isa, errors, by, later);
            }
        }
    }

    fn scatter(self, run: &mut Run, errors: &mut [f32], m: usize) {
        let width = self.outputs.len();
        for (c, j) in self.columns.enumerate() {
            let from = c * width..(c + 1) * width;
            run.fed[j * m..][self.outputs.clone()].copy_from_slice(&self.fed[from.clone()]);
            run.levels[j * m..][self.outputs.clone()].copy_from_slice(&self.levels[from.clone()]);
            errors[c * m..][self.outputs.clone()].copy_from_slice(&self.errors[from]);
        }
        run.exact.extend(self.exact);
    }
}

/// Feeds the errors of a panel to the columns behind it.
fn feed_behind(
    block: &Block,
    columns: Range<usize>,
    m: usize,
    errors: &[f32],
    fed: &mut [f32],
    workers: &Workers,
) -> Result<()> {
    let (first, end) = (columns.end, block.first + block.cols);
    let behind = fed[first * m..end * m].chunks_mut(BEHIND * m).collect();
    let within = columns.start - block.first..columns.end - block.first;
    workers.for_pieces(behind, Vec::new, |by: &mut Vec<f32>, i, out: &mut [f32]| {
        by.clear();
        for k in (first - block.first + i * BEHIND..).take(out.len() / m) {
            by.extend_from_slice(&block.feed[k * block.cols..][within.clone()]);
        }
        accumulate(by, within.len(), errors, out);
        Ok(())
    })
}

multiversion! { fn add_times / add_times_inner(errors: &[f32], by: f32, out: &mut [f32]) }

#[inline(always)]
fn add_times_inner(errors: &[f32], by: f32, out: &mut [f32]) {
    for (o, e) in out.iter_mut().zip(errors) {
        *o += by * e;
    }
}

//! Rates of an engine on this machine: all workers at once, as a pipeline uses them, at two sizes of chunk, from which
//! follows what a call costs and what a byte does.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tenfold::engine::SharedEngine;
use tenfold::{DecodeOptions, Effort, EncodeOptions, EncodePlan, Goal, Tensor};
use tenfold_archive::DiffSums;

use super::sample::Kind;
use crate::error::{Error, Result};
use crate::model::{Cost, Rates, Size};
use crate::pipe::Coding;

/// Small chunks are so much smaller than whole ones.
const SMALLER: usize = 16;

/// A way of coding that can be measured.
#[derive(Clone)]
pub struct Way {
    /// What codes: `cpu`, or a device.
    pub place: &'static str,
    /// The engine.
    pub engine: SharedEngine,
    /// The goal.
    pub goal: Goal,
    /// How hard to search; of no concern to a lossless goal.
    pub effort: Effort,
    /// Chunks that are coded at the same time.
    pub workers: usize,
    /// Cores that a worker keeps busy.
    pub cores: f64,
    /// What was settled for one piece and serves the others; see [`Way::settle`].
    pub plan: Option<EncodePlan>,
}

impl Way {
    /// Name for people.
    pub fn name(&self) -> String {
        let place = if self.place == "cpu" { String::new() } else { format!(" on {}", self.place) };
        match (self.goal, self.goal.number()) {
            (Goal::Lossless, _) => format!("lossless{place}"),
            (goal, Some(number)) => format!("{} {number}, {}{place}", goal.name(), self.effort.name()),
            (goal, None) => format!("{}, {}{place}", goal.name(), self.effort.name()),
        }
    }

    /// Settles a plan with the first piece of a kind: pieces that are alike need no search of their own for more than a step. A
    /// lossless goal has nothing to settle, and a device no use for plans.
    pub fn settle(&mut self, kind: &Kind) -> Result<()> {
        if let (Some(first), true) = (kind.chunks.first(), kind.floats && self.goal != Goal::Lossless) {
            self.plan = Some(EncodePlan::new(&first.view()?, &self.options().with_threads(1))?);
        }
        Ok(())
    }

    /// Options for the encoder.
    pub fn options(&self) -> EncodeOptions {
        let options = EncodeOptions::new(self.goal).with_effort(self.effort);
        match &self.plan {
            Some(plan) => options.with_plan(plan.clone()),
            None => options,
        }
    }

    /// The same for a connection.
    pub fn coding(&self) -> Coding {
        Coding { engine: self.engine.clone(), options: self.options(), workers: self.workers, lanes: None }
    }
}

/// Measures a way with the pieces of a kind. Each of the four measurements takes about as long as stated, or as one round of
/// chunks.
pub fn rates(way: &Way, kind: &Kind, each: Duration) -> Result<Rates> {
    if kind.chunks.is_empty() {
        return Err(Error::InvalidArgument(format!("{}: there is nothing to measure with", kind.name)));
    }
    let small: Vec<Tensor> = kind.chunks.iter().map(cut).collect();
    let (large, size_large, nmse) = measure(way, &kind.chunks, each)?;
    let (encode, decode, size) = if small.iter().zip(&kind.chunks).all(|(s, l)| s.data.len() == l.data.len())
    {
        let line = |at: (f64, f64)| Cost::fit(at, at);
        (line(large.0), line(large.1), Size { fixed: 0.0, per_byte: size_large.1 / size_large.0 })
    } else {
        let (low, size_small, _) = measure(way, &small, each)?;
        let line = Cost::fit(size_small, size_large);
        let size = Size { fixed: line.fixed, per_byte: line.per_byte };
        (Cost::fit(low.0, large.0), Cost::fit(low.1, large.1), size)
    };
    Ok(Rates {
        name: way.name(),
        encode,
        decode,
        size,
        workers: way.workers,
        cores: way.cores,
        nmse: Some(nmse),
    })
}

/// The first rows of a chunk.
fn cut(chunk: &Tensor) -> Tensor {
    let cols = chunk.shape.last().copied().unwrap_or(1).max(1);
    let row = cols * chunk.dtype.size();
    let rows = (chunk.data.len() / row / SMALLER).max(1);
    let data = chunk.data[..(rows * row).min(chunk.data.len())].to_vec();
    Tensor { dtype: chunk.dtype, shape: vec![rows, cols], data }
}

type Point = (f64, f64);

/// Mean bytes and seconds of one worker for a chunk, both ways; mean bytes and bytes coded; error.
fn measure(way: &Way, chunks: &[Tensor], each: Duration) -> Result<((Point, Point), Point, f64)> {
    let options = way.options().with_threads(1);
    let decoding = DecodeOptions::default().with_threads(1);
    // The first calls load tables and kernels, and give what is decoded.
    let mut blobs = Vec::new();
    let mut sums = DiffSums::default();
    for chunk in chunks {
        let blob = way.engine.encode(&chunk.view()?, &options)?;
        let back = way.engine.decode(&blob, &decoding)?;
        sums = sums.merge(&DiffSums::measure((chunk.dtype, &chunk.data), (back.dtype, &back.data)));
        blobs.push(blob);
    }
    let count = chunks.len() as f64;
    let bytes = chunks.iter().map(|c| c.data.len()).sum::<usize>() as f64 / count;
    let coded = blobs.iter().map(Vec::len).sum::<usize>() as f64 / count;
    let encode = time(way.workers, chunks.len(), each, |i| {
        way.engine.encode(&chunks[i].view()?, &options)?;
        Ok(())
    })?;
    let decode = time(way.workers, chunks.len(), each, |i| {
        way.engine.decode(&blobs[i], &decoding)?;
        Ok(())
    })?;
    let nmse = sums.finish("", "", &[]).nmse;
    Ok((((bytes, encode), (bytes, decode)), (bytes, coded), nmse))
}

/// Seconds of one worker for a piece of work while all of them are busy, whole rounds at a time.
fn time(
    workers: usize,
    works: usize,
    each: Duration,
    work: impl Fn(usize) -> Result<()> + Sync,
) -> Result<f64> {
    let workers = workers.max(1);
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    // Busy time is counted, not the wall: at the end some workers have nothing to do.
    let busy = thread::scope(|scope| {
        let handles: Vec<_> = (0..workers)
            .map(|_| {
                scope.spawn(|| -> Result<f64> {
                    let start = Instant::now();
                    loop {
                        let i = next.fetch_add(1, Ordering::Relaxed);
                        if i >= works.max(workers) && start.elapsed() >= each {
                            return Ok(start.elapsed().as_secs_f64());
                        }
                        work(i % works)?;
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let found = handles.into_iter().map(|h| h.join().unwrap_or_else(|p| std::panic::resume_unwind(p)));
        found.sum::<Result<f64>>()
    })?;
    Ok(busy / done.into_inner().max(1) as f64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tenfold::Dtype;

    use super::*;
    use crate::measure::made_up;

    #[test]
    fn a_plan_of_the_first_piece_serves_all() {
        let kind = made_up(Dtype::Bf16, &[1024, 256], 64 << 10, 1 << 20).unwrap();
        let way = |goal| Way {
            place: "cpu",
            engine: SharedEngine::default(),
            goal,
            effort: Effort::Fast,
            workers: 1,
            cores: 1.0,
            plan: None,
        };
        let (plain, mut settled) = (way(Goal::Bits(2.5)), way(Goal::Bits(2.5)));
        settled.settle(&kind).unwrap();
        assert!(settled.coding().options.plan.is_some());
        let [plain, settled] =
            [plain, settled].map(|way| rates(&way, &kind, Duration::from_millis(1)).unwrap());
        let bytes = kind.chunk as f64;
        assert!((settled.ratio(bytes) / 6.4 - 1.0).abs() < 0.02, "{}", settled.ratio(bytes));
        assert!(settled.nmse.unwrap() < plain.nmse.unwrap() * 1.1);
        let mut exact = way(Goal::Lossless);
        exact.settle(&kind).unwrap();
        assert_eq!(exact.plan, None);
    }
}

//! How the tensors of a model go from one file to another: read ahead, coded, written in the order asked for, all at once.
//!
//! | stage | threads | does |
//! |---|---|---|
//! | `read` | up to [`READERS`] | reads tensors ahead |
//! | `encode`, `decode` | up to [`CODERS`], which hand the work to the pool | codes tensors; small ones in groups |
//! | `write` | 1 | writes |
//!
//! Several tensors are coded at once, so that the last tiles of one leave no thread idle. Bytes that are read ahead, coded or
//! about to be written are bounded by twice the largest tensor and [`SLACK`].

use std::borrow::Cow;

use rayon::prelude::*;
use tenfold::engine::{Engine, Stop, threads};
use tenfold_pipeline::{Budget, Stages, Timeline, run};

use crate::compress::groups;
use crate::error::{Error, Result};
use crate::plan::CompressOptions;

/// Threads that read: where many cores code, one may copy from the system's cache too slowly for them.
const READERS: usize = 4;
/// Groups that are coded at once, each with working memory of its own and as many threads of the pool as it has work for.
const CODERS: usize = 2;
/// Bytes of small tensors that are worked on together.
const GROUP_BYTES: u64 = 16 << 20;
/// Bytes under way beside twice those of the largest tensor.
const SLACK: u64 = 32 << 20;
/// Groups under way at once; their bytes are bounded further.
const WINDOW: usize = 4 * CODERS;

/// Where and how the work is done.
pub(crate) struct Flow<'a> {
    /// What coding is called in the timeline.
    pub name: &'static str,
    /// Threads that code; 0 takes the caller's rayon pool.
    pub threads: usize,
    pub engine: &'a dyn Engine,
    pub timeline: &'a Timeline,
    pub stop: &'a Stop,
}

/// What is done to a tensor, by its number.
pub(crate) struct Steps<R, C, W> {
    /// Reads it.
    pub read: R,
    /// Codes it, in the pool. The switch ends work that has become pointless.
    pub code: C,
    /// Writes it.
    pub write: W,
}

/// What a stage hands on.
pub(crate) trait Load: Send {
    /// Bytes of memory.
    fn bytes(&self) -> u64;
}

impl Load for Vec<u8> {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }
}

impl Load for Cow<'_, [u8]> {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }
}

impl<T: Load> Load for Vec<T> {
    fn bytes(&self) -> u64 {
        self.iter().map(T::bytes).sum()
    }
}

impl<'a> Flow<'a> {
    /// How tensors are encoded.
    pub fn encoding(options: &'a CompressOptions) -> Flow<'a> {
        Flow {
            name: "encode",
            threads: options.threads,
            engine: &*options.engine,
            timeline: &options.timeline,
            stop: &options.stop,
        }
    }

    /// Takes the steps for all tensors of `order`, and writes them in that order. `size` is the most bytes that a tensor
    /// takes before and after coding together, or those before it if that frees them.
    pub fn run<A: Load, B: Load>(
        &self,
        order: &[usize],
        size: impl Fn(usize) -> u64 + Sync,
        steps: Steps<
            impl Fn(usize) -> Result<A> + Sync,
            impl Fn(usize, A, &Stop) -> Result<B> + Sync,
            impl FnMut(usize, B) -> Result<()> + Send,
        >,
    ) -> Result<()> {
        let Steps { read, code, mut write } = steps;
        // In a pool of the caller's, a thread that waits for stages would be missing: one thing after the other there.
        if self.threads == 0 && rayon::current_thread_index().is_some() {
            return order.iter().try_for_each(|&index| {
                self.stop.check().map_err(|_| Error::Stopped)?;
                write(index, code(index, read(index)?, self.stop)?)
            });
        }
        let workers = self.in_pool(rayon::current_num_threads)?;
        let at_once = if self.engine.capabilities().takes_turns { 1 } else { workers };
        let groups = groups(order, &size, GROUP_BYTES);
        let largest = order.iter().map(|&index| size(index)).max().unwrap_or(0);
        let budget = Budget::new(largest.saturating_mul(2).saturating_add(SLACK));
        run(
            self.timeline,
            self.stop,
            || Error::Stopped,
            |stages: Stages<'_, '_, Error>| {
                let cancelled = stages.cancelled();
                let (budget, size, read, code) = (&budget, &size, &read, &code);
                let ahead = stages.source("plan", WINDOW, move |out| {
                    groups.into_iter().try_for_each(|group| {
                        let group = &order[group];
                        let bytes = group.iter().fold(0u64, |sum, &index| sum.saturating_add(size(index)));
                        let held = out.take(budget, bytes)?;
                        out.send((group, held))
                    })
                });
                let inputs = stages.stage("read", workers.min(READERS), ahead, move |(group, held)| {
                    let inputs = group.iter().map(|&index| read(index)).collect::<Result<Vec<A>>>()?;
                    let bytes = inputs.bytes();
                    Ok(((group, inputs, held), bytes))
                });
                let coders = at_once.min(CODERS);
                let made = stages.stage(self.name, coders, inputs, move |(group, inputs, mut held)| {
                    let before = inputs.bytes();
                    let one = |(&index, input): (&usize, A)| code(index, input, &cancelled);
                    let made: Result<Vec<B>> = self.in_pool(|| match at_once {
                        1 => group.iter().zip(inputs).map(one).collect(),
                        _ => group.par_iter().zip(inputs).map(one).collect(),
                    })?;
                    let made = made?;
                    held.shrink(made.bytes());
                    let bytes = before.max(made.bytes());
                    Ok(((group, made, held), bytes))
                });
                stages.sink("write", made, move |(group, made, held)| {
                    let bytes = made.bytes();
                    group.iter().zip(made).try_for_each(|(&index, made)| write(index, made))?;
                    drop(held);
                    Ok(bytes)
                });
            },
        )
    }

    /// Does work in the pool, from a thread that is not in it.
    fn in_pool<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        match self.threads {
            // Unlike `install`, a scope leaves this thread for the pool of all cores.
            0 => Ok(rayon::scope(|_| work())),
            threads => threads::install(threads, work).map_err(Error::Threads),
        }
    }
}

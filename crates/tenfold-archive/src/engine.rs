//! How to read a model: which engine decodes its blobs, on how many threads, within which limits.

use tenfold::DecodeOptions;
use tenfold::engine::SharedEngine;
use tenfold_pipeline::Timeline;

/// How to read a compressed model. Plain [`DecodeOptions`] will do where every blob is native.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ReadOptions {
    /// Threads and limits.
    pub decode: DecodeOptions,
    /// What reads the blobs. Default: the CPU.
    pub engine: SharedEngine,
    /// Where [`decompress`](crate::decompress) records when tensors were read, decoded and written. Default: a record of its own.
    pub timeline: Timeline,
}

impl From<&DecodeOptions> for ReadOptions {
    fn from(decode: &DecodeOptions) -> Self {
        ReadOptions { decode: decode.clone(), ..ReadOptions::default() }
    }
}

impl ReadOptions {
    /// Sets the engine.
    pub fn with_engine(mut self, engine: SharedEngine) -> Self {
        self.engine = engine;
        self
    }

    /// Sets where it is recorded what happened when.
    pub fn with_timeline(mut self, timeline: Timeline) -> Self {
        self.timeline = timeline;
        self
    }

    /// The options of single tensors: the pool of threads is set once, around them all.
    pub(crate) fn inner(&self) -> DecodeOptions {
        self.decode.clone().with_threads(0)
    }
}

//! How to read a model: which engine decodes its blobs, on how many threads, within which limits.

use tenfold::DecodeOptions;
use tenfold::engine::SharedEngine;

/// How to read a compressed model. Plain [`DecodeOptions`] will do where every blob is native.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ReadOptions {
    /// Threads and limits.
    pub decode: DecodeOptions,
    /// What reads the blobs. Default: the CPU.
    pub engine: SharedEngine,
}

impl From<&DecodeOptions> for ReadOptions {
    fn from(decode: &DecodeOptions) -> Self {
        ReadOptions { decode: decode.clone(), engine: SharedEngine::default() }
    }
}

impl ReadOptions {
    /// Sets the engine.
    pub fn with_engine(mut self, engine: SharedEngine) -> Self {
        self.engine = engine;
        self
    }

    /// The options of single tensors: the pool of threads is set once, around them all.
    pub(crate) fn inner(&self) -> DecodeOptions {
        self.decode.clone().with_threads(0)
    }
}

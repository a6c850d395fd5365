//! Which engine makes and reads the blobs of a model.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use tenfold::DecodeOptions;
use tenfold::engine::{Cpu, Engine};

/// A shared engine. Default: [`Cpu`].
#[derive(Clone)]
pub struct SharedEngine(Arc<dyn Engine>);

impl SharedEngine {
    /// Shares an engine.
    pub fn new(engine: impl Engine + 'static) -> Self {
        SharedEngine(Arc::new(engine))
    }
}

impl Default for SharedEngine {
    fn default() -> Self {
        SharedEngine::new(Cpu)
    }
}

impl Deref for SharedEngine {
    type Target = dyn Engine;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl fmt::Debug for SharedEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.name())
    }
}

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

//! A pool of the caller's size around a piece of work.

use crate::error::{Error, Result};

/// Runs `work` on so many threads; 0 uses the current pool, that is all cores.
pub(crate) fn with_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> Result<T> {
    if threads == 0 {
        return Ok(work());
    }
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .map_err(|e| Error::Threads(e.to_string()))?;
    Ok(pool.install(work))
}

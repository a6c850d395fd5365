//! Work on as many threads as a caller asks for.

use crate::error::Result;

/// Runs work within a pool of so many threads; 0 is the pool that is there, that is all cores.
pub(crate) fn within<T: Send>(threads: usize, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    if threads == 0 {
        return work();
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.map_err(|e| tenfold::Error::Threads(e.to_string()))?.install(work)
}

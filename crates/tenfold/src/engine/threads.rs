//! Pools of threads by size, made on first use and kept: starting threads takes as long as decoding a small tensor.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::{Error, Result};

static POOLS: Mutex<BTreeMap<usize, Arc<ThreadPool>>> = Mutex::new(BTreeMap::new());

/// Runs work on this many threads; 0 uses the caller's rayon pool, by default one of all cores.
///
/// ```
/// assert_eq!(tenfold::engine::threads::install(2, rayon::current_num_threads)?, 2);
/// # Ok::<(), tenfold::Error>(())
/// ```
pub fn install<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> Result<T> {
    if threads == 0 { Ok(work()) } else { Ok(pool(threads)?.install(work)) }
}

/// The pool of this many threads.
pub(crate) fn pool(threads: usize) -> Result<Arc<ThreadPool>> {
    let make = || {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build();
        pool.map(Arc::new).map_err(|e| Error::Threads(e.to_string()))
    };
    // A forked process inherits the parent's pools without their threads, and the lock in any state: it makes a new
    // pool each time.
    static HOME: OnceLock<u32> = OnceLock::new();
    if *HOME.get_or_init(std::process::id) != std::process::id() {
        return make();
    }
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pool) = pools.get(&threads) {
        return Ok(pool.clone());
    }
    let pool = make()?;
    pools.insert(threads, pool.clone());
    Ok(pool)
}

#[cfg(test)]
mod tests {
    use rayon::prelude::*;

    use super::*;

    #[test]
    fn a_pool_is_made_once() {
        assert!(Arc::ptr_eq(&pool(3).unwrap(), &pool(3).unwrap()));
        assert!(!Arc::ptr_eq(&pool(2).unwrap(), &pool(3).unwrap()));
        let ids = || install(3, || rayon::broadcast(|_| std::thread::current().id())).unwrap();
        assert_eq!(ids(), ids());
    }

    #[test]
    fn results_do_not_depend_on_the_pool() {
        let squares = || (0..1000u64).into_par_iter().map(|i| i * i).collect::<Vec<_>>();
        let here = install(0, squares).unwrap();
        for threads in [1, 2, 7] {
            assert_eq!(install(threads, rayon::current_num_threads).unwrap(), threads);
            assert_eq!(install(threads, squares).unwrap(), here);
        }
    }
}

//! Pools of threads by size, made on first use and kept: starting threads takes as long as decoding a small tensor.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::{Error, Result};

static POOLS: Mutex<BTreeMap<usize, Arc<ThreadPool>>> = Mutex::new(BTreeMap::new());

thread_local! {
    /// The pool of one thread that works for this thread alone.
    static ALONE: RefCell<Option<Arc<ThreadPool>>> = const { RefCell::new(None) };
}

/// Runs work on this many threads; 0 uses the caller's rayon pool, by default one of all cores.
///
/// ```
/// assert_eq!(tenfold::engine::threads::install(2, rayon::current_num_threads)?, 2);
/// # Ok::<(), tenfold::Error>(())
/// ```
pub fn install<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> Result<T> {
    // On a thread that is a pool of its own, one thread is the caller's.
    let is_alone =
        threads == 1 && rayon::current_thread_index().is_some() && rayon::current_num_threads() == 1;
    if threads == 0 || is_alone { Ok(work()) } else { Ok(pool(threads)?.install(work)) }
}

/// The pool of this many threads. All callers share it, except a pool of one thread: callers that state one thread each are
/// threads of their own already, and would take turns on it.
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
    if threads == 1 {
        let mine = ALONE.with_borrow(Clone::clone).map_or_else(make, Ok)?;
        ALONE.set(Some(mine.clone()));
        return Ok(mine);
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
    fn callers_with_one_thread_each_work_at_the_same_time() {
        assert!(Arc::ptr_eq(&pool(1).unwrap(), &pool(1).unwrap()));
        let both = std::sync::Barrier::new(2);
        // On one thread for both, the first would wait for ever.
        let meet = || install(1, || both.wait()).unwrap();
        std::thread::scope(|scope| {
            [scope.spawn(meet), scope.spawn(meet)].map(|thread| thread.join().unwrap())
        });
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

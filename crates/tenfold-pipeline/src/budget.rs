//! Bytes that may be under way at once, where the sizes of items differ too much for their number to bound memory.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a waiting source does not notice that the pipeline ended.
const PATIENCE: Duration = Duration::from_millis(50);

/// Bytes that may be held at once. Whatever is larger than all of them is held alone. Clones are the same budget.
///
/// ```
/// use tenfold_pipeline::Budget;
/// let budget = Budget::new(100);
/// let mut first = budget.take(70, || true).unwrap();
/// assert!(budget.take(40, || false).is_none());
/// first.shrink(60);
/// let second = budget.take(40, || true).unwrap();
/// drop((first, second));
/// assert!(budget.take(1000, || true).is_some());
/// ```
#[derive(Debug, Clone)]
pub struct Budget(Arc<Ledger>);

#[derive(Debug)]
struct Ledger {
    most: u64,
    held: Mutex<u64>,
    less: Condvar,
}

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, u64> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_back(&self, bytes: u64) {
        let mut held = self.lock();
        *held = held.saturating_sub(bytes);
        drop(held);
        self.less.notify_all();
    }
}

/// Bytes of a budget, given back when this is dropped.
#[derive(Debug)]
pub struct Held {
    ledger: Arc<Ledger>,
    bytes: u64,
}

impl Budget {
    /// A budget of so many bytes.
    pub fn new(bytes: u64) -> Budget {
        Budget(Arc::new(Ledger { most: bytes, held: Mutex::new(0), less: Condvar::new() }))
    }

    /// Takes bytes; waits until there are as many. `None` if `goes_on` says that waiting has no point; it is asked often.
    pub fn take(&self, bytes: u64, goes_on: impl Fn() -> bool) -> Option<Held> {
        let ledger = &self.0;
        let mut held = ledger.lock();
        while *held > 0 && held.saturating_add(bytes) > ledger.most {
            if !goes_on() {
                return None;
            }
            held = ledger.less.wait_timeout(held, PATIENCE).unwrap_or_else(PoisonError::into_inner).0;
        }
        *held = held.saturating_add(bytes);
        Some(Held { ledger: ledger.clone(), bytes })
    }
}

impl Held {
    /// Gives back all but so many bytes.
    pub fn shrink(&mut self, to: u64) {
        let less = self.bytes.saturating_sub(to);
        self.bytes -= less;
        self.ledger.give_back(less);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.ledger.give_back(self.bytes);
    }
}

//! Time of a call.

use std::time::Instant;

/// Seconds that a call takes, and what it returns.
pub(crate) fn time<T>(call: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let result = call();
    (start.elapsed().as_secs_f64(), result)
}

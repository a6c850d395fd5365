//! Threads and `fork`, which Python's multiprocessing uses and which copies no thread but the caller's.

use std::sync::OnceLock;

/// The process that loaded the module.
static HOME: OnceLock<u32> = OnceLock::new();

/// Remembers the process.
pub fn remember_process() {
    HOME.get_or_init(std::process::id);
}

/// The threads to use for this request. A forked process has the parent's pools without their threads and would wait
/// for ever, so it works on the calling thread.
pub fn limit_threads(threads: usize) -> usize {
    if HOME.get().is_none_or(|&home| home == std::process::id()) { threads } else { 1 }
}

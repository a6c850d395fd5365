//! What tests ask and tell the loaded library, through functions of its own.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::faults::{self, Fault};

static VIOLATIONS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn violations() -> MutexGuard<'static, Vec<String>> {
    VIOLATIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records a broken rule.
pub(crate) fn violation(what: impl Into<String>) {
    violations().push(what.into());
}

/// What is open in the loaded library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Counts {
    /// Parsers.
    pub parsers: u64,
    /// Decoders.
    pub decoders: u64,
    /// Mapped pictures of decoders.
    pub maps: u64,
    /// Encoding sessions.
    pub sessions: u64,
    /// Registered memory of sessions.
    pub registered: u64,
    /// Mapped input of sessions.
    pub mapped: u64,
    /// Buffers for coded pictures.
    pub buffers: u64,
    /// Coded pictures that are locked.
    pub locked: u64,
    /// Decoders that were ever created.
    pub decoders_created: u64,
    /// Sessions that were ever opened.
    pub sessions_opened: u64,
    /// Pictures that were decoded.
    pub decoded: u64,
    /// Pictures that were encoded.
    pub encoded: u64,
    /// The most pictures that waited in one session at a time.
    pub most_in_flight: u64,
    /// The most sessions that were open at a time.
    pub most_sessions: u64,
}

/// Sets a property or asks for misbehaviour; see [`Fault`]. Returns 0, or 1 for an unknown number.
#[unsafe(no_mangle)]
pub extern "C" fn tenfold_standin_set(fault: i32, value: i64) -> i32 {
    match Fault::from_number(fault) {
        Some(fault) => {
            faults::set(fault, value);
            0
        }
        None => 1,
    }
}

/// Back to good behaviour, and no violations.
#[unsafe(no_mangle)]
pub extern "C" fn tenfold_standin_reset() {
    faults::reset();
    violations().clear();
}

/// Copies the violations, a line each, and returns how many bytes they are.
///
/// # Safety
/// `buffer` has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tenfold_standin_violations(buffer: *mut u8, len: usize) -> usize {
    let text = violations().join("\n");
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), buffer, len.min(text.len())) };
    text.len()
}

/// What is open.
///
/// # Safety
/// `counts` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tenfold_standin_counts(counts: *mut Counts) {
    let mut found = Counts::default();
    crate::cuvid::count(&mut found);
    crate::nvenc::count(&mut found);
    // SAFETY: the caller's promise.
    unsafe { counts.write(found) };
}

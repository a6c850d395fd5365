//! An allocator that stops the process when one allocation is out of proportion: decoders are given a limit
//! of one mebibyte, so nothing in these targets has a reason to ask for much more.

use std::alloc::{GlobalAlloc, Layout, System};

/// Largest single allocation in bytes: far above what targets and libFuzzer use, far below what a hostile
/// header claims.
const MOST: usize = 64 << 20;

/// The system's allocator with a ceiling.
pub struct Guard;

fn check(bytes: usize) {
    if bytes > MOST {
        // Unwinding out of an allocator is not allowed; libFuzzer reports the abort with its input.
        eprintln!("one allocation of {bytes} bytes");
        std::process::abort();
    }
}

// SAFETY: every call goes to the system's allocator unchanged; `check` neither allocates on the good path nor
// unwinds.
unsafe impl GlobalAlloc for Guard {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        check(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        check(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        check(new_size);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(ptr, layout, new_size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

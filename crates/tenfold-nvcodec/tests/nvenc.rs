//! NVENC through the stand-in library, which checks every call and encodes in software, on emulated device memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

mod nvenc_tests {
    mod common;
    mod faults;
    mod leaks;
    mod pictures;
    mod selftest;
    mod tensors;
}

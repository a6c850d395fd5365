//! Fuzz targets. `bodies` holds what each target does, as plain functions: the binaries under `targets/` give
//! them to libFuzzer, and a test of the main workspace includes the same files to replay the kept inputs under
//! `regressions/`. `seeds` writes inputs to start from, `guard` watches single allocations.

pub mod bodies;
pub mod guard;
pub mod seeds;
// Beside the others because the main workspace, which replays those, builds without codec libraries.
#[cfg(feature = "video")]
pub mod video_decode;

//! Pages on a device: out of the blocks of a pool and into them, as the CPU has them but for roundings; what is damaged or foreign is refused.
#![cfg(feature = "emulator")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unsafe_code)]

#[path = "../common/mod.rs"]
mod common;

mod bench;
mod loads;
mod saves;

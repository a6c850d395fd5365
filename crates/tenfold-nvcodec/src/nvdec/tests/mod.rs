//! Lanes and device decoding against a driver that is a fake: its pictures are made of a number in the stream, it checks every call,
//! and it goes wrong on demand. Tests that need a device's memory run on the emulator.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::unnecessary_cast)] // C's `unsigned long` is no u64 everywhere

mod blobs;
mod fake;
mod faults;
mod good;

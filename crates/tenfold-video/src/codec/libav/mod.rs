//! The system's libavcodec: every encoder and decoder it offers that this crate has a use for, software
//! and hardware, under names of our own.
//!
//! The bindings are those of `ffmpeg-sys-next`; the few objects needed are wrapped in [`handles`], and only
//! this folder holds `unsafe`.
#![allow(unsafe_code)]

mod adapter;
mod decode;
mod device;
mod encode;
mod formats;
mod handles;
mod options;
mod spec;

pub use spec::{LibavDecoder, LibavEncoder, decoders, encoders};

#[cfg(test)]
mod tests;

//! The video engines of NVIDIA GPUs, reached through the driver's own libraries: NVDEC decodes the pictures of a blob
//! into a tensor on the device, NVENC encodes them where a GPU has it.
//!
//! The libraries (`libnvcuvid.so.1`, `libnvidia-encode.so.1`) come with the driver and are loaded at run time, so this
//! crate builds and links anywhere. Where one is missing, or the GPU lacks an engine, an error says so and why.
//! docs/video.md shows how the engines are used.

#[doc(hidden)] // layouts, for libraries that stand in for the driver's
pub mod cuvid;
mod decode;
mod error;
mod jpeg;
mod library;
mod nvdec;
pub mod nvenc;
mod probe;
pub mod selftest;
mod video;

pub use decode::{Decoder, Output, Pending};
pub use error::{Error, Result};
pub use jpeg::{JpegEngines, jpeg_engines};
pub use nvdec::{Counters, LaneSettings};
pub use probe::{Decodes, decodes};
pub use video::{register, use_engines};

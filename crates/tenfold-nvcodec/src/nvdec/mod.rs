//! Pictures through NVDEC.
//!
//! A *lane* is a thread with decoders of its own; there is one for each engine, since the driver gives a decoder to an engine.
//! `lanes` hands the pictures of a stream out to lanes, `lane` is what one does, `session` takes pictures through the driver's
//! parser and a decoder, `decoder` owns one decoder of the driver, `cache` keeps idle ones. What becomes of a decoded picture is
//! the stream's own affair (`Receiver`): `host` copies it to memory, `crate::decode` makes tensors of it on the device.

mod cache;
mod caps;
mod decoder;
mod host;
mod lane;
mod lanes;
mod session;
mod stream;
#[cfg(all(test, feature = "emulator"))]
mod tests;

pub(crate) use caps::Caps;
pub(crate) use host::HostPictures;
pub use lanes::{Counters, LaneSettings};
pub(crate) use lanes::{Lanes, Submitted};
pub(crate) use stream::{Frame, Receiver, Stream};

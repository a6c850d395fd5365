//! Tensors as pictures: H.264, H.265 and AV1 behind tenfold's goals and in tenfold's blobs.
//!
//! A tensor is rotated if asked, mapped to samples of 8 to 12 bits ([`Scaling`]), cut into gray pictures
//! ([`frames`]), and each picture is coded alone by a codec library ([`codec`]); a search over quantiser and
//! scale meets the goal. The blob names the standard, never who encoded it: any decoder of the standard
//! reads it.
//!
//! Codecs are features, none on by default: `video` is the system's FFmpeg (GPL where that was built so),
//! `av1` a pair of permissive crates. A build without says so:
//!
//! ```
//! use tenfold::{EncodeOptions, Goal, TensorView};
//! use tenfold_video::{Standard, VideoOptions};
//! let values: Vec<f32> = (0..4096).map(|i| (i as f32 * 0.7).sin()).collect();
//! let view = TensorView::from_slice(&values, &[64, 64])?;
//! match tenfold_video::encode(&view, &EncodeOptions::new(Goal::Bits(3.0)), &VideoOptions::new(Standard::H265)) {
//!     Ok(blob) => assert!(blob.len() < 4096 * 4),
//!     Err(e) => assert!(e.to_string().contains("feature") || e.to_string().contains("available")),
//! }
//! # Ok::<(), tenfold::Error>(())
//! ```
#![deny(unsafe_code)]

mod catalog;
mod chain;
pub mod codec;
mod decode;
mod encode;
mod engine;
mod error;
pub mod frames;
mod hardware;
mod options;
#[doc(hidden)] // for crates that decode on a device
pub mod params;
mod samples;

pub use catalog::{add_decoders, add_encoders, decoders, encoders};
pub use codec::{Chroma, Quality, Standard};
pub use decode::{decode, decode_rows, decode_with};
pub use encode::{Encoded, Pictures, encode, encode_with_report, pictures};
pub use engine::{Costs, Video};
pub use error::{Error, Result};
pub use hardware::Hardware;
pub use options::VideoOptions;
#[doc(hidden)]
pub use samples::Mapping;
pub use samples::Scaling;

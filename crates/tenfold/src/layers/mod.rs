//! Layered blobs: a coarse tensor and what it left, each a whole blob of its own, added up by the reader.
//!
//! `params` is what the header says, `open` reads the headers of the layers, `sum` is the arithmetic that encoder and
//! decoder share, and NaN and infinities on their way through it. Normative: docs/format.md, 'Layers'.

mod decode;
mod encode;
mod open;
mod params;
mod sum;

pub(crate) use decode::decode;
pub(crate) use encode::{encode, header, max_len, options_of_layers};
pub(crate) use open::open;
pub(crate) use params::LayersParams;
pub use params::MAX_LAYERS;

//! Pages of a key-value cache: some tokens of one layer or of many, in one byte string within a number of bytes.
//!
//! Layers are taken in groups. Each group's keys and each group's values are one blob, without rotary positions and in
//! a basis; exact tokens are in lossless blobs beside them. Normative: docs/format.md, 'Pages'. `codec` says how pages
//! of a model are made, `encode` makes one, `share` gives each blob its part of the bytes and `together` each page,
//! `frame` is the stored form, `read` decodes layers.

mod bases;
mod codec;
mod encode;
pub(crate) mod frame;
mod read;
mod share;
mod together;

pub use codec::{BasisPart, Chain, Choice, Group, Layer, Page, PageCodec};
pub use frame::MAGIC;
pub use read::PageReader;

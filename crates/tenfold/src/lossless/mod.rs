//! The lossless codec: elements split into byte planes, each coded, stored or constant.
//!
//! A float is rotated left by one bit first, so that its exponent leads and its sign joins the
//! mantissa: the top plane then holds what is predictable, the lower ones what is not. Normative:
//! docs/format.md, 'Planes'.

mod decode;
mod encode;
mod params;
mod planes;

pub(crate) use decode::{Scratch, decode_tile};
pub(crate) use encode::{encode, max_len};
pub(crate) use params::Params;

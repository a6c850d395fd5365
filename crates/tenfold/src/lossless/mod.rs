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
pub use encode::{CODED as PLANE_CODED, CONSTANT as PLANE_CONSTANT, STORED as PLANE_STORED};
pub(crate) use encode::{encode, max_len};
pub use params::LOG;
pub(crate) use params::PlanesParams;

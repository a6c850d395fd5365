//! Coders that give every bit back.

mod lz4;
mod pco;
mod split;
mod zipnn;
mod zstd;

pub use lz4::Lz4;
pub use pco::Pco;
pub use split::SplitZstd;
pub use zipnn::ZipNn;
pub use zstd::Zstd;

use super::{Abilities, Fidelity, Rate};

/// What all of them can do.
fn lossless(timed: bool) -> Abilities {
    Abilities { fidelity: Fidelity::Lossless, rate: Rate::Free, timed }
}

//! Deltas: what changed between two versions of a tensor, bit by bit.
//!
//! The base stays where it is; a delta blob holds positions and new values, and is applied in place. `scan` finds what changed,
//! `numbers` makes a number of each new value and the old one, `token` cuts numbers into a symbol and raw bits, `tables` finds the statistics
//! that symbols are coded with. `encode` writes tiles, `read` takes them apart, `tile` decodes one with the loops of `chunk`, `apply` brings a base up to date. Normative: docs/format.md,
//! 'Deltas'. Not to be confused with [`prepare::Delta`](crate::prepare::Delta), differences of the rows of one tensor.

mod apply;
mod check;
mod chunk;
mod encode;
mod layout;
mod numbers;
mod params;
mod raw;
mod read;
mod scan;
mod tables;
#[cfg(test)]
mod tests;
mod tile;
mod token;

use crate::engine::Stop;
use crate::options::Limits;

pub use apply::{Applied, Pending, apply, apply_in_place, prepare};
pub use check::{Fingerprint, fingerprint};
#[doc(hidden)] // for engines that hash with code of their own
pub use check::{fingerprint_head, fingerprint_of_nodes};
pub use encode::make;
#[doc(hidden)]
pub use layout::{DeltaLayout, TileLayout, TileRoom, mix};
pub use read::{DeltaInfo, inspect};

pub(crate) use params::DeltaParams;

/// How deltas are made and applied.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct DeltaOptions {
    /// Worker threads; 0, the default, takes those of the caller's rayon pool.
    pub threads: usize,
    /// Values of a tile of a delta that is made, a power of two from 32 to 2^22. 0, the default: as many as have 3,000 to 6,000 changes or so.
    pub tile_values: usize,
    /// How sure an application is of its base. Default: every byte.
    pub verify: Verify,
    /// What a delta may ask for.
    pub limits: Limits,
    /// A switch that ends the work early. A base is then as it was, or some of its tiles are new: the same call completes them.
    pub stop: Stop,
}

/// What of a base is compared before it is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Verify {
    /// Every byte: its fingerprint, and that of the result.
    #[default]
    Whole,
    /// The values that change, old and new. For callers who know by other means that the base is the right one: the rest is not read.
    Touched,
}

impl DeltaOptions {
    /// Sets the number of threads.
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Sets the values of a tile.
    pub fn with_tile_values(mut self, values: usize) -> Self {
        self.tile_values = values;
        self
    }

    /// Sets what is compared.
    pub fn with_verify(mut self, verify: Verify) -> Self {
        self.verify = verify;
        self
    }

    /// Sets the limits.
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the switch that ends the work early.
    pub fn with_stop(mut self, stop: Stop) -> Self {
        self.stop = stop;
        self
    }
}

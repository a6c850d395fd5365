//! Other coders, and ours, behind one trait: real bytes out, real values back.
//!
//! A peer is a value that knows its settings, so a list of peers is a list of columns in a table.
//! [`scalar_ideal`] is the exception: it estimates a bound and produces no bytes, so it is no [`Peer`].

mod bits;
mod coders;
mod combined;
mod family;
mod gguf;
mod header;
mod lossless;
mod plain;
mod quantise;
pub mod scalar_ideal;
mod scientific;
mod tenfold;
#[cfg(test)]
mod tests;
mod video;

use ::tenfold::{Tensor, TensorView};
use thiserror::Error;

pub use self::tenfold::Tenfold;
pub use coders::Coder;
pub use combined::Combined;
pub use family::{Family, Kind, UnknownFamily, families, find};
pub use gguf::Gguf;
pub use lossless::{Lz4, Pco, SplitZstd, ZipNn, Zstd};
pub use quantise::{Lloyd, MxFormat, Nf4, Quantiser, Rtn};
pub use scientific::{Sz3, Zfp, ZfpMode};
pub use video::Video;

/// Why a peer gave no answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PeerError {
    /// The peer is a program or a library that this machine does not have.
    #[error("not available: {0}")]
    NotAvailable(String),
    /// The peer cannot code this dtype or shape.
    #[error("{0}")]
    Unsupported(String),
    /// The bytes are not this peer's.
    #[error("the bytes do not decode: {0}")]
    Corrupt(String),
    /// The peer was there but failed.
    #[error("failed: {0}")]
    Failed(String),
    /// Our own codec's error.
    #[error(transparent)]
    Tenfold(#[from] ::tenfold::Error),
}

/// How a peer treats the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fidelity {
    /// Every bit comes back.
    Lossless,
    /// Values come back approximately.
    Lossy,
}

/// How a peer's rate is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// It follows from the data.
    Free,
    /// A few fixed rates exist.
    Fixed,
    /// Any rate can be asked for.
    Any,
}

/// What a peer can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abilities {
    /// What happens to the values.
    pub fidelity: Fidelity,
    /// What rates there are.
    pub rate: Rate,
    /// Whether the time of `encode` and `decode` is the coder's own; `false` if much of it is the start
    /// of another program.
    pub timed: bool,
}

/// A coder in a race.
pub trait Peer: Sync {
    /// Name with settings, as it stands in tables.
    fn name(&self) -> String;

    /// What it can do.
    fn abilities(&self) -> Abilities;

    /// Whether it can run on this machine; otherwise [`PeerError::NotAvailable`] with what to install.
    fn probe(&self) -> Result<(), PeerError> {
        Ok(())
    }

    /// The same coder on so many threads (0: all cores); `None` if it has no threads of its own, so that
    /// its speed on one thread is all there is.
    fn on_threads(&self, _threads: usize) -> Option<Box<dyn Peer>> {
        None
    }

    /// After [`Peer::encode`]: the coder alone with what it searched for known, where that search is ours and
    /// not part of the coder. Its encoding speed is taken with this; `None` if the peer itself will do.
    fn without_search(&self, _view: &TensorView<'_>) -> Result<Option<Box<dyn Peer>>, PeerError> {
        Ok(None)
    }

    /// The same coder aimed at another rate in bits a value; `None` if it cannot be aimed there.
    fn at_bits(&self, _bits: f64) -> Option<Box<dyn Peer>> {
        None
    }

    /// Codes a tensor. All that [`Peer::decode`] needs is in the bytes, so their number is the cost.
    fn encode(&self, view: &TensorView<'_>) -> Result<Vec<u8>, PeerError>;

    /// Decodes. Lossless peers return the original; lossy ones the same shape in the original dtype or
    /// in f32.
    fn decode(&self, bytes: &[u8]) -> Result<Tensor, PeerError>;
}

//! zstd over the tensor's bytes as they are: the lossless coder most files meet.

use tenfold::{Tensor, TensorView};

use super::lossless;
use crate::peers::coders::inflate_zstd;
use crate::peers::{Abilities, Peer, PeerError, header};

/// zstd at a level.
#[derive(Debug, Clone, Copy)]
pub struct Zstd {
    /// Compression level; 3 is the command's default.
    pub level: i32,
}

impl Peer for Zstd {
    fn name(&self) -> String {
        format!("zstd -{}", self.level)
    }

    fn abilities(&self) -> Abilities {
        lossless(true)
    }

    fn encode(&self, view: &TensorView<'_>) -> Result<Vec<u8>, PeerError> {
        let mut out = header::start(view)?;
        let frame =
            ::zstd::bulk::compress(view.data(), self.level).map_err(|e| PeerError::Failed(e.to_string()))?;
        out.extend(frame);
        Ok(out)
    }

    fn decode(&self, bytes: &[u8]) -> Result<Tensor, PeerError> {
        let header::Header { dtype, shape, values, rest: frame } = header::read(bytes)?;
        let data = inflate_zstd(frame, values * dtype.size())?;
        Ok(Tensor { dtype, shape, data })
    }
}

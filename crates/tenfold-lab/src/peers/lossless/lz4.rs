//! LZ4 over the tensor's bytes as they are: the fast one.

use tenfold::{Tensor, TensorView};

use super::lossless;
use crate::peers::coders::check_lz4;
use crate::peers::plain::corrupt;
use crate::peers::{Abilities, Peer, PeerError, header};

/// LZ4 blocks.
#[derive(Debug, Clone, Copy)]
pub struct Lz4;

impl Peer for Lz4 {
    fn name(&self) -> String {
        "lz4".to_string()
    }

    fn abilities(&self) -> Abilities {
        lossless(true)
    }

    fn encode(&self, view: &TensorView<'_>) -> Result<Vec<u8>, PeerError> {
        let mut out = header::start(view)?;
        out.extend(lz4_flex::block::compress(view.data()));
        Ok(out)
    }

    fn decode(&self, bytes: &[u8]) -> Result<Tensor, PeerError> {
        let header::Header { dtype, shape, values, rest } = header::read(bytes)?;
        let len = values * dtype.size();
        check_lz4(rest.len(), len)?;
        let data = lz4_flex::block::decompress(rest, len).map_err(|e| corrupt(e.to_string()))?;
        if data.len() != len {
            return Err(corrupt(format!("{} bytes for the shape {shape:?}", data.len())));
        }
        Ok(Tensor { dtype, shape, data })
    }
}

//! The first, second, … bytes of all values apart, then zstd: exponents, which repeat, are no longer
//! broken up by mantissas, which do not.

use tenfold::{Tensor, TensorView};

use super::lossless;
use crate::peers::coders::inflate_zstd;
use crate::peers::header::Cursor;
use crate::peers::{Abilities, Peer, PeerError, header};

/// Byte planes and zstd at a level.
#[derive(Debug, Clone, Copy)]
pub struct SplitZstd {
    /// Compression level.
    pub level: i32,
}

impl Peer for SplitZstd {
    fn name(&self) -> String {
        format!("byte split + zstd -{}", self.level)
    }

    fn abilities(&self) -> Abilities {
        lossless(true)
    }

    fn encode(&self, view: &TensorView<'_>) -> Result<Vec<u8>, PeerError> {
        let failed = |e: String| PeerError::Failed(e);
        let mut out = header::start(view)?;
        let size = view.dtype().size();
        for plane in 0..size {
            let bytes: Vec<u8> = view.data().iter().skip(plane).step_by(size).copied().collect();
            let frame = zstd::bulk::compress(&bytes, self.level).map_err(|e| failed(e.to_string()))?;
            let len = u32::try_from(frame.len()).map_err(|e| failed(e.to_string()))?;
            out.extend(len.to_le_bytes());
            out.extend(frame);
        }
        Ok(out)
    }

    fn decode(&self, bytes: &[u8]) -> Result<Tensor, PeerError> {
        let header::Header { dtype, shape, values, rest } = header::read(bytes)?;
        let (size, mut cursor) = (dtype.size(), Cursor(rest));
        let mut data = Vec::new();
        for plane in 0..size {
            let len = cursor.u32()? as usize;
            let bytes = inflate_zstd(cursor.take(len)?, values)?;
            // Only a plane that is there shows that the shape is not made up.
            if plane == 0 {
                data.resize(values * size, 0);
            }
            data.iter_mut().skip(plane).step_by(size).zip(bytes).for_each(|(d, b)| *d = b);
        }
        Ok(Tensor { dtype, shape, data })
    }
}

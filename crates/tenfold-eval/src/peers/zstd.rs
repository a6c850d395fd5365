//! zstd over the tensor's bytes as they are: the lossless coder most files meet.

use tenfold::{Tensor, TensorView};

use super::{Abilities, Fidelity, Peer, PeerError, Rate, header};

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
        Abilities { fidelity: Fidelity::Lossless, rate: Rate::Free, timed: true }
    }

    fn at_bits(&self, _bits: f64) -> Option<Box<dyn Peer>> {
        None
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
        let data = ::zstd::bulk::decompress(frame, values * dtype.size())
            .map_err(|e| PeerError::Corrupt(e.to_string()))?;
        if data.len() != values * dtype.size() {
            return Err(PeerError::Corrupt(format!("{} bytes for the shape {shape:?}", data.len())));
        }
        Ok(Tensor { dtype, shape, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synth;
    use tenfold::Dtype;

    #[test]
    fn round_trip() {
        let peer = Zstd { level: 3 };
        for shape in [vec![64, 100], vec![0, 7], vec![]] {
            let tensor = synth::gaussian(Dtype::Bf16, &shape, 0.02, 1).unwrap();
            let bytes = peer.encode(&tensor.view().unwrap()).unwrap();
            assert_eq!(peer.decode(&bytes).unwrap(), tensor);
        }
    }

    #[test]
    fn bad_bytes_are_refused() {
        let tensor = synth::gaussian(Dtype::Bf16, &[50, 50], 0.02, 1).unwrap();
        let bytes = Zstd { level: 3 }.encode(&tensor.view().unwrap()).unwrap();
        for cut in [0, 1, 5, bytes.len() - 1] {
            assert!(Zstd { level: 3 }.decode(&bytes[..cut]).is_err());
        }
    }
}

//! SZ3: prediction by interpolation, quantisation within an absolute error, Huffman and zstd.
//!
//! The binding builds a C++ library under the GPL, so it is behind the feature `scientific`; a build
//! without it lists the peer and says so. The library trusts its input, so the bytes carry a checksum that
//! is verified before it sees them.

use tenfold::{Tensor, TensorView};

use crate::peers::{Abilities, Fidelity, Peer, PeerError, Rate};

/// SZ3 within an absolute error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sz3 {
    /// Largest error, in standard deviations of the tensor.
    pub tolerance: f64,
}

impl Peer for Sz3 {
    fn name(&self) -> String {
        format!("sz3 {:.3} σ", self.tolerance)
    }

    fn abilities(&self) -> Abilities {
        Abilities { fidelity: Fidelity::Lossy, rate: Rate::Free, timed: true }
    }

    #[cfg(not(feature = "scientific"))]
    fn probe(&self) -> Result<(), PeerError> {
        Err(missing())
    }

    #[cfg(feature = "scientific")]
    fn encode(&self, view: &TensorView<'_>) -> Result<Vec<u8>, PeerError> {
        library::encode(view, self.tolerance)
    }

    #[cfg(not(feature = "scientific"))]
    fn encode(&self, _view: &TensorView<'_>) -> Result<Vec<u8>, PeerError> {
        Err(missing())
    }

    #[cfg(feature = "scientific")]
    fn decode(&self, bytes: &[u8]) -> Result<Tensor, PeerError> {
        library::decode(bytes)
    }

    #[cfg(not(feature = "scientific"))]
    fn decode(&self, _bytes: &[u8]) -> Result<Tensor, PeerError> {
        Err(missing())
    }
}

#[cfg(not(feature = "scientific"))]
fn missing() -> PeerError {
    PeerError::NotAvailable("built without the feature `scientific`".to_string())
}

#[cfg(feature = "scientific")]
mod library {
    use ::sz3::{DimensionedData, ErrorBound};
    use tenfold::{Tensor, TensorView};

    use super::super::{fold_shape, spread};
    use crate::peers::PeerError;
    use crate::peers::header::{self, Cursor};
    use crate::peers::plain::{self, corrupt};

    pub(super) fn encode(view: &TensorView<'_>, tolerance: f64) -> Result<Vec<u8>, PeerError> {
        let failed = |e: ::sz3::SZ3Error| PeerError::Failed(format!("sz3: {e}"));
        let values = plain::finite(view)?;
        if values.is_empty() || !(tolerance > 0.0 && tolerance.is_finite()) {
            return Err(PeerError::Unsupported(format!("sz3 on {} values, {tolerance} σ", values.len())));
        }
        let singles: Vec<f32> = values.iter().map(|&v| v as f32).collect();
        let mut builder = DimensionedData::<f32, Vec<f32>>::build(&singles);
        for d in fold_shape(view.shape()) {
            builder = builder.dim(d).map_err(failed)?;
        }
        let data = builder.finish().map_err(failed)?;
        let stream =
            ::sz3::compress(&data, ErrorBound::Absolute(tolerance * spread(&values))).map_err(failed)?;
        let mut out = header::start(view)?;
        let check = checksum(&out, &stream);
        out.extend(check.to_le_bytes());
        out.extend(stream);
        Ok(out)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Tensor, PeerError> {
        let header::Header { shape, values: n, rest, .. } = header::read(bytes)?;
        let head = &bytes[..bytes.len() - rest.len()];
        let mut cursor = Cursor(rest);
        let stored = cursor.u32()?;
        if stored != checksum(head, cursor.0) {
            return Err(corrupt("checksum"));
        }
        let (_, data) = ::sz3::decompress::<f32, &[u8]>(cursor.0).map_err(|e| corrupt(e.to_string()))?;
        if data.data().len() != n {
            return Err(corrupt(format!("{} values for the shape {shape:?}", data.data().len())));
        }
        Ok(plain::tensor(shape, data.into_data()))
    }

    fn checksum(head: &[u8], stream: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(head);
        hasher.update(stream);
        hasher.finalize()
    }
}

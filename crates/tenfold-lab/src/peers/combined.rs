//! A quantiser and a coder of its codes as a peer. With [`Coder::Packed`] these are the plain low-bit
//! formats; with an entropy coder the baselines that the video codecs are usually held against.
//!
//! Bytes: dtype and shape, settings of the quantiser (5), coder (1), length of the coded codes (4), the
//! coded codes, the coded side values. Packed side values stand as they are.

use tenfold::{Tensor, TensorView};

use super::header::{self, Cursor};
use super::plain::{self, corrupt};
use super::quantise::SETTINGS;
use super::{Abilities, Coder, Fidelity, Peer, PeerError, Quantiser, Rate};

/// A quantiser with a coder behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Combined {
    /// What makes codes of values.
    pub quantiser: Quantiser,
    /// What makes bytes of codes.
    pub coder: Coder,
}

impl Peer for Combined {
    fn name(&self) -> String {
        match self.coder {
            Coder::Packed => self.quantiser.name(),
            coder => format!("{} + {}", self.quantiser.name(), coder.name()),
        }
    }

    fn abilities(&self) -> Abilities {
        let rate = if self.coder == Coder::Packed { Rate::Fixed } else { Rate::Free };
        Abilities { fidelity: Fidelity::Lossy, rate, timed: true }
    }

    fn at_bits(&self, bits: f64) -> Option<Box<dyn Peer>> {
        if self.coder != Coder::Packed {
            return None;
        }
        let fits = |q: &Quantiser| q.nominal_bits() <= bits;
        let quantiser = (1..=8).rev().filter_map(|w| self.quantiser.with_width(w)).find(fits)?;
        Some(Box::new(Combined { quantiser, ..*self }))
    }

    fn encode(&self, view: &TensorView<'_>) -> Result<Vec<u8>, PeerError> {
        self.quantiser.check()?;
        let values = plain::finite(view)?;
        let mut out = header::start(view)?;
        let q = self.quantiser.quantise(values, plain::row_len(view.shape()))?;
        let codes = self.coder.encode(&q.codes, self.quantiser.width())?;
        let len = u32::try_from(codes.len())
            .map_err(|_| PeerError::Unsupported(format!("{} bytes of codes", codes.len())))?;
        out.extend(self.quantiser.settings());
        out.push(self.coder.id());
        out.extend(len.to_le_bytes());
        out.extend(codes);
        out.extend(self.coder.encode(&q.side, 8)?);
        Ok(out)
    }

    fn decode(&self, bytes: &[u8]) -> Result<Tensor, PeerError> {
        let header::Header { shape, values: n, rest, .. } = header::read(bytes)?;
        let mut cursor = Cursor(rest);
        let quantiser = Quantiser::from_settings(cursor.array::<SETTINGS>()?)?;
        let [coder] = cursor.array()?;
        let coder = Coder::from_id(coder)?;
        let len = cursor.u32()? as usize;
        let codes = coder.decode(cursor.take(len)?, n, quantiser.width())?;
        // Now `n` is what memory holds, so the numbers that follow from it are small.
        let row = plain::row_len(&shape);
        let side = coder.decode(cursor.0, quantiser.side_len(n, row), 8)?;
        let values = quantiser.restore(&codes, &side, row)?;
        if values.len() != n {
            return Err(corrupt(format!("{} values of {n}", values.len())));
        }
        Ok(plain::tensor(shape, values.into_iter().map(|v| v as f32)))
    }
}

//! H.265 intra through an installed `ffmpeg` with libx265: the tensor as gray pictures.
//!
//! Values become samples of 8 to 12 bits ([`samples`]), samples become frames ([`frames`]), `ffmpeg`
//! codes and decodes them ([`ffmpeg`]), and a search over the quantiser and the sample scale meets a
//! rate ([`search`]). Everything that serves eyes and costs squared error is switched off.

mod ffmpeg;
mod frames;
mod samples;
mod search;
mod speed;

pub use ffmpeg::{Preset, Settings, probe};
pub use frames::Geometry;
pub use samples::{Mapping, Scaling, best_scale};
pub use search::{Plane, SetResult, Stream, Target, encode_set};
pub use speed::SpeedTrial;

use tenfold::{Dtype, Tensor, TensorView};

use super::header::{self, Cursor};
use super::{Abilities, Fidelity, Peer, PeerError, Rate};
use crate::values::to_f64;

/// H.265 intra at a rate in bits a value.
#[derive(Debug, Clone, PartialEq)]
pub struct X265 {
    /// Encoder settings.
    pub settings: Settings,
    /// How samples are scaled.
    pub scaling: Scaling,
    /// Bits a value to reach, our few header bytes not counted.
    pub bits: f64,
}

impl X265 {
    /// 8-bit samples, one scale for the tensor.
    pub fn new(preset: Preset, bits: f64) -> Self {
        X265 { settings: Settings::new(preset), scaling: Scaling::Tensor, bits }
    }
}

impl Peer for X265 {
    fn name(&self) -> String {
        format!("x265 {} {}-bit", self.settings.preset.name(), self.settings.depth)
    }

    fn abilities(&self) -> Abilities {
        Abilities { fidelity: Fidelity::Lossy, rate: Rate::Any, timed: false }
    }

    fn probe(&self) -> Result<(), PeerError> {
        probe()
    }

    fn at_bits(&self, bits: f64) -> Option<Box<dyn Peer>> {
        Some(Box::new(X265 { bits, ..self.clone() }))
    }

    fn encode(&self, view: &TensorView<'_>) -> Result<Vec<u8>, PeerError> {
        let plane = Plane::new(view)?;
        let coded = encode_set(&[plane], &self.settings, self.scaling, Target::Bits(self.bits))?;
        let stream = coded.streams.first().ok_or_else(|| PeerError::Failed("no stream".to_string()))?;
        let mut out = header::start(view)?;
        out.push(self.settings.depth);
        stream.mapping.write(&mut out);
        out.extend(&stream.hevc);
        Ok(out)
    }

    fn decode(&self, bytes: &[u8]) -> Result<Tensor, PeerError> {
        let header::Header { shape, values: n, rest, .. } = header::read(bytes)?;
        let mut cursor = Cursor(rest);
        let [depth] = cursor.array()?;
        let mapping = Mapping::read(&mut cursor)?;
        let cols = shape.last().copied().unwrap_or(1);
        let geometry = Geometry::of(n / cols.max(1), cols);
        let samples = ffmpeg::decode(cursor.0, &geometry, depth)?;
        let values = mapping.to_values(&geometry.collect(&samples, n), cols, depth);
        let data = values.iter().flat_map(|&v| (v as f32).to_le_bytes()).collect();
        Ok(Tensor { dtype: Dtype::F32, shape, data })
    }
}

/// Finite values of a float tensor, or why not.
pub(crate) fn finite_values(view: &TensorView<'_>) -> Result<Vec<f64>, PeerError> {
    to_f64(view)
        .filter(|v| !v.is_empty() && v.iter().all(|x| x.is_finite()))
        .ok_or_else(|| PeerError::Unsupported("pictures need at least one value, all finite".to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{metrics, synth};

    #[test]
    fn round_trip_or_a_typed_refusal() {
        let tensor = synth::gaussian(Dtype::Bf16, &[100, 3, 70], 0.02, 6).unwrap();
        let view = tensor.view().unwrap();
        for scaling in [Scaling::Tensor, Scaling::RowGroups(50)] {
            let peer = X265 { scaling, ..X265::new(Preset::Medium, 3.0) };
            let bytes = match peer.encode(&view) {
                Ok(bytes) => bytes,
                Err(PeerError::NotAvailable(what)) => return assert!(what.contains("ffmpeg")),
                Err(e) => panic!("{e}"),
            };
            let bits = bytes.len() as f64 * 8.0 / view.len() as f64;
            assert!((2.8..3.2).contains(&bits), "{bits}");
            let back = peer.decode(&bytes).unwrap();
            assert_eq!(back.shape, tensor.shape);
            let f = metrics::Fidelity::between(&view, &back.view().unwrap()).unwrap();
            assert!((0.015..0.06).contains(&f.nmse()), "{}", f.nmse());
            // A stream cut late is concealed by ffmpeg; one cut within our fields is not.
            assert!(peer.decode(&bytes[..20]).is_err());
        }
    }

    #[test]
    fn what_pictures_cannot_hold_is_refused() {
        let peer = X265::new(Preset::Medium, 3.0);
        let encode = |values: &[f32]| peer.encode(&TensorView::from_slice(values, &[values.len()]).unwrap());
        assert!(matches!(encode(&[]), Err(PeerError::Unsupported(_))));
        assert!(matches!(encode(&[1.0, f32::NAN]), Err(PeerError::Unsupported(_))));
    }
}

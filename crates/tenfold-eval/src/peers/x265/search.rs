//! Meeting a rate over one tensor or a set of tensors with one quantiser for all.
//!
//! The encoder's quantiser moves in steps of 1/6 bit; the sample scale is continuous and moves the rate
//! in the same way, so the search takes the nearest quantiser first and then the scale.

use rayon::prelude::*;
use tenfold::TensorView;

use super::super::PeerError;
use super::ffmpeg::{self, Settings};
use super::{Geometry, Mapping, Scaling, finite_values};
use crate::metrics::Fidelity;

/// Trials after which the closest rate found is taken.
const TRIALS: usize = 8;
/// Share of the rate within which the search stops.
const CLOSE: f64 = 0.0015;

/// A tensor as the search sees it.
#[derive(Debug, Clone)]
pub struct Plane {
    /// Values, all finite.
    pub values: Vec<f64>,
    /// Values of a row.
    pub cols: usize,
}

impl Plane {
    /// Widens a tensor.
    pub fn new(view: &TensorView<'_>) -> Result<Self, PeerError> {
        Ok(Plane { values: finite_values(view)?, cols: view.cols() })
    }
}

/// What the search must reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// Bits a value over the set, from the bytes of the streams alone.
    Bits(f64),
    /// This quantiser, once.
    Qp(u32),
}

/// One tensor's stream.
#[derive(Debug, Clone)]
pub struct Stream {
    /// How values became samples.
    pub mapping: Mapping,
    /// Raw H.265 bytes.
    pub hevc: Vec<u8>,
    /// Error of the decoded values.
    pub fidelity: Fidelity,
}

/// What a set of tensors came to.
#[derive(Debug, Clone)]
pub struct SetResult {
    /// One stream a tensor.
    pub streams: Vec<Stream>,
    /// Quantiser.
    pub qp: u32,
    /// Factor on the sample scale.
    pub finer: f64,
    /// Bits a value over the set.
    pub bits: f64,
    /// Error over the set.
    pub fidelity: Fidelity,
}

/// Codes every tensor with one quantiser such that the set meets the target.
pub fn encode_set(
    planes: &[Plane],
    settings: &Settings,
    scaling: Scaling,
    target: Target,
) -> Result<SetResult, PeerError> {
    let bits = match target {
        Target::Qp(qp) => return code(planes, settings, scaling, qp, 1.0),
        Target::Bits(bits) => bits,
    };
    let mut search = Search { bits, points: Vec::new() };
    // A quantiser in the middle of the range, and the finest scale that clips nothing of weight.
    let (mut qp, mut finer) = (30, 1.0);
    let mut best: Option<SetResult> = None;
    for _ in 0..TRIALS {
        let result = code(planes, settings, scaling, qp, finer)?;
        let off = (result.bits - bits).abs();
        (qp, finer) = search.next(qp, finer, result.bits);
        if best.as_ref().is_none_or(|b| off < (b.bits - bits).abs()) {
            best = Some(result);
        }
        if off < CLOSE * bits {
            break;
        }
    }
    best.ok_or_else(|| PeerError::Failed("no trial".to_string()))
}

/// Secant over the coarseness log2(step) = qp/6 − log2(scale), along which bits fall about one to one.
struct Search {
    bits: f64,
    points: Vec<(f64, f64)>,
}

impl Search {
    /// The next quantiser and scale after a trial that gave `bits`.
    fn next(&mut self, qp: u32, finer: f64, bits: f64) -> (u32, f64) {
        let here = (f64::from(qp) / 6.0 - finer.log2(), bits);
        let slope = match self.points.last() {
            Some(last) if (here.0 - last.0).abs() > 1e-4 => (here.1 - last.1) / (here.0 - last.0),
            // At low rates most levels are zero and a halved step costs less than a bit.
            _ => -(bits / 2.0).clamp(0.2, 1.0),
        };
        self.points.push(here);
        let off = self.bits - bits;
        let coarseness = here.0 + (off / slope.clamp(-1.3, -0.1)).clamp(-4.0, 4.0);
        // Close by, only the scale moves: another quantiser is another set of rounding rules.
        let near = off.abs() < 0.05 * self.bits;
        let whole = (coarseness * 6.0).floor().clamp(0.0, f64::from(ffmpeg::MAX_QP));
        let qp = if near { qp } else { whole as u32 };
        (qp, (f64::from(qp) / 6.0 - coarseness).exp2())
    }
}

fn code(
    planes: &[Plane],
    settings: &Settings,
    scaling: Scaling,
    qp: u32,
    finer: f64,
) -> Result<SetResult, PeerError> {
    let one = |plane: &Plane| -> Result<Stream, PeerError> {
        let (values, cols) = (&plane.values, plane.cols);
        let mapping = Mapping::choose(values, cols, scaling, settings.depth, finer);
        let geometry = Geometry::of(values.len() / cols.max(1), cols);
        let samples = geometry.lay_out(&mapping.to_samples(values, cols, settings.depth));
        let hevc = ffmpeg::encode(&samples, &geometry, settings, qp)?;
        let back = geometry.collect(&ffmpeg::decode(&hevc, &geometry, settings.depth)?, values.len());
        let fidelity = Fidelity::of(values, &mapping.to_values(&back, cols, settings.depth));
        Ok(Stream { mapping, hevc, fidelity })
    };
    let streams: Vec<Stream> = planes.par_iter().map(one).collect::<Result<_, _>>()?;
    let bytes: usize = streams.iter().map(|s| s.hevc.len()).sum();
    let values: usize = planes.iter().map(|p| p.values.len()).sum();
    let mut fidelity = Fidelity::default();
    streams.iter().for_each(|s| fidelity.add_tensor(s.fidelity));
    Ok(SetResult { streams, qp, finer, bits: bytes as f64 * 8.0 / values.max(1) as f64, fidelity })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_converges_on_a_curve_with_a_knee() {
        // Bits of an entropy-coded Gaussian: straight at high rates, flat towards zero.
        let curve = |qp: u32, finer: f64| {
            let coarseness = f64::from(qp) / 6.0 - finer.log2();
            0.5 * (1.0 + (2.0 * (7.0 - coarseness)).exp2()).log2()
        };
        for bits in [0.5, 1.0, 2.85, 4.0] {
            let mut search = Search { bits, points: Vec::new() };
            let (mut qp, mut finer) = (30, 1.0);
            let mut best = f64::INFINITY;
            for _ in 0..TRIALS {
                let got = curve(qp, finer);
                best = best.min((got - bits).abs() / bits);
                (qp, finer) = search.next(qp, finer, got);
            }
            assert!(best < CLOSE, "{bits}: off by {best}");
        }
    }

    #[test]
    fn a_set_meets_its_rate_where_ffmpeg_is_installed() {
        if ffmpeg::probe().is_err() {
            return; // nothing to test without the program
        }
        let values = |seed| {
            let v = crate::synth::values(crate::synth::Shape::Gaussian, 0.02, 128 * 128, seed);
            Plane { values: v.iter().map(|&x| f64::from(x)).collect(), cols: 128 }
        };
        let settings = Settings::new(ffmpeg::Preset::Medium);
        let set = [values(1), values(2)];
        let result = encode_set(&set, &settings, Scaling::Tensor, Target::Bits(2.5)).unwrap();
        assert!((result.bits / 2.5 - 1.0).abs() < 0.01, "{}", result.bits);
        let gap = result.fidelity.gap(result.bits);
        assert!((0.3..0.7).contains(&gap), "{gap}");
    }
}

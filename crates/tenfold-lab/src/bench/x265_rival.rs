//! What H.265 intra reaches over a whole file, at its best: several ways of making samples are tried
//! and the one with the least error stands.
//!
//! Error over a file is total squared error, so one size of sample step and one quantiser for all tensors
//! (one distortion for all) is the strong setting; the same rate for each tensor is there for comparison.

use rayon::prelude::*;
use serde::Serialize;
use tenfold::{DecodeOptions, Effort, EncodeOptions, Goal, TensorView};
use tenfold_video::{Quality, Standard, VideoOptions};

use crate::load::Named;
use crate::metrics::Fidelity;
use crate::peers::{Peer, PeerError, Video};

/// Trials after which the closest rate found is taken.
const TRIALS: usize = 8;
/// Share of the rate within which the search stops.
const CLOSE: f64 = 0.0015;

/// One way of coding the file, and what came out.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Rival {
    /// Name with settings.
    pub name: String,
    /// Bits a value over the file, every byte counted.
    pub bits: f64,
    /// Error over the file.
    pub nmse: f64,
}

/// Every variant's result at a rate, the best first.
pub(super) fn over_file(
    tensors: &[Named],
    bits: f64,
    quick: bool,
    mut tell: impl FnMut(&str),
) -> Result<Vec<Rival>, PeerError> {
    Video::new("x265", Standard::H265, Effort::Best, bits).probe()?;
    let mut found = Vec::new();
    let depths: &[u8] = if quick { &[8] } else { &[8, 12] };
    for &depth in depths {
        let name = format!("x265 slow, {depth}-bit, one step");
        tell(&name);
        let (bits, fidelity) = one_step(tensors, depth, bits)?;
        found.push(Rival { name, bits, nmse: fidelity.nmse() });
    }
    if !quick {
        let name = "x265 slow, 8-bit, one rate".to_string();
        tell(&name);
        let video = VideoOptions::new(Standard::H265).with_encoder("x265");
        let (bits, fidelity) = code(tensors, Goal::Bits(bits), &video)?;
        found.push(Rival { name, bits, nmse: fidelity.nmse() });
    }
    found.sort_by(|a, b| a.nmse.total_cmp(&b.nmse));
    Ok(found)
}

/// One quantiser and one size of sample step for all tensors, such that the file meets the rate. The quantiser
/// stays in the middle of its range and the step moves: together they are one number, and samples of this
/// depth have room enough for the tensors of a file.
fn one_step(tensors: &[Named], depth: u8, bits: f64) -> Result<(f64, Fidelity), PeerError> {
    let views: Vec<TensorView<'_>> = tensors.iter().map(|t| t.tensor.view()).collect::<Result<_, _>>()?;
    let spread = views
        .iter()
        .filter_map(|v| v.to_f64())
        .map(|v| Fidelity::new(&v, &v).variance())
        .fold(0.0, f64::max)
        .sqrt();
    // About six standard deviations of the widest tensor on either side of the middle.
    let mut step = 12.0 * spread / f64::from(1u32 << depth);
    let mut qp = 28.0f64;
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut best: Option<(f64, Fidelity)> = None;
    for _ in 0..TRIALS {
        let video = VideoOptions::new(Standard::H265)
            .with_encoder("x265")
            .with_depth(depth)
            .with_quality(Quality::Qp(qp as u32))
            .with_sample_step(step);
        let (got, fidelity) = code(tensors, Goal::Bits(bits), &video)?;
        let here = (qp / 6.0 + step.log2(), got);
        let slope = match points.last() {
            Some(last) if (here.0 - last.0).abs() > 1e-4 => (here.1 - last.1) / (here.0 - last.0),
            _ => -(got / 2.0).clamp(0.2, 1.0),
        };
        points.push(here);
        if best.as_ref().is_none_or(|b| (got - bits).abs() < (b.0 - bits).abs()) {
            best = Some((got, fidelity));
        }
        if (got - bits).abs() < CLOSE * bits {
            break;
        }
        let coarseness = here.0 + ((bits - got) / slope.clamp(-1.3, -0.1)).clamp(-4.0, 4.0);
        // Far away the quantiser moves, close by the step: another quantiser is another set of rules.
        if (got - bits).abs() > 0.05 * bits {
            qp = ((coarseness - step.log2()) * 6.0).round().clamp(0.0, 51.0);
        }
        step = (coarseness - qp / 6.0).exp2();
    }
    best.ok_or_else(|| PeerError::Failed("no trial".to_string()))
}

/// Codes every tensor; bits a value and error over all.
fn code(tensors: &[Named], goal: Goal, video: &VideoOptions) -> Result<(f64, Fidelity), PeerError> {
    let options = EncodeOptions::new(goal).with_effort(Effort::Best);
    let failed = |e: tenfold_video::Error| PeerError::Failed(e.to_string());
    let one = |t: &Named| -> Result<(usize, Fidelity), PeerError> {
        let view = t.tensor.view()?;
        let blob = tenfold_video::encode(&view, &options, video).map_err(failed)?;
        let back = tenfold_video::decode(&blob, &DecodeOptions::default()).map_err(failed)?;
        let fidelity = Fidelity::between(&view, &back.view()?);
        Ok((blob.len(), fidelity.ok_or_else(|| PeerError::Failed("other values".to_string()))?))
    };
    let coded: Vec<(usize, Fidelity)> = tensors.par_iter().map(one).collect::<Result<_, _>>()?;
    let mut total = Fidelity::default();
    coded.iter().for_each(|c| total.add_tensor(c.1));
    let bytes: usize = coded.iter().map(|c| c.0).sum();
    Ok((bytes as f64 * 8.0 / (total.values + total.specials).max(1) as f64, total))
}

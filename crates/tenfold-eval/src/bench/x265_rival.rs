//! What H.265 intra reaches over a whole file, at its best: several ways of making samples are tried
//! and the one with the least error stands.
//!
//! Error over a file is total squared error, so one sample scale and one quantiser for all tensors
//! (one distortion for all) is the strong setting; a scale for each tensor is there for comparison.

use anyhow::Result;
use serde::Serialize;

use crate::load::Named;
use crate::peers::PeerError;
use crate::peers::x265::{Plane, Preset, Scaling, Settings, Target, best_scale, encode_set};

/// Parameters beyond the preset that lower squared error on tensors: transform skip, and coding units
/// no larger than what noise can use.
const TUNED: &str = "tskip=1:ctu=32";

/// One way of coding the file, and what came out.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Rival {
    /// Name with settings.
    pub name: String,
    /// Bits a value over the file, from the bytes of the streams.
    pub bits: f64,
    /// Error over the file.
    pub nmse: f64,
    /// Quantiser found.
    pub qp: u32,
}

/// Every variant's result at a rate, the best first.
pub(super) fn over_file(
    tensors: &[Named],
    bits: f64,
    quick: bool,
    mut tell: impl FnMut(&str),
) -> Result<Vec<Rival>, PeerError> {
    let planes: Vec<Plane> =
        tensors.iter().map(|t| Plane::new(&t.tensor.view()?)).collect::<Result<_, PeerError>>()?;
    let mut variants = vec![(8, true, ""), (8, true, TUNED), (12, true, TUNED), (8, false, TUNED)];
    variants.truncate(if quick { 1 } else { variants.len() });
    let mut found = Vec::new();
    for (depth, shared, extra) in variants {
        let scale = if shared { "one scale" } else { "scale by tensor" };
        let name =
            format!("x265 slow, {depth}-bit, {scale}{}", if extra.is_empty() { "" } else { ", tuned" });
        tell(&name);
        let scaling = if shared { Scaling::Fixed(shared_scale(&planes, depth)) } else { Scaling::Tensor };
        let settings = Settings { depth, extra: extra.to_string(), ..Settings::new(Preset::Slow) };
        let result = encode_set(&planes, &settings, scaling, Target::Bits(bits))?;
        found.push(Rival { name, bits: result.bits, nmse: result.fidelity.nmse(), qp: result.qp });
    }
    found.sort_by(|a, b| a.nmse.total_cmp(&b.nmse));
    Ok(found)
}

/// The scale of least squared error over all tensors, each about its mean.
fn shared_scale(planes: &[Plane], depth: u8) -> f64 {
    let centred = planes.iter().flat_map(|p| {
        let mean = p.values.iter().sum::<f64>() / p.values.len() as f64;
        p.values.iter().map(move |v| v - mean)
    });
    best_scale(&centred.collect::<Vec<f64>>(), 0.0, depth)
}

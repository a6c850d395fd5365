//! Compressors of scientific arrays.

use super::{Row, boxed};
use crate::peers::{Sz3, Zfp, ZfpMode};

pub(super) const ROWS: &[Row] = &[
    ("zfp-rate", "zfp, fixed rate", |rates| {
        rates.iter().map(|&bits| boxed(Zfp { mode: ZfpMode::Rate(bits), threads: 1 })).collect()
    }),
    ("zfp-accuracy", "zfp, fixed accuracy", |rates| {
        let mode = |&bits: &f64| ZfpMode::Accuracy(ZFP_MARGIN * tolerance(bits));
        rates.iter().map(|bits| boxed(Zfp { mode: mode(bits), threads: 1 })).collect()
    }),
    ("sz3", "SZ3, absolute error", |rates| {
        rates.iter().map(|&bits| boxed(Sz3 { tolerance: tolerance(bits) })).collect()
    }),
];

/// zfp keeps 2 (d + 1) bit planes below its tolerance in d dimensions so as to be sure of it, and stays far
/// below on noise. This margin suits matrices.
const ZFP_MARGIN: f64 = 32.0;

/// Error bound, in standard deviations, at which an ideal uniform quantiser of a Gaussian needs about so
/// many bits: its step is twice the bound, its rate log2(√(2πe) / step).
fn tolerance(bits: f64) -> f64 {
    let entropy = 0.5 * (2.0 * std::f64::consts::PI * std::f64::consts::E).log2();
    0.5 * (entropy - bits).exp2()
}

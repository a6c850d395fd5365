//! One measurement.

use serde::{Deserialize, Serialize};

use super::TensorKind;

/// A peer's speed on a number of threads, in values a second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Speed {
    /// Threads.
    pub threads: usize,
    /// Median of encoding.
    pub encode: f64,
    /// Median of decoding.
    pub decode: f64,
}

/// What a peer did to a tensor. Figures that do not exist are `None`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// All bytes that decoding needs.
    pub bytes: usize,
    /// Bits a value.
    pub bits: f64,
    /// Mean squared error over the variance; `None` for a constant tensor that did not come back.
    pub nmse: Option<f64>,
    /// Mean squared error.
    pub mse: f64,
    /// Largest error.
    pub max_error: f64,
    /// Largest error over the standard deviation; `None` for a constant tensor.
    pub max_error_over_std: Option<f64>,
    /// Bits above the Gaussian bound; `None` where nothing was lost.
    pub gap: Option<f64>,
    /// NaN and infinities that did not come back as they were.
    pub lost_specials: u64,
    /// Speeds, one thread first; empty if they were not asked for or are not the coder's own.
    pub speeds: Vec<Speed>,
}

/// A peer on a tensor: a measurement, or why there is none.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// File of the tensor.
    pub file: String,
    /// Tensor.
    pub tensor: String,
    /// What the tensor is.
    pub kind: TensorKind,
    /// Number of the tensor in the report's list.
    pub input: usize,
    /// Family of the peer.
    pub family: String,
    /// The peer with its settings.
    pub peer: String,
    /// Whether every bit must come back.
    pub lossless: bool,
    /// Bits a value that were asked for; `None` for coders that cannot be aimed.
    pub target: Option<f64>,
    /// Commit at which it was measured.
    pub commit: String,
    /// Why there is no measurement.
    pub failure: Option<String>,
    /// The measurement.
    #[serde(flatten)]
    pub measured: Option<Measured>,
}

//! Commands that read model files: decompress, inspect, verify, compare.

use std::path::PathBuf;

use clap::Args;

use super::Decode;

/// Restore a compressed model with its names, dtypes, shapes, order, metadata and shards.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  tenfold decompress small.safetensors -o model.safetensors")]
pub struct DecompressArgs {
    /// Compressed model: a file, an index of shards or a folder.
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// Output: a file, or a folder if IN is a folder or an index.
    #[arg(long, short, value_name = "OUT")]
    pub output: PathBuf,
    #[command(flatten)]
    pub decode: Decode,
    /// Write a timeline of what was read, decoded and written when: a Chrome trace, for Perfetto.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Replace OUT if it exists.
    #[arg(long, short)]
    pub force: bool,
}

/// List the tensors of a model file, how they are stored, their sizes and rates.
#[derive(Debug, Args)]
#[command(after_help = INSPECT_HELP)]
pub struct InspectArgs {
    /// Model, compressed or not.
    #[arg(value_name = "FILE")]
    pub input: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

const INSPECT_HELP: &str = "\
Examples:
  tenfold inspect small.safetensors
  tenfold inspect small.safetensors --json | jq '.tensors[] | select(.bits_per_value > 4) | .name'

JSON: `tensors`, each with `name`, `file`, `dtype`, `shape`, `values`, `codec` (none, lossless, lossy, layered, H.264,
H.265, AV1), `original_bytes`, `stored_bytes`, `bits_per_value`, `ratio`, `transforms` and `layers` (if there are any), and
`step`, `states`, `classes`, `tiles` (null if they do not apply), `padding` (of pictures); `compressed` and `total`, each with `tensors`, `values`, `original_bytes`,
`stored_bytes`, `bits_per_value`, `ratio`.";

/// Check a model file: compare all checksums and decode every compressed tensor.
#[derive(Debug, Args)]
#[command(after_help = VERIFY_HELP)]
pub struct VerifyArgs {
    /// Compressed model.
    #[arg(value_name = "FILE")]
    pub input: PathBuf,
    #[command(flatten)]
    pub decode: Decode,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

const VERIFY_HELP: &str = "\
Example:
  tenfold verify small.safetensors && echo fine

Checksums cover blobs, plain tensors, names, dtypes, shapes, order and metadata. In files of earlier versions they cover
only the blobs; the output then says so.
JSON: `tensors`, `blobs`, `stored_bytes`, `original_bytes`, and `uncovered`: a list of such files, each with `file` and
the number (`tensors`) and `bytes` of its plain tensors. Errors go to standard error, with exit code 3.";

/// Measure how far two models differ, tensor by tensor. Either may be compressed.
#[derive(Debug, Args)]
#[command(after_help = COMPARE_HELP)]
pub struct CompareArgs {
    /// The original.
    #[arg(value_name = "A")]
    pub first: PathBuf,
    /// The model to judge.
    #[arg(value_name = "B")]
    pub second: PathBuf,
    /// Fail (exit code 3) if any tensor's nmse exceeds this, or if the models do not hold the same tensors.
    #[arg(long, value_name = "NMSE")]
    pub fail_above: Option<f64>,
    #[command(flatten)]
    pub decode: Decode,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

const COMPARE_HELP: &str = "\
Examples:
  tenfold compare model.safetensors small.safetensors
  tenfold compare model.safetensors small.safetensors --fail-above 0.01

JSON: `tensors` and `total`, with `name`, `dtype`, `shape`, `values`, `identical`, `mse`, `nmse` (mean squared
error over the variance of A; null if that is zero), `max_error`, `cosine`, `special_mismatches` (NaN or
infinite values that differ between A and B); `only_in_first`, `only_in_second`, `not_comparable`.";

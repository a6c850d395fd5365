//! The command line's grammar and help texts.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use tenfold_archive::Alloc;

use crate::exit;

/// Compress the tensors of large models, from lossless down to less than one bit a value.
#[derive(Debug, Parser)]
#[command(name = "tenfold", version, max_term_width = 100, after_help = exit::HELP)]
pub struct Cli {
    /// No progress bar, no summary; errors are still told.
    #[arg(long, short, global = true)]
    pub quiet: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Compress(CompressArgs),
    Decompress(DecompressArgs),
    Inspect(InspectArgs),
    Verify(VerifyArgs),
    Compare(CompareArgs),
    Completions(CompletionsArgs),
}

/// Compress a model.
///
/// IN is a safetensors file, an index of shards (model.safetensors.index.json), a folder that holds either,
/// a GGUF file or an npy file. The output is valid safetensors again, in the same shards: compressed
/// tensors are byte tensors of the same name, all others are as they were.
///
/// Compressed are floats with at least two dimensions and 4096 values. --include and --exclude change that.
/// State exactly one goal, or a recipe with a [default].
#[derive(Debug, Args)]
#[command(after_help = COMPRESS_HELP)]
pub struct CompressArgs {
    /// Model to compress.
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// Output: a file, or a folder if IN is a folder or an index.
    #[arg(long, short, value_name = "OUT")]
    pub output: PathBuf,
    #[command(flatten)]
    pub goal: GoalArgs,
    /// How hard to search; decoding takes the same time whichever it was [default: balanced].
    #[arg(long, value_enum)]
    pub effort: Option<EffortArg>,
    /// How --bits is shared among the tensors: equal (the same for each), step (one quantiser step for
    /// all, least squared error), ramp=K (K bits more from layer to layer).
    #[arg(long, value_name = "HOW", default_value = "equal", value_parser = str::parse::<Alloc>)]
    pub alloc: Alloc,
    /// Compress tensors whose name matches, even small, one-dimensional or integer ones (repeatable).
    #[arg(long, value_name = "GLOB", action = ArgAction::Append)]
    pub include: Vec<String>,
    /// Leave tensors whose name matches as they are; wins over everything else (repeatable).
    #[arg(long, value_name = "GLOB", action = ArgAction::Append)]
    pub exclude: Vec<String>,
    /// Goals by tensor, from a TOML file.
    #[arg(long, value_name = "FILE")]
    pub recipe: Option<PathBuf>,
    #[command(flatten)]
    pub threads: Threads,
    /// Replace OUT if it exists.
    #[arg(long, short)]
    pub force: bool,
    /// Print a report of every tensor as JSON.
    #[arg(long)]
    pub json: bool,
}

const COMPRESS_HELP: &str = "\
Examples:
  tenfold compress model.safetensors -o small.safetensors --bits 3
  tenfold compress ./llama -o ./llama-small --bits 2.5 --alloc step --effort best
  tenfold compress model.gguf -o exact.safetensors --lossless
  tenfold compress model.safetensors -o small.safetensors --nmse 1e-3 --exclude 'lm_head.*'

Recipe (entries are tried in order, the first match counts):
  [default]
  bits = 3.0
  [[tensor]]
  match = \"*.embed_tokens.*\"
  nmse = 1e-3            # or bits, ratio, mse, max_error, max_bytes, lossless = true, skip = true
  effort = \"best\"        # optional
  include = true         # optional: even if small, one-dimensional or integer

JSON: `tensors` (as of `tenfold inspect --json`, with `goal`), `compressed`, `total`, `left_out`.";

/// What to reach; exactly one.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub struct GoalArgs {
    /// Bits a value, every byte of the blob counted; fractions are fine.
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Goal (exactly one)")]
    pub bits: Option<f64>,
    /// Size of each tensor over the size of its blob.
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Goal (exactly one)")]
    pub ratio: Option<f64>,
    /// Mean squared error of each tensor at most this.
    #[arg(long, value_name = "X", value_parser = positive, help_heading = "Goal (exactly one)")]
    pub mse: Option<f64>,
    /// Mean squared error over the tensor's variance at most this.
    #[arg(long, value_name = "X", value_parser = positive, help_heading = "Goal (exactly one)")]
    pub nmse: Option<f64>,
    /// No value off by more than this.
    #[arg(long, value_name = "X", value_parser = positive, help_heading = "Goal (exactly one)")]
    pub max_error: Option<f64>,
    /// Each compressed tensor takes at most so many bytes.
    #[arg(long, value_name = "N", help_heading = "Goal (exactly one)")]
    pub max_bytes: Option<usize>,
    /// Every bit comes back.
    #[arg(long, help_heading = "Goal (exactly one)")]
    pub lossless: bool,
}

/// Restore a compressed model: names, dtypes, shapes, order, metadata and shards.
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
    /// Replace OUT if it exists.
    #[arg(long, short)]
    pub force: bool,
}

/// List what is inside a model file: tensors, how they are stored, sizes and rates.
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

JSON: `tensors`, each with `name`, `file`, `dtype`, `shape`, `values`, `codec` (none, stored, lossless,
lossy), `original_bytes`, `stored_bytes`, `bits_per_value`, `ratio`, and `step`, `states`, `classes`, `tiles`
(null where they do not apply); `compressed` and `total`, each with `tensors`, `values`, `original_bytes`,
`stored_bytes`, `bits_per_value`, `ratio`.";

/// Check a model file: all checksums, and a full decode of every compressed tensor.
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

Tensors that are stored as they were have no checksum; they are read, no more.
JSON: `tensors`, `blobs`, `stored_bytes`, `original_bytes`. A fault is told on standard error, exit code 3.";

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
error over the variance in A; null if that is zero), `max_error`, `cosine`, `special_mismatches` (NaN or
infinite in one and not the same in the other); `only_in_first`, `only_in_second`, `not_comparable`.";

/// Print a completion script for a shell.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  tenfold completions bash > ~/.local/share/bash-completion/completions/tenfold"
)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub struct Threads {
    /// Worker threads; 0 uses all cores. The output does not depend on it.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,
}

#[derive(Debug, Args)]
pub struct Decode {
    #[command(flatten)]
    pub threads: Threads,
    /// Refuse a compressed tensor that claims to be larger than this [default: 64 GiB].
    #[arg(long, value_name = "BYTES")]
    pub max_tensor_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum EffortArg {
    /// Scalar quantiser.
    Fast,
    /// Trellis of 8 states.
    Balanced,
    /// Trellis of 256 states.
    Best,
}

fn positive(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if value.is_finite() && value > 0.0 {
        Ok(value)
    } else {
        Err("must be positive and finite".into())
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_grammar_is_sound() {
        super::Cli::command().debug_assert();
    }
}

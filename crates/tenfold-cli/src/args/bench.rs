//! `tenfold bench`.

use std::path::PathBuf;

use clap::Args;

use super::{EffortArg, EngineArgs, GoalArgs, Threads};

/// Measure rate, error and speed on your own files and machine, beside zstd and a plain copy.
///
/// Measures the tensors that compress takes by default (floats with at least two dimensions and 4096 values), in the order
/// of the files, up to --max-values. Everything stays in memory. Without a goal it codes at 3 bits a value.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct BenchArgs {
    /// Models, in any format that compress reads.
    #[arg(value_name = "FILE", required = true)]
    pub inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub goal: GoalArgs,
    /// How hard to search.
    #[arg(long, value_enum, default_value = "balanced")]
    pub effort: EffortArg,
    /// Most values to measure.
    #[arg(long, value_name = "N", default_value_t = 1 << 24, value_parser = clap::value_parser!(u64).range(1..))]
    pub max_values: u64,
    /// Timed runs; the report has their median.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeats: u32,
    #[command(flatten)]
    pub engine: EngineArgs,
    #[command(flatten)]
    pub threads: Threads,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

const HELP: &str = "\
Examples:
  tenfold bench model.safetensors
  tenfold bench model.safetensors --bits 2.5 --effort best
  tenfold bench model.gguf --lossless --threads 1
  tenfold bench model.safetensors --engine cuda

Speeds are bytes of the original tensors a second. All coders work from memory to memory on the same number of threads. The
times of a CUDA device include both copies.

JSON: `tensors`, `values`, `values_in_files`, `goal`, `number` (the goal's), `effort`, `engine`, `threads`, `repeats`, and
`coders`, each with `coder`, `bytes`, `bits_per_value`, `ratio`, `mse`, `nmse`, `max_error`, `encode` and `decode` (bytes a
second; null if not timed).";

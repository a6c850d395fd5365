//! The command line's grammar and help texts.

mod basis;
mod bench;
mod compress;
mod delta;
mod engine;
mod goal;
#[cfg(feature = "net")]
mod link;
mod models;
mod plan;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tenfold::Effort;

use crate::exit;

pub use basis::{BasisArgs, BasisCommand, BasisFitArgs, BasisShowArgs, SetArg};
pub use bench::BenchArgs;
pub use compress::{CodecArg, CompressArgs};
pub use delta::{DeltaApplyArgs, DeltaArgs, DeltaCommand, DeltaInspectArgs, DeltaMakeArgs, DeltaSquashArgs};
pub use engine::{EngineArg, EngineArgs};
#[cfg(feature = "net")]
pub use goal::WireGoal;
pub use goal::{GoalArgs, OptionalGoal, option};
#[cfg(feature = "net")]
pub use link::{PullArgs, ServeArgs};
pub use models::{CompareArgs, DecompressArgs, InspectArgs, VerifyArgs};
pub use plan::{ClusterArgs, ListenArgs, PlanArgs, PlanCommand, SendArgs, WorkloadArg};

/// Compress the tensors of large models, from lossless down to less than one bit a value.
#[derive(Debug, Parser)]
#[command(name = "tenfold", version, max_term_width = 100, after_help = exit::HELP)]
pub struct Cli {
    /// Print no progress bar and no summary, only errors.
    #[arg(long, short, global = true)]
    pub quiet: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Compress(Box<CompressArgs>),
    Decompress(DecompressArgs),
    Inspect(InspectArgs),
    Verify(VerifyArgs),
    Compare(CompareArgs),
    Delta(DeltaArgs),
    Basis(BasisArgs),
    #[cfg(feature = "net")]
    Serve(ServeArgs),
    #[cfg(feature = "net")]
    Pull(Box<PullArgs>),
    Bench(Box<BenchArgs>),
    Plan(Box<PlanArgs>),
    Engines(EnginesArgs),
    Completions(CompletionsArgs),
}

/// List the engines and codecs of this machine, and why any of them is unavailable.
#[derive(Debug, Args)]
#[command(after_help = ENGINES_HELP)]
pub struct EnginesArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Test the video engines of NVIDIA GPUs: encode and decode made-up pictures, and compare with software.
    #[arg(long)]
    pub selftest: bool,
}

const ENGINES_HELP: &str = "\
Examples:
  tenfold engines
  tenfold engines --selftest

JSON: a list, each with `engine` (cpu, cuda, video), `name`, `role` (codec, encoder, decoder), `standard`, `available`,
`detail`, and for a CUDA device `device` (`number`, `name`, `capability`, `memory` in bytes, `multiprocessors`).";

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
    /// Worker threads; 0 uses all cores. The output is the same for any number.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,
}

#[derive(Debug, Args)]
pub struct Decode {
    #[command(flatten)]
    pub threads: Threads,
    /// Refuse compressed tensors that claim to be larger than this [default: 64 GiB].
    #[arg(long, value_name = "BYTES")]
    pub max_tensor_bytes: Option<u64>,
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Decoder for video blobs, by its name in `tenfold engines` [default: the first that is available].
    #[arg(long, value_name = "NAME")]
    pub decoder: Option<String>,
}

/// How hard an encoder searches.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum EffortArg {
    /// Scalar quantiser.
    Fast,
    /// Trellis of 8 states.
    Balanced,
    /// Trellis of 256 states.
    Best,
}

impl From<EffortArg> for Effort {
    fn from(effort: EffortArg) -> Effort {
        match effort {
            EffortArg::Fast => Effort::Fast,
            EffortArg::Balanced => Effort::Balanced,
            EffortArg::Best => Effort::Best,
        }
    }
}

/// Parses a positive, finite number.
pub fn positive(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "must be a number".to_owned())?;
    if value.is_finite() && value > 0.0 { Ok(value) } else { Err("must be positive and finite".into()) }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_grammar_is_sound() {
        super::Cli::command().debug_assert();
    }
}

//! Commands on deltas: make, apply, inspect, squash.

use std::path::PathBuf;

use clap::{ArgAction, Args, Subcommand};

use super::{Decode, EffortArg, OptionalGoal};

/// Make, apply, list and join deltas: what changed between two versions of a model.
#[derive(Debug, Args)]
pub struct DeltaArgs {
    #[command(subcommand)]
    pub what: DeltaCommand,
}

#[derive(Debug, Subcommand)]
pub enum DeltaCommand {
    Make(Box<DeltaMakeArgs>),
    Apply(DeltaApplyArgs),
    Inspect(DeltaInspectArgs),
    Squash(DeltaSquashArgs),
}

/// Make a delta from two versions of a model.
///
/// BASE and NEW are models of any kind that `tenfold compress` reads, compressed or not. The delta is one file. It holds what changed in each
/// tensor, new tensors whole, and the names of those that are gone or have another name. Without a goal every bit of NEW comes back.
#[derive(Debug, Args)]
#[command(after_help = MAKE_HELP)]
pub struct DeltaMakeArgs {
    /// The version that readers have.
    #[arg(value_name = "BASE")]
    pub base: PathBuf,
    /// The version that they are to get.
    #[arg(value_name = "NEW")]
    pub new: PathBuf,
    /// The delta.
    #[arg(long, short, value_name = "DELTA")]
    pub output: PathBuf,
    #[command(flatten)]
    pub goal: OptionalGoal,
    /// How hard to search, with a goal [default: balanced].
    #[arg(long, value_enum)]
    pub effort: Option<EffortArg>,
    /// Keep tensors with matching names exact, whatever the goal (repeatable).
    #[arg(long, value_name = "GLOB", action = ArgAction::Append)]
    pub exclude: Vec<String>,
    #[command(flatten)]
    pub decode: Decode,
    /// Replace DELTA if it exists.
    #[arg(long, short)]
    pub force: bool,
    /// Print a report of every tensor as JSON.
    #[arg(long)]
    pub json: bool,
}

const MAKE_HELP: &str = "\
Examples:
  tenfold delta make step-1000 step-1010 -o 1010.delta.safetensors
  tenfold delta make base.safetensors finetune.safetensors -o small.delta.safetensors --bits 1

A goal is for the difference of each float tensor with at least two dimensions and 4096 values. It is coded with loss, unless the exact
delta is smaller. The delta knows the fingerprint of its own result.
JSON: as of `tenfold delta inspect`.";

/// Apply deltas to a model.
///
/// Deltas are applied in the order given. BASE may be compressed; the result is not. A base that a delta does not belong to is refused. If the base has
/// the delta already, or some of it, the result is the same.
#[derive(Debug, Args)]
#[command(after_help = APPLY_HELP)]
pub struct DeltaApplyArgs {
    /// Model that the first delta belongs to.
    #[arg(value_name = "BASE")]
    pub base: PathBuf,
    /// Deltas, each for what the one before makes.
    #[arg(value_name = "DELTA", required = true)]
    pub deltas: Vec<PathBuf>,
    /// Output: a file, or a folder if BASE is a folder or an index.
    #[arg(long, short, value_name = "NEW", required_unless_present = "in_place")]
    pub output: Option<PathBuf>,
    /// Change BASE itself, which must be plain safetensors: each file that changes is replaced when its new version is whole. Run
    /// it again if it was interrupted. Takes one delta, which must not add, remove, rename or reshape tensors.
    #[arg(long, conflicts_with_all = ["output", "force"])]
    pub in_place: bool,
    /// Apply the deltas to tensors with matching names only (repeatable). The rest of the base is neither changed nor compared.
    #[arg(long, value_name = "GLOB", action = ArgAction::Append)]
    pub only: Vec<String>,
    #[command(flatten)]
    pub decode: Decode,
    /// Replace NEW if it exists.
    #[arg(long, short)]
    pub force: bool,
}

const APPLY_HELP: &str = "\
Examples:
  tenfold delta apply step-1000 1010.delta.safetensors -o step-1010
  tenfold delta apply step-1000 1010.delta.safetensors 1020.delta.safetensors -o step-1020
  tenfold delta apply ./model 1010.delta.safetensors --in-place
  tenfold delta apply base.safetensors d.safetensors -o heads.safetensors --only 'lm_head.*'";

/// List what a delta does to which tensor.
#[derive(Debug, Args)]
#[command(after_help = INSPECT_HELP)]
pub struct DeltaInspectArgs {
    /// The delta.
    #[arg(value_name = "DELTA")]
    pub input: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

const INSPECT_HELP: &str = "\
Example:
  tenfold delta inspect 1010.delta.safetensors

JSON: `format`, `base` and `result` (fingerprints of models), `tensors`, each with `name`, `how` (delta, difference, stored, copy), `from` (the
base's name, if it is another one), `dtype`, `shape` and `values` (null for a copy), `changed` (values; null but for deltas), `bytes`;
`removed` (names), `exact` (whether there is no difference), `total` (`tensors`, `changed`, `bytes`).";

/// Make one delta of several.
///
/// The deltas are given in order; each must belong to what the one before makes. Applied to the same base, the result makes the same model.
#[derive(Debug, Args)]
#[command(after_help = SQUASH_HELP)]
pub struct DeltaSquashArgs {
    /// Deltas, each for what the one before makes.
    #[arg(value_name = "DELTA", required = true)]
    pub deltas: Vec<PathBuf>,
    /// The joined delta.
    #[arg(long, short, value_name = "OUT")]
    pub output: PathBuf,
    /// Model that the first delta belongs to. Needed if a tensor changes in more than one of them.
    #[arg(long, value_name = "BASE")]
    pub base: Option<PathBuf>,
    #[command(flatten)]
    pub decode: Decode,
    /// Replace OUT if it exists.
    #[arg(long, short)]
    pub force: bool,
    /// Print a report of every tensor as JSON.
    #[arg(long)]
    pub json: bool,
}

const SQUASH_HELP: &str = "\
Example:
  tenfold delta squash 1010.delta.safetensors 1020.delta.safetensors --base step-1000 -o 1000-1020.delta.safetensors

JSON: as of `tenfold delta inspect`.";

//! `tenfold compress`: goals, and how tensors become pictures.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};
use tenfold::prepare::{Hadamard, Preparation};
use tenfold_archive::Alloc;
use tenfold_video::Scaling;

use super::{EffortArg, EngineArgs, GoalArgs, Threads, positive};

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
    /// What the values are coded as: tenfold's own codec, or pictures of a video standard.
    #[arg(long, value_enum, default_value = "native")]
    pub codec: CodecArg,
    #[command(flatten)]
    pub pictures: PictureArgs,
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
    /// Spend more bits where errors count more: FILE has, for each tensor, the mean square of what each of its
    /// columns is multiplied with (safetensors: a vector of the same name; or an imatrix GGUF of llama.cpp).
    #[arg(long, value_name = "FILE")]
    pub importance: Option<PathBuf>,
    /// Do something to each tensor before it is quantised: auto (whatever takes the fewest bits), or steps joined by +, such
    /// as means, hadamard:128, dct:8, delta:8, rope:head=64,base=10000,first=0 (pairing=neighbours, turned=N).
    #[arg(long, value_name = "STEPS", default_value = "none", conflicts_with = "importance", value_parser = str::parse::<Preparation>)]
    pub prepare: Preparation,
    /// Store what is left of each tensor too, at so many bits a value, as a second layer: a reader adds the two.
    #[arg(long, value_name = "BITS", value_parser = positive)]
    pub residual_bits: Option<f64>,
    #[command(flatten)]
    pub engine: EngineArgs,
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
  tenfold compress model.safetensors -o video.safetensors --bits 2.5 --codec h265
  tenfold compress model.safetensors -o small.safetensors --bits 3 --engine cuda
  tenfold compress model.safetensors -o small.safetensors --bits 2.5 --importance channels.safetensors
  tenfold compress cache.safetensors -o small.safetensors --bits 3 --prepare auto

Recipe (entries are tried in order, the first match counts):
  [default]
  bits = 3.0
  [[tensor]]
  match = \"*.embed_tokens.*\"
  nmse = 1e-3            # any goal, as above with _ for -; or lossless = true, skip = true
  effort = \"best\"        # optional
  include = true         # optional: even if small, one-dimensional or integer

JSON: `tensors` (as of `tenfold inspect --json`, with `goal`), `compressed`, `total`, `left_out`.";

/// How tensors become pictures; only with a --codec other than native.
#[derive(Debug, Args)]
pub struct PictureArgs {
    /// Encoder, by a name of `tenfold engines` [default: the first that runs here].
    #[arg(long, value_name = "NAME", help_heading = "Pictures (--codec h264, h265 or av1)")]
    pub encoder: Option<String>,
    /// Bits of a sample: 8, 10 or 12 [default: 8, more where that cannot reach the goal].
    #[arg(long, value_name = "N", help_heading = "Pictures (--codec h264, h265 or av1)")]
    pub depth: Option<u8>,
    /// Who shares a centre and a scale: tensor, rows=N (each group of N rows), columns.
    #[arg(long, value_name = "WHO", value_parser = scaling, help_heading = "Pictures (--codec h264, h265 or av1)")]
    pub scale: Option<Scaling>,
    /// Rotate blocks of N columns (a power of two) first, with random signs.
    #[arg(long, value_name = "N", value_parser = hadamard, help_heading = "Pictures (--codec h264, h265 or av1)")]
    pub hadamard: Option<Hadamard>,
    /// 4:2:0 with constant chroma instead of luma alone, for decoders that know no other (NVDEC).
    #[arg(long, help_heading = "Pictures (--codec h264, h265 or av1)")]
    pub chroma: bool,
}

impl PictureArgs {
    /// Whether none of them was given.
    pub fn is_empty(&self) -> bool {
        let PictureArgs { encoder, depth, scale, hadamard, chroma } = self;
        encoder.is_none() && depth.is_none() && scale.is_none() && hadamard.is_none() && !chroma
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CodecArg {
    /// tenfold's own codec.
    Native,
    /// H.264 pictures.
    H264,
    /// H.265 pictures.
    H265,
    /// AV1 pictures.
    Av1,
}

fn scaling(text: &str) -> Result<Scaling, String> {
    match (text, text.strip_prefix("rows=").and_then(|n| n.parse().ok())) {
        ("tensor", _) => Ok(Scaling::Tensor),
        ("columns", _) => Ok(Scaling::Columns),
        (_, Some(rows @ 1..)) => Ok(Scaling::Rows(rows)),
        _ => Err(format!("{text:?} is none of tensor, rows=N, columns")),
    }
}

fn hadamard(text: &str) -> Result<Hadamard, String> {
    let block: u32 = text.parse().map_err(|_| "not a number".to_owned())?;
    if !block.is_power_of_two() {
        return Err("must be a power of two".into());
    }
    Hadamard::new(block.trailing_zeros() as u8, 1).map_err(|e| e.to_string())
}

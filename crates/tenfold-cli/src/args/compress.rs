//! `tenfold compress`: goals, and how tensors become pictures.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};
use tenfold::prepare::{Hadamard, Preparation};
use tenfold_archive::{Alloc, Part};
use tenfold_video::{Hardware, Scaling};

use super::{EffortArg, EngineArgs, GoalArgs, Threads, positive};

/// Compress a model.
///
/// IN is a safetensors file, an index of shards (model.safetensors.index.json), a folder that holds either,
/// a GGUF file or an npy file. The output is valid safetensors in the same shards. A compressed tensor becomes a
/// byte tensor of the same name; all others stay unchanged.
///
/// By default floats with at least two dimensions and 4096 values are compressed. --include and --exclude change that.
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
    /// How to code the values: with tenfold's own codec, or as pictures of a video standard.
    #[arg(long, value_enum, default_value = "native")]
    pub codec: CodecArg,
    #[command(flatten)]
    pub pictures: PictureArgs,
    /// How hard to search. Decoding is equally fast for all [default: balanced].
    #[arg(long, value_enum)]
    pub effort: Option<EffortArg>,
    /// How to share --bits among the tensors: equal (the same for each), step (one quantiser step for all: least
    /// squared error), loss (where they lower the model's loss the most; needs --calibration), ramp=K (K more bits from each layer of the model to the next).
    #[arg(long, value_name = "HOW", default_value = "equal", value_parser = str::parse::<Alloc>)]
    pub alloc: Alloc,
    /// Compress tensors with matching names, even small, one-dimensional or integer ones (repeatable).
    #[arg(long, value_name = "GLOB", action = ArgAction::Append)]
    pub include: Vec<String>,
    /// Leave tensors with matching names unchanged; overrides everything else (repeatable).
    #[arg(long, value_name = "GLOB", action = ArgAction::Append)]
    pub exclude: Vec<String>,
    /// Goals by tensor, from a TOML file.
    #[arg(long, value_name = "FILE")]
    pub recipe: Option<PathBuf>,
    /// Spend more bits on columns where errors count more. FILE gives each column the mean square of its inputs:
    /// safetensors with a vector under each tensor's name, or an imatrix GGUF of llama.cpp.
    #[arg(long, value_name = "FILE")]
    pub importance: Option<PathBuf>,
    /// Steer errors to where they cost the model least, by a calibration file of `tenfold.torch.Calibration`.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["importance", "prepare"])]
    pub calibration: Option<PathBuf>,
    /// Instead of a goal for the weights of --calibration: how much the model's loss may rise, in nats a token. Other
    /// tensors stay unchanged if no goal is stated.
    #[arg(long, value_name = "NATS", value_parser = positive, requires = "calibration")]
    pub loss: Option<f64>,
    /// Transform each tensor before it is quantised: auto (whatever takes the fewest bits), none, or transforms joined
    /// by +, such as means, hadamard:128, dct:8, delta:8, rope:head=64,base=10000,first=0 (pairing=neighbours,
    /// turned=N) [default: auto at balanced and best effort, none at fast; for pictures none, and neither auto nor delta].
    #[arg(long, value_name = "TRANSFORMS", conflicts_with = "importance", value_parser = str::parse::<Preparation>)]
    pub prepare: Option<Preparation>,
    /// Store the error of each tensor too, at this many bits a value, as a second layer. Readers add the two.
    #[arg(long, value_name = "BITS", value_parser = positive)]
    pub residual_bits: Option<f64>,
    /// Newest format that all readers of the output know: 1.0, 1.1 or 1.2 [default: 1.2].
    #[arg(long, value_name = "VERSION", value_parser = parse_format)]
    pub format: Option<u8>,
    #[command(flatten)]
    pub engine: EngineArgs,
    #[command(flatten)]
    pub threads: Threads,
    /// Encode only part I of N, into the folder OUT.parts; a part that is there already is not made again. For N independent
    /// processes, such as those of a SLURM array.
    #[arg(long, value_name = "I/N", value_parser = str::parse::<Part>, conflicts_with = "join")]
    pub part: Option<Part>,
    /// Join all parts in OUT.parts: OUT is what one process would have written. Takes the options that the parts were made with.
    #[arg(long)]
    pub join: bool,
    /// Write a timeline of what was read, encoded and written when: a Chrome trace, for Perfetto.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
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
  tenfold compress model.safetensors -o video.safetensors --bits 2.5 --codec h265 --for nvdec
  tenfold compress model.safetensors -o small.safetensors --bits 3 --engine cuda
  tenfold compress model.safetensors -o small.safetensors --bits 2.5 --importance channels.safetensors
  tenfold compress model -o small --bits 2.5 --alloc loss --calibration calibration.safetensors
  tenfold compress model -o small --bits 3 --part 2/16
  tenfold compress model -o small --bits 3 --join
  tenfold compress cache.safetensors -o small.safetensors --bits 3 --prepare means

Recipe (entries are tried in order, the first match counts):
  [default]
  bits = 3.0
  [[tensor]]
  match = \"*.embed_tokens.*\"
  nmse = 1e-3            # any goal, with _ for -; or lossless = true, skip = true
  effort = \"best\"        # optional
  include = true         # optional: as --include

JSON: `tensors` (as in `tenfold inspect --json`, with `goal`), `compressed`, `total`, `left_out`, `summary` (`seconds`, `overlap`, a share of
what is possible, `stages`, each with `stage`, `items`, `bytes`, `busy`); with --for `pictures` (`padding`, a share of the samples,
and `chroma_bits` a value, null if not measured). With --part: `part` (`number`, `of`), `path`, `tensors`, `original_bytes`, `stored_bytes`, `was_done`, `summary`.";

/// How tensors become pictures; only with a --codec other than native.
#[derive(Debug, Args)]
pub struct PictureArgs {
    /// Encoder, by its name in `tenfold engines` [default: the first that is available].
    #[arg(long, value_name = "NAME", help_heading = "Pictures (--codec h264, h265 or av1)")]
    pub encoder: Option<String>,
    /// Bits a sample: 8, 10 or 12 [default: 8, or more if the goal needs it].
    #[arg(long, value_name = "N", help_heading = "Pictures (--codec h264, h265 or av1)")]
    pub depth: Option<u8>,
    /// What shares one centre and scale: tensor (all values), rows=N (each group of N rows), columns (each column).
    #[arg(long, value_name = "PART", value_parser = scaling, help_heading = "Pictures (--codec h264, h265 or av1)")]
    pub scale: Option<Scaling>,
    /// Rotate blocks of N columns (a power of two) with random signs first.
    #[arg(long, value_name = "N", value_parser = hadamard, help_heading = "Pictures (--codec h264, h265 or av1)")]
    pub hadamard: Option<Hadamard>,
    /// Code 4:2:0 with constant chroma instead of luma alone, for decoders that need chroma (NVDEC).
    #[arg(long, help_heading = "Pictures (--codec h264, h265 or av1)")]
    pub chroma: bool,
    /// Make pictures that a decoder in hardware takes: 4:2:0, sides that are whole coding units and at least 144, depths that it has.
    /// Any other decoder reads them too. The report says what that costs.
    #[arg(
        long = "for",
        value_enum,
        value_name = "HARDWARE",
        help_heading = "Pictures (--codec h264, h265 or av1)"
    )]
    pub hardware: Option<HardwareArg>,
}

/// Decoders in hardware.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HardwareArg {
    /// NVIDIA's video decoders.
    Nvdec,
}

impl From<HardwareArg> for Hardware {
    fn from(arg: HardwareArg) -> Hardware {
        match arg {
            HardwareArg::Nvdec => Hardware::Nvdec,
        }
    }
}

impl PictureArgs {
    /// Whether no option was given.
    pub fn is_empty(&self) -> bool {
        let PictureArgs { encoder, depth, scale, hadamard, chroma, hardware } = self;
        let named = encoder.is_some() || depth.is_some() || scale.is_some() || hardware.is_some();
        !named && hadamard.is_none() && !chroma
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
        _ => Err("must be tensor, rows=N or columns".into()),
    }
}

fn hadamard(text: &str) -> Result<Hadamard, String> {
    let block: u32 = text.parse().map_err(|_| "must be a power of two".to_owned())?;
    if !block.is_power_of_two() {
        return Err("must be a power of two".into());
    }
    Hadamard::new(block.trailing_zeros() as u8, 1).map_err(|e| e.to_string())
}

fn parse_format(version: &str) -> Result<u8, String> {
    tenfold::format::parse_version(version).map_err(|e| e.to_string())
}

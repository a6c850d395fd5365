//! The command line's grammar and help texts.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use tenfold::Effort;
use tenfold::prepare::Hadamard;
use tenfold_archive::Alloc;
use tenfold_video::Scaling;

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
    Bench(BenchArgs),
    Eval(EvalArgs),
    Engines(EnginesArgs),
    Race(RaceArgs),
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
    /// This quantiser of the video encoder, whatever comes out.
    #[arg(long, value_name = "N", help_heading = "Goal (exactly one)")]
    pub qp: Option<u32>,
    /// The video encoder keeps every sample; values are rounded to samples only.
    #[arg(long, help_heading = "Goal (exactly one)")]
    pub lossless_samples: bool,
}

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

JSON: `tensors`, each with `name`, `file`, `dtype`, `shape`, `values`, `codec` (none, lossless, lossy), `original_bytes`, `stored_bytes`, `bits_per_value`, `ratio`, and `step`, `states`, `classes`, `tiles`
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

/// Measure tenfold: rate and error, goals kept, speed, beside other coders.
///
/// Tables and verdicts go to standard output: `pass` or `MISS` for each figure that has a bar. A missed
/// bar is no failure unless --check is given.
#[derive(Debug, Args)]
#[command(after_help = BENCH_HELP)]
pub struct BenchArgs {
    /// What to measure.
    #[arg(value_enum)]
    pub what: BenchArg,
    /// Safetensors files (`files` only, at least one).
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Rates in bits a value, such as 2,2.5 [default: those that have a bar].
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = positive)]
    pub bits: Vec<f64>,
    /// Efforts, such as fast,best [default: all].
    #[arg(long, value_enum, value_delimiter = ',')]
    pub effort: Vec<EffortArg>,
    /// Size of made-up tensors: side of the square (gap, speed; default 4096) or number of values
    /// (lossless: 64 Mi, rate: 4 Mi).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub size: Option<u32>,
    /// Repetitions of which the median counts (lossless, speed).
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeats: u32,
    /// Worker threads for what is not timed at a stated number of threads; 0 uses all cores.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,
    /// Leave out the video codecs.
    #[arg(long)]
    pub no_peers: bool,
    /// Smaller tensors and fewer cases: a first look, whose verdicts mean little.
    #[arg(long)]
    pub quick: bool,
    /// Fail (exit code 3) if a bar is missed.
    #[arg(long)]
    pub check: bool,
    /// Write a report with every figure, the machine, the commit and the command to a file.
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,
}

const BENCH_HELP: &str = "\
Examples:
  tenfold bench gap --quick
  tenfold bench files model.safetensors --bits 2.5 --effort best
  tenfold bench speed --json speed.json --check

JSON: `bench`, `command`, `date`, `commit`, `version`, `machine` (`cpu`, `cores`, `system`), `notes`, `checks`
(each with `what`, `value`, `bar`, `rule`, `pass`) and `rows`, whose fields depend on the bench.";

/// Study what the stages of a video codec do on tensors.
#[derive(Debug, Args)]
pub struct EvalArgs {
    #[command(subcommand)]
    pub what: EvalCommand,
}

#[derive(Debug, Subcommand)]
pub enum EvalCommand {
    Ablation(AblationArgs),
}

/// Switch the stages of a video codec on one by one, at one and the same error.
///
/// Samples as they are, quantisation with codes of fixed length, entropy coding, transform, prediction,
/// inter-frame prediction; and all stages less one. Bits a value, every byte counted, every stream decoded.
#[derive(Debug, Args)]
#[command(after_help = ABLATION_HELP)]
pub struct AblationArgs {
    /// Safetensors files.
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Only tensors whose name contains this.
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Error at which all are compared: squared error over variance.
    #[arg(long, value_name = "X", default_value_t = 0.03, value_parser = positive)]
    pub nmse: f64,
    /// Bits of a sample, 8 to 12.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub depth: u8,
    /// Values of a tensor that are measured, whole rows from the first on [default: 131072].
    #[arg(long, value_name = "N")]
    pub size: Option<usize>,
    /// Small parts of few tensors: a first look.
    #[arg(long)]
    pub quick: bool,
    /// Draw blocks, their prediction, residual and coefficients as PNG files into this folder.
    #[arg(long, value_name = "DIR")]
    pub pictures: Option<PathBuf>,
    /// Write a report with every figure, the machine, the commit and the command to a file.
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,
}

const ABLATION_HELP: &str = "\
Example:
  tenfold eval ablation testdata/weights.safetensors --pictures pictures";

/// List what can make and read blobs on this machine, and why something cannot.
#[derive(Debug, Args)]
#[command(after_help = ENGINES_HELP)]
pub struct EnginesArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

const ENGINES_HELP: &str = "\
Example:
  tenfold engines

JSON: a list, each with `engine`, `name`, `role` (codec, encoder, decoder), `standard`, `available`, `detail`.";

/// Race tenfold against every other coder on the same tensors.
///
/// Each chosen peer codes and decodes each chosen tensor at each rate. Tables go to standard output; the folder
/// OUT gets race.html (one page, works offline), race.json, race.csv and the curves as SVG and PNG. What was
/// measured is kept there too: a race that was stopped goes on where it was.
#[derive(Debug, Args)]
#[command(after_help = RACE_HELP)]
pub struct RaceArgs {
    /// Safetensors files.
    #[arg(value_name = "FILE", required_unless_present = "list")]
    pub files: Vec<PathBuf>,
    /// Peers by id, such as best,x265,rtn-* [default: all].
    #[arg(long, value_name = "GLOB,...", value_delimiter = ',')]
    pub peers: Vec<String>,
    /// Tensors by name (repeatable) [default: floats with two dimensions and 4096 values].
    #[arg(long, value_name = "GLOB", action = ArgAction::Append)]
    pub tensors: Vec<String>,
    /// Rates in bits a value [default: 1.5,2,2.5,3,4, and a few around them that only support the curves].
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = positive)]
    pub rates: Vec<f64>,
    /// What the tensors are [default: guessed from names].
    #[arg(long, value_enum)]
    pub kind: Option<KindArg>,
    /// Cut each tensor to its first whole rows of at most so many values.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_values: Option<u32>,
    /// Timed runs of which the median counts.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeats: u32,
    /// No speeds: every peer runs once.
    #[arg(long)]
    pub no_speed: bool,
    /// What 'all threads' is; 0 uses all cores.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,
    /// Peer that the others are held against.
    #[arg(long, value_name = "ID", default_value = "x265")]
    pub reference: String,
    /// Folder for the output.
    #[arg(long, value_name = "DIR", default_value = "race")]
    pub out: PathBuf,
    /// Two rates and the first 65536 values of each tensor: a first look, whose figures mean little.
    #[arg(long)]
    pub quick: bool,
    /// Measure everything again, whatever OUT holds.
    #[arg(long)]
    pub fresh: bool,
    /// Keep what another build of this version measured of peers that are not ours.
    #[arg(long, conflicts_with = "fresh")]
    pub keep_peers: bool,
    /// List the peers and whether they can run here.
    #[arg(long)]
    pub list: bool,
}

const RACE_HELP: &str = "\
Examples:
  tenfold race weights.safetensors kv.safetensors --out race
  tenfold race model.safetensors --peers best,x265 --tensors '*.mlp.*' --max-values 1000000
  tenfold race --list

JSON: `command`, `date`, `commit`, `version`, `machine`, `headline`, `notes`, `reference`, `losses`, `families`,
`not_available`, `tensors`, `equal_error`, `gaps` and `rows`, a row a measurement (`failure` if there is none).";

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
    /// Decoder of video blobs, by a name of `tenfold engines` [default: the first that runs here].
    #[arg(long, value_name = "NAME")]
    pub decoder: Option<String>,
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

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum EffortArg {
    /// Scalar quantiser.
    Fast,
    /// Trellis of 8 states.
    Balanced,
    /// Trellis of 256 states.
    Best,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum KindArg {
    Weights,
    Kv,
    Activations,
    Gradients,
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchArg {
    /// Bits above the Gaussian bound on a square N(0, 1) tensor, all bytes counted.
    Gap,
    /// Bits and error of real tensors, beside an ideal scalar quantiser and H.265 intra.
    Files,
    /// Whether bits, max-bytes and max-error are obeyed, over sizes, distributions and dtypes.
    Rate,
    /// Lossless ratio and speed on bf16 values of N(0, 0.02), beside zstd.
    Lossless,
    /// Encoding and decoding on one and two threads, beside zstd and x265 in the same run.
    Speed,
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

fn positive(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
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

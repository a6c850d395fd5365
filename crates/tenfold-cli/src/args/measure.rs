//! Commands that measure: bench, eval, race.

use std::path::PathBuf;

use clap::{ArgAction, Args, Subcommand, ValueEnum};

use super::{EffortArg, EngineArgs, positive};

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
    /// Safetensors files (`files`: at least one; `cuda`: real tensors to decode besides made-up ones).
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Rates in bits a value, such as 2,2.5 [default: those that have a bar].
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = positive)]
    pub bits: Vec<f64>,
    /// Efforts, such as fast,best [default: all].
    #[arg(long, value_enum, value_delimiter = ',')]
    pub effort: Vec<EffortArg>,
    /// Size of made-up tensors: side of the square (gap, speed; default 4096) or number of values
    /// (lossless: 64 Mi, rate: 4 Mi; cuda: several, 512 Mi, 64 Mi, 16 Mi).
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub size: Vec<u32>,
    /// Repetitions of which the median counts (lossless, speed, cuda) [default: 5, for cuda 25].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub repeats: Option<u32>,
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Measure only a part (cuda, repeatable) [default: all].
    #[arg(long, value_enum, value_name = "PART")]
    pub part: Vec<PartArg>,
    /// Measure the ANS of NVIDIA's nvCOMP 6 beside lossless coding (cuda): path of libnvcomp.so.6, such as in the wheel
    /// nvidia-libnvcomp-cu13.
    #[arg(long, value_name = "PATH")]
    pub nvcomp: Option<PathBuf>,
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
  tenfold bench cuda model.safetensors --bits 2.5 --json cuda.json
  tenfold bench cuda --nvcomp nvidia/libnvcomp/lib64/libnvcomp.so.6

JSON: `bench`, `command`, `date`, `commit`, `version`, `machine` (`cpu`, `cores`, `system`; `device` of `cuda`), `notes`, `checks`
(each with `what`, `value`, `bar`, `rule`, `pass`) and `rows`, whose fields depend on the bench.";

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
    /// Pages of a key-value cache under caps: that none is exceeded, and what a cap costs; files of keys and values add
    /// real pages.
    Pages,
    /// Decoding and encoding on a CUDA device, beside plain copies and, with --nvcomp, nvCOMP in the same run.
    Cuda,
}

/// Parts of `bench cuda`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PartArg {
    Decode,
    Encode,
    Pages,
    Host,
}

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

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum KindArg {
    Weights,
    Kv,
    Activations,
    Gradients,
    Other,
}

//! Commands on bases: fit, show.

use std::path::PathBuf;

use clap::{ArgAction, Args, Subcommand, ValueEnum};
use tenfold_kv::basis::{Grouping, Keys, Kind, RIDGE, Rank};

use super::{Threads, positive};

/// Make and look at bases for keys, values and hidden states.
#[derive(Debug, Args)]
pub struct BasisArgs {
    #[command(subcommand)]
    pub what: BasisCommand,
}

#[derive(Debug, Subcommand)]
pub enum BasisCommand {
    Fit(Box<BasisFitArgs>),
    Show(BasisShowArgs),
}

/// Find bases for captured tensors and report what they are worth.
///
/// Tensors hold a row for each token and are found by their names: `layers.12.k_before_rope` or `layers.12.k` (keys before
/// and behind rotary positions), `layers.12.v`, `layers.12.hidden`. The gain is that on rows which a basis was not made from, in
/// bits a value next to coding the rows as they are.
#[derive(Debug, Args)]
#[command(after_help = FIT_HELP)]
pub struct BasisFitArgs {
    /// Safetensors files of captured tensors; several hold rows of the same layers.
    #[arg(value_name = "CAPTURED", required = true)]
    pub inputs: Vec<PathBuf>,
    /// File of bases to write; without it there is only the report.
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Replace the file if it exists.
    #[arg(long, short)]
    pub force: bool,
    /// What to make bases for [default: all that was captured].
    #[arg(long, value_enum, value_delimiter = ',')]
    pub kind: Vec<BasisKindArg>,
    /// Layers that share a basis: a number, or `all`. Hidden states never share.
    #[arg(long, value_name = "N|all", default_value = "1", value_parser = grouping)]
    pub group: Grouping,
    /// A basis for each head of each layer.
    #[arg(long, conflicts_with = "group")]
    pub per_head: bool,
    /// Other groups whose gain is reported beside: numbers, `all`, `head`.
    #[arg(long, value_name = "N|all|head,...", value_delimiter = ',', value_parser = grouping)]
    pub compare: Vec<Grouping>,
    /// Highest rate, in bits a value, that the bases are to serve; decides their vectors and precision.
    #[arg(long, value_name = "N", default_value_t = 4.0, value_parser = positive)]
    pub bits: f64,
    /// Vectors of a basis: a number, `all`, or `needed`.
    #[arg(long, value_name = "N|all|needed", default_value = "needed", value_parser = rank)]
    pub rank: Rank,
    /// Most bytes of the file; bases serve lower rates if they must.
    #[arg(long, value_name = "N")]
    pub max_bytes: Option<u64>,
    /// The model: its fingerprint goes into the file, which takes 2 % of the model's bytes at most.
    #[arg(long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Fingerprint of the model, in place of the one that --model computes.
    #[arg(long, value_name = "TEXT")]
    pub fingerprint: Option<String>,
    /// Rotary positions of keys captured behind them, such as base=10000,head=64,pairing=halves, or `none`.
    #[arg(long, value_name = "base=N,head=N,...|none", value_parser = keys)]
    pub rope: Option<Keys>,
    /// Tokens of a context, behind which positions start again at 0.
    #[arg(long, value_name = "N")]
    pub context: Option<u64>,
    /// Columns of a head [default: those of --rope].
    #[arg(long, value_name = "N")]
    pub head_dim: Option<usize>,
    /// Parts of the rows of which one is left out in turn to measure the gain; 0: it is not measured.
    #[arg(long, value_name = "K", default_value_t = 4)]
    pub parts: usize,
    /// Rates in bits a value at which gains are reported.
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = positive, default_values_t = [1.0, 2.0, 4.0])]
    pub rates: Vec<f64>,
    /// How much errors count: a file with a number for each column, or a matrix for each head, under the captured tensors'
    /// names.
    #[arg(long, value_name = "FILE")]
    pub metric: Option<PathBuf>,
    /// What is added to the diagonal of a metric, in parts of its mean: how far the sample is mistrusted.
    #[arg(long, value_name = "X", default_value_t = RIDGE)]
    pub ridge: f64,
    /// Name of captured tensors where it is another: keys=model.{}.k, with {} for the layer (repeatable; keys,
    /// keys_before_rope, values, hidden).
    #[arg(long, value_name = "KIND=NAME", action = ArgAction::Append)]
    pub name: Vec<String>,
    #[command(flatten)]
    pub threads: Threads,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

const FIT_HELP: &str = "\
Examples:
  tenfold basis fit captured.safetensors --out model.basis --model model.safetensors \\
      --rope base=100000,head=64,pairing=neighbours --context 1024
  tenfold basis fit captured.safetensors --kind keys,values --group all --compare 1,head

--rope also takes turned=N (columns of a head that are turned), linear=X, and Llama 3's factor=X,low=X,high=X,original=N.
JSON: `groups`, each with `kind`, `layers`, `cols`, `tokens`, `rank`, `bytes`, `loss` and `gain` (`means`, `basis`, and `at`, each with
`bits`, `means`, `basis`); `summaries` with `kind`, `group`, `gain`; `bytes` of the file (an upper bound without --out), `bits`,
`model_bytes` (null without --model).";

/// List the bases of a file.
#[derive(Debug, Args)]
#[command(after_help = SHOW_HELP)]
pub struct BasisShowArgs {
    /// File of bases.
    #[arg(value_name = "FILE")]
    pub input: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

const SHOW_HELP: &str = "\
Example:
  tenfold basis show model.basis

JSON: `bytes`, `model`, `rope`, `head_dim` (null where they are not known) and `groups`, each with `kind`, `layers`, `cols`, `rank`,
`fingerprint`.";

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum BasisKindArg {
    Keys,
    Values,
    Hidden,
}

impl From<BasisKindArg> for Kind {
    fn from(kind: BasisKindArg) -> Kind {
        match kind {
            BasisKindArg::Keys => Kind::Keys,
            BasisKindArg::Values => Kind::Values,
            BasisKindArg::Hidden => Kind::Hidden,
        }
    }
}

fn grouping(text: &str) -> Result<Grouping, String> {
    match text {
        "all" => Ok(Grouping::All),
        "head" => Ok(Grouping::Heads),
        number => match number.parse() {
            Ok(n) if n > 0 => Ok(Grouping::Layers(n)),
            _ => Err("neither a number of layers nor `all`".into()),
        },
    }
}

fn rank(text: &str) -> Result<Rank, String> {
    match text {
        "all" => Ok(Rank::All),
        "needed" => Ok(Rank::Needed),
        number => match number.parse() {
            Ok(n) if n > 0 => Ok(Rank::Count(n)),
            _ => Err("neither a number of vectors nor `all` or `needed`".into()),
        },
    }
}

fn keys(text: &str) -> Result<Keys, String> {
    match text {
        "none" => Ok(Keys::Plain),
        text => text.parse().map(Keys::Rope).map_err(|e: tenfold_kv::Error| e.to_string()),
    }
}

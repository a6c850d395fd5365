//! Commands on bases: fit, show.

use std::path::PathBuf;

use clap::{ArgAction, Args, Subcommand, ValueEnum};
use tenfold_kv::basis::{Grouping, Keys, Kind, RIDGE, Rank};

use super::{Threads, positive};

/// Make and list bases for keys, values and hidden states.
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

/// Make bases from captured tensors and report how many bits they save.
///
/// A tensor holds one row a token. Its name says what it is: `layers.12.k_before_rope` or `layers.12.k` (keys before or
/// after rotary positions), `layers.12.v`, `layers.12.hidden`. The gain is in bits a value, compared with coding the rows
/// without a basis. It is measured on rows that the basis was not made from.
#[derive(Debug, Args)]
#[command(after_help = FIT_HELP)]
pub struct BasisFitArgs {
    /// Safetensors files of captured tensors. Several files hold more rows of the same layers.
    #[arg(value_name = "CAPTURED")]
    pub inputs: Vec<PathBuf>,
    /// Captured tensors of one kind of text, such as prose=a.safetensors:1, instead of CAPTURED (repeatable). WEIGHT is the set's
    /// share in the bases, whatever its number of rows [default: 1]. The gain is reported for each set.
    #[arg(long, value_name = "NAME=FILE[,FILE...][:WEIGHT]", action = ArgAction::Append, value_parser = set)]
    pub set: Vec<SetArg>,
    /// Make bases for each set alone; pages choose the best.
    #[arg(long, requires = "set")]
    pub each: bool,
    /// File of bases to write. Without it the command only reports.
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Replace the file if it exists.
    #[arg(long, short)]
    pub force: bool,
    /// What to make bases for [default: all that was captured].
    #[arg(long, value_enum, value_delimiter = ',')]
    pub kind: Vec<BasisKindArg>,
    /// How many layers share a basis: a number, or `all`. Hidden states never share one.
    #[arg(long, value_name = "N|all", default_value = "1", value_parser = grouping)]
    pub group: Grouping,
    /// Make a basis for each head of each layer.
    #[arg(long, conflicts_with = "group")]
    pub per_head: bool,
    /// Report the gain of these groupings too: numbers, `all`, `head`.
    #[arg(long, value_name = "N|all|head,...", value_delimiter = ',', value_parser = grouping)]
    pub compare: Vec<Grouping>,
    /// Highest rate that the bases must serve, in bits a value. It sets the number of vectors and their precision.
    #[arg(long, value_name = "N", default_value_t = 4.0, value_parser = positive)]
    pub bits: f64,
    /// Vectors a basis keeps: a number, `all`, or `needed` (as many as --bits needs).
    #[arg(long, value_name = "N|all|needed", default_value = "needed", value_parser = rank)]
    pub rank: Rank,
    /// Largest file, in bytes. To fit, the bases serve a lower rate than --bits.
    #[arg(long, value_name = "N")]
    pub max_bytes: Option<u64>,
    /// The model. Its fingerprint goes into the file, and the file takes at most 2 % of its bytes, with --each
    /// for each set.
    #[arg(long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Fingerprint of the model, instead of the one computed from --model.
    #[arg(long, value_name = "TEXT")]
    pub fingerprint: Option<String>,
    /// Rotary positions of keys that were captured after them, such as base=10000,head=64,pairing=halves; or `none`.
    #[arg(long, value_name = "base=N,head=N,...|none", value_parser = keys)]
    pub rope: Option<Keys>,
    /// Tokens of a context: after so many rows, positions start again at 0.
    #[arg(long, value_name = "N")]
    pub context: Option<u64>,
    /// Columns of a head [default: as in --rope].
    #[arg(long, value_name = "N")]
    pub head_dim: Option<usize>,
    /// Folds of the cross-validation that measures the gain; 0 skips it.
    #[arg(long, value_name = "K", default_value_t = 4)]
    pub parts: usize,
    /// Rates at which to report gains, in bits a value.
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = positive, default_values_t = [1.0, 2.0, 4.0])]
    pub rates: Vec<f64>,
    /// How much an error counts: a file with one number a column, or one matrix a head, under the names of the captured
    /// tensors.
    #[arg(long, value_name = "FILE")]
    pub metric: Option<PathBuf>,
    /// Added to the diagonal of a metric, as a fraction of its mean. Larger values trust the sample less.
    #[arg(long, value_name = "X", default_value_t = RIDGE)]
    pub ridge: f64,
    /// Names of captured tensors, if they differ from those above: keys=model.{}.k, with {} for the layer. KIND is keys,
    /// keys_before_rope, values or hidden (repeatable).
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
  tenfold basis fit --set prose=prose.safetensors:2 --set code=code-0.safetensors,code-1.safetensors --out model.basis

--rope also takes turned=N (how many columns of a head rotate), linear=X, and Llama 3's factor=X,low=X,high=X,original=N.
JSON: `groups`, each with `kind`, `layers`, `set` (with --each), `cols`, `tokens`, `rank`, `bytes`, `loss` and `gain` (`means`, `basis`,
and `at`, each with `bits`, `means`, `basis`); `summaries` with `kind`, `group`, `gain`; `sets` with `name` (null without --set), `weight`,
`tokens` and `gains`, a gain for each kind; `warnings`, a list of texts; `bytes` of the file (without --out an upper bound), `bits`,
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

JSON: `bytes`, `model`, `rope`, `head_dim` (null if unknown), `sets` (names; one null if all text shares the bases) and `groups`, each with
`set`, `kind`, `layers`, `cols`, `rank`, `fingerprint`.";

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

/// A set as it is stated; several of one name are one set.
#[derive(Debug, Clone, PartialEq)]
pub struct SetArg {
    pub name: String,
    pub files: Vec<PathBuf>,
    pub weight: Option<f64>,
}

fn set(text: &str) -> Result<SetArg, String> {
    let (name, rest) = text.split_once('=').ok_or("must have the form NAME=FILE[,FILE...][:WEIGHT]")?;
    // A colon that no number follows belongs to a path.
    let weighted = rest.rsplit_once(':').and_then(|(files, weight)| Some((files, weight.parse().ok()?)));
    let (files, weight) = weighted.map_or((rest, None), |(files, weight)| (files, Some(weight)));
    if files.split(',').any(str::is_empty) {
        return Err("names a file that is empty".into());
    }
    Ok(SetArg { name: name.to_owned(), files: files.split(',').map(PathBuf::from).collect(), weight })
}

fn grouping(text: &str) -> Result<Grouping, String> {
    match text {
        "all" => Ok(Grouping::All),
        "head" => Ok(Grouping::Heads),
        number => match number.parse() {
            Ok(n) if n > 0 => Ok(Grouping::Layers(n)),
            _ => Err("must be a number of layers, `all` or `head`".into()),
        },
    }
}

fn rank(text: &str) -> Result<Rank, String> {
    match text {
        "all" => Ok(Rank::All),
        "needed" => Ok(Rank::Needed),
        number => match number.parse() {
            Ok(n) if n > 0 => Ok(Rank::Count(n)),
            _ => Err("must be a number of vectors, `all` or `needed`".into()),
        },
    }
}

fn keys(text: &str) -> Result<Keys, String> {
    match text {
        "none" => Ok(Keys::Plain),
        text => text.parse().map(Keys::Rope).map_err(|e: tenfold_kv::Error| e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_have_names_files_and_weights() {
        let read = |text: &str| set(text).map(|s| (s.name, s.files.len(), s.weight));
        assert_eq!(read("prose=a.safetensors"), Ok(("prose".into(), 1, None)));
        assert_eq!(read("code=a,b,c:0.5"), Ok(("code".into(), 3, Some(0.5))));
        assert_eq!(set("x=C:\\a=b").unwrap().files, [PathBuf::from("C:\\a=b")]);
        assert!(read("a.safetensors").is_err() && read("x=").is_err() && read("x=a,,b").is_err());
    }
}

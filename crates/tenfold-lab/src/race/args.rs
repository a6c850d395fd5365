//! What to race, as the command line states it.

use std::path::PathBuf;

use clap::{ArgAction, Args};
use tenfold_cli::positive;

use super::run::TensorKind;
use crate::bench::args::{at_least_one, default_command};

/// Rates of the figures the project states, in bits a value.
const RATES: [f64; 5] = [1.5, 2.0, 2.5, 3.0, 4.0];
/// Rates of a first look.
const QUICK_RATES: [f64; 2] = [2.0, 3.0];
/// Coders that can be aimed run at these too, so that a curve still covers the error another coder has at
/// the first and the last rate: nothing is extrapolated.
const GUARDS: [f64; 2] = [1.0, 5.0];
/// Ours goes further: quantisers with fixed rates lie high up, and what others reach at their lowest rates
/// ours reaches below one bit.
const OUR_GUARDS: [f64; 5] = [0.5, 1.0, 5.0, 6.0, 8.0];
/// Values of a tensor in a first look.
const QUICK_VALUES: usize = 1 << 16;

/// Race tenfold against every other coder on the same tensors.
///
/// Each chosen peer codes and decodes each chosen tensor at each rate. Tables go to standard output; the folder
/// OUT gets race.html (one page, works offline), race.json, race.csv and the curves as SVG and PNG. What was
/// measured is kept there too: a race that was stopped goes on where it was.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(after_help = HELP)]
#[non_exhaustive]
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
    /// What the tensors are [default: guessed from the names of files and tensors].
    #[arg(long, value_enum)]
    pub kind: Option<TensorKind>,
    /// Cut each tensor to its first whole rows of at most so many values.
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    pub max_values: Option<usize>,
    /// Timed runs of which the median counts.
    #[arg(long, value_name = "N", default_value = "3", value_parser = at_least_one())]
    pub repeats: usize,
    /// No speeds: every peer runs once.
    #[arg(long = "no-speed", action = ArgAction::SetFalse)]
    pub speed: bool,
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
    /// No progress bar.
    #[arg(skip)]
    pub quiet: bool,
    /// The command line as the user typed it, kept in the report.
    #[arg(skip = default_command())]
    pub command: String,
}

const HELP: &str = "\
Examples:
  tenfold-lab race weights.safetensors kv.safetensors --out race
  tenfold-lab race model.safetensors --peers best,x265 --tensors '*.mlp.*' --max-values 1000000
  tenfold-lab race --list

JSON: `command`, `date`, `commit`, `version`, `machine`, `headline`, `notes`, `reference`, `losses`, `families`,
`not_available`, `tensors`, `equal_error`, `gaps` and `rows`, a row a measurement (`failure` if there is none).";

#[cfg(test)]
impl RaceArgs {
    /// A race on these files, everything at its default.
    pub(crate) fn new(files: Vec<PathBuf>) -> Self {
        RaceArgs { files, ..crate::command::parse(&["FILE"]) }
    }
}

impl RaceArgs {
    /// The rates of tables, rising.
    pub(crate) fn table_rates(&self) -> Vec<f64> {
        let own: &[f64] = if self.quick { &QUICK_RATES } else { &RATES };
        rising(if self.rates.is_empty() { own.to_vec() } else { self.rates.clone() })
    }

    /// The rates to aim at: those of the tables and, unless the user chose them, the guards.
    pub(crate) fn aimed_rates(&self, ours: bool) -> Vec<f64> {
        let mut rates = self.table_rates();
        if self.rates.is_empty() && !self.quick {
            rates.extend(if ours { &OUR_GUARDS[..] } else { &GUARDS[..] });
        }
        rising(rates)
    }

    /// The rate at which pictures of the error are taken and speeds are shown: nearest to 2.5 bits.
    pub(crate) fn picture_rate(&self) -> f64 {
        let distance = |r: &f64| (r - 2.5).abs();
        self.table_rates().into_iter().min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(2.5)
    }

    /// Bits up to which curves are drawn: codes of 8 bits lie far out and would squeeze everything else to
    /// one side.
    pub(crate) fn drawn_bits(&self) -> f64 {
        self.table_rates().last().copied().unwrap_or(4.0) + 1.1
    }

    pub(crate) fn value_limit(&self) -> Option<usize> {
        self.max_values.or(self.quick.then_some(QUICK_VALUES))
    }

    pub(crate) fn timed_runs(&self) -> usize {
        if self.quick { 1 } else { self.repeats.max(1) }
    }

    /// How many threads 'all threads' is on this machine.
    pub(crate) fn all_threads(&self) -> usize {
        if self.threads > 0 {
            return self.threads;
        }
        std::thread::available_parallelism().map_or(1, usize::from)
    }
}

fn rising(mut rates: Vec<f64>) -> Vec<f64> {
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    rates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_surround_the_default_rates_only() {
        let mut args = RaceArgs::new(Vec::new());
        assert_eq!(args.table_rates(), RATES);
        assert_eq!(args.aimed_rates(false), [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0]);
        assert_eq!(args.aimed_rates(true), [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0]);
        assert_eq!(args.picture_rate(), 2.5);
        args.rates = vec![3.0, 2.0, 3.0];
        assert_eq!((args.table_rates(), args.aimed_rates(true)), (vec![2.0, 3.0], vec![2.0, 3.0]));
    }
}

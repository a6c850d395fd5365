//! What to race, free of any command-line library.

use std::path::PathBuf;

use super::run::TensorKind;
use crate::bench::args::default_command;

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

/// What to race and how long. Start from [`RaceArgs::new`]; every field has a working default.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RaceArgs {
    /// Safetensors files, at least one.
    pub files: Vec<PathBuf>,
    /// Globs over the ids of families. Default: empty, that is everybody.
    pub peers: Vec<String>,
    /// Globs over names of tensors. Default: empty, that is every float tensor with two dimensions and
    /// 4,096 values.
    pub tensors: Vec<String>,
    /// Rates in bits a value. Default: empty, that is 1.5, 2, 2.5, 3 and 4, and a few around them that
    /// only support the curves.
    pub rates: Vec<f64>,
    /// What the tensors are. Default: guessed from the names of files and tensors.
    pub kind: Option<TensorKind>,
    /// Cut each tensor to its first whole rows of at most so many values. Default: no limit.
    pub max_values: Option<usize>,
    /// Timed runs of which the median counts. Default: 3.
    pub repeats: usize,
    /// Whether to measure speeds. Default: true.
    pub speed: bool,
    /// What 'all threads' is; 0 (the default) means all cores.
    pub threads: usize,
    /// Two rates and the first 65,536 values of each tensor, timed once: a first look. Default: false.
    pub quick: bool,
    /// Forget what an earlier run left in the output folder. Default: false.
    pub fresh: bool,
    /// Keep what another build of the same version measured of peers that are not ours. Default: false.
    pub keep_peers: bool,
    /// Family that the others are held against. Default: `x265`.
    pub reference: String,
    /// Folder for all output. Default: `race`.
    pub out: PathBuf,
    /// No progress bar. Default: false.
    pub quiet: bool,
    /// The command line as the user typed it, kept in the report. Default: this process's own.
    pub command: String,
}

impl RaceArgs {
    /// A race on these files, everything at its default.
    pub fn new(files: Vec<PathBuf>) -> Self {
        RaceArgs {
            files,
            peers: Vec::new(),
            tensors: Vec::new(),
            rates: Vec::new(),
            kind: None,
            max_values: None,
            repeats: 3,
            speed: true,
            threads: 0,
            quick: false,
            fresh: false,
            keep_peers: false,
            reference: "x265".to_string(),
            out: PathBuf::from("race"),
            quiet: false,
            command: default_command(),
        }
    }

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

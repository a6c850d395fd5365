//! Options of a fit.

use std::path::PathBuf;

use super::capture::Names;
use super::kind::Kind;
use super::metric::RIDGE;
use super::rope::RopeSpec;
use crate::error::{Result, invalid};

/// Least rate that a file can serve, in bits a value.
pub(super) const LEAST_BITS: f64 = 0.02;

/// Which layers share a basis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    /// This many consecutive layers, of those captured.
    Layers(usize),
    /// All layers.
    All,
    /// Each head of each layer alone.
    Heads,
}

impl Grouping {
    pub(super) fn name(self) -> String {
        match self {
            Grouping::Layers(n) => n.to_string(),
            Grouping::All => "all".into(),
            Grouping::Heads => "head".into(),
        }
    }

    /// Hidden states are sent at one place of a model at a time.
    pub(super) fn groups(self, kind: Kind, layers: &[usize]) -> Vec<Vec<usize>> {
        let size = match self {
            Grouping::Layers(n) if kind != Kind::Hidden => n,
            Grouping::All if kind != Kind::Hidden => layers.len(),
            _ => 1,
        };
        layers.chunks(size.max(1)).map(<[usize]>::to_vec).collect()
    }
}

/// How many vectors a basis has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rank {
    /// As many as count at the rate to serve.
    Needed,
    /// As many as there are columns.
    All,
    /// This many, but at most the number of columns.
    Count(usize),
}

/// What is known about the rotary positions of captured keys.
#[derive(Debug, Clone, PartialEq)]
pub enum Keys {
    /// Nothing: keys must have been captured before rotary positions.
    Unknown,
    /// The model has no rotary positions.
    Plain,
    /// What they are.
    Rope(RopeSpec),
}

/// How to fit.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FitOptions {
    /// What to make bases for. Default: all that was captured.
    pub kinds: Vec<Kind>,
    /// Which layers share a basis. Default: none.
    pub grouping: Grouping,
    /// Other groupings whose gain is reported too. Default: none.
    pub compare: Vec<Grouping>,
    /// Whether each set gets bases of its own, so that pages choose among them. Default: all sets share theirs.
    pub each: bool,
    /// Vectors of a basis. Default: as many as are needed.
    pub rank: Rank,
    /// Highest rate that the bases must serve, in bits a value. Default: 4.
    pub bits: f64,
    /// Cap on the file. Default: none.
    pub max_bytes: Option<u64>,
    /// Rotary positions of keys. Default: unknown.
    pub keys: Keys,
    /// Tokens after which positions start again. Default: never.
    pub context: Option<u64>,
    /// Columns of a head. Default: those of the rotary positions.
    pub head_dim: Option<usize>,
    /// Parts of the cross-validation that measures the gain; fewer than 2 skip it. Default: 4.
    pub parts: usize,
    /// Rates at which gains are reported. Default: 1, 2 and 4 bits.
    pub rates: Vec<f64>,
    /// Names of captured tensors.
    pub names: Names,
    /// A file of metrics under the names of captured tensors: a number for each column, or a matrix for each head.
    pub metrics: Option<PathBuf>,
    /// Addition to the diagonal of metrics, as a fraction of its mean. Default: [`RIDGE`].
    pub ridge: f64,
    /// Fingerprint of the model. Default: none.
    pub model: Option<String>,
    /// Worker threads; 0 (the default) uses the current pool.
    pub threads: usize,
}

impl Default for FitOptions {
    fn default() -> Self {
        FitOptions {
            kinds: Vec::new(),
            grouping: Grouping::Layers(1),
            compare: Vec::new(),
            each: false,
            rank: Rank::Needed,
            bits: 4.0,
            max_bytes: None,
            keys: Keys::Unknown,
            context: None,
            head_dim: None,
            parts: 4,
            rates: vec![1.0, 2.0, 4.0],
            names: Names::default(),
            metrics: None,
            ridge: RIDGE,
            model: None,
            threads: 0,
        }
    }
}

impl FitOptions {
    /// Refuses what no fit can do; [`fit`](super::fit) does so first.
    pub fn check(&self) -> Result<()> {
        if !(self.bits.is_finite() && self.bits >= LEAST_BITS && self.bits <= 16.0) {
            return Err(invalid(format!("bases serve {LEAST_BITS} to 16 bits a value, not {}", self.bits)));
        }
        if self.rates.iter().any(|r| !(r.is_finite() && *r > 0.0)) {
            return Err(invalid("rates must be positive numbers"));
        }
        let groupings = std::iter::once(&self.grouping).chain(&self.compare);
        if self.rank == Rank::Count(0) || groupings.clone().any(|g| *g == Grouping::Layers(0)) {
            return Err(invalid("a basis needs at least one vector and one layer"));
        }
        if groupings.clone().any(|g| *g == Grouping::Heads) && self.head().is_none() {
            return Err(invalid(
                "bases for heads need the columns of a head: state head_dim or the rotary positions",
            ));
        }
        if self.context == Some(0) || self.head_dim == Some(0) {
            return Err(invalid("a context needs at least one token, and a head one column"));
        }
        Ok(())
    }

    pub(super) fn head(&self) -> Option<usize> {
        self.head_dim.or(match &self.keys {
            Keys::Rope(rope) => Some(rope.head()),
            _ => None,
        })
    }
}

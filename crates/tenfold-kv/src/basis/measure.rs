//! Groups of layers before their vectors are compressed: sums over rows, components, and gains on rows left out.

use std::borrow::Cow;

use tenfold_archive::Progress;

use super::capture::Turned;
use super::components::Components;
use super::gain::{Gain, Weighted, leave_one_out_each, pool};
use super::kind::Kind;
use super::metrics::Metrics;
use super::moments::Moments;
use super::options::{FitOptions, Grouping, Keys};
use super::sets::Source;
use crate::error::{Error, Result, invalid};

/// Rows read at a time.
const ROWS: usize = 1024;

/// One group before its vectors are compressed.
pub(super) struct Measured {
    /// The set that it is for; `None` if all share it.
    pub set: Option<String>,
    pub kind: Kind,
    pub layers: Vec<usize>,
    pub cols: usize,
    /// One for each set that it was made from.
    pub tested: Vec<Tested>,
    /// One for each block of columns.
    pub blocks: Vec<Components>,
}

/// What a group is worth to one of its sets.
pub(super) struct Tested {
    pub set: Option<String>,
    pub weight: f64,
    pub tokens: u64,
    pub gain: Option<Gain>,
}

impl Measured {
    pub fn tokens(&self) -> u64 {
        self.tested.iter().map(|t| t.tokens).sum()
    }

    /// Its gain, in which sets count by their weights.
    pub fn gain(&self) -> Option<Gain> {
        let gains: Vec<(&Gain, f64)> =
            self.tested.iter().filter_map(|t| Some((t.gain.as_ref()?, t.weight))).collect();
        (!gains.is_empty()).then(|| Gain::mean(&gains))
    }

    /// What its sets count together, next to other groups.
    pub fn weight(&self) -> f64 {
        self.tested.iter().map(|t| t.weight).sum()
    }

    pub fn variances(&self) -> Vec<f64> {
        self.blocks.iter().flat_map(|b| b.variances().iter().copied()).collect()
    }
}

/// What the groups of one measurement have in common.
pub(super) struct Measuring<'a> {
    /// The sets that share the bases.
    pub sources: &'a [Source],
    /// The set whose bases they are, if they are one set's.
    pub set: Option<&'a str>,
    pub grouping: Grouping,
    pub options: &'a FitOptions,
    pub metrics: Option<&'a Metrics>,
    pub progress: &'a dyn Progress,
}

impl Measuring<'_> {
    /// Sums over the rows of a group, in parts, and their results.
    pub fn measure(&self, kind: Kind, layers: Vec<usize>) -> Result<Measured> {
        let parts: Vec<Vec<Moments>> = self
            .sources
            .iter()
            .map(|source| self.gather(source, kind, &layers).map_err(|e| source.blame(e)))
            .collect::<Result<_>>()?;
        let cols = parts[0][0].cols();
        if let Some((source, other)) = self.sources.iter().zip(&parts).find(|(_, p)| p[0].cols() != cols) {
            let name = source.name.as_deref().unwrap_or_default();
            let (tensor, found) = (format!("{kind} of layers {layers:?} of set {name:?}"), other[0].cols());
            return Err(Error::Columns { tensor, found, expected: cols });
        }
        let count = self.count_blocks(kind, &layers, cols)?;
        let metric = self.metrics.map(|m| m.combine(kind, &layers)).transpose()?;
        let width = cols / count;
        let mut blocks = Vec::with_capacity(count);
        let mut gains: Vec<Vec<Gain>> = vec![Vec::new(); parts.len()];
        for block in 0..count {
            let range = block * width..(block + 1) * width;
            let metric = metric.as_ref().map(|m| m.part(range.clone())).transpose()?;
            // Moments of many columns are large: no copy where there is nothing to cut out.
            let cut = |parts| match count {
                1 => Ok(Cow::Borrowed(parts)),
                _ => cut_columns(parts, range.clone()).map(Cow::Owned),
            };
            let parts: Vec<Cow<'_, [Moments]>> =
                parts.iter().map(|p| cut(p.as_slice())).collect::<Result<_>>()?;
            let sets: Vec<Weighted<'_>> = self
                .sources
                .iter()
                .zip(&parts)
                .map(|(source, parts)| Weighted { parts, weight: source.weight })
                .collect();
            if parts[0].len() > 1 {
                let found = leave_one_out_each(&sets, metric.as_ref(), &self.options.rates)?;
                gains.iter_mut().zip(found).for_each(|(all, one)| all.push(one));
            }
            blocks.push(Components::from_moments(&pool(&sets, None)?, metric.as_ref())?);
        }
        let tested = self.sources.iter().zip(&parts).zip(&gains).map(|((source, parts), gains)| Tested {
            set: source.name.clone(),
            weight: source.weight,
            tokens: parts.iter().map(Moments::count).sum(),
            gain: (!gains.is_empty())
                .then(|| Gain::mean(&gains.iter().map(|g| (g, 1.0)).collect::<Vec<_>>())),
        });
        let tested = tested.collect();
        Ok(Measured { set: self.set.map(str::to_owned), kind, layers, cols, tested, blocks })
    }

    fn count_blocks(&self, kind: Kind, layers: &[usize], cols: usize) -> Result<usize> {
        match (self.grouping, kind, self.options.head()) {
            (Grouping::Heads, Kind::Keys | Kind::Values, Some(head)) if cols.is_multiple_of(head) => {
                Ok(cols / head)
            }
            (Grouping::Heads, Kind::Keys | Kind::Values, Some(head)) => Err(invalid(format!(
                "{kind} of layers {layers:?} have {cols} columns, which heads of {head} do not divide"
            ))),
            _ => Ok(1),
        }
    }

    /// Reads the rows of a set; each tensor is cut into as many parts as are asked for.
    fn gather(&self, source: &Source, kind: Kind, layers: &[usize]) -> Result<Vec<Moments>> {
        let captured = &source.captured;
        let mut cols = 0;
        let mut first = None;
        for &layer in layers {
            let (found, _) = captured.size(kind, layer)?;
            let expected = *first.get_or_insert(found);
            if found != expected {
                return Err(Error::Columns { tensor: format!("{kind} of layer {layer}"), found, expected });
            }
            cols += found;
        }
        let count = self.options.parts.max(1);
        let mut parts = (0..count).map(|_| Moments::new(cols)).collect::<Result<Vec<_>>>()?;
        let rope = match &self.options.keys {
            Keys::Rope(rope) => Some(rope),
            _ => None,
        };
        let turned = Turned { rope, context: self.options.context };
        captured.rows(kind, layers, &turned, ROWS, |rows| {
            let mut at = rows.first;
            let end = rows.first + rows.values.len() / cols;
            while at < end {
                let part = at * count / rows.of;
                // The first row of the next part.
                let until = ((part + 1) * rows.of).div_ceil(count).min(end);
                let values = &rows.values[(at - rows.first) * cols..(until - rows.first) * cols];
                parts[part].add(values, rows.name, at as u64)?;
                at = until;
            }
            self.progress.advance(rows.bytes);
            Ok(())
        })?;
        if parts.iter().any(|p| p.count() < 2) {
            let rows: u64 = parts.iter().map(Moments::count).sum();
            return Err(invalid(format!(
                "{rows} rows of {kind} are too few to fit a basis and measure it in {count} parts; capture more"
            )));
        }
        Ok(parts)
    }
}

fn cut_columns(parts: &[Moments], range: std::ops::Range<usize>) -> Result<Vec<Moments>> {
    parts.iter().map(|part| part.columns(range.clone())).collect()
}

//! How pages of a model are made.

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use tenfold::engine::{Stop, threads};
use tenfold::prepare::{Basis, Positions, Rope};
use tenfold::{DecodeOptions, Effort, Goal, TensorView};

use super::read::PageReader;
use super::{encode, together};
use crate::error::{Result, invalid};

/// Keys and values of one layer: a row for each token, heads side by side.
#[derive(Debug, Clone, Copy)]
pub struct Layer<'a> {
    /// Keys as attention sees them: with rotary positions applied.
    pub keys: TensorView<'a>,
    /// Values.
    pub values: TensorView<'a>,
}

/// Some tokens of all layers of a codec.
#[derive(Debug, Clone)]
pub struct Page<'a> {
    /// As many as the codec's groups have together.
    pub layers: Vec<Layer<'a>>,
    /// Positions of the tokens; needed if keys have rotary positions.
    pub positions: Option<Positions>,
}

/// Some vectors of a basis, as a basis.
#[derive(Debug, Clone, PartialEq)]
pub struct BasisPart {
    /// The vectors.
    pub basis: Arc<Basis>,
    /// Which coordinates of the whole it does not have.
    pub without: Vec<Range<usize>>,
}

/// A basis that pages can have.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The basis.
    pub basis: Arc<Basis>,
    /// A part of it, which pages have where the rest is not worth its bits.
    pub part: Option<BasisPart>,
}

impl From<Arc<Basis>> for Choice {
    fn from(basis: Arc<Basis>) -> Self {
        Choice { basis, part: None }
    }
}

impl Choice {
    /// Sets the part that pages may do with.
    pub fn with_part(mut self, part: BasisPart) -> Self {
        self.part = Some(part);
        self
    }

    /// Whether the part is one of the basis.
    fn is_sound(&self) -> bool {
        self.part.as_ref().is_none_or(|part| {
            let lacks: usize = part.without.iter().map(|r| r.len()).sum();
            part.basis.cols() == self.basis.cols()
                && part.basis.rank() + lacks == self.basis.rank()
                && part.without.iter().all(|r| r.end <= self.basis.rank())
        })
    }
}

/// How keys or values are transformed and quantised.
#[derive(Debug, Clone, PartialEq)]
pub struct Chain {
    /// Rotary positions of keys to undo; the positions are those of each page.
    pub rope: Option<Rope>,
    /// Bases for different kinds of text: a page has the one that is best for it. Without any, its columns are coded directly,
    /// or without their means.
    pub bases: Vec<Choice>,
    /// Factor on the quantiser step.
    pub step: f64,
}

impl Default for Chain {
    fn default() -> Self {
        Chain { rope: None, bases: Vec::new(), step: 1.0 }
    }
}

impl Chain {
    /// Adds a basis to choose from.
    pub fn with_basis(mut self, basis: impl Into<Choice>) -> Self {
        self.bases.push(basis.into());
        self
    }

    /// Sets the rotary positions that are undone.
    pub fn with_rope(mut self, rope: Rope) -> Self {
        self.rope = Some(rope);
        self
    }

    /// Sets the factor on the quantiser step: above 1 if errors do less harm.
    pub fn with_step(mut self, step: f64) -> Self {
        self.step = step;
        self
    }
}

/// Consecutive layers that are coded together.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// How many.
    pub layers: usize,
    /// Chain of their keys, side by side.
    pub keys: Chain,
    /// Chain of their values, side by side.
    pub values: Chain,
}

/// Makes pages of a model's key-value cache and reads them.
///
/// ```
/// use tenfold::{Goal, TensorView};
/// use tenfold_kv::page::{Chain, Group, Layer, Page, PageCodec};
/// // Two layers with 64 tokens of 32 channels, and nothing known of them.
/// let data: Vec<f32> = (0..64 * 32).map(|i| (i as f32 * 0.37).sin()).collect();
/// let view = TensorView::from_slice(&data, &[64, 32])?;
/// let group = Group { layers: 1, keys: Chain::default(), values: Chain::default() };
/// let codec = PageCodec::new(vec![group.clone(), group])?.with_exact(4, 0);
/// let page = Page { layers: vec![Layer { keys: view, values: view }; 2], positions: None };
/// let bytes = codec.encode(&page, Goal::MaxBytes(3000))?;
/// assert!(bytes.len() <= 3000);
/// let (keys, _values) = codec.reader(&bytes)?.layer(1)?;
/// assert_eq!(keys.shape, [64, 32]);
/// assert_eq!(keys.to_vec::<f32>()?[..4 * 32], data[..4 * 32]); // exact tokens
/// # Ok::<(), tenfold_kv::Error>(())
/// ```
#[derive(Debug)]
pub struct PageCodec {
    pub(super) groups: Vec<Group>,
    pub(super) effort: Effort,
    /// Tokens at a page's start and end that stay exact.
    pub(super) exact: (usize, usize),
    threads: usize,
    stop: Stop,
}

impl PageCodec {
    /// A codec for pages of these groups of layers, in this order.
    pub fn new(groups: Vec<Group>) -> Result<Self> {
        if groups.is_empty() || groups.iter().any(|g| g.layers == 0) {
            return Err(invalid("a page needs at least one group, and each group at least one layer"));
        }
        let steps = groups.iter().flat_map(|g| [g.keys.step, g.values.step]);
        if steps.into_iter().any(|s| !(s.is_finite() && s > 0.0)) {
            return Err(invalid("the step of keys or values must be a positive number"));
        }
        let chains = || groups.iter().flat_map(|g| [&g.keys, &g.values]);
        if !chains().flat_map(|c| &c.bases).all(Choice::is_sound) {
            return Err(invalid("a part of a basis does not fit the basis that it is stated with"));
        }
        let cols = |choice: &Choice| choice.basis.cols();
        if !chains().all(|c| c.bases.iter().all(|choice| cols(choice) == cols(&c.bases[0]))) {
            return Err(invalid("bases to choose from must be for rows of the same columns"));
        }
        Ok(PageCodec { groups, effort: Effort::default(), exact: (0, 0), threads: 0, stop: Stop::default() })
    }

    /// Sets the effort.
    pub fn with_effort(mut self, effort: Effort) -> Self {
        self.effort = effort;
        self
    }

    /// Keeps the first tokens of each page and the last exact: attention sinks, a recent window.
    pub fn with_exact(mut self, first: usize, last: usize) -> Self {
        self.exact = (first, last);
        self
    }

    /// Sets the threads that pages of a batch are spread over; 0 means all cores.
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Sets the switch that ends the work early.
    pub fn with_stop(mut self, stop: Stop) -> Self {
        self.stop = stop;
        self
    }

    /// A codec for pages of one group alone; `None` if there is no such group.
    pub fn part(&self, group: usize) -> Option<PageCodec> {
        let codec = PageCodec::new(vec![self.groups.get(group)?.clone()]).ok()?;
        Some(
            codec
                .with_effort(self.effort)
                .with_exact(self.exact.0, self.exact.1)
                .with_threads(self.threads)
                .with_stop(self.stop.clone()),
        )
    }

    /// Layers of a page.
    pub fn layers(&self) -> usize {
        self.groups.iter().map(|g| g.layers).sum()
    }

    /// Groups of layers.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Encodes a page. The goal is [`Goal::MaxBytes`], [`Goal::Bits`] (all bytes over all keys and values), [`Goal::Step`] or
    /// [`Goal::Lossless`].
    pub fn encode(&self, page: &Page<'_>, goal: Goal) -> Result<Vec<u8>> {
        self.stop.check()?;
        encode::encode(self, page, goal)
    }

    /// Encodes many pages at once, spread over threads. Pages are independent: neither the bytes nor the failure of one
    /// affects another.
    pub fn encode_all(&self, pages: &[Page<'_>], goal: Goal) -> Result<Vec<Result<Vec<u8>>>> {
        self.encode_all_until(pages, goal, self.threads, &self.stop)
    }

    /// The same on this many threads, with a switch for this call alone.
    pub fn encode_all_until(
        &self,
        pages: &[Page<'_>],
        goal: Goal,
        threads: usize,
        stop: &Stop,
    ) -> Result<Vec<Result<Vec<u8>>>> {
        let encode = |page: &Page<'_>| {
            stop.check()?;
            self.encode(page, goal)
        };
        Ok(threads::install(threads, || pages.par_iter().map(encode).collect())?)
    }

    /// Encodes the pages of a context within `cap` bytes for all of them: all have one step, so those that are harder to code get
    /// more bytes. Where each page has a slot of its own, [`Goal::MaxBytes`] with [`PageCodec::encode_all`] is what fits.
    ///
    /// ```
    /// use tenfold::TensorView;
    /// use tenfold_kv::page::{Chain, Group, Layer, Page, PageCodec};
    /// let group = Group { layers: 1, keys: Chain::default(), values: Chain::default() };
    /// let codec = PageCodec::new(vec![group])?;
    /// let quiet: Vec<f32> = (0..64 * 32).map(|i| 0.1 * (i as f32 * 0.37).sin()).collect();
    /// let loud: Vec<f32> = quiet.iter().map(|v| 100.0 * v).collect();
    /// let views = [TensorView::from_slice(&quiet, &[64, 32])?, TensorView::from_slice(&loud, &[64, 32])?];
    /// let pages = views.map(|v| Page { layers: vec![Layer { keys: v, values: v }], positions: None });
    /// let made = codec.encode_together(&pages, 4000)?;
    /// assert!(made[0].len() + made[1].len() <= 4000 && made[0].len() < made[1].len());
    /// # Ok::<(), tenfold_kv::Error>(())
    /// ```
    pub fn encode_together(&self, pages: &[Page<'_>], cap: usize) -> Result<Vec<Vec<u8>>> {
        self.encode_together_until(pages, cap, self.threads, &self.stop)
    }

    /// The same on this many threads, with a switch for this call alone.
    pub fn encode_together_until(
        &self,
        pages: &[Page<'_>],
        cap: usize,
        threads: usize,
        stop: &Stop,
    ) -> Result<Vec<Vec<u8>>> {
        together::encode(self, pages, cap, threads, stop)
    }

    /// Reads the header of a page; layers are decoded on request.
    pub fn reader<'b>(&self, bytes: &'b [u8]) -> Result<PageReader<'b>> {
        let chains = self.groups.iter().flat_map(|g| [&g.keys, &g.values]);
        let choices = chains.flat_map(|c| &c.bases);
        let bases = choices
            .flat_map(|c| [Some(&c.basis), c.part.as_ref().map(|p| &p.basis)])
            .flatten()
            .cloned()
            .collect();
        let options = DecodeOptions::default().with_bases(bases).with_threads(1).with_stop(self.stop.clone());
        PageReader::new(bytes, options)
    }

    /// Decodes all layers of many pages at once, spread over threads.
    #[allow(clippy::type_complexity)]
    pub fn decode_all<B: AsRef<[u8]> + Sync>(
        &self,
        pages: &[B],
    ) -> Result<Vec<Result<Vec<(tenfold::Tensor, tenfold::Tensor)>>>> {
        let decode = |page: &B| {
            let reader = self.reader(page.as_ref())?;
            match (reader.layers(), self.layers()) {
                (have, need) if have != need => {
                    Err(invalid(format!("the page has {have} layers, but this codec's pages have {need}")))
                }
                _ => reader.all(),
            }
        };
        Ok(threads::install(self.threads, || pages.par_iter().map(decode).collect())?)
    }

    /// Decodes keys and values of one layer of many pages at once, spread over threads.
    #[allow(clippy::type_complexity)]
    pub fn decode_layers<B: AsRef<[u8]> + Sync>(
        &self,
        pages: &[B],
        layer: usize,
    ) -> Result<Vec<Result<(tenfold::Tensor, tenfold::Tensor)>>> {
        let decode = |page: &B| self.reader(page.as_ref())?.layer(layer);
        Ok(threads::install(self.threads, || pages.par_iter().map(decode).collect())?)
    }

    /// Decodes keys and values of some layers of a page that follow each other. Layers of a group are decoded at once.
    pub fn decode_run(
        &self,
        page: &[u8],
        layers: Range<usize>,
    ) -> Result<Vec<(tenfold::Tensor, tenfold::Tensor)>> {
        let reader = self.reader(page)?;
        threads::install(self.threads, || layers.map(|layer| reader.layer(layer)).collect())?
    }

    /// The effort.
    pub fn effort(&self) -> Effort {
        self.effort
    }

    /// Tokens at a page's start and end that stay exact.
    pub fn exact(&self) -> (usize, usize) {
        self.exact
    }

    /// Threads that pages of a batch are spread over; 0 means all cores.
    pub fn threads(&self) -> usize {
        self.threads
    }
}

//! Decodes layers of a page.

use std::sync::Mutex;

use rayon::prelude::*;
use tenfold::engine::Coordinates;
use tenfold::{DecodeOptions, Dtype, Error, Tensor};

use super::frame::{self, EXACT_KEYS, EXACT_VALUES, Frame, KEYS, VALUES};
use crate::error::{Result, invalid};

/// A page whose header was read. Layers can be decoded in any order; in their stored order each needs only the bytes up
/// to its group's end, so the page may still be arriving.
///
/// The coordinates of the last group are kept, so that its next layer takes little work.
pub struct PageReader<'b> {
    bytes: &'b [u8],
    frame: Frame,
    options: DecodeOptions,
    last: Mutex<Option<(usize, [Side; 2])>>,
}

/// Keys or values of a group.
struct Side {
    exact: Option<Tensor>,
    coded: Option<Coordinates>,
}

impl std::fmt::Debug for PageReader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PageReader of {} layers, {} tokens", self.layers(), self.tokens())
    }
}

impl<'b> PageReader<'b> {
    /// Reads the header of a page. Blobs may name bases that the options have.
    pub fn new(bytes: &'b [u8], options: DecodeOptions) -> Result<Self> {
        let frame = frame::parse(bytes)?;
        if bytes.len() > frame.end() {
            return Err(Error::Corrupt("bytes after the last blob of a page").into());
        }
        Ok(PageReader { bytes, frame, options, last: Mutex::new(None) })
    }

    /// Layers of the page.
    pub fn layers(&self) -> usize {
        self.frame.groups.iter().map(|g| g.0).sum()
    }

    /// Tokens of the page.
    pub fn tokens(&self) -> usize {
        self.frame.tokens
    }

    /// Tokens at the start and at the end that are exact.
    pub fn exact(&self) -> (usize, usize) {
        self.frame.exact
    }

    /// Bytes from the start of the page that a layer needs.
    pub fn needs(&self, layer: usize) -> Result<usize> {
        Ok(self.frame.groups[self.locate(layer)?.0].1[VALUES].end)
    }

    /// Keys and values of a layer, a row for each token.
    pub fn layer(&self, layer: usize) -> Result<(Tensor, Tensor)> {
        let (group, within) = self.locate(layer)?;
        let layers = self.frame.groups[group].0;
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if last.as_ref().is_none_or(|(g, _)| *g != group) {
            *last = None;
            *last = Some((
                group,
                [self.decode_side(group, EXACT_KEYS, KEYS)?, self.decode_side(group, EXACT_VALUES, VALUES)?],
            ));
        }
        let Some((_, [keys, values])) = last.as_ref() else {
            return Err(Error::Corrupt("a page").into());
        };
        Ok((self.cut_layer(keys, layers, within)?, self.cut_layer(values, layers, within)?))
    }

    /// Keys and values of all layers; groups are spread over threads.
    pub fn all(&self) -> Result<Vec<(Tensor, Tensor)>> {
        let group = |group: usize| -> Result<Vec<(Tensor, Tensor)>> {
            let (keys, values) = rayon::join(
                || self.decode_side(group, EXACT_KEYS, KEYS),
                || self.decode_side(group, EXACT_VALUES, VALUES),
            );
            let (keys, values, layers) = (keys?, values?, self.frame.groups[group].0);
            let cut = |within: usize| {
                Ok((self.cut_layer(&keys, layers, within)?, self.cut_layer(&values, layers, within)?))
            };
            (0..layers).into_par_iter().map(cut).collect()
        };
        let groups: Vec<_> =
            (0..self.frame.groups.len()).into_par_iter().map(group).collect::<Result<_>>()?;
        Ok(groups.into_iter().flatten().collect())
    }

    /// Dtype, and columns of keys and of values of a layer, read from headers alone.
    pub fn shape(&self, layer: usize) -> Result<(Dtype, usize, usize)> {
        let (layers, blobs) = &self.frame.groups[self.locate(layer)?.0];
        let lossy = self.frame.lossy() > 0;
        let describe = |exact: usize, coded: usize| {
            let range = blobs[if lossy { coded } else { exact }].clone();
            let need = range.end as u64;
            let blob =
                self.bytes.get(range).ok_or(Error::Truncated { need, have: self.bytes.len() as u64 })?;
            tenfold::format::BlobInfo::read_native(blob, &self.options.limits)
        };
        let (keys, values) = (describe(EXACT_KEYS, KEYS)?, describe(EXACT_VALUES, VALUES)?);
        let cols = |shape: &[usize]| shape.last().copied().unwrap_or(0) / layers;
        Ok((keys.dtype, cols(&keys.shape), cols(&values.shape)))
    }

    /// The group of a layer, and which of its layers it is.
    fn locate(&self, layer: usize) -> Result<(usize, usize)> {
        let mut first = 0;
        for (g, (layers, _)) in self.frame.groups.iter().enumerate() {
            if layer < first + layers {
                return Ok((g, layer - first));
            }
            first += layers;
        }
        Err(invalid(format!("layer {layer} does not exist: the page has {first}")))
    }

    fn decode_side(&self, group: usize, exact: usize, coded: usize) -> Result<Side> {
        let blob = |i: usize| {
            let range = self.frame.groups[group].1[i].clone();
            let truncated = Error::Truncated { need: range.end as u64, have: self.bytes.len() as u64 };
            self.bytes.get(range).ok_or(truncated)
        };
        let exact = match self.frame.exact {
            (0, 0) => None,
            _ => Some(tenfold::decode(blob(exact)?, &self.options)?),
        };
        let coded = match self.frame.lossy() {
            0 => None,
            _ => Some(Coordinates::decode(blob(coded)?, &self.options)?),
        };
        let (first, last) = self.frame.exact;
        let fits =
            exact.as_ref().is_none_or(|t| t.shape.first() == Some(&(first + last)) && t.shape.len() == 2)
                && coded.as_ref().is_none_or(|c| c.rows() == self.frame.lossy());
        let same = match (&exact, &coded) {
            (Some(e), Some(c)) => e.shape[1] == c.cols() && e.dtype == c.dtype(),
            _ => true,
        };
        if !fits || !same {
            return Err(Error::Corrupt("a blob does not fit its page").into());
        }
        Ok(Side { exact, coded })
    }

    /// Columns of one layer out of a group.
    fn cut_layer(&self, side: &Side, layers: usize, within: usize) -> Result<Tensor> {
        let cols = match (&side.exact, &side.coded) {
            (Some(exact), _) => exact.shape[1],
            (_, Some(coded)) => coded.cols(),
            _ => 0,
        };
        if cols % layers != 0 {
            return Err(Error::Corrupt("layers of a page do not divide its columns").into());
        }
        let width = cols / layers;
        let range = within * width..(within + 1) * width;
        let coded = side.coded.as_ref().map(|c| c.columns(range.clone())).transpose()?;
        let Some(exact) = &side.exact else {
            return coded.ok_or_else(|| Error::Corrupt("a page without tokens").into());
        };
        let size = exact.dtype.size();
        let line = |row: usize| &exact.data[(row * cols + range.start) * size..][..width * size];
        let (first, last) = self.frame.exact;
        let mut data = Vec::with_capacity(self.frame.tokens * width * size);
        (0..first).for_each(|row| data.extend_from_slice(line(row)));
        coded.iter().for_each(|c| data.extend_from_slice(&c.data));
        (first..first + last).for_each(|row| data.extend_from_slice(line(row)));
        Ok(Tensor { dtype: exact.dtype, shape: vec![self.frame.tokens, width], data })
    }
}

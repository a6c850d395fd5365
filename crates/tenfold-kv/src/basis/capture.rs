//! Captured rows: tensors of safetensors files by their names.
//!
//! A tensor has a row for each token; a second and a third dimension (heads and their columns) count as columns. A name may end in
//! the range of tokens that it holds, as in `layers.8.k[0:256]`; positions then count from its first.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use tenfold::prepare::Positions;
use tenfold::{DecodeOptions, Tensor};
use tenfold_archive::Archive;

use super::kind::Kind;
use super::rope::RopeSpec;
use crate::error::{Error, Result, invalid};

/// Names of captured tensors, each with `{}` for the layer's number.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Names {
    /// Keys before rotary positions. Default: `layers.{}.k_before_rope`.
    pub keys_before_rope: String,
    /// Keys after rotary positions, used if the former are missing. Default: `layers.{}.k`.
    pub keys: String,
    /// Values. Default: `layers.{}.v`.
    pub values: String,
    /// The residual stream before a layer. Default: `layers.{}.hidden`.
    pub hidden: String,
}

impl Default for Names {
    fn default() -> Self {
        Names {
            keys_before_rope: "layers.{}.k_before_rope".into(),
            keys: "layers.{}.k".into(),
            values: "layers.{}.v".into(),
            hidden: "layers.{}.hidden".into(),
        }
    }
}

impl Names {
    /// Sets the name of one kind; for keys, that of keys after rotary positions.
    pub fn with(mut self, kind: Kind, pattern: &str) -> Result<Self> {
        check_pattern(pattern)?;
        match kind {
            Kind::Keys => self.keys = pattern.into(),
            Kind::Values => self.values = pattern.into(),
            Kind::Hidden => self.hidden = pattern.into(),
        }
        Ok(self)
    }

    /// Sets the name of keys before rotary positions.
    pub fn with_keys_before_rope(mut self, pattern: &str) -> Result<Self> {
        check_pattern(pattern)?;
        self.keys_before_rope = pattern.into();
        Ok(self)
    }

    /// What a name stands for, and whether rotary positions are still applied.
    pub(super) fn read(&self, name: &str) -> Option<(Kind, usize, bool)> {
        let all = [
            (&self.keys_before_rope, Kind::Keys, false),
            (&self.keys, Kind::Keys, true),
            (&self.values, Kind::Values, false),
            (&self.hidden, Kind::Hidden, false),
        ];
        all.into_iter().find_map(|(pattern, kind, turned)| {
            let (before, after) = pattern.split_once("{}")?;
            let number = name.strip_prefix(before)?.strip_suffix(after)?;
            let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
            Some((kind, number.parse().ok().filter(|_| digits)?, turned))
        })
    }
}

fn check_pattern(pattern: &str) -> Result<()> {
    if pattern.matches("{}").count() != 1 {
        return Err(invalid(format!("the name {pattern:?} must hold {{}} once, for the layer's number")));
    }
    Ok(())
}

/// One tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    name: String,
    index: usize,
    tokens: usize,
    cols: usize,
    turned: bool,
    bytes: u64,
}

/// Which file, and the first token.
type Place = (usize, u64);

/// Files of captured tensors.
pub struct Captured {
    files: Vec<Archive>,
    pieces: BTreeMap<(Kind, usize), BTreeMap<Place, Piece>>,
}

/// How to undo the rotary positions of keys.
pub(super) struct Turned<'a> {
    /// `None` if the model has no rotary positions.
    pub rope: Option<&'a RopeSpec>,
    /// Tokens after which positions start again at 0.
    pub context: Option<u64>,
}

/// Rows that were read.
pub(super) struct Rows<'a> {
    pub values: Vec<f32>,
    /// First of them, counted from the first of the tensor.
    pub first: usize,
    /// Rows of the tensor.
    pub of: usize,
    /// Name of the first layer's tensor.
    pub name: &'a str,
    /// Bytes that were read.
    pub bytes: u64,
}

impl Captured {
    /// Opens files. Tensors with other names are ignored.
    pub fn open(paths: &[PathBuf], names: &Names) -> Result<Self> {
        let mut captured = Captured { files: Vec::with_capacity(paths.len()), pieces: BTreeMap::new() };
        for path in paths {
            captured.add(Archive::open(path)?, names, path)?;
        }
        if captured.pieces.is_empty() {
            return Err(invalid(format!(
                "no captured tensors: none has a name such as {:?} or {:?}; state the names",
                names.keys, names.values
            )));
        }
        Ok(captured)
    }

    fn add(&mut self, archive: Archive, names: &Names, path: &Path) -> Result<()> {
        let file = self.files.len();
        for (index, tensor) in archive.tensors().iter().enumerate() {
            let (stem, first) = strip_range(&tensor.name);
            let Some((kind, layer, turned)) = names.read(stem) else { continue };
            let [tokens, rest @ ..] = tensor.shape.as_slice() else { continue };
            if !tensor.dtype.is_some_and(|d| d.is_float()) || !(1..=2).contains(&rest.len()) {
                return Err(invalid(format!(
                    "{}: tensor {:?} is {} {:?}; captured tensors must be floats of tokens by columns",
                    path.display(),
                    tensor.name,
                    tensor.dtype_name,
                    tensor.shape
                )));
            }
            let cols = rest.iter().product();
            let name = tensor.name.clone();
            let piece = Piece { name, index, tokens: *tokens, cols, turned, bytes: tensor.bytes };
            let pieces = self.pieces.entry((kind, layer)).or_default();
            // Keys captured before rotation are more exact than keys rotated back.
            match pieces.get(&(file, first)) {
                Some(old) if old.turned == turned => {
                    return Err(invalid(format!(
                        "tensors {:?} and {:?} hold the same rows",
                        old.name, piece.name
                    )));
                }
                Some(old) if !old.turned => {}
                _ => drop(pieces.insert((file, first), piece)),
            }
        }
        self.files.push(archive);
        Ok(())
    }

    /// Layers of which there are rows of a kind.
    pub fn layers(&self, kind: Kind) -> Vec<usize> {
        self.pieces.keys().filter(|(k, _)| *k == kind).map(|(_, layer)| *layer).collect()
    }

    /// Columns of one layer's rows, and bytes of all its tensors.
    pub(super) fn size(&self, kind: Kind, layer: usize) -> Result<(usize, u64)> {
        let pieces = self.pieces(kind, layer)?;
        let mut sizes = pieces.values().map(|p| p.cols);
        let cols = sizes.next().unwrap_or(0);
        if let Some(other) = pieces.values().find(|p| p.cols != cols) {
            return Err(Error::Columns { tensor: other.name.clone(), found: other.cols, expected: cols });
        }
        Ok((cols, pieces.values().map(|p| p.bytes).sum()))
    }

    /// Visits the rows of layers side by side, at most `most` at a time.
    pub(super) fn rows(
        &self,
        kind: Kind,
        layers: &[usize],
        turned: &Turned<'_>,
        most: usize,
        mut done: impl FnMut(Rows<'_>) -> Result<()>,
    ) -> Result<()> {
        let all: Vec<&BTreeMap<Place, Piece>> =
            layers.iter().map(|&layer| self.pieces(kind, layer)).collect::<Result<_>>()?;
        let Some(leader) = all.first() else { return Ok(()) };
        for (place, first) in leader.iter() {
            let mut side = Vec::with_capacity(all.len());
            for pieces in &all {
                let piece =
                    pieces.get(place).filter(|p| p.tokens == first.tokens && pieces.len() == leader.len());
                side.push(piece.ok_or_else(|| {
                    invalid(format!(
                        "layers {layers:?} have {kind} of different tokens, so they cannot share a basis; {:?} differs",
                        first.name
                    ))
                })?);
            }
            for start in (0..first.tokens).step_by(most.max(1)) {
                let range = start..(start + most.max(1)).min(first.tokens);
                let (values, bytes) = self.join_pieces(*place, &side, range.clone(), turned)?;
                done(Rows { values, first: start, of: first.tokens, name: &first.name, bytes })?;
            }
        }
        Ok(())
    }

    fn join_pieces(
        &self,
        place: Place,
        pieces: &[&Piece],
        range: Range<usize>,
        turned: &Turned<'_>,
    ) -> Result<(Vec<f32>, u64)> {
        let width: usize = pieces.iter().map(|p| p.cols).sum();
        let mut out = vec![0f32; range.len() * width];
        let (mut at, mut bytes) = (0, 0);
        for piece in pieces {
            let tensor = self.read(place.0, piece, range.clone())?;
            bytes += tensor.data.len() as u64;
            let mut rows = floats(&tensor, piece)?;
            if let Some(rope) = turned.rope.filter(|_| piece.turned) {
                turn_back(&mut rows, piece, rope, turned.context, place.1 + range.start as u64)?;
            }
            for (to, from) in out.chunks_exact_mut(width).zip(rows.chunks_exact(piece.cols)) {
                to[at..at + piece.cols].copy_from_slice(from);
            }
            at += piece.cols;
        }
        Ok((out, bytes))
    }

    /// Whether any of the keys still have their rotary positions.
    pub(super) fn find_turned(&self) -> Option<&str> {
        self.pieces.values().flat_map(|p| p.values()).find(|p| p.turned).map(|p| p.name.as_str())
    }

    fn read(&self, file: usize, piece: &Piece, range: Range<usize>) -> Result<Tensor> {
        let last = self.files[file].tensors()[piece.index].shape.last().copied().unwrap_or(1);
        let each = piece.cols / last.max(1);
        let rows = range.start * each..range.end * each;
        Ok(self.files[file].read_rows(piece.index, rows, &DecodeOptions::default())?)
    }

    fn pieces(&self, kind: Kind, layer: usize) -> Result<&BTreeMap<Place, Piece>> {
        self.pieces
            .get(&(kind, layer))
            .ok_or_else(|| invalid(format!("no {kind} of layer {layer} were captured")))
    }
}

fn floats(tensor: &Tensor, piece: &Piece) -> Result<Vec<f32>> {
    let values = tensor.view()?.to_f64();
    let values = values.ok_or_else(|| invalid(format!("tensor {:?} does not hold floats", piece.name)))?;
    Ok(values.into_iter().map(|v| v as f32).collect())
}

fn turn_back(
    rows: &mut [f32],
    piece: &Piece,
    rope: &RopeSpec,
    context: Option<u64>,
    first: u64,
) -> Result<()> {
    if !piece.cols.is_multiple_of(rope.head()) {
        let reason = format!(
            "tensor {:?} has {} columns, which heads of {} do not divide",
            piece.name,
            piece.cols,
            rope.head()
        );
        return Err(invalid(reason));
    }
    let count = (rows.len() / piece.cols) as u64;
    let positions = match context {
        Some(context) => Positions::List((first..first + count).map(|p| p % context.max(1)).collect()),
        None => Positions::From(first),
    };
    rope.at(positions)?.forward(rows, piece.cols, 0);
    Ok(())
}

/// A name without a range of tokens at its end, and the first of them.
fn strip_range(name: &str) -> (&str, u64) {
    let range = name.strip_suffix(']').and_then(|rest| rest.rsplit_once('['));
    let read = range.and_then(|(stem, range)| {
        let (first, last) = range.split_once(':')?;
        last.parse::<u64>().ok()?;
        Some((stem, first.parse().ok()?))
    });
    read.unwrap_or((name, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_tensors_are() {
        let names = Names::default();
        assert_eq!(names.read("layers.12.k"), Some((Kind::Keys, 12, true)));
        assert_eq!(names.read("layers.12.k_before_rope"), Some((Kind::Keys, 12, false)));
        assert_eq!(names.read("layers.0.v"), Some((Kind::Values, 0, false)));
        assert_eq!(names.read("layers.+1.v"), None);
        assert_eq!(names.read("layers.1.mlp"), None);
        let names = names.with(Kind::Values, "model.{}.attn.v").unwrap();
        assert_eq!(names.read("model.3.attn.v"), Some((Kind::Values, 3, false)));
        assert!(Names::default().with(Kind::Hidden, "hidden").is_err());
        assert_eq!(strip_range("layers.8.k[256:512]"), ("layers.8.k", 256));
        assert_eq!(strip_range("layers.8.k[x]"), ("layers.8.k[x]", 0));
    }
}

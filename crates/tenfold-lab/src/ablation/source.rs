//! Tensors as pictures: a tensor alone, cut into bands of rows, or one after the other.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};

use super::args::AblationArgs;
use super::samples::Mapping;
use crate::intra::Picture;
use crate::load::{self, Named};
use crate::values::to_f64;

/// Smaller tensors say nothing: headers and learning would be all there is.
const MIN_VALUES: usize = 4096;
/// Bands that a tensor is cut into, and tensors of a sequence.
const PICTURES: usize = 4;
/// Numbers of bands with the rows each must have: the largest block shall fit, or, in small tensors, some.
const BANDS: [(usize, usize); 2] = [(PICTURES, 32), (2, 8)];

/// How pictures came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrangement {
    /// One tensor, one picture.
    Whole,
    /// One tensor, this many bands of rows.
    Bands(usize),
    /// This many tensors of one shape.
    Tensors(usize),
}

impl Arrangement {
    pub fn text(self) -> String {
        match self {
            Arrangement::Whole => "one picture".to_string(),
            Arrangement::Bands(n) => format!("{n} bands of rows"),
            Arrangement::Tensors(n) => format!("{n} tensors"),
        }
    }
}

/// Values of a tensor and how they became samples.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub values: Vec<f64>,
    pub mapping: Mapping,
}

/// What is measured: pictures, and the values they stand for.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    /// Name of the tensor, or of the sequence.
    pub name: String,
    pub arrangement: Arrangement,
    /// Shape of the tensor, before anything was left away.
    shape: Vec<usize>,
    /// One, or one a picture.
    pub parts: Vec<Part>,
    pub pictures: Vec<Picture>,
}

impl Subject {
    /// Values in all.
    pub fn values(&self) -> usize {
        self.parts.iter().map(|p| p.values.len()).sum()
    }
}

/// A file, ready to be measured.
pub(super) struct Source {
    pub name: String,
    /// Each tensor as one picture.
    pub tensors: Vec<Subject>,
    /// The same values as several pictures.
    pub sequences: Vec<Subject>,
    /// What was left out, and why.
    pub skipped: Vec<String>,
}

impl Source {
    pub fn load(path: &Path, args: &AblationArgs) -> Result<Self> {
        let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let (mut tensors, mut skipped) = (Vec::new(), Vec::new());
        let wanted = |t: &Named| args.only.as_ref().is_none_or(|part| t.name.contains(part.as_str()));
        for named in load::floats(path, MIN_VALUES)?.iter().filter(|t| wanted(t)) {
            match from_tensor(named, args)? {
                Ok(subject) => tensors.push(subject),
                Err(why) => skipped.push(format!("{} is left out: {why}", named.name)),
            }
        }
        tensors.sort_by_cached_key(|t| split_numbers(&t.name));
        let mut sequences = join_sequences(&tensors, args.most())?;
        tensors.truncate(args.most());
        for tensor in tensors.iter().rev() {
            sequences.extend(split_bands(tensor)?);
        }
        sequences.reverse();
        Ok(Source { name, tensors, sequences, skipped })
    }
}

/// A tensor as one picture, or why that makes no sense.
fn from_tensor(named: &Named, args: &AblationArgs) -> Result<Result<Subject, &'static str>> {
    let view = named.tensor.view().with_context(|| format!("cannot read {}", named.name))?;
    let all = to_f64(&view).context("no float tensor")?;
    let cols = named.tensor.shape.last().copied().unwrap_or(1).max(1);
    let width = cols.min(args.values());
    // Whole bands of whole blocks, so that one picture and several hold the same values.
    let multiple = 4 * PICTURES;
    let rows = (args.values() / width).min(all.len() / cols);
    let height = if rows >= multiple { rows / multiple * multiple } else { rows };
    let values: Vec<f64> =
        all.chunks_exact(cols).take(height).flat_map(|row| row[..width].iter().copied()).collect();
    if values.iter().any(|v| !v.is_finite()) {
        return Ok(Err("it has NaN or infinite values"));
    }
    if values.iter().all(|v| Some(v) == values.first()) {
        return Ok(Err("all its values are the same"));
    }
    let mapping = Mapping::choose(&values, args.depth);
    let samples = values.iter().map(|&v| mapping.sample(v)).collect();
    let pictures = vec![Picture::new(width, height, args.depth, samples)?];
    let (name, shape, parts) =
        (named.name.clone(), named.tensor.shape.clone(), vec![Part { values, mapping }]);
    Ok(Ok(Subject { name, arrangement: Arrangement::Whole, shape, parts, pictures }))
}

/// The same tensor as bands of rows, if it has enough of them.
fn split_bands(tensor: &Subject) -> Result<Option<Subject>> {
    let [picture] = &tensor.pictures[..] else { return Ok(None) };
    let fits = |&&(count, least): &&(usize, usize)| {
        picture.height().is_multiple_of(count) && picture.height() / count >= least
    };
    let Some(&(count, _)) = BANDS.iter().find(fits) else { return Ok(None) };
    let height = picture.height() / count;
    let (width, depth) = (picture.width(), picture.depth());
    let cut = |band: &[u16]| Picture::new(width, height, depth, band.to_vec());
    let pictures = picture.samples().chunks_exact(width * height).map(cut).collect::<Result<_, _>>()?;
    Ok(Some(Subject { arrangement: Arrangement::Bands(count), pictures, ..tensor.clone() }))
}

/// Tensors whose names differ in numbers only (layers, steps), as sequences of pictures; if a file has no
/// such tensors, those of one shape.
fn join_sequences(tensors: &[Subject], most: usize) -> Result<Vec<Subject>> {
    let grouped = |key: &dyn Fn(&Subject) -> String| {
        let mut groups: BTreeMap<(String, &[usize]), Vec<&Subject>> = BTreeMap::new();
        for tensor in tensors {
            groups.entry((key(tensor), &tensor.shape)).or_default().push(tensor);
        }
        groups.into_values().filter(|g| g.len() > 1).collect::<Vec<_>>()
    };
    let mut groups = grouped(&|t| t.name.split(|c: char| c.is_ascii_digit()).collect());
    if groups.is_empty() {
        groups = grouped(&|_| String::new());
    }
    let sequence = |group: Vec<&Subject>| {
        let group = &group[..group.len().min(PICTURES)];
        Subject {
            name: group.iter().map(|t| t.name.as_str()).collect::<Vec<_>>().join(", "),
            arrangement: Arrangement::Tensors(group.len()),
            shape: group.first().map_or_else(Vec::new, |t| t.shape.clone()),
            parts: group.iter().flat_map(|t| t.parts.clone()).collect(),
            pictures: group.iter().flat_map(|t| t.pictures.clone()).collect(),
        }
    };
    Ok(groups.into_iter().take(most).map(sequence).collect())
}

/// A name such that layer 2 comes before layer 15.
fn split_numbers(name: &str) -> Vec<(String, u64)> {
    let mut out = vec![(String::new(), 0u64)];
    let mut digits = false;
    for c in name.chars() {
        if !c.is_ascii_digit() && digits {
            out.push((String::new(), 0));
        }
        digits = c.is_ascii_digit();
        if let Some((text, number)) = out.last_mut() {
            match c.to_digit(10) {
                Some(d) => *number = number.saturating_mul(10).saturating_add(u64::from(d)),
                None => text.push(c),
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_sort_by_number() {
        let mut names = ["layers.15.k", "layers.2.v", "layers.2.k", "head", "layers.8.k"];
        names.sort_by_cached_key(|n| split_numbers(n));
        assert_eq!(names, ["head", "layers.2.k", "layers.2.v", "layers.8.k", "layers.15.k"]);
    }
}

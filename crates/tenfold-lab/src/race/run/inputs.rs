//! The tensors of a race: chosen, cut, and with a fingerprint that tells whether they changed.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use globset::{Glob, GlobSet, GlobSetBuilder};
use tenfold::Tensor;
use tenfold_cli::exit::Usage;

use super::TensorKind;
use crate::load::{self, Malformed};
use crate::race::RaceArgs;

/// Smaller tensors cost a header and tell nothing.
const MIN_VALUES: usize = 4096;

/// A tensor in the race.
#[derive(Debug)]
pub(crate) struct Input {
    /// File without its ending; the whole path where two files would share a name.
    pub file: String,
    /// Name in the file.
    pub name: String,
    /// What it is.
    pub kind: TensorKind,
    /// The values that are coded.
    pub tensor: Tensor,
    /// Values in the file, of which the tensor may be the first rows.
    pub values_in_file: usize,
    /// Changes with dtype, shape and values.
    pub fingerprint: String,
}

/// All chosen tensors of all files.
pub(crate) fn load(args: &RaceArgs) -> Result<Vec<Input>> {
    if args.files.is_empty() {
        return Err(Usage("name at least one safetensors file".to_string()).into());
    }
    let wanted = globs(&args.tensors)?;
    let mut out = Vec::new();
    for path in &args.files {
        let file = label(path, &args.files);
        let min = if args.tensors.is_empty() { MIN_VALUES } else { 1 };
        let tensors = load::floats(path, min).map_err(as_data)?;
        for named in tensors {
            if !args.tensors.is_empty() && !wanted.is_match(&named.name) {
                continue;
            }
            let values_in_file = named.tensor.view()?.len();
            let tensor = first_rows(named.tensor, args.value_limit())?;
            out.push(Input {
                kind: args.kind.unwrap_or_else(|| TensorKind::guess(&file, &named.name)),
                fingerprint: fingerprint(&tensor),
                file: file.clone(),
                name: named.name,
                values_in_file,
                tensor,
            });
        }
    }
    if out.is_empty() {
        let files = args.files.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ");
        let message = format!(
            "no tensor to race in {files}: floats with two dimensions and {MIN_VALUES} values, or --tensors"
        );
        return Err(Usage(message).into());
    }
    Ok(out)
}

/// Globs as one set.
pub(crate) fn globs(patterns: &[String]) -> Result<GlobSet, Usage> {
    let bad = |e: globset::Error| Usage(e.to_string());
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(Glob::new(pattern).map_err(bad)?);
    }
    set.build().map_err(bad)
}

/// A file that is there but holds something else is bad data; one that cannot be read stays what it is.
fn as_data(error: anyhow::Error) -> anyhow::Error {
    if error.is::<std::io::Error>() { error } else { Malformed(format!("{error:#}")).into() }
}

fn label(path: &Path, all: &[PathBuf]) -> String {
    let stem =
        |p: &Path| p.file_stem().map_or_else(|| p.display().to_string(), |s| s.to_string_lossy().into());
    let own: String = stem(path);
    let shared = all.iter().filter(|p| stem(p) == own).count() > 1;
    if shared { path.display().to_string() } else { own }
}

/// The first whole rows with at most `limit` values, one row at least.
fn first_rows(tensor: Tensor, limit: Option<usize>) -> Result<Tensor> {
    let view = tensor.view()?;
    let (rows, cols) = (view.rows(), view.cols());
    let keep = limit.map_or(rows, |limit| (limit / cols.max(1)).clamp(1, rows.max(1)));
    if keep >= rows {
        return Ok(tensor);
    }
    let bytes = keep * cols * tensor.dtype.size();
    let data = tensor.data.get(..bytes).context("rows lie within the tensor")?.to_vec();
    Ok(Tensor { dtype: tensor.dtype, shape: vec![keep, cols], data })
}

/// Dtype, shape and a checksum: enough to notice a change that nobody made on purpose to hide it.
fn fingerprint(tensor: &Tensor) -> String {
    let shape = tensor.shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x");
    format!("{}-{shape}-{:08x}", tensor.dtype.name(), crc32fast::hash(&tensor.data))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synth;
    use tenfold::Dtype;

    #[test]
    fn rows_stay_whole_and_fingerprints_follow_the_values() {
        let tensor = synth::gaussian(Dtype::F32, &[4, 25, 10], 1.0, 1).unwrap();
        let cut = first_rows(tensor.clone(), Some(57)).unwrap();
        assert_eq!(cut.shape, [5, 10]);
        assert_eq!(cut.data, tensor.data[..200]);
        assert_eq!(first_rows(tensor.clone(), Some(3)).unwrap().shape, [1, 10]);
        assert_eq!(first_rows(tensor.clone(), Some(1000)).unwrap(), tensor);
        assert_ne!(fingerprint(&cut), fingerprint(&tensor));
        let mut other = cut.clone();
        other.data[77] ^= 1;
        assert_ne!(fingerprint(&cut), fingerprint(&other));
    }

    #[test]
    fn labels_are_short_while_they_tell_files_apart() {
        let all =
            [PathBuf::from("a/model.safetensors"), "b/model.safetensors".into(), "kv.safetensors".into()];
        assert_eq!(label(&all[0], &all), "a/model.safetensors");
        assert_eq!(label(&all[2], &all), "kv");
    }
}

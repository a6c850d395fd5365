//! A delta applied to tensors in memory: everything is compared first, then written.

use std::collections::HashMap;

use tenfold::delta::{Applied, Pending, Verify};
use tenfold::engine::threads;
use tenfold::{Dtype, TensorView};

use super::difference;
use super::file::{Change, DeltaFile};
use super::fingerprint::{Prints, of_model, of_parts};
use super::options::{ApplyOptions, compile_for};
use super::record::How;
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::safetensors::stored_dtype;

/// Changes that are kept from comparing to writing, over all tensors: about a gigabyte. Those of further tensors are read twice.
const KEPT: u64 = 1 << 26;

/// A tensor that may be changed.
#[derive(Debug)]
pub struct TensorMut<'a> {
    /// Its name.
    pub name: &'a str,
    /// Element type.
    pub dtype: Dtype,
    /// Shape, outermost dimension first.
    pub shape: &'a [usize],
    /// Its bytes: little-endian, row-major.
    pub data: &'a mut [u8],
}

/// What is to be done to a tensor.
enum Todo {
    Delta(Option<Pending>),
    Replace,
}

/// Applies a delta to tensors in memory. An error leaves every byte as it is, unless the caller stops the work: then some tensors are new, and
/// the same call completes them. A delta that was applied before is recognised.
///
/// The delta must leave names, dtypes and shapes as they are. By default `tensors` is the whole model, and all of it is compared. With
/// `only` or [`Verify::Touched`], those that change will do.
pub fn apply_in_place(
    tensors: &mut [TensorMut<'_>],
    delta: &DeltaFile,
    options: &ApplyOptions,
    progress: &dyn Progress,
) -> Result<Applied> {
    let mut by_name = HashMap::with_capacity(tensors.len());
    for (i, tensor) in tensors.iter().enumerate() {
        TensorView::new(tensor.dtype, tensor.shape, tensor.data).map_err(Error::codec(tensor.name))?;
        if by_name.insert(tensor.name.to_owned(), i).is_some() {
            return Err(Error::InvalidArgument(format!("tensor {:?} is there twice", tensor.name)));
        }
    }
    threads::install(options.threads, || {
        progress.start(tensors.iter().map(|tensor| tensor.data.len() as u64).sum());
        let (todo, mut applied) = prepare(tensors, &by_name, delta, options, progress)?;
        for (i, change, todo) in todo {
            let tensor = &mut tensors[i];
            options.stop.check().map_err(Error::codec(tensor.name))?;
            let codec = |e| Error::codec(tensor.name)(e);
            match todo {
                Todo::Delta(pending) => {
                    let pending = match pending {
                        Some(pending) => pending,
                        None => pend(tensor, change, delta, options, Verify::Touched)?,
                    };
                    pending.write(0..pending.tiles(), tensor.data).map_err(codec)?;
                    applied.written += pending.applied().written;
                    applied.before += pending.applied().before;
                }
                Todo::Replace => {
                    let values = (tensor.data.len() / tensor.dtype.size().max(1)) as u64;
                    match replacement(tensor, change, delta, options)? {
                        Some(new) => {
                            tensor.data.copy_from_slice(&new);
                            applied.written += values;
                        }
                        None => applied.before += values,
                    }
                }
            }
        }
        Ok(applied)
    })
    .map_err(Error::Threads)?
}

type Tasks<'d> = Vec<(usize, &'d Change, Todo)>;

/// Compares everything; writes nothing.
fn prepare<'d>(
    tensors: &[TensorMut<'_>],
    by_name: &HashMap<String, usize>,
    delta: &'d DeltaFile,
    options: &ApplyOptions,
    progress: &dyn Progress,
) -> Result<(Tasks<'d>, Applied)> {
    let names =
        by_name.keys().chain(delta.removed()).chain(delta.changes().iter().map(|change| &change.name));
    let only = compile_for(&options.only, names.map(String::as_str))?;
    let taken = |name: &str| options.only.is_empty() || only.is_match(name);
    if let Some(name) = delta.removed().iter().find(|name| taken(name) && by_name.contains_key(*name)) {
        return Err(Error::InvalidArgument(format!(
            "the delta removes tensor {name:?}, which cannot be done in place"
        )));
    }
    let (mut todo, mut prints, mut kept) = (Tasks::new(), Prints::new(), 0);
    for change in delta.changes().iter().filter(|change| taken(&change.name)) {
        let tensor = by_name.get(&change.name).map(|&i| (i, &tensors[i]));
        let Some((i, tensor)) =
            tensor.filter(|_| change.from.as_ref().is_none_or(|from| *from == change.name))
        else {
            return Err(match change.how {
                How::Stored | How::Copy => Error::InvalidArgument(format!(
                    "the delta adds or renames tensor {:?}, which cannot be done in place",
                    change.name
                )),
                _ => delta.wrong_base(format!("this one has no tensor {:?}", change.name)),
            });
        };
        options.stop.check().map_err(Error::codec(tensor.name))?;
        check_kind(tensor, change, delta)?;
        progress.message(tensor.name);
        let task = match change.how {
            How::Delta => {
                let pending = pend(tensor, change, delta, options, options.verify)?;
                let changes = change.changed.unwrap_or(0);
                kept += changes;
                Todo::Delta((kept <= KEPT).then_some(pending))
            }
            _ => {
                replacement(tensor, change, delta, options)?;
                Todo::Replace
            }
        };
        todo.push((i, change, task));
        prints.insert(change.name.clone(), change.result);
        progress.advance(tensor.data.len() as u64);
    }
    if options.is_whole() {
        for tensor in tensors {
            if !prints.contains_key(tensor.name) {
                options.stop.check().map_err(Error::codec(tensor.name))?;
                prints.insert(tensor.name.to_owned(), print(tensor, tensor.data)?);
                progress.advance(tensor.data.len() as u64);
            }
        }
        let found = of_model(&prints);
        if found != delta.result() {
            return Err(delta.wrong_base(format!(
                "what becomes of this one has the fingerprint {found} instead of {}: tensors differ that the delta does not change",
                delta.result()
            )));
        }
    }
    Ok((todo, Applied::default()))
}

fn print(tensor: &TensorMut<'_>, data: &[u8]) -> Result<tenfold::delta::Fingerprint> {
    of_parts(stored_dtype(tensor.dtype)?, tensor.shape, data).map_err(Error::codec(tensor.name))
}

/// Refuses another dtype or shape.
fn check_kind(tensor: &TensorMut<'_>, change: &Change, delta: &DeltaFile) -> Result<()> {
    let Some(meta) = &change.meta else { return Err(delta.malformed(&change.name, "is not in the file")) };
    let dtype = match change.how {
        How::Difference if difference::takes(tensor.dtype) => Some(difference::dtype_of(tensor.dtype)),
        How::Difference => None,
        _ => Some(tensor.dtype),
    };
    if dtype.is_some() && meta.dtype() == dtype && meta.shape == tensor.shape {
        return Ok(());
    }
    Err(delta.wrong_base(format!(
        "tensor {:?} is {} there and {} {:?} here",
        change.name,
        meta.kind(),
        tensor.dtype,
        tensor.shape
    )))
}

fn pend(
    tensor: &TensorMut<'_>,
    change: &Change,
    delta: &DeltaFile,
    options: &ApplyOptions,
    verify: Verify,
) -> Result<Pending> {
    let blob = delta.read_raw(change)?;
    tenfold::delta::prepare(
        &blob,
        tensor.dtype,
        tensor.shape,
        tensor.data,
        &options.inner().with_verify(verify),
    )
    .map_err(Error::codec(tensor.name))
}

/// All bytes of a tensor that is not changed by a blob of changes; `None` if it has them already.
fn replacement(
    tensor: &TensorMut<'_>,
    change: &Change,
    delta: &DeltaFile,
    options: &ApplyOptions,
) -> Result<Option<Vec<u8>>> {
    let found = print(tensor, tensor.data)?;
    if found == change.result {
        return Ok(None);
    }
    let new = match change.how {
        How::Difference if Some(found) != change.base => {
            let expected = change.base.map(|print| print.to_string()).unwrap_or_default();
            let source = tenfold::Error::WrongBase { expected, found: found.to_string() };
            return Err(Error::codec(tensor.name)(source));
        }
        How::Difference => {
            let by = delta.read_tensor(change, &options.decode())?;
            difference::add(tensor.dtype, tensor.data, &by).unwrap_or_default()
        }
        _ => delta.read_whole(change, &options.decode())?,
    };
    if new.len() != tensor.data.len() || print(tensor, &new)? != change.result {
        return Err(delta.malformed(&change.name, "does not become what the delta says"));
    }
    Ok(Some(new))
}

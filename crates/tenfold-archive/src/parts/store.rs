//! Part files, read and checked against the model and the options that they should be of.

use std::collections::HashMap;
use std::path::Path;

use super::record::{self, Record};
use super::{Part, source_sum, split};
use crate::error::{Error, Result};
use crate::model::Model;
use crate::plan::{Action, CompressOptions};
use crate::safetensors::SafetensorsFile;

/// The blobs of all parts.
#[derive(Debug)]
pub(crate) struct PartStore {
    files: Vec<SafetensorsFile>,
    places: HashMap<String, Place>,
}

/// Where a blob is, its checksum, and what it is predicted to cost the model.
#[derive(Debug)]
struct Place {
    file: usize,
    at: usize,
    sum: u32,
    loss: Option<f64>,
}

impl PartStore {
    /// Opens all parts in a folder. A part that is missing, or does not belong, is an error that names it.
    pub fn open(
        folder: &Path,
        model: &Model,
        actions: &[Action],
        options: &CompressOptions,
    ) -> Result<PartStore> {
        let of = count(folder)?;
        let mut store = PartStore { files: Vec::new(), places: HashMap::new() };
        for number in 1..=of {
            let part = Part::new(number, of)?;
            let path = folder.join(part.file_name());
            if !path.exists() {
                return Err(Error::MissingPart { part: part.to_string(), folder: folder.to_owned() });
            }
            let (file, record) = read(&path, part)?;
            for index in split::tensors_of(part, model, actions) {
                let name = &model.items[index].name;
                let at = file.header.entries.iter().position(|entry| entry.name == *name);
                let found = record.get(name).zip(at);
                let other =
                    |reason: String| Error::OtherPart { part: part.to_string(), path: path.clone(), reason };
                let (entry, at) = found.ok_or_else(|| other(format!("it lacks tensor {name:?}")))?;
                if entry.how != record::how(name, actions[index], options)? {
                    return Err(other(format!(
                        "tensor {name:?} was made with other options or another version"
                    )));
                }
                if entry.source != source_sum(model, index)? {
                    return Err(other(format!("tensor {name:?} was made of other values")));
                }
                let place = Place { file: store.files.len(), at, sum: entry.blob, loss: entry.loss };
                store.places.insert(name.clone(), place);
            }
            store.files.push(file);
        }
        Ok(store)
    }

    /// The blob of a tensor, checked, and what it is predicted to cost the model if that is known.
    pub fn read(&self, name: &str) -> Result<(Vec<u8>, Option<f64>)> {
        let Some(&Place { file, at, sum, loss }) = self.places.get(name) else {
            return Err(Error::InvalidArgument(format!("no part has tensor {name:?}")));
        };
        let file = &self.files[file];
        let blob = file.read(at)?;
        if record::blob_sum(&blob) != sum {
            return Err(Error::malformed(
                &file.path,
                format!("the blob of tensor {name:?} is damaged; delete this part and make it again"),
            ));
        }
        Ok((blob, loss))
    }
}

/// Bytes of the blobs of a part that is there already, of these tensors and made with these options. A file that is damaged
/// is as good as none; one of other options or another input is an error.
pub(super) fn done(
    path: &Path,
    part: Part,
    model: &Model,
    mine: &[usize],
    actions: &[Action],
    options: &CompressOptions,
) -> Result<Option<u64>> {
    if !path.exists() {
        return Ok(None);
    }
    let Ok((file, record)) = read(path, part) else { return Ok(None) };
    for &index in mine {
        let name = &model.items[index].name;
        let at = file.header.entries.iter().position(|entry| entry.name == *name);
        let same = match record.get(name).zip(at) {
            None => false,
            Some((entry, at)) => {
                if record::blob_sum(&file.read(at)?) != entry.blob {
                    return Ok(None);
                }
                entry.how == record::how(name, actions[index], options)?
                    && entry.source == source_sum(model, index)?
            }
        };
        if !same {
            let reason =
                "it is of another input, or was made with other options; delete it, or name another output"
                    .into();
            return Err(Error::OtherPart { part: part.to_string(), path: path.to_owned(), reason });
        }
    }
    Ok(Some(file.header.entries.iter().map(|entry| entry.bytes()).sum()))
}

fn read(path: &Path, part: Part) -> Result<(SafetensorsFile, Record)> {
    let file = SafetensorsFile::open(path)?;
    let record = Record::from_metadata(&file.header.metadata, path)?;
    if (record.number, record.of) != (part.number, part.of) {
        let reason = format!("it is part {}/{}; its name says otherwise", record.number, record.of);
        return Err(Error::OtherPart { part: part.to_string(), path: path.to_owned(), reason });
    }
    Ok((file, record))
}

/// How many parts there are to be, as the names of those that are there say.
fn count(folder: &Path) -> Result<usize> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(Error::io(folder))? {
        let name = entry.map_err(Error::io(folder))?.file_name().to_string_lossy().into_owned();
        let numbers = name.strip_prefix("part-").and_then(|n| n.strip_suffix(".safetensors"));
        if let Some((_, of)) = numbers.and_then(|n| n.split_once("-of-"))
            && let Ok(of) = of.parse::<usize>()
        {
            found.push(of);
        }
    }
    found.sort_unstable();
    found.dedup();
    match found.as_slice() {
        [of] => Ok(*of),
        [] => Err(Error::MissingPart { part: "1/N".into(), folder: folder.to_owned() }),
        several => Err(Error::InvalidArgument(format!(
            "{} holds parts of {} splits, of {several:?} parts: delete those of all but one",
            folder.display(),
            several.len()
        ))),
    }
}

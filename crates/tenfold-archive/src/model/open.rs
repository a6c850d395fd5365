//! Telling formats apart, and what makes a set of shards one model.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::{Backing, Item, Layout, Model, Shard};
use crate::error::{Error, Result};
use crate::gguf::GgufSource;
use crate::npy::NpySource;
use crate::safetensors::{SafetensorsFile, ShardIndex, stored_dtype};
use crate::source::Source;

/// Opens a model of any format.
pub(super) fn open(path: &Path) -> Result<Model> {
    let meta = std::fs::metadata(path).map_err(Error::io(path))?;
    if meta.is_dir() {
        return open_folder(path);
    }
    let mut start = Vec::new();
    File::open(path).and_then(|f| f.take(6).read_to_end(&mut start)).map_err(Error::io(path))?;
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_lowercase();
    if start.starts_with(b"GGUF") || extension == "gguf" {
        from_source(path, Box::new(GgufSource::open(path)?))
    } else if start == b"\x93NUMPY" || extension == "npy" {
        from_source(path, Box::new(NpySource::open(path)?))
    } else if extension == "json" {
        open_index(path, path, false)
    } else {
        let file = SafetensorsFile::open(path)?;
        Ok(from_files(path, vec![file], Layout::File))
    }
}

fn open_folder(folder: &Path) -> Result<Model> {
    let mut indices = Vec::new();
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(Error::io(folder))? {
        let entry = entry.map_err(Error::io(folder))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') {
            continue;
        } else if name.ends_with(".safetensors.index.json") {
            indices.push(entry.path());
        } else if name.ends_with(".safetensors") {
            files.push(entry.path());
        }
    }
    let usual = folder.join("model.safetensors.index.json");
    if indices.contains(&usual) {
        return open_index(folder, &usual, true);
    }
    match (indices.as_slice(), files.as_slice()) {
        ([index], _) => open_index(folder, index, true),
        ([], [file]) => {
            let file = SafetensorsFile::open(file)?;
            let layout = Layout::Folder { folder: folder.to_owned(), index: None, whole: true };
            Ok(from_files(folder, vec![file], layout))
        }
        ([], []) => Err(Error::malformed(folder, "the folder holds no safetensors file")),
        ([], _) => Err(Error::malformed(
            folder,
            format!("the folder holds {} safetensors files and no index; name one of them", files.len()),
        )),
        _ => Err(Error::malformed(folder, "the folder holds several indices; name one of them")),
    }
}

fn open_index(path: &Path, index_path: &Path, whole: bool) -> Result<Model> {
    let mut index = ShardIndex::read(index_path)?;
    // The parent of a bare file name is the empty path, which `join` treats as the current folder.
    let folder = index_path.parent().unwrap_or(Path::new("")).to_owned();
    let files = index
        .shard_names()
        .iter()
        .map(|name| SafetensorsFile::open(&folder.join(name)))
        .collect::<Result<Vec<_>>>()?;
    let mut shard_of = HashMap::new();
    for (name, file) in index.shard_names().iter().zip(&files) {
        for entry in &file.header.entries {
            if let Some(other) = shard_of.insert(entry.name.clone(), name.clone()) {
                let reason = format!("tensor {:?} lies in both {other} and {name}", entry.name);
                return Err(Error::malformed(index_path, reason));
            }
        }
    }
    for (tensor, shard) in &index.weight_map {
        if shard_of.get(tensor) != Some(shard) {
            return Err(Error::malformed(
                index_path,
                format!("the index places tensor {tensor:?} in {shard}, which does not hold it"),
            ));
        }
    }
    let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
    // Shards may hold tensors that the index forgot; the output's index has them.
    let known: HashSet<String> = index.weight_map.iter().map(|(name, _)| name.clone()).collect();
    for (name, file) in index.shard_names().into_iter().zip(&files) {
        let missing = file.header.entries.iter().filter(|entry| !known.contains(&entry.name));
        index.weight_map.extend(missing.map(|entry| (entry.name.clone(), name.clone())));
    }
    Ok(from_files(path, files, Layout::Folder { folder, index: Some(index), whole }))
}

fn from_files(path: &Path, files: Vec<SafetensorsFile>, layout: Layout) -> Model {
    let mut items = Vec::new();
    let mut shards = Vec::new();
    for (shard, file) in files.iter().enumerate() {
        let first = items.len();
        items.extend(file.header.entries.iter().map(|entry| Item {
            name: entry.name.clone(),
            dtype: entry.dtype,
            shape: entry.shape.clone(),
            bytes: entry.bytes(),
            shard,
        }));
        shards.push(Shard {
            path: file.path.clone(),
            file_name: file.path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            metadata: file.header.metadata.clone(),
            items: first..items.len(),
            data_order: file.header.data_order(),
        });
    }
    Model { path: path.to_owned(), items, shards, layout, backing: Backing::Safetensors(files) }
}

pub(super) fn from_source(path: &Path, source: Box<dyn Source>) -> Result<Model> {
    let mut items = Vec::with_capacity(source.tensors().len());
    for info in source.tensors() {
        let dtype = stored_dtype(info.dtype)?;
        let item =
            Item { name: info.name.clone(), dtype, shape: info.shape.clone(), bytes: info.bytes, shard: 0 };
        items.push(item);
    }
    let shard = Shard {
        path: path.to_owned(),
        file_name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        metadata: source.metadata().iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
        items: 0..items.len(),
        data_order: (0..items.len()).collect(),
    };
    Ok(Model {
        path: path.to_owned(),
        items,
        shards: vec![shard],
        layout: Layout::File,
        backing: Backing::Other(source),
    })
}

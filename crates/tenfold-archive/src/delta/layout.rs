//! Which file of the output holds which tensor: as in the base. What is new goes to the end of the last file.

use super::patch::Patched;
use crate::archive::Archive;
use crate::error::{Error, Result};
use crate::model::Layout;
use crate::safetensors::{ShardIndex, Slot};

/// A file of the output.
pub(super) struct File {
    pub name: String,
    pub metadata: Vec<(String, String)>,
    /// Its tensors in the order of the header: numbers in the result.
    pub tensors: Vec<usize>,
    /// Positions in `tensors`, in the order of their bytes.
    pub order: Vec<usize>,
}

/// The files of the output. One that holds nothing any more is left out if others remain.
pub(super) fn files(base: &Archive, patched: &Patched<'_, '_>) -> Vec<File> {
    let model = base.model();
    let mut at = vec![None; model.items.len()];
    let mut added = Vec::new();
    for (i, tensor) in patched.tensors().iter().enumerate() {
        match tensor.place {
            Some(place) => at[place] = Some(i),
            None => added.push(i),
        }
    }
    let mut files = Vec::with_capacity(model.shards.len());
    for (number, shard) in model.shards.iter().enumerate() {
        let (metadata, data_order) = match &base.tags()[number] {
            Some(tags) => (&tags.metadata, &tags.data_order),
            None => (&shard.metadata, &shard.data_order),
        };
        let mut position = vec![None; shard.items.len()];
        let mut tensors = Vec::with_capacity(shard.items.len());
        for (i, index) in shard.items.clone().enumerate() {
            if let Some(tensor) = at[index] {
                position[i] = Some(tensors.len());
                tensors.push(tensor);
            }
        }
        let order = data_order.iter().filter_map(|&i| position[i]).collect();
        let metadata = match patched.new_metadata() {
            Some(new) => new.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
            None => metadata.clone(),
        };
        files.push(File { name: shard.file_name.clone(), metadata, tensors, order });
    }
    if let Some(last) = files.last_mut() {
        for i in added {
            last.order.push(last.tensors.len());
            last.tensors.push(i);
        }
    }
    if files.iter().any(|file| !file.tensors.is_empty()) {
        files.retain(|file| !file.tensors.is_empty() || model.shards.len() == 1);
    } else {
        files.truncate(1);
    }
    files
}

/// The index of the output, if the base has one: its order of names, new ones at the end.
pub(super) fn index(base: &Archive, patched: &Patched<'_, '_>, files: &[File]) -> Option<ShardIndex> {
    let Layout::Folder { index: Some(index), .. } = &base.model().layout else { return None };
    let mut file_of = vec![None; patched.tensors().len()];
    for file in files {
        file.tensors.iter().for_each(|&i| file_of[i] = Some(file.name.clone()));
    }
    let mut at = vec![None; base.tensors().len()];
    for (i, tensor) in patched.tensors().iter().enumerate() {
        if let Some(place) = tensor.place {
            at[place] = Some(i);
        }
    }
    let kept = index.weight_map.iter().filter_map(|(name, _)| at[base.find(name)?]);
    let added = (0..file_of.len()).filter(|&i| patched.tensors()[i].place.is_none());
    let entry = |i: usize| Some((patched.tensors()[i].meta.name.clone(), file_of[i].clone()?));
    let mut new = index.clone();
    new.weight_map = kept.chain(added).filter_map(entry).collect();
    Some(new)
}

/// Room for the tensors of a file.
pub(super) fn slots(patched: &Patched<'_, '_>, file: &File) -> Result<Vec<Slot>> {
    let slot = |&i: &usize| {
        let meta = &patched.tensors()[i].meta;
        let max_bytes = usize::try_from(meta.bytes)
            .map_err(|_| Error::InvalidArgument(format!("tensor {:?} is too large", meta.name)))?;
        let (name, shape) = (meta.name.clone(), Some(meta.shape.clone()));
        Ok(Slot { name, dtype: meta.stored, shape, max_bytes })
    };
    file.tensors.iter().map(slot).collect()
}

//! Writing our keys.

use std::path::Path;

use serde::Serialize;
use serde_json::Map;
use tenfold::Dtype;

use super::check::{Place, header_checksum, to_hex};
use super::{
    CHECK, DATA_ORDER, FORMAT, METADATA, MODEL, MODEL_FORMAT, PLAIN, SCOPE, StoredOriginal, TENSORS,
};
use crate::error::{Error, Result};
use crate::model::{Item, Shard};
use crate::safetensors::{Header, stored_dtype};

type Metadata = Vec<(String, String)>;

/// Adds our keys to a shard's metadata. `blob` says which of its tensors become blobs. Checksums are zero until [`seal`]
/// puts them in; the text is as long then.
pub(crate) fn write(shard: &Shard, items: &[Item], blob: impl Fn(usize) -> bool) -> Result<Metadata> {
    let (blobs, plain): (Vec<usize>, Vec<usize>) = shard.items.clone().partition(|&index| blob(index));
    let blobs = blobs.into_iter().map(|i| {
        let Item { name, dtype, shape, .. } = &items[i];
        (name.as_str(), StoredOriginal { dtype: dtype.to_string(), shape: shape.clone() })
    });
    let mut metadata = shard.metadata.clone();
    metadata.push((FORMAT.into(), MODEL_FORMAT.to_string()));
    metadata.push((TENSORS.into(), json_map(blobs, &shard.path)?));
    metadata
        .push((PLAIN.into(), plain_map(plain.iter().map(|&i| (items[i].name.as_str(), 0)), &shard.path)?));
    metadata.push((CHECK.into(), to_hex(0)));
    if !shard.data_order.iter().copied().eq(0..shard.data_order.len()) {
        metadata.push((DATA_ORDER.into(), json(&shard.data_order, &shard.path)?));
    }
    Ok(metadata)
}

/// Puts the checksums into a header that is otherwise done: of plain tensors, by their position in it, and its own.
pub(crate) fn seal(header: &mut Header, plain: &[Option<u32>], path: &Path) -> Result<()> {
    let sums = header.entries.iter().zip(plain);
    let plain = plain_map(sums.filter_map(|(entry, sum)| Some((entry.name.as_str(), (*sum)?))), path)?;
    set(&mut header.metadata, PLAIN, plain);
    let places = header.entries.iter().map(|entry| Place {
        name: &entry.name,
        dtype: entry.dtype,
        shape: &entry.shape,
        begin: entry.begin,
        end: entry.end,
    });
    let sum = header_checksum(&header.metadata, places);
    set(&mut header.metadata, CHECK, to_hex(sum));
    Ok(())
}

/// Metadata for writers that give every file of a model the same, before they know which tensor lies in which file.
///
/// `blobs` are the compressed tensors with what they were. `plain` are all others with their
/// [`checksum`](crate::checksum); `None` leaves checksums out. A file may hold any of these tensors and no others.
/// `metadata` is the original's, which a reader gives back whatever else the files' metadata holds.
pub fn model_tags<'a>(
    blobs: impl IntoIterator<Item = (&'a str, Dtype, &'a [usize])>,
    plain: Option<&[(String, u32)]>,
    metadata: &[(String, String)],
) -> Result<Metadata> {
    let path = Path::new("metadata");
    let blobs = blobs.into_iter().map(|(name, dtype, shape)| {
        Ok((name, StoredOriginal { dtype: stored_dtype(dtype)?.to_string(), shape: shape.to_vec() }))
    });
    let blobs = blobs.collect::<Result<Vec<_>>>()?;
    let mut tags = vec![
        (FORMAT.to_owned(), MODEL_FORMAT.to_string()),
        (SCOPE.to_owned(), MODEL.to_owned()),
        (TENSORS.to_owned(), json_map(blobs, path)?),
        (METADATA.to_owned(), json_map(metadata.iter().map(|(key, value)| (key.as_str(), value)), path)?),
    ];
    if let Some(plain) = plain {
        tags.push((
            PLAIN.to_owned(),
            plain_map(plain.iter().map(|(name, sum)| (name.as_str(), *sum)), path)?,
        ));
        let sum = header_checksum(&tags, []);
        tags.push((CHECK.to_owned(), to_hex(sum)));
    }
    Ok(tags)
}

fn set(metadata: &mut Metadata, key: &str, value: String) {
    metadata.iter_mut().filter(|(k, _)| k == key).for_each(|(_, old)| old.clone_from(&value));
}

fn plain_map<'a>(sums: impl Iterator<Item = (&'a str, u32)>, path: &Path) -> Result<String> {
    json_map(sums.map(|(name, sum)| (name, to_hex(sum))), path)
}

fn json_map<'a, V: Serialize>(pairs: impl IntoIterator<Item = (&'a str, V)>, path: &Path) -> Result<String> {
    let mut map = Map::new();
    for (key, value) in pairs {
        map.insert(key.to_owned(), serde_json::to_value(value).map_err(|e| cannot(path, &e))?);
    }
    json(&map, path)
}

fn json(value: &impl Serialize, path: &Path) -> Result<String> {
    serde_json::to_string(value).map_err(|e| cannot(path, &e))
}

fn cannot(path: &Path, error: &serde_json::Error) -> Error {
    Error::malformed(path, format!("metadata cannot be written: {error}"))
}

//! Reading our keys, and checking a file's header against them.

use std::collections::HashMap;
use std::path::Path;

use serde::de::DeserializeOwned;

use super::check::{Place, from_hex, header_checksum};
use super::{
    CHECK, DATA_ORDER, FORMAT, METADATA, MODEL, MODEL_FORMAT, Original, PLAIN, PREFIX, SCOPE, StoredOriginal,
    TENSORS, Tags, get, is_tagged,
};
use crate::error::{Error, Result};
use crate::model::{Item, Shard};
use crate::safetensors::{StoredDtype, UniqueMap, parse_dtype, tensor_bytes};

/// Reads our keys; `None` if the shard has none.
pub(crate) fn read(shard: &Shard, items: &[Item]) -> Result<Option<Tags>> {
    let (path, metadata) = (shard.path.as_path(), shard.metadata.as_slice());
    let items = &items[shard.items.clone()];
    if !is_tagged(metadata) {
        return Ok(None);
    }
    check_keys(path, metadata)?;
    let checked = check_header(shard, items)?;

    // Writers that give every shard the same metadata name tensors that lie in other files.
    let whole_model = get(metadata, SCOPE) == Some(MODEL);
    let here: HashMap<&str, &Item> = items.iter().map(|item| (item.name.as_str(), item)).collect();
    let elsewhere = |name: &String| whole_model && !here.contains_key(name.as_str());
    let mut blobs = HashMap::new();
    for (name, original) in map::<StoredOriginal>(path, metadata, TENSORS)?.0 {
        if !elsewhere(&name) {
            let original = check_blob(path, &name, here.get(name.as_str()).copied(), original)?;
            blobs.insert(name, original);
        }
    }
    let mut plain = HashMap::new();
    for (name, sum) in if checked { map::<String>(path, metadata, PLAIN)?.0 } else { Vec::new() } {
        let bad =
            |what: &str| Error::malformed(path, format!("tensor {name:?} is listed in {PLAIN}, but {what}"));
        let sum = from_hex(&sum).ok_or_else(|| bad("its checksum is not eight hexadecimal digits"))?;
        if blobs.contains_key(&name) {
            return Err(bad("it is compressed"));
        } else if here.contains_key(name.as_str()) {
            plain.insert(name, sum);
        } else if !whole_model {
            return Err(bad("it is not there"));
        }
    }
    let unlisted = |item: &&Item| !blobs.contains_key(&item.name) && !plain.contains_key(&item.name);
    if let Some(item) = items.iter().find(unlisted).filter(|_| checked) {
        let reason = format!("tensor {:?} is listed neither in {TENSORS} nor in {PLAIN}", item.name);
        return Err(Error::malformed(path, reason));
    }

    let data_order: Vec<usize> = match get(metadata, DATA_ORDER) {
        Some(text) => json(path, DATA_ORDER, text)?,
        None => (0..items.len()).collect(),
    };
    if !is_permutation(&data_order, items.len()) {
        return Err(Error::malformed(path, format!("{DATA_ORDER} does not list every tensor once")));
    }
    let mut metadata = match get(metadata, METADATA) {
        Some(_) => map::<String>(path, metadata, METADATA)?.0,
        None => metadata.to_vec(),
    };
    metadata.retain(|(key, _)| !key.starts_with(PREFIX));
    Ok(Some(Tags { blobs, plain: checked.then_some(plain), data_order, metadata }))
}

/// Refuses other formats, and keys without those that belong with them.
fn check_keys(path: &Path, metadata: &[(String, String)]) -> Result<()> {
    let has = |key: &str| get(metadata, key).is_some();
    if let Some(version) = get(metadata, FORMAT)
        && version != MODEL_FORMAT.to_string()
    {
        let what =
            format!("file format {version:?} (this build reads \"{MODEL_FORMAT}\"); use a newer tenfold");
        return Err(Error::Unsupported { path: path.to_owned(), what });
    }
    for (key, other) in [(FORMAT, TENSORS), (PLAIN, CHECK)] {
        if has(key) != has(other) {
            let (there, missing) = if has(key) { (key, other) } else { (other, key) };
            return Err(damaged(path, &format!("its metadata has {there} but not {missing}")));
        }
    }
    if !has(FORMAT) {
        return Err(damaged(path, &format!("its metadata has keys of tenfold but not {FORMAT}")));
    }
    Ok(())
}

/// Checks the header against its checksum. Returns whether it has one.
fn check_header(shard: &Shard, items: &[Item]) -> Result<bool> {
    let Some(check) = get(&shard.metadata, CHECK) else {
        return Ok(false);
    };
    let mut places = vec![(0, 0); items.len()];
    let mut at = 0u64;
    for &index in &shard.data_order {
        let end = items[index].bytes.saturating_add(at);
        places[index] = (at, end);
        at = end;
    }
    let tensors = items.iter().zip(places).map(|(item, (begin, end))| Place {
        name: &item.name,
        dtype: item.dtype,
        shape: &item.shape,
        begin,
        end,
    });
    if !cfg!(fuzzing) && from_hex(check) != Some(header_checksum(&shard.metadata, tensors)) {
        return Err(damaged(&shard.path, "the checksum of its header does not match"));
    }
    Ok(true)
}

fn damaged(path: &Path, what: &str) -> Error {
    let reason =
        format!("{what}: the file is damaged, or another program changed it; copy or download it again");
    Error::malformed(path, reason)
}

fn check_blob(path: &Path, name: &str, item: Option<&Item>, original: StoredOriginal) -> Result<Original> {
    let bad = |reason: String| Error::malformed(path, format!("tensor {name:?} {reason}"));
    let item = item.ok_or_else(|| bad("is listed as compressed but missing".into()))?;
    if item.dtype != StoredDtype::U8 || item.shape.len() != 1 {
        return Err(bad("is listed as compressed but does not hold plain bytes".into()));
    }
    let StoredOriginal { dtype, shape } = original;
    let dtype =
        parse_dtype(&dtype).ok_or_else(|| bad(format!("was of dtype {dtype:?}, which is unknown")))?;
    let bytes =
        tensor_bytes(dtype, &shape).ok_or_else(|| bad(format!("was of shape {shape:?}: too large")))?;
    Ok(Original { dtype, shape, bytes })
}

fn map<V: DeserializeOwned>(path: &Path, metadata: &[(String, String)], key: &str) -> Result<UniqueMap<V>> {
    json(path, key, get(metadata, key).unwrap_or("{}"))
}

fn json<T: DeserializeOwned>(path: &Path, key: &str, text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|e| Error::malformed(path, format!("{key} in the metadata: {e}")))
}

fn is_permutation(order: &[usize], count: usize) -> bool {
    let mut seen = vec![false; count];
    let once = order.iter().all(|&i| match seen.get_mut(i) {
        Some(seen) => !std::mem::replace(seen, true),
        None => false,
    });
    once && order.len() == count
}

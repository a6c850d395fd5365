//! Telling models apart, and how large they are.

use std::path::Path;

use tenfold_archive::Archive;

use crate::error::Result;

/// A model's fingerprint: the first 32 hexadecimal digits of BLAKE3 over names, types, shapes and bytes of its tensors in the
/// order of their names. It does not depend on how tensors are shared out among files.
pub fn fingerprint_model(path: &Path) -> Result<String> {
    let archive = Archive::open(path)?;
    let mut order: Vec<usize> = (0..archive.tensors().len()).collect();
    order.sort_by_key(|&i| &archive.tensors()[i].name);
    let mut hasher = blake3::Hasher::new();
    for i in order {
        let tensor = &archive.tensors()[i];
        for text in [&tensor.name, &tensor.dtype_name] {
            hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
        }
        hasher.update(&(tensor.shape.len() as u64).to_le_bytes());
        for &side in &tensor.shape {
            hasher.update(&(side as u64).to_le_bytes());
        }
        hasher.update(&archive.read_stored(i)?);
    }
    Ok(hasher.finalize().to_hex()[..32].to_owned())
}

/// Bytes of a model's files.
pub fn model_bytes(path: &Path) -> Result<u64> {
    let archive = Archive::open(path)?;
    let length = |path: &Path| {
        let io = |source| tenfold_archive::Error::Io { path: path.to_owned(), source };
        std::fs::metadata(path).map(|m| m.len()).map_err(io)
    };
    let folder = if path.is_dir() { Some(path) } else { path.parent() };
    let mut files: Vec<&str> = archive.tensors().iter().map(|t| t.file.as_str()).collect();
    files.sort_unstable();
    files.dedup();
    let mut bytes = 0;
    for file in files {
        bytes += length(&folder.unwrap_or(Path::new("")).join(file))?;
    }
    Ok(bytes)
}

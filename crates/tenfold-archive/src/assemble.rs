//! A file put together from tensors and blobs that a caller has made: for what goes with models and is stored as they are.

use std::path::{Path, PathBuf};

use tenfold::{Dtype, TensorView};

use crate::error::{Error, Result};
use crate::model::{Item, Shard};
use crate::output::{Staging, Target};
use crate::safetensors::{ShardWriter, Slot, StoredDtype, stored_dtype};
use crate::tags;

/// What a file holds under a name.
#[derive(Debug, Clone)]
pub enum Content {
    /// A tensor as it is: type, shape, little-endian bytes in row-major order.
    Plain(Dtype, Vec<usize>, Vec<u8>),
    /// A compressed tensor. Its blob says what it was.
    Blob(Vec<u8>),
}

/// Writes tensors and blobs to one file that reads as any compressed model does; returns its bytes. The file appears when
/// it is whole.
pub fn assemble(
    path: &Path,
    metadata: Vec<(String, String)>,
    tensors: &[(String, Content)],
    overwrite: bool,
) -> Result<u64> {
    let target = Target::file(path, overwrite)?;
    let mut items = Vec::with_capacity(tensors.len());
    for (name, content) in tensors {
        items.push(item(name, content)?);
    }
    let blob = |i: usize| matches!(tensors[i].1, Content::Blob(_));
    // As in compressed models: plain tensors first, where they are aligned.
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_by_key(|&i| blob(i));
    let name = PathBuf::from(path.file_name().unwrap_or_default());
    let shard = Shard {
        path: path.to_owned(),
        file_name: name.to_string_lossy().into_owned(),
        metadata,
        items: 0..items.len(),
        data_order: (0..items.len()).collect(),
    };
    let metadata = tags::write(&shard, &items, blob)?;
    let sum = |((_, content), item): (&(String, Content), &Item)| match content {
        Content::Plain(_, shape, bytes) => Some(tags::tensor_checksum(item.dtype, shape, bytes)),
        Content::Blob(_) => None,
    };
    let sums: Vec<Option<u32>> = tensors.iter().zip(&items).map(sum).collect();
    let slots = tensors.iter().zip(items).map(|((name, content), item)| slot(name, content, item)).collect();
    let staging = Staging::new(&target)?;
    let place = staging.path(&name);
    let mut writer = ShardWriter::create(&place, path, metadata, slots, &order)?;
    for i in order {
        let (Content::Plain(_, _, bytes) | Content::Blob(bytes)) = &tensors[i].1;
        writer.put(bytes)?;
    }
    tags::seal(writer.header_mut(), &sums, path)?;
    writer.finish()?;
    let bytes = place.metadata().map_err(Error::io(path))?.len();
    staging.commit(&[name])?;
    Ok(bytes)
}

/// The tensor as it was before it was compressed.
fn item(name: &str, content: &Content) -> Result<Item> {
    let (dtype, shape) = match content {
        Content::Plain(dtype, shape, bytes) => {
            TensorView::new(*dtype, shape, bytes).map_err(Error::codec(name))?;
            (*dtype, shape.clone())
        }
        Content::Blob(blob) => {
            let info = tenfold::inspect(blob).map_err(Error::codec(name))?;
            (info.dtype, info.shape)
        }
    };
    let (Content::Plain(_, _, bytes) | Content::Blob(bytes)) = content;
    Ok(Item {
        name: name.to_owned(),
        dtype: stored_dtype(dtype)?,
        shape,
        bytes: bytes.len() as u64,
        shard: 0,
    })
}

fn slot(name: &str, content: &Content, item: Item) -> Slot {
    match content {
        Content::Plain(_, shape, bytes) => Slot {
            name: name.to_owned(),
            dtype: item.dtype,
            shape: Some(shape.clone()),
            max_bytes: bytes.len(),
        },
        Content::Blob(blob) => {
            Slot { name: name.to_owned(), dtype: StoredDtype::U8, shape: None, max_bytes: blob.len() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Archive;
    use tenfold::{DecodeOptions, EncodeOptions, Goal};

    #[test]
    fn what_is_put_together_reads_from_a_file_and_from_memory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.safetensors");
        let values: Vec<f32> = (0..600).map(|i| (i as f32 * 0.3).sin()).collect();
        let view = TensorView::from_slice(&values, &[20, 30]).unwrap();
        let blob = tenfold::encode(&view, &EncodeOptions::new(Goal::Lossless)).unwrap();
        let tensors = [
            ("blob".to_owned(), Content::Blob(blob)),
            ("plain".to_owned(), Content::Plain(Dtype::U16, vec![2], vec![1, 0, 2, 0])),
        ];
        let metadata = vec![("key".to_owned(), "value".to_owned())];
        let bytes = assemble(&path, metadata.clone(), &tensors, false).unwrap();
        let written = std::fs::read(&path).unwrap();
        assert_eq!(bytes, written.len() as u64);
        for archive in [Archive::open(&path).unwrap(), Archive::parse(written.clone(), &path).unwrap()] {
            assert_eq!(archive.metadata().get("key").map(String::as_str), Some("value"));
            let read = archive.read(archive.find("blob").unwrap(), &DecodeOptions::default()).unwrap();
            assert_eq!(
                (read.shape.as_slice(), read.to_vec::<f32>().unwrap()),
                (&[20, 30][..], values.clone())
            );
            let read = archive.read(archive.find("plain").unwrap(), &DecodeOptions::default()).unwrap();
            assert_eq!(read.to_vec::<u16>().unwrap(), [1, 2]);
        }
        assert!(matches!(assemble(&path, metadata, &tensors, false), Err(Error::OutputExists(_))));
        for length in 0..written.len() {
            assert!(Archive::parse(written[..length].to_vec(), &path).is_err(), "{length}");
        }
        let wrong = [("x".to_owned(), Content::Plain(Dtype::U16, vec![3], vec![0; 4]))];
        assert!(assemble(&path, Vec::new(), &wrong, true).is_err());
        assert!(assemble(&path, Vec::new(), &[("x".to_owned(), Content::Blob(vec![0; 40]))], true).is_err());
    }
}
